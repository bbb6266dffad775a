from collections import Counter
from collections.abc import Sequence
from typing import Literal

from testbed import Field, HostInterface, Interface, Parameters, Run, Scenario, Switch, Variant
from testbed.workload import Attributes, Group, LinkTraffic, link_bytes, paths, wire_bytes

LEAVES, HOSTS = 2, 7
"""And hosts on a leaf."""
RANKS = LEAVES * HOSTS
BLOCK = 16 << 10
"""Bytes that a rank has for another one."""
LABELS = range(1, 33)
"""Flow labels to choose from."""

Flow = tuple[int, int]
"""The rank that sends, and the one that receives."""


class Settings(Parameters):
    ratio: Literal["1:1", "3.5:1", "7:1"] = Field("7:1", description="a leaf's downlinks to its uplinks, of one rate")
    collective: Literal["alltoall", "allreduce"] = Field("alltoall", description="allreduce is by a ring")
    ranks: Literal["in-order", "alternating"] = Field(
        "in-order", description="a leaf's hosts follow each other, or the leaves take turns"
    )
    flow_labels: Literal["spread", "by-number"] = Field(
        "spread", description="of each pair of ranks: chosen to spread flows over links, or by number"
    )


class Oversubscription(Scenario[Settings]):
    """A 7:1 fabric makes an all-to-all nearly four times as long, and a ring only if its ranks are in the wrong order.

    Seven hosts of a leaf share one uplink (7:1), or have two or seven, which are parallel links to a spine (1:1). In an
    all-to-all 7 of the 13 blocks of each rank leave the leaf: 49 blocks pass an uplink while a NIC sends 13, so the
    step is 49/13 = 3.8 times as long. A ring of ranks in order leaves a leaf once, for any number of ranks, and a NIC's
    rate is enough. If the ranks alternate between leaves, each hop of the ring leaves one: seven times as long. A step
    lasts as long as its fullest link,

        max(bytes of a NIC / its rate, bytes of an uplink / its rate)

    and at most as long as in this worst case: all ranks wait for each other after each message, because not every
    message is from leaf to leaf, and then each switch on the way forwards a packet.

    Parallel links are 1:1 only if ECMP spreads flows evenly. ECMP hashes them: with flow labels by number, in a step of
    the all-to-all some of seven uplinks have two or three flows, and others none. Chosen labels (UDP source ports)
    spread the flows. The switches report the links of each flow. This run compares the bytes of each link with that,
    and the time with both formulas. Measured, as multiples of the time that a NIC needs:

                                 1:1   3.5:1    7:1
        all-to-all               1.3    2.2     3.8
        labels by number         1.7    2.4     3.8
        ring, in order           1.0    1.0     1.0
        ring, alternating        1.0    4.0     7.0

    `testbed matrix oversubscription-7to1 --over flow_labels --over ratio` draws the first two lines, with `--variant
    in-order` and `--variant alternating` the others. In its table `evenly` is the time of a step if ECMP shared evenly,
    `fullest link` the time of the fullest link, `by steps` the upper bound.

    On real gear: the leaf's uplinks are full and marked (ECN) in each all-to-all, and far from full in between; with
    another placement of ranks by the scheduler, jobs have another busbw on the same nodes. Rates are scaled: 5 Mbit/s
    stand for 400 Gbit/s.

    The fixes: ranks in the order of the network (the scheduler's topology plugin, NCCL's own search within its nodes);
    expert parallelism, the all-to-all, within a leaf and data parallelism across leaves; more uplinks, and an even use
    of them by adaptive routing, or by several queue pairs between two ranks (ecmp-collision-allreduce).
    """

    tags = ("fabric", "congestion", "training")
    variants = (
        Variant("as-is", "fault", "an all-to-all over 7:1"),
        Variant("one-to-one", "healthy", "an all-to-all over 1:1", {"ratio": "1:1"}),
        Variant(
            "one-to-one-hashed",
            "fault",
            "the same with flow labels by number, which ECMP hashes unevenly",
            {"ratio": "1:1", "flow_labels": "by-number"},
        ),
        Variant(
            "alternating",
            "fault",
            "a ring over 7:1, ranks that take turns between leaves",
            {"collective": "allreduce", "ranks": "alternating"},
        ),
        Variant("in-order", "healthy", "a ring over 7:1, ranks in order", {"collective": "allreduce"}),
    )

    def topology_for(self, parameters: Settings) -> str:
        return {"1:1": "1-to-1.clab.yml", "3.5:1": "3.5-to-1.clab.yml"}.get(parameters.ratio, self.topology)

    def run(self, run: Run, p: Settings) -> None:
        import numpy as np

        hosts = [f"host{number}" for number in range(1, RANKS + 1)]
        if p.ranks == "alternating":
            hosts = [host for pair in zip(hosts[:HOSTS], hosts[HOSTS:], strict=True) for host in pair]
        nics = run.nics(*hosts)
        links = fabric_links(run)
        rate = nics[0].sends.quality.rate or 1
        routes = route(nics, p)
        arrays = [np.full(BLOCK * RANKS, rank, np.uint8) for rank in range(RANKS)]

        def label(low: int, high: int, _: int) -> int:
            return routes[(low, high) if (low, high) in routes else (high, low)][0]

        with run.step(f"{p.collective} over {p.ratio}"), Group(nics, Attributes(timeout=20), flow_label=label) as group:
            collective = group.alltoall if p.collective == "alltoall" else group.allreduce
            collective([array[:RANKS] for array in arrays])  # a small one, for which switches ask for MACs
            traffic = LinkTraffic(links)
            result = collective(arrays)
            sent = traffic.sent()

        each = [Counter(str(link) for flow in step for link in routes[flow][1]) for step in steps(p)]
        planned = sum(each, Counter[str]())  # blocks
        least = max(planned.values()) / len(each)
        forwarding = link_bytes(1024) / link_bytes(BLOCK) * (max(len(path) for _, path in routes.values()) - 1)
        by_steps = sum(max(step.values()) for step in each) / len(each) + forwarding
        uplinks = [link for link in links if link.node.name.startswith("leaf")]
        evenly = max(1, sum(planned[str(link)] for link in uplinks) / len(uplinks) / len(each))
        times = result.elapsed_s * rate / 8 / (len(each) * link_bytes(BLOCK))
        run.note(times=round(times, 2), evenly=round(evenly, 2), fullest_link=round(least, 2))
        kilobytes = [sent[str(link)] >> 10 for link in uplinks]
        run.note(by_steps=round(by_steps, 2), emptiest_kb=min(kilobytes), fullest_kb=max(kilobytes))
        run.note(busbw_mbit_per_s=round(result.bus_bandwidth * 8 / 1e6, 2))
        run.expect("nothing is dropped", sum(link.sends.counters()["dropped"] for link in links), 0)
        carried = {name: sent[name] / wire_bytes(BLOCK) / planned[name] for name in sent if planned[name]}
        run.expect(
            "each link carries what the switches' hashes give it (10 %, with acknowledgements)",
            carried,
            lambda parts: all(1 <= part < 1.1 for part in parts.values()),
        )
        run.expect("no step is faster than its fullest link (5 %)", times / least, lambda part: part > 0.95)
        run.expect("nor slower than its messages one by one (10 %)", times / by_steps, lambda part: part < 1.1)
        text = f"the step takes {times:.1f} times as long as the NICs need"
        run.observe("fault" if times > 1.5 else "healthy", text)


