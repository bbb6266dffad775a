import math
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown, LinkLoss
from testbed.workload import Attributes

FLOWS = 8
"""Connections, each with a flow label, so a UDP source port, of its own."""
LONGEST_S = 120.0
"""Longer than LACP needs at the slow rate."""
PORT = {"slow": "leaf:e1", "fast": "leaf:e3", "static": "leaf:e5"}
"""The switch's end of each server's eth1."""


class Settings(Parameters):
    bundle: Literal["slow", "fast", "static"] = Field(
        "slow", description="LACP with its slow rate (Linux' default), with its fast rate, or a bundle without LACP"
    )
    carrier: bool = Field(False, description="whether the server's NIC notices: the link goes down")
    timeout: int = Field(20, ge=1, le=31, description="the QPs' ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(6, ge=0, le=6, description="the QPs' retries; 7 would be infinite on soft-RoCE")
    reconnect: bool = Field(False, description="whether the job starts again two minutes later")


class LacpOneMemberDead(Scenario[Settings]):
    """One member of a bond loses all that the server sends, with its carrier up: half of the flows die.

    A dirty connector, a bad transceiver or a broken fibre of a pair, and the NIC sends into nothing. Its own receiver
    has light, so the carrier stays, and the bond goes on giving this member its share of the flows. Flows on the other
    member work: the server is reached, ping works or not (it is one flow), and a job with a few queue pairs hangs. Only
    LACP can tell. The switch misses three LACPDUs, 90 s at the slow rate and 3 s at the fast one, and takes its own end
    out, which helps the server's frames nothing. Three seconds later it no longer knows a partner and says so, by the
    direction that works, and the server takes the member out, too: some 95 s or 8 s after the begin. Queue pairs give
    up sooner: with NCCL's default, timeout 20 and 7 retries, after half a minute. A bundle without LACP (mode on) never
    notices.

    On real gear: `show etherchannel summary` and `cat /proc/net/bonding/bond0` show the member as usual until then, and
    the actor's port state "expired" or "defaulted" after it; the switch port's input counter stands still while the
    NIC's output counter grows.

    The fixes: the fast rate (`lacp rate fast`, bonding's `lacp_rate=fast`) together with a retry window of more than
    10 s (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT); link fault signalling (IEEE 802.3 clause 46), by which a NIC learns that
    its partner does not receive, and has no carrier; BFD on each member (RFC 7130).

    Times of LACP: IEEE 802.1AX, Slow_Periodic_Time and Long_Timeout_Time, Fast_Periodic_Time and Short_Timeout_Time.
    """

    tags = ("link", "host")
    variants = (
        Variant("as-is", "fault", "the slow rate: LACP needs 90 s, queue pairs give up after 30 s"),
        Variant("static", "fault", "no LACP: nobody ever notices", {"bundle": "static", "reconnect": True}),
        Variant("impatient", "fault", "the fast rate, and a retry window of 0.5 s", {"bundle": "fast", "timeout": 14}),
        Variant("fast", "healthy", "the fast rate: the flows move within seconds", {"bundle": "fast"}),
        Variant("restarted", "healthy", "the slow rate, and the job starts again 2 minutes later", {"reconnect": True}),
        Variant(
            "carrier-lost",
            "healthy",
            "the NIC loses its carrier: the member is out at once",
            {"carrier": True, "timeout": 14},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        host, (peer,) = run.lab.host(p.bundle), run.nics("peer")
        server, eth1 = host["bond0"], host["eth1"]
        labels = [Attributes(p.timeout, p.retry_cnt, flow_label=number) for number in range(1, FLOWS + 1)]
        flows, by_eth1 = [], set()
        for number, label in enumerate(labels):
            before = eth1.counters()["tx_packets"]
            flows.append(run.connect(f"connection {number}", server, peer, label))
            if eth1.counters()["tx_packets"] - before >= 4:  # a WRITE of 4096 bytes
                by_eth1.add(number)
        run.expect("both members have flows", len(by_eth1), lambda count: 0 < count < FLOWS)

        with run.step("eth1 loses what the server sends, and the job goes on"):
            began = run.now
            fault = LinkDown(end=PORT[p.bundle]) if p.carrier else LinkLoss(end=f"{p.bundle}:eth1", loss=100)
            run.inject(fault, may_outlast_run=True)
            posted = [flow.near.post_write(4096) for flow in flows]
            ends = [flow.near.wait(request, within=600) for flow, request in zip(flows, posted, strict=True)]
            for end in ends:
                run.completed(server, end)
        dead = {number for number, end in enumerate(ends) if not end.ok}
        longest = max(end.elapsed_s for end in ends)

        run.lab.scheduler.wait(lambda: out_at(run, p.bundle) is not None, LONGEST_S - (run.now - began))
        out = out_at(run, p.bundle)
        after_s = math.inf if out is None else out - began
        run.note(died=f"{len(dead)} of {FLOWS}", longest_s=round(longest, 2))
        run.note(member_out="never" if out is None else f"after {after_s:.1f} s")
        run.expect("the flows that die are those of eth1", dead in (set(), by_eth1), True)
        carrier = {link.name: link.carrier for link in host.now().links.values()}
        run.expect("the carrier of eth1", carrier["eth1"], p.carrier is False)
        if p.reconnect:
            with run.step("the job starts again"):
                again = [run.write(server, peer, label) for label in labels]
            dead = {number for number, status in enumerate(again) if status != "SUCCESS"}
            run.note(died_again=f"{len(dead)} of {FLOWS}")
        if dead:
            run.observe("fault", f"{len(dead)} of {FLOWS} flows die")
            run.expect("the member left the bond too late, or never", after_s, lambda seconds: seconds > longest)
            return
        run.observe("healthy", "all flows take the other member")
        run.expect("the member left the bond", after_s, math.isfinite)


def out_at(run: Run, host: str) -> float | None:
    """When the server has taken a member out of its bond; None if it has not."""
    found = [event["t"] / 1e9 for event in run.events("link", active=False) if event["node"] == host]
    return found[0] if found else None
