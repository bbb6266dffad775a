from dataclasses import replace
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown, LinkLoss
from testbed.workload import Attributes

MESSAGE = 65536
PACKETS = MESSAGE // 1024
UPLINKS = ("e2", "e3")
FLOWS = 8
NEXT_HOPS = ["10.255.0.0", "10.255.0.2"]
"""Of the leaf, with static routes."""


class Settings(Parameters):
    routing: Literal["static", "frr"] = Field("frr", description="static routes, or BGP with BFD by FRR")
    silent: bool = Field(False, description="whether the uplink keeps its carrier and loses what the leaf sends")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class UplinkDownReroute(Scenario[Settings]):
    """A leaf loses an uplink: the fabric routes around it in time, too late, or never.

    Static routes do not follow links: the leaf's next hop is in a VLAN, the VLAN's interface stays up, and ECMP sends
    the same flows into it for ever. Flows on the other uplink work, so the fabric looks half alive.

    With BGP, a link that goes down ends its session and its routes at once. A link that only loses packets, as with one
    dead fibre, keeps its carrier. BFD detects it after 3 intervals of 300 ms; a queue pair with timeout 14 and 3
    retries gives up after 0.27 s.

    On real gear: `show ip route` still has the dead next hop; no counter of the leaf shows drops; with BGP the
    session's last reset reason is "BFD down" or "interface down"; the NIC's `local_ack_timeout_err` grows, and with
    `req_transport_retries_exceeded` the job ends.

    The fix: routing that follows links (BGP unnumbered with BFD), and a retry window longer than BFD's detection time.
    """

    tags = ("link", "routing")
    variants = (
        Variant("static", "fault", "static routes: the flow goes on into the dead uplink", {"routing": "static"}),
        Variant("frr", "healthy", "BGP takes the uplink out of the routes when it goes down"),
        Variant("silent", "fault", "the uplink is up and loses all; BFD finds it too late", {"silent": True}),
        Variant("wider-window", "healthy", "the same, the QP retries for 2.1 s", {"silent": True, "timeout": 17}),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "static.clab.yml" if parameters.routing == "static" else self.topology

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server) = run.lab.switch("leaf1"), run.nics("client", "server")
        attributes = Attributes(timeout=p.timeout, retry_cnt=p.retry_cnt)

        def sent() -> dict[str, int]:
            return {port: leaf[port].counters()["tx_packets"] for port in UPLINKS}

        before = sent()
        connection = run.connect("a connection works, over one uplink", client, server, attributes, size=MESSAGE)
        uplink, other = sorted(UPLINKS, key=lambda port: before[port] - sent()[port])
        run.expect(f"it went by {uplink}", sent()[uplink] - before[uplink], lambda count: count >= PACKETS)

        with run.step(f"the uplink {uplink} fails, and the client writes"):
            tries = client.rdma_counters()["completer_retry_err"]
            before, began = sent(), run.now
            run.inject(LinkLoss(end=f"leaf1:{uplink}", loss=100) if p.silent else LinkDown(end=f"leaf1:{uplink}"))
            done = connection.write(MESSAGE)
            moved = sent()[other] - before[other]
            retries = client.rdma_counters()["completer_retry_err"] - tries
            if p.routing == "frr":
                run.lab.routing.converged(within=5, without=[f"leaf1:{uplink}"])

        with run.step(f"{FLOWS} new connections"):
            flows = [replace(attributes, flow_label=label) for label in range(1, FLOWS + 1)]
            working = [run.write(client, server, flow) for flow in flows].count("SUCCESS")

        changes = [e["t"] / 1e9 - began for kind in ("installed", "lost") for e in run.events(f"route.{kind}")]
        after = [seconds for seconds in changes if seconds > 0]
        converged_s = round(max(after), 3) if after else None
        run.note(completion=done.status, after_s=round(done.elapsed_s, 3), window_s=round(attributes.retry_s, 2))
        run.note(converged_s=converged_s if after else "never", new_connections=f"{working} of {FLOWS} work")
        if run.observe_status(done.status, f"the WRITE arrives after {done.elapsed_s:.3f} s, by {other}"):
            run.expect(f"it went by {other}", moved, lambda count: count >= PACKETS)
            run.expect("routes were complete inside the retry window", converged_s, lambda s: s < attributes.retry_s)
        else:
            run.expect("the retries were used up", retries, p.retry_cnt)
        if p.routing == "frr":
            run.expect("all new connections work", working, FLOWS)
            if not done.ok:
                run.expect("routes were complete too late", converged_s, lambda s: s > done.elapsed_s)
        else:
            via = [word for word in leaf.run("ip", "route", "show", "default").stdout.split() if word in NEXT_HOPS]
            run.expect("the leaf still has both next hops", via, NEXT_HOPS)
            run.expect(f"the WRITE did not go by {other}", moved, lambda count: count < PACKETS)
            run.expect("some new connections work, others do not", working, lambda count: 0 < count < FLOWS)
