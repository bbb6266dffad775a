from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import EcnOff
from testbed.workload import Attributes, Streams

LOSSLESS = 3
"""The priority of DSCP 26."""
ATTRIBUTES = Attributes(timeout=18, traffic_class=26 << 2 | 2)
"""DSCP 26, ECN-capable."""
HOPS = {"congested": "leaf2:e1", "uplink": "leaf1:e5"}


class Settings(Parameters):
    off: Literal["congested", "uplink", "nowhere"] = Field("nowhere", description="the hop that does not mark")
    start: float = Field(1.5, gt=0, le=60, description="seconds in which the rates settle")
    measured: float = Field(1.0, gt=0, le=60, description="seconds that are measured")


class EcnIsMissingAtOneHop(Scenario[Settings]):
    """The congested port does not mark: DCQCN reacts too late, and to marks from the wrong place.

    All NICs run DCQCN and all other ports mark. The growing queue does not mark, so only PFC stops it: the switch
    pauses its uplink. That causes a queue at the previous hop, which marks all flows in it: those of the senders that
    cause the congestion, and an unrelated flow to an idle receiver. So pauses and its own CNPs slow the victim twice.
    At a hop without congestion the same fault has no effect, so it stays unnoticed until the traffic moves.

    On real gear: `rx_prio3_pause` at NICs and pause frames on an uplink although DCQCN is on;
    `np_ecn_marked_roce_packets` and `np_cnp_sent` rise at a receiver that is idle; no `ECN marked` packets in the queue
    with the highest watermark (`show queue watermark`, `show queue counters`; `ecnconfig -l` on SONiC shows whether the
    queue has the profile).

    The fix: ECN on every hop of the class, checked by a tool that finds a missing port, line card or vendor.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("congested-hop", "fault", "the port to the receiver does not mark", {"off": "congested"}),
        Variant("idle-hop", "healthy", "the uplink does not mark, which is not congested", {"off": "uplink"}),
        Variant("everywhere", "healthy", "every hop marks"),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = {node.name: node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host)}
        ports = {hop: run.lab.interface(end).lossless for hop, end in HOPS.items()}
        if p.off != "nowhere":
            run.inject(EcnOff(end=HOPS[p.off]))
        senders = [nics["sender1"], nics["sender2"]]
        pairs = [(nics["victim"], nics["other"]), *((sender, nics["receiver"]) for sender in senders * 2)]

        def counted() -> list[int]:
            """Pause frames that came over the uplink, packets that each hop marked, and CNPs that the victim got."""
            pauses = ports["uplink"].counters()[f"SAI_PORT_STAT_PFC_{LOSSLESS}_RX_PKTS"]
            marks = [port.queue(LOSSLESS).marked_packets for port in ports.values()]
            return [pauses, *marks, nics["victim"].lossless.counters()["rp_cnp_handled"]]

        with Streams(pairs, ATTRIBUTES, ahead=8) as streams:
            with run.step("two senders write to one receiver, with two queue pairs each; the victim to another"):
                streams.run(p.start)
            with run.step(f"{p.measured:g} s are measured"):
                before = counted()
                victim, *others = streams.run(p.measured)
                after = counted()

        paused, at_congested, at_uplink, cnps = (now - then for now, then in zip(after, before, strict=True))
        run.note(victim=round(victim / 1e6, 1), incast=round(sum(others) / 1e6, 1), uplink_paused=paused)
        run.note(marks_at_congested=at_congested, marks_at_uplink=at_uplink, cnps_to_victim=cnps)
        drops = sum(port.queue(LOSSLESS).dropped_packets for port in ports.values())
        run.expect("the congested port is busy", sum(others), lambda rate: 40e6 < rate < 52e6)
        run.expect("nothing is dropped", drops, 0)
        if victim < 25e6:
            run.observe("fault", f"the victim has {victim / 1e6:.0f} of 50 Mbit/s")
            run.expect("the uplink is paused", paused, lambda frames: frames > 100)
            run.expect("the congested port marks nothing", at_congested, 0)
            run.expect("the uplink marks, for its pauses", at_uplink, lambda packets: packets > 10)
            run.expect("the victim gets CNPs", cnps, lambda count: count > 3)
        else:
            run.observe("healthy", f"the victim has {victim / 1e6:.0f} of 50 Mbit/s")
            run.expect("the uplink is hardly paused", paused, lambda frames: frames < 50)
            run.expect("the congested port marks", at_congested, lambda packets: packets > 10)
            run.expect("the uplink marks nothing", at_uplink, lambda packets: packets < 10)
