from contextlib import ExitStack
from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.faults import LinkRate
from testbed.workload import Attributes, Endpoint, connect_pair, link_bytes, open_endpoint

LOSSLESS, DSCP = 3, 26
PATHS = 4
"""Spines, and hosts of each leaf."""
SIZE, MESSAGES = 200_000, 3
SLOW = "leaf1:up2"


class Settings(Parameters):
    balancing: Literal["ecmp", "spray", "random", "adaptive"] = Field(
        "spray", description="how leaf1 shares its uplinks"
    )
    part: float = Field(0.5, gt=0.05, le=1, description="the part of its rate that one uplink still has")


class AdaptiveAsymmetric(Scenario[Settings]):
    """One uplink of a leaf has half its rate, and with packet spraying the whole leaf has half of its bandwidth.

    A cable or a lane fails, and a port of 800 Gbit/s negotiates 400. Spraying in turn gives that port as many packets
    as the others. Its queue fills, its pauses (or its losses) hold back all flows, because each flow has packets in it:
    four uplinks are as fast as four times the slowest one. The hosts see a fabric that is evenly slow.

    On real gear: `show interface status`, one uplink with another speed; its queue watermark, and pause frames that the
    leaf sends to its hosts; all other uplinks are half idle. Rates are scaled: 10 Mbit/s stand for 400 Gbit/s.

    The fix: adaptive routing. Packets take the shortest queue, so the slow port gets what it can send, and only the
    lost bandwidth is lost (one of eight parts here). Weighted ECMP does the same for flows, if its weights follow the
    rates. NICs must put packets in order (spray-without-reordering).
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "packets in turn, also over the slow uplink"),
        Variant("random", "fault", "packets at random", {"balancing": "random"}),
        Variant("adaptive", "healthy", "packets over the shortest queue", {"balancing": "adaptive"}),
        Variant("symmetric", "healthy", "packets in turn, and no uplink is slow", {"part": 1.0}),
    )

    def run(self, run: Run, p: Settings) -> None:
        pairs = [run.nics(f"host{number}", f"host{number + PATHS}") for number in range(1, PATHS + 1)]
        leaf = run.lab.switch("leaf1")
        leaf.change_profile(load_balancing=p.balancing)
        uplinks = [leaf[f"up{number}"] for number in range(1, PATHS + 1)]
        rate = uplinks[0].sends.quality.rate or 1
        with ExitStack() as faults:
            if p.part < 1:
                faults.enter_context(run.fault(LinkRate(end=SLOW, rate=round(rate * p.part))))
            with run.step("four flows are connected, and their next hops resolved"):
                flows = [connected(run, *pair) for pair in pairs]
            before = [port.lossless.queue(LOSSLESS).sent_bytes for port in uplinks]
            with run.step(f"each writes {SIZE} bytes {MESSAGES} times, by {p.balancing}"):
                posted = [(end, end.post_write(SIZE)) for _ in range(MESSAGES) for end in flows]
                done = [end.wait(request, within=60) for end, request in posted]
        seconds = (max(one.t_ns for one in done) - min(one.posted_ns for one in done)) / 1e9
        sent = [port.lossless.queue(LOSSLESS).sent_bytes - then for port, then in zip(uplinks, before, strict=True)]

        capacity = rate * (PATHS - 1 + p.part)
        used = len(posted) * link_bytes(SIZE) * 8 / seconds / capacity
        longest = [port.lossless.queue(LOSSLESS).most_bytes for port in uplinks]
        run.note(used_percent=round(100 * used), seconds=round(seconds, 2), longest_queues=longest)
        run.note(shares_percent=[round(100 * part / sum(sent)) for part in sent])
        run.expect("nothing is sent again", sum(near.rdma_counters()["packet_seq_err"] for near, _ in pairs), 0)
        run.expect("all WRITEs arrive", {one.status for one in done}, {"SUCCESS"})
        text = f"the hosts have {used:.0%} of the bandwidth that the leaf still has"
        if used < 0.7:
            run.observe("fault", text)
            run.expect("the slow uplink gets as much as the others", max(sent) / min(sent), lambda times: times < 1.2)
            run.expect("its queue is the long one", longest[1], max(longest))
        else:
            run.observe("healthy", text)
            run.expect("at least 90 %", used, lambda part: part >= 0.9)


def connected(run: Run, near: HostInterface, far: HostInterface) -> Endpoint:
    here, there = open_endpoint(near, memory=1 << 18), open_endpoint(far, memory=1 << 18)
    connect_pair(here, there, Attributes(timeout=20, traffic_class=DSCP << 2))
    run.expect("a first WRITE", [here.write(20_000, within=10).status for _ in range(2)], ["SUCCESS"] * 2)
    return here
