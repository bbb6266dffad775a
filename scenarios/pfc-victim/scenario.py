from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Streams

LOSSLESS = 3
"""The priority of DSCP 26."""
ATTRIBUTES = Attributes(timeout=18, traffic_class=26 << 2 | 2)
"""DSCP 26, ECN-capable."""


class Settings(Parameters):
    control: Literal["dcqcn", "none"] = Field("dcqcn", description="how the NICs react to congestion marks")
    start: float = Field(1.5, gt=0, le=60, description="seconds in which the rates settle")
    measured: float = Field(1.0, gt=0, le=60, description="seconds that are measured")


class PfcVictim(Scenario[Settings]):
    """A flow without a congested port becomes slow: pauses block all traffic in their class.

    Three senders write to one receiver. Its switch pauses the previous switch, which then stops all traffic in that
    class, also the packets of a flow to another, idle receiver (head-of-line blocking). The pauses spread hop by hop to
    all hosts. This is the victim flow of the DCQCN paper (SIGCOMM 2015, figure 4).

    On real gear: the victim's rate falls with no drop, no retry and no congested port on its path; `rx_prio3_pause`
    rises at its NIC, and pause frames on the uplink (`show pfc counters`).

    The fix: congestion control that keeps queues below the pause threshold: ECN and DCQCN. PFC is left for bursts.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("pfc-only", "fault", "the NICs do not react to marks", {"control": "none"}),
        Variant("dcqcn", "healthy", "the NICs run DCQCN"),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = {node.name: node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host)}
        for nic in nics.values() if p.control == "none" else ():
            nic.control_congestion("none")
        senders = [nics[f"sender{number}"] for number in range(1, 4)]
        uplink, congested = run.lab.interface("leaf1:e5").lossless, run.lab.interface("leaf2:e1").lossless

        def pauses() -> int:
            return uplink.counters()[f"SAI_PORT_STAT_PFC_{LOSSLESS}_RX_PKTS"]

        pairs = [(nics["victim"], nics["other"])]
        with run.step("the victim is alone"), Streams(pairs, ATTRIBUTES) as streams:
            (alone,) = streams.run(p.measured)
        pairs += [(sender, nics["receiver"]) for sender in senders]
        with Streams(pairs, ATTRIBUTES) as streams:
            with run.step("three senders write to another receiver"):
                streams.run(p.start)
            with run.step(f"{p.measured:g} s are measured"):
                before = pauses()
                beside, *others = streams.run(p.measured)
                paused = pauses() - before

        run.note(alone=mbit(alone), beside=mbit(beside), incast=mbit(sum(others)), uplink_paused=paused)
        drops = uplink.queue(LOSSLESS).dropped_packets + congested.queue(LOSSLESS).dropped_packets
        run.expect("alone the victim has its link", alone, lambda rate: 40e6 < rate < 50e6)
        run.expect("the congested port is busy", sum(others), lambda rate: 40e6 < rate < 50e6)
        run.expect("nothing is dropped", drops, 0)
        if beside < alone / 2:
            run.observe("fault", f"the victim has {beside / alone:.0%} of its rate")
            run.expect("the uplink is paused", paused, lambda frames: frames > 100)
        else:
            run.observe("healthy", f"the victim has {beside / alone:.0%} of its rate")
            run.expect("the uplink is hardly paused", paused, lambda frames: frames < 50)


def mbit(rate: float) -> float:
    return round(rate / 1e6, 1)
