from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from testbed import Field, HostInterface, Interface, Parameters, Run, Scenario, Switch, Variant
from testbed.workload import Attributes, Group, LinkTraffic, Model, Parallel, Training, paths, wire_bytes

RAILS = 2
TRAINING = Training(
    Model(layers=2, hidden=96, sequence=64, vocabulary=512), Parallel(tensor=RAILS, data=6), micro_batches=2
)
FIRST = replace(TRAINING, scale=1 << 20)
"""The same with hardly a byte."""
PLACEMENTS = {
    "rail-aligned": (1, 2, 3, 4, 5, 6),
    "rails-crossed": (1, 2, 3, 4, 5, 6),
    "packed": (1, 2, 3, 8, 9, 10),
    "scattered": (1, 8, 2, 9, 3, 10),
}
"""The hosts of a job, in the order of its ranks. Hosts 1 to 7 are in pod 1, the others in pod 2."""
LABELS = range(1, 65)
"""Flow labels to choose from."""
FRAME = wire_bytes(1024)
HOPS = 2 * (TRAINING.parallel.data - 1)
"""Of the ring, one behind the other: a rank passes on what it has received."""

Flow = tuple[int, int]
"""The rank that sends, and the one that receives."""


class Settings(Parameters):
    placement: Literal["rail-aligned", "packed", "scattered", "rails-crossed"] = Field(
        "scattered", description="hosts of the job, and the NIC of each rank"
    )
    ratio: Literal["1:1", "7:1"] = Field("7:1", description="a leaf's downlinks to its uplinks, all of one rate")


