from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from testbed import Field, HostInterface, Lab, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Group, LinkTraffic, Model, Parallel, Training, link_bytes

RANKS = ("host1", "host3", "host2", "host4")
"""By rank: each hop of the ring crosses the fabric."""
UPLINKS = ("e3", "e4")
"""Of each leaf, to spine1 and spine2."""
CHOSEN = {"one-uplink": ("e3", "e3", "e3", "e4"), "an-uplink-each": ("e3", "e3", "e4", "e4")}
"""The uplinks of the hops. The first and the third one leave leaf1, the others leaf2."""
LABELS = range(1, 65)
"""Flow labels to choose from."""
TRAINING = Training(Model(layers=2, hidden=128, sequence=64, vocabulary=512), Parallel(data=len(RANKS)))
FIRST = replace(TRAINING, scale=1 << 20)
"""The same with hardly a byte."""
MESSAGE = 32 << 10


class Settings(Parameters):
    flow_labels: Literal["one-uplink", "an-uplink-each", "by-number"] = Field(
        "one-uplink",
        description="of leaf1's flows: labels that take one uplink, labels that take one each, or those that come",
    )
    qps: int = Field(1, ge=1, le=16, description="queue pairs between two ranks, which take messages in turns")


class EcmpCollisionAllreduce(Scenario[Settings]):
    """Two flows of a ring share an uplink, and all ranks of the allreduce wait for it.

    A ring allreduce of the gradients has one flow from each rank to the next one. Each flow is as fast as a NIC, and a
    rank passes on only data that it has received: the slowest hop sets the speed of the whole ring. If ECMP hashes two
    flows to one uplink, the step takes twice as long on all ranks. So flows without a collision are slow, too: the
    other leaf has an uplink for each flow, and both are half idle. With F flows at random over F uplinks, the
    probability that each has its own uplink is F! / F^F: 50 % for two, 9 % for four, 0.2 % for eight.

    The step time is multiplied by the number of flows on the fullest uplink. This run compares with that.

    On real gear: nccl-tests' busbw is half, or a third, of the earlier value, and changes after a restart. On one leaf
    `show interface counters rate` shows a full and an idle uplink; on other leaves all are half full. No single rank is
    slow: each spends its time in the same allreduce. Rates are scaled: 10 Mbit/s stand for 400 Gbit/s.

    The fixes: several queue pairs between two ranks (NCCL_IB_QPS_PER_CONNECTION with NCCL_IB_SPLIT_DATA_ON_QPS=1):
    eight make two flows into sixteen, which is nearly even. Or chosen flow labels, that is UDP source ports. Or ranks
    in an order in which one hop leaves a leaf: see rail-vs-scattered.
    """

    tags = ("fabric", "congestion", "training")
    variants = (
        Variant("as-is", "fault", "both flows that leave leaf1 take one uplink"),
        Variant("other-labels", "healthy", "flow labels that take an uplink each", {"flow_labels": "an-uplink-each"}),
        Variant("more-qps", "healthy", "eight QPs a hop, labels by number", {"flow_labels": "by-number", "qps": 8}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = run.nics(*RANKS)
        hops = list(zip(nics, [*nics[1:], nics[0]], strict=True))
        labels = [choose(run.lab, p, number, hop) for number, hop in enumerate(hops)]
        fullest = max(loads(run.lab, hops, labels).values())

        def label(low: int, high: int, number: int) -> int:
            return labels[low if high == low + 1 else high][number]  # the last rank's hop is to the first rank

        ports = [run.lab.switch(leaf)[port] for leaf in ("leaf1", "leaf2") for port in UPLINKS]
        rate = ports[0].sends.quality.rate or 1
        # NCCL's timeout: packets wait for longer in the queue of a full uplink than the 68 ms of 14.
        attributes = Attributes(timeout=20)
        with (
            run.step("a step of training: a ring allreduce of the gradients"),
            Group(nics, attributes, queue_pairs=p.qps, message=MESSAGE, flow_label=label) as group,
        ):
            group.carry_out(FIRST.steps(), "a small step, for which switches ask for MACs", within=60)
            traffic = LinkTraffic(ports)
            progress = group.carry_out(TRAINING.steps(), "a step of training", within=60)
            sent = traffic.sent()

        slowdown = progress.elapsed_s / (link_bytes(max(progress.sent)) * 8 / rate)
        busy = {name: round(100 * count * 8 / rate / progress.elapsed_s) for name, count in sent.items()}
        run.note(slowdown=round(slowdown, 2), flows_of_fullest_uplink=round(fullest, 2))
        run.note(ranks_s=", ".join(f"{seconds:.3f}" for seconds in progress.finished_s))
        run.note(uplinks_busy=", ".join(f"{name} {percent} %" for name, percent in busy.items()))
        run.expect("a fabric that drops nothing", sum(port.sends.counters()["dropped"] for port in ports), 0)
        run.expect("as slow as the fullest uplink (10 %)", slowdown / fullest, lambda part: 0.9 < part < 1.1)
        spread = max(progress.finished_s) / min(progress.finished_s)
        run.expect("no rank is the slow one (10 %)", spread, lambda part: part < 1.1)
        text = f"the step takes {slowdown:.2f} times as long as on a free network"
        if slowdown < 1.7:
            run.observe("healthy", text)
        else:
            run.observe("fault", text)
            run.expect("leaf1 has an idle uplink", busy["leaf1:e4"], lambda percent: percent < 5)
            run.expect("leaf2 has an uplink for each flow, half idle", busy["leaf2:e3"], lambda percent: percent < 60)


Hop = tuple[HostInterface, HostInterface]


def choose(lab: Lab, p: Settings, number: int, hop: Hop) -> list[int]:
    """The flow labels of a hop's queue pairs."""
    if p.flow_labels == "by-number":
        return [LABELS[number * p.qps + queue_pair] for queue_pair in range(p.qps)]
    wanted = CHOSEN[p.flow_labels][number]
    taken = zip(LABELS, uplinks(lab, hop, LABELS), strict=True)
    return [label for label, (_, port) in taken if port == wanted][: p.qps]


def uplinks(lab: Lab, hop: Hop, labels: Sequence[int]) -> list[tuple[str, str]]:
    """The leaf and the port by which packets with each flow label leave it."""
    source, target = hop
    assert source.peer is not None
    leaf = lab.switch(str(source.peer.node))
    sports = [Attributes(flow_label=label).source_port for label in labels]
    return [(leaf.name, port) for port in leaf.uplinks(source.address().ip, target.address().ip, sports)]


def loads(lab: Lab, hops: Sequence[Hop], labels: Sequence[Sequence[int]]) -> dict[tuple[str, str], float]:
    """The flows of each uplink; a queue pair is a part of one."""
    found: dict[tuple[str, str], float] = {}
    for hop, own in zip(hops, labels, strict=True):
        for uplink in uplinks(lab, hop, own):
            found[uplink] = found.get(uplink, 0) + 1 / len(own)
    return found
