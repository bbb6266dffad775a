from collections.abc import Sequence
from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Group, LinkTraffic, wire_bytes

LEAVES, HOSTS = 2, 7
"""And hosts on a leaf."""
RANKS = LEAVES * HOSTS
UPLINKS = ("leaf1:e8", "leaf2:e8")
DOWNLINKS = ("spine1:e1", "spine1:e2")
BLOCK = 16 << 10
"""Bytes that a rank has for another one."""


class Settings(Parameters):
    ratio: float = Field(7, ge=1, le=7, description="a leaf's downlinks to its uplinks, in bits per second")
    collective: Literal["alltoall", "allreduce"] = Field("alltoall", description="allreduce is by a ring")
    ranks: Literal["in-order", "alternating"] = Field(
        "in-order", description="a leaf's hosts follow each other, or the leaves take turns"
    )


class Oversubscription(Scenario[Settings]):
    """A 7:1 fabric makes an all-to-all nearly four times as long, and a ring only if its ranks are in the wrong order.

    Seven hosts share an uplink of one NIC's rate. Of an all-to-all 7 of the 13 blocks of each rank leave the leaf: 49
    blocks pass the uplink in the time in which a NIC sends 13, so the step is 49/13 = 3.8 times as long. A ring of
    ranks in order leaves a leaf once, whatever the number of ranks, and a NIC's rate is enough. With ranks that take
    turns between leaves each of its hops leaves one: seven times as long. A step lasts as long as its fullest link,

        max(bytes of a NIC / its rate, bytes of an uplink / its rate)

    and at most as if all ranks waited for each other behind each message, because not every one is from leaf to leaf.
    This run compares with both. Measured, as times of what a NIC needs:

                              1:1    2:1    4:1    7:1
        all-to-all            1.0    1.5    2.3    3.8
        ring, in order        1.0    1.0    1.0    1.0
        ring, alternating     1.0    2.0    4.1    7.0

    `testbed matrix oversubscription-7to1 --over ratio=1,2,4,7` draws the first line, with `--variant in-order` and
    `--variant alternating` the others.

    The uplink here is one link of all uplinks' rate. Real leaves have several, and ECMP shares flows out unevenly: see
    ecmp-collision-allreduce, and `testbed topology new leaf-spine --parallel` for such a fabric.

    On real gear: the leaf's uplinks are full and marked (ECN) in each all-to-all, and far from full in between; jobs
    whose ranks the scheduler placed otherwise have another busbw on the same nodes. Rates are scaled: 5 Mbit/s stand
    for 400 Gbit/s.

    The fixes: ranks in the order of the network (the scheduler's topology plugin, NCCL's own search within what it was
    given); expert parallelism, the all-to-all, within a leaf and data parallelism across; more uplinks.
    """

    tags = ("fabric", "congestion", "training")
    variants = (
        Variant("as-is", "fault", "an all-to-all over 7:1"),
        Variant("one-to-one", "healthy", "an all-to-all over 1:1", {"ratio": 1}),
        Variant(
            "alternating",
            "fault",
            "a ring over 7:1, ranks that take turns between leaves",
            {"collective": "allreduce", "ranks": "alternating"},
        ),
        Variant("in-order", "healthy", "a ring over 7:1, ranks in order", {"collective": "allreduce"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        import numpy as np

        hosts = [f"host{number}" for number in range(1, RANKS + 1)]
        if p.ranks == "alternating":
            hosts = [host for pair in zip(hosts[:HOSTS], hosts[HOSTS:], strict=True) for host in pair]
        nics = run.nics(*hosts)
        uplinks = [run.lab.interface(name) for name in UPLINKS]
        rate = nics[0].sends.quality.rate or 1
        for link in (*uplinks, *map(run.lab.interface, DOWNLINKS)):
            link.sends.change(rate=round(rate * HOSTS / p.ratio))

        arrays = [np.full(BLOCK * RANKS, rank, np.uint8) for rank in range(RANKS)]
        with run.step(f"{p.collective} over {p.ratio:g}:1"), Group(nics, Attributes(timeout=20)) as group:
            collective = group.alltoall if p.collective == "alltoall" else group.allreduce
            collective([array[:RANKS] for array in arrays])  # a small one, for which switches ask for MACs
            traffic = LinkTraffic(uplinks)
            result = collective(arrays)
            sent = traffic.sent()
        dropped = sum(link.sends.counters()["dropped"] for link in uplinks)

        leaving, least, by_steps = formula(p, nics)
        times = result.elapsed_s * rate / 8 / wire_bytes(max(result.sent))
        run.note(times=round(times, 2), fullest_link=round(least, 2), by_steps=round(by_steps, 2))
        run.note(uplinks_kb=", ".join(f"{name} {count >> 10}" for name, count in sent.items()))
        run.note(busbw=f"{result.bus_bandwidth * 8 / 1e6:.2f} Mbit/s")
        run.expect("nothing is dropped", dropped, 0)
        carried = sent[UPLINKS[0]] / wire_bytes(leaving)
        run.expect("the uplink carries what the placement says", carried, lambda part: 1 <= part < 1.1)
        run.expect("no step is faster than its fullest link (5 %)", times / least, lambda part: part > 0.95)
        run.expect("nor slower than its messages one by one (25 %)", times / by_steps, lambda part: part < 1.25)
        text = f"the step takes {times:.1f} times as long as the NICs need"
        run.observe("fault" if times > 1.7 else "healthy", text)


def formula(p: Settings, nics: Sequence[HostInterface]) -> tuple[int, float, float]:
    """Payload that leaves leaf1, and the times of a step by what a NIC needs: that of the fullest link; and if all
    ranks waited for each other behind each message."""
    leaf = [str(nic.peer.node) for nic in nics if nic.peer]
    distances = range(1, RANKS) if p.collective == "alltoall" else [1] * 2 * (RANKS - 1)
    leaving = [
        sum(here == "leaf1" != leaf[(rank + distance) % RANKS] for rank, here in enumerate(leaf))
        for distance in distances
    ]
    uplink = [count * p.ratio / HOSTS for count in leaving]
    messages = len(distances)
    return sum(leaving) * BLOCK, max(messages, sum(uplink)) / messages, sum(max(1, one) for one in uplink) / messages