class RailVersusScattered(Scenario[Settings]):
    """One job in four placements: no contention on its rails, across a 7:1 fabric a step takes six times as long.

    Twelve ranks on six hosts: tensor parallelism within a host, by NVLink, and data parallelism between hosts, a ring
    for each half of the model. On a rail-optimised fabric NIC 1 of all hosts of a pod is on one leaf and NIC 2 on
    another. The placements:

        rail-aligned    hosts of one pod, rank r of each host on NIC r: each ring
                        stays on one leaf
        packed          three hosts of one pod, then three of another: each ring
                        leaves a leaf once
        scattered       hosts of two pods take turns, and each hop leaves its
                        leaf: three flows of a leaf
        rails-crossed   one pod, and NICs of each second host in another order, as
                        a driver may count them: each hop is from rail to rail, by
                        the spine, six flows of a leaf

    A leaf has seven NICs, and one uplink (7:1) or seven, parallel links to one spine (1:1). A step takes the time that
    its fullest link needs for its bytes, plus a packet's time for each switch of each of the ring's ten hops, because
    the switches store and forward. The bytes follow from the matrix of the job (bytes from rank to rank), from the
    placement of ranks, and from the links that switches choose for each flow. This run compares the bytes of each link
    and the time with that. `testbed matrix rail-vs-scattered --over ratio --over placement` gives

               placement       switches   uplinks 1, 2   fullest   times
        1:1    rail-aligned         1.0       0      0         0     1.1
               packed               1.7     961    961       480     1.1
               scattered            3.0    2884   2884       481     1.1
               rails-crossed        3.0    2884   2884       481     1.1
        7:1    rail-aligned         1.0       0      0         0     1.1
               packed               1.7     961    961       480     1.1
               scattered            3.0    2884   2884      1442     3.1
               rails-crossed        3.0    2884   2884      2884     6.1

    switches: mean number on the path of a byte. uplinks R: kB that the leaves of rail R send to the spine in a step, of
    2884 kB to the NICs of the rail (rail R). fullest: kB of the fullest uplink. times: a step, as a multiple of the
    time that a NIC needs for its bytes. With seven uplinks each flow has its own link: the flow labels are chosen for
    that. With random labels some would share one, see ecmp-collision-allreduce and oversubscription-7to1.

    On real gear: counters of spines grow in a job that should not leave its rail; `nvidia-smi topo -m` and
    NCCL_DEBUG=INFO name the NIC of each rank (NET/IB/N), the scheduler the hosts. Rates are scaled: 10 Mbit/s stand for
    400 Gbit/s.

    The fixes: hosts of one pod (topology/block of Slurm, topology-aware scheduling of Kueue and Volcano), ranks in the
    order of pods if a job has several; NIC names that follow the PCIe slot; NCCL_CROSS_NIC=0 keeps rings on their rail,
    PXN moves a message to the NIC of the peer's rail by NVLink.
    """

    tags = ("fabric", "congestion", "training")
    variants = (
        Variant("as-is", "fault", "hosts of two pods that take turns in the ring, over 7:1"),
        Variant(
            "rails-crossed",
            "fault",
            "one pod, NICs of each second host in another order, over 7:1",
            {"placement": "rails-crossed"},
        ),
        Variant("one-to-one", "healthy", "hosts that take turns, over 1:1", {"ratio": "1:1"}),
        Variant("packed", "healthy", "hosts of two pods, one pod behind the other, over 7:1", {"placement": "packed"}),
        Variant("rail-aligned", "healthy", "hosts of one pod, each rank on its rail", {"placement": "rail-aligned"}),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "1-to-1.clab.yml" if parameters.ratio == "1:1" else self.topology

    def run(self, run: Run, p: Settings) -> None:
        nics = place(run, p)
        routes = spread(nics)
        planned, total, switches = Counter[str](), 0, 0
        for flow, (_, path) in routes.items():
            size = wire_bytes(sum(TRAINING.matrix()[flow].values()))
            planned.update({str(link): size for link in path})
            total += size
            switches += size * (len(path) - 1)

        def label(low: int, high: int, _: int) -> int:
            return routes[(low, high) if (low, high) in routes else (high, low)][0]

        between, to_nics = fabric_links(run), [nic.peer for nic in nics if nic.peer]
        rate = nics[0].sends.quality.rate or 1
        with (
            run.step(f"a step of training, {p.placement} over {p.ratio}"),
            Group(nics, Attributes(timeout=20), flow_label=label) as group,
        ):
            group.carry_out(FIRST.steps(), "a small step, for which switches ask for MACs", within=60)
            traffic = LinkTraffic([*between, *to_nics])
            progress = group.carry_out(TRAINING.steps(), "a step of training", within=60)
            sent = traffic.sent()

        alone = max(planned[str(nic)] for nic in nics)
        forwarding = HOPS * FRAME * max(len(path) - 1 for _, path in routes.values())
        times, formula = progress.elapsed_s * rate / 8 / alone, (max(planned.values()) + forwarding) / alone
        uplinks = [link for link in between if str(link.node).startswith("pod")]
        run.note(times=round(times, 2), formula=round(formula, 2), switches=round(switches / total, 1))
        for rail in range(1, RAILS + 1):
            run.note(**{f"rail_{rail}_kb": kilobytes(to_nics, rail, sent)})
        for rail in range(1, RAILS + 1):
            run.note(**{f"uplinks_{rail}_kb": kilobytes(uplinks, rail, sent)})
        run.note(fullest_kb=max(sent[str(link)] for link in uplinks) >> 10)
        run.expect("no packet is dropped", sum(link.sends.counters()["dropped"] for link in (*between, *to_nics)), 0)
        parts = {str(link): sent[str(link)] / planned[str(link)] for link in between if planned[str(link)]}
        run.expect(
            "links between switches carry what the matrix says (5 %, with acknowledgements)",
            parts,
            lambda parts: all(1 <= part < 1.05 for part in parts.values()),
        )
        others = sum(sent[str(link)] for link in between if not planned[str(link)])
        run.expect("and the others acknowledgements alone", others / total, lambda part: part < 0.05)
        run.expect("the step takes what the formula says (10 %)", times / formula, lambda part: 0.95 < part < 1.1)
        crossing = sum(planned[str(link)] for link in uplinks) / total
        text = f"the step takes {times:.1f} times as long as the NICs need, {crossing:.0%} of the bytes cross the spine"
        run.observe("fault" if times > 1.7 else "healthy", text)


def place(run: Run, p: Settings) -> list[HostInterface]:
    """The NIC of each rank. Tensor parallel ranks of a host follow each other, one on each rail."""
    crossed = p.placement == "rails-crossed"
    hosts = [run.lab.host(f"host{number}") for number in PLACEMENTS[p.placement]]
    return [
        host[f"eth{(rail + crossed * number) % RAILS + 1}"]
        for number, host in enumerate(hosts)
        for rail in range(RAILS)
    ]


def spread(nics: list[HostInterface]) -> dict[Flow, tuple[int, list[Interface]]]:
    """The flow label and the links of each flow between hosts: as few flows on a link as labels allow."""
    flows = [(near, far) for near, far in TRAINING.matrix() if nics[near].node is not nics[far].node]
    choices = [(flow, label) for flow in flows for label in LABELS]
    ports = [Attributes(flow_label=label).source_port for _, label in choices]
    ends = [(nics[near], nics[far], port) for ((near, far), _), port in zip(choices, ports, strict=True)]
    candidates = dict(zip(choices, paths(ends), strict=True))
    taken, chosen = Counter[str](), {}
    for flow in flows:
        label = min(LABELS, key=lambda label: max(taken[str(link)] for link in candidates[flow, label]))
        chosen[flow] = label, candidates[flow, label]
        taken.update(map(str, candidates[flow, label]))
    return chosen


def fabric_links(run: Run) -> list[Interface]:
    """The ports of switches to switches."""
    switches = [node for node in run.lab.nodes.values() if isinstance(node, Switch)]
    ports = [switch[name] for switch in switches for name in switch.interfaces]
    return [port for port in ports if port.peer and isinstance(port.peer.node, Switch)]


def kilobytes(ports: list[Interface], rail: int, sent: Mapping[str, int]) -> int:
    """What leaves of a rail send; podP-leafR is on rail R."""
    return sum(sent[str(port)] for port in ports if port.node.name.endswith(f"leaf{rail}")) >> 10
