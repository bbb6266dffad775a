from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Endpoint, connect_pair, link_bytes, open_endpoint

LOSSLESS, DSCP = 3, 26
HOSTS = 8
"""Of each leaf; as many as uplinks."""
SHIFTS = {"elephants": (0,), "alltoall": range(HOSTS)}
ROUNDS = {"elephants": 3, "alltoall": 1}
"""Flowlets draw lots, and one draw may be lucky."""
SIZE = {"elephants": 150_000, "alltoall": 150_000}
COMPUTES_S = 0.2
"""Between two rounds: longer than the gap of flowlets."""


class Settings(Parameters):
    traffic: Literal["elephants", "alltoall"] = Field(
        "elephants", description="one flow of each host, or an all-to-all in steps: each host to another one in each"
    )
    balancing: Literal["ecmp", "spray", "random", "adaptive", "flowlet"] = Field(
        "ecmp", description="how the switches share paths of equal cost"
    )


class EcmpVsSpray(Scenario[Settings]):
    """ECMP leaves more than half of a fabric's bandwidth unused, because flows are few and large.

    Training has one flow for each host at a time, or an all-to-all in which each host writes to one other in each step.
    ECMP gives a flow one path. Eight flows over eight uplinks have a path of their own once in 416 draws; on average
    the fullest uplink has more than two (balls in bins), and a step is as long as its slowest flow takes. No port
    reports an error, other uplinks are idle.

    On real gear: `show interface counters rate` of the leaves' uplinks, some full and some idle; pause frames of the
    class to hosts whose uplink is shared. Rates are scaled: 5 Mbit/s stand for 400 Gbit/s.

    The fixes: packets instead of flows. A switch sends each packet by the next path (packet spraying), or by that with
    the shortest queue (adaptive routing: NVIDIA Spectrum-X, Broadcom's dynamic load balancing per packet), and NICs put
    them in order or place them as they come (spray-without-reordering has NICs that do not). Flowlets are no fix:
    an RDMA flow has no gaps. "Datacenter Ethernet and RDMA: Issues at Hyperscale" (Computer, July 2023) compares them.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "a flow of each host, over the path of its hash"),
        Variant("alltoall", "fault", "an all-to-all in steps", {"traffic": "alltoall"}),
        Variant("flowlet", "fault", "flowlets: the flows have no gaps", {"balancing": "flowlet"}),
        Variant("spray", "healthy", "packets take the paths in turn", {"balancing": "spray"}),
        Variant("adaptive", "healthy", "packets take the path with the shortest queue", {"balancing": "adaptive"}),
        Variant(
            "alltoall-spray", "healthy", "an all-to-all, packets in turn", {"traffic": "alltoall", "balancing": "spray"}
        ),
        Variant(
            "alltoall-adaptive",
            "healthy",
            "an all-to-all, by the shortest queue",
            {"traffic": "alltoall", "balancing": "adaptive"},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        near = run.nics(*(f"host{number}" for number in range(1, HOSTS + 1)))
        far = run.nics(*(f"host{number}" for number in range(HOSTS + 1, 2 * HOSTS + 1)))
        for leaf in "leaf1", "leaf2":
            run.lab.switch(leaf).change_profile(load_balancing=p.balancing)
        uplinks = [run.lab.interface(f"leaf1:up{number}").lossless for number in range(1, HOSTS + 1)]
        with run.step("flows are connected, and their next hops resolved"):
            steps = [
                [connected(near[one], far[(one + shift) % HOSTS]) for one in range(HOSTS)]
                for shift in SHIFTS[p.traffic]
            ]
            for flows in steps:
                write(run, flows, 20_000)

        size, seconds, shares = SIZE[p.traffic], 0.0, []
        for number in range(1, ROUNDS[p.traffic] + 1):
            run.sleep(COMPUTES_S, "the ranks compute")
            before = [port.queue(LOSSLESS).sent_bytes for port in uplinks]
            with run.step(f"{p.traffic}, {p.balancing}, round {number}"):
                seconds += sum(write(run, flows, size) for flows in steps)
            sent = [port.queue(LOSSLESS).sent_bytes - then for port, then in zip(uplinks, before, strict=True)]
            shares.append([part * HOSTS / sum(sent) for part in sent])

        alone = len(shares) * len(steps) * link_bytes(size) * 8 / (near[0].sends.quality.rate or 1)
        used = alone / seconds
        receivers = [nic.rdma_counters()["out_of_sequence"] for nic in far]
        dropped = sum(port.queue(LOSSLESS).dropped_packets for port in uplinks)
        run.note(used_percent=round(100 * used), seconds=round(seconds, 2), idle_uplinks=shares[-1].count(0))
        run.note(shares_percent=[round(100 * part / HOSTS) for part in shares[-1]])
        run.note(reordered=sum(nic.lossless.counters()["rx_reordered_packets"] for nic in far))
        run.expect("a fabric that drops nothing", dropped, 0)
        run.expect("receivers get all in order", sum(receivers), 0)
        text = f"the flows use {used:.0%} of the fabric"
        if used < 0.7:
            run.observe("fault", text)
            run.expect("some uplinks have twice what is theirs", max(map(max, shares)), lambda part: part > 1.4)
        else:
            run.observe("healthy", text)
            run.expect("at least 90 %", used, lambda part: part >= 0.9)
            run.expect("every uplink has its part (10 %)", shares, even)


def even(shares: list[list[float]]) -> bool:
    return all(0.9 < part < 1.1 for parts in shares for part in parts)


def connected(near: HostInterface, far: HostInterface) -> Endpoint:
    here, there = open_endpoint(near, memory=1 << 19), open_endpoint(far, memory=1 << 19)
    # Packets wait behind those of other flows for longer than the 68 ms of 14.
    connect_pair(here, there, Attributes(timeout=21, traffic_class=DSCP << 2))
    return here


def write(run: Run, flows: list[Endpoint], size: int) -> float:
    """A step: each flow writes, and all wait for the last one. Return its seconds."""
    posted = [(end, end.post_write(size)) for end in flows]
    done = [end.wait(request, within=60) for end, request in posted]
    run.expect("all WRITEs arrive", {one.status for one in done}, {"SUCCESS"})
    return (max(one.t_ns for one in done) - min(one.posted_ns for one in done)) / 1e9
