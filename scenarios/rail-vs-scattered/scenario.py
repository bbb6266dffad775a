from collections import defaultdict
from dataclasses import replace
from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Group, LinkTraffic, Model, Parallel, Training, wire_bytes

RAILS = 2
TRAINING = Training(
    Model(layers=2, hidden=128, sequence=64, vocabulary=512), Parallel(tensor=RAILS, data=4), micro_batches=2
)
FIRST = replace(TRAINING, scale=1 << 20)
"""The same with hardly a byte."""
PLACEMENTS = {
    "rail-aligned": (1, 2, 3, 4),
    "rails-crossed": (1, 2, 3, 4),
    "scattered-in-order": (1, 2, 5, 6),
    "scattered": (1, 5, 2, 6),
}
"""The hosts of a job, in the order of its ranks. Hosts 1 to 4 are in pod 1, the others in pod 2."""
LEAVES = [f"pod{pod}-leaf{rail}" for pod in (1, 2) for rail in (1, 2)]
UPLINK = "e5"


class Settings(Parameters):
    placement: Literal["rail-aligned", "rails-crossed", "scattered-in-order", "scattered"] = Field(
        "scattered", description="hosts of the job, and the NIC of each rank"
    )


class RailVersusScattered(Scenario[Settings]):
    """One job in four placements: on its rails it meets nobody, across them a step takes up to four times as long.

    Eight ranks on four hosts: tensor parallelism within a host, by NVLink, and data parallelism between hosts, a ring
    for each half of the model. On a rail-optimised fabric NIC 1 of all hosts of a pod is on one leaf and NIC 2 on
    another. If rank 1 of each host has NIC 1, the ring of the first half stays on one leaf; so it is for the other
    half, and the spine carries nothing. Hosts of two pods that take turns send each hop over the spine: two flows on a
    leaf's one uplink. A NIC that is not the rank's own (a driver that counts NICs in another order on each second host)
    makes each hop one from rail to rail, by the spine too, and four flows share an uplink.

    A step is as long as its fullest link needs for its bytes. Those follow from the matrix of the job (bytes from rank
    to rank) and from where ranks are; this run compares links and time with that.

                            spine    switches   times
        rail-aligned          0 %         1       1.0
        scattered-in-order   50 %         2       1.0
        scattered           100 %         3       2.0
        rails-crossed       100 %         3       4.0

    spine: bytes that cross it, of all bytes between hosts. switches: on the way of a byte. times: a step, by what a NIC
    needs for its bytes.

    On real gear: counters of spines in a job that should not leave its rail; `nvidia-smi topo -m` and NCCL_DEBUG=INFO
    name the NIC of each rank (NET/IB/N), the scheduler the hosts. Rates are scaled: 10 Mbit/s stand for 400 Gbit/s.

    The fixes: hosts of one pod (topology/block of Slurm, topology-aware scheduling of Kueue and Volcano), ranks in the
    order of pods where a job has more; NIC names that follow the PCIe slot; NCCL_CROSS_NIC=0 keeps rings on their rail,
    PXN takes a message to the NIC of the peer's rail by NVLink.
    """

    tags = ("fabric", "congestion", "training")
    variants = (
        Variant("as-is", "fault", "hosts of two pods that take turns in the ring"),
        Variant(
            "rails-crossed",
            "fault",
            "one pod, NICs of each second host in another order",
            {"placement": "rails-crossed"},
        ),
        Variant(
            "scattered-in-order",
            "healthy",
            "hosts of two pods, one pod behind the other",
            {"placement": "scattered-in-order"},
        ),
        Variant("rail-aligned", "healthy", "hosts of one pod, each rank on its rail", {"placement": "rail-aligned"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = place(run, p)
        planned = by_link(nics)
        leaving = {f"{leaf}:{UPLINK}": planned.get(f"{leaf}:{UPLINK}", 0) for leaf in LEAVES}
        nic_ends = [nic.peer for nic in nics if nic.peer]
        rate = nics[0].sends.quality.rate or 1
        with run.step(f"a step of training, {p.placement}"), Group(nics, Attributes(timeout=20)) as group:
            group.carry_out(FIRST.steps(), "a small step, for which switches ask for MACs", within=60)
            traffic = LinkTraffic([*(run.lab.interface(name) for name in leaving), *nic_ends])
            progress = group.carry_out(TRAINING.steps(), "a step of training", within=60)
            sent = traffic.sent()

        total = sum(planned[f"{nic}"] for nic in nics)
        spine = sum(leaving.values())
        alone = max(planned[f"{nic}"] for nic in nics) * 8 / rate
        times, formula = progress.elapsed_s / alone, max(planned.values()) * 8 / rate / alone
        rails: dict[str, int] = defaultdict(int)
        for end in nic_ends:
            rails[f"rail {end.node.name[-1]}"] += sent[str(end)]
        run.note(times=round(times, 2), formula=round(formula, 2), step_s=round(progress.elapsed_s, 3))
        run.note(spine_percent=round(100 * spine / total), switches=round(1 + 2 * spine / total, 1))
        run.note(uplinks_kb=", ".join(f"{name} {sent[name] >> 10}" for name in leaving))
        run.note(rails_kb=", ".join(f"{name} {count >> 10}" for name, count in rails.items()))
        run.expect("no packet is dropped", sum(end.sends.counters()["dropped"] for end in nic_ends), 0)
        links = {name: sent[name] / count for name, count in leaving.items() if count}
        run.expect(
            "uplinks carry what the matrix says (5 %, with acknowledgements)",
            links,
            lambda parts: all(1 <= part < 1.05 for part in parts.values()),
        )
        others = sum(sent[name] for name in leaving if name not in links)
        run.expect("other uplinks carry next to nothing", others, lambda count: count < 1000)
        run.expect("the step is as long as its fullest link (10 %)", times / formula, lambda part: 0.95 < part < 1.1)
        crossing = f"{spine / total:.0%} of the bytes cross the spine"
        text = f"the step takes {times:.1f} times as long as the NICs need, {crossing}"
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


def by_link(nics: list[HostInterface]) -> dict[str, int]:
    """Bytes on layer 2 that the job's matrix puts on each NIC and on each leaf's uplink."""
    found: dict[str, int] = defaultdict(int)
    for (sender, receiver), by_dimension in TRAINING.matrix().items():
        near, far = nics[sender], nics[receiver]
        if near.node is far.node:
            continue  # by NVLink
        size = wire_bytes(sum(by_dimension.values()))
        found[str(near)] += size
        assert near.peer is not None
        assert far.peer is not None
        if near.peer.node is not far.peer.node:
            found[f"{near.peer.node}:{UPLINK}"] += size
    return found