def steps(p: Settings) -> list[list[Flow]]:
    """The flows of each step of the collective, all of them with one block."""
    distances = range(1, RANKS) if p.collective == "alltoall" else [1] * 2 * (RANKS - 1)
    return [[(rank, (rank + distance) % RANKS) for rank in range(RANKS)] for distance in distances]


def route(nics: Sequence[HostInterface], p: Settings) -> dict[Flow, tuple[int, list[Interface]]]:
    """The flow label and the links of each flow. The two ranks of a pair have one label for both ways."""
    step_of = {flow: number for number, step in enumerate(steps(p)) for flow in step}
    pairs: dict[Flow, list[Flow]] = {}
    for flow in step_of:
        pairs.setdefault((min(flow), max(flow)), []).append(flow)
    labels = {pair: LABELS if p.flow_labels == "spread" else [number] for number, pair in enumerate(sorted(pairs), 1)}
    choices = [(flow, label) for pair, flows in pairs.items() for flow in flows for label in labels[pair]]
    ends = [(nics[near], nics[far], Attributes(flow_label=label).source_port) for (near, far), label in choices]
    candidates = dict(zip(choices, paths(ends), strict=True))
    taken, chosen = Counter[tuple[int, str]](), {}
    for pair, flows in pairs.items():
        loads = {
            label: [(step_of[flow], str(link)) for flow in flows for link in candidates[flow, label]]
            for label in labels[pair]
        }
        best = min(loads, key=lambda label: sum(taken[load] for load in loads[label]))
        taken.update(loads[best])
        chosen.update({flow: (best, candidates[flow, best]) for flow in flows})
    return chosen


def fabric_links(run: Run) -> list[Interface]:
    """The ports of switches to switches."""
    switches = [node for node in run.lab.nodes.values() if isinstance(node, Switch)]
    ports = [switch[name] for switch in switches for name in switch.interfaces]
    return [port for port in ports if port.peer and isinstance(port.peer.node, Switch)]
