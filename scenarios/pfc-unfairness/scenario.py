from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Streams, fairness

ATTRIBUTES = Attributes(timeout=18, traffic_class=26 << 2 | 2)
"""DSCP 26, the lossless class, ECN-capable."""
LOSSLESS = 3


class Settings(Parameters):
    control: Literal["dcqcn", "none"] = Field("dcqcn", description="how the NICs react to congestion marks")
    start: float = Field(1.0, gt=0, le=60, description="seconds in which the rates settle")
    measured: float = Field(1.5, gt=0, le=60, description="seconds that are measured")


class PfcUnfairness(Scenario[Settings]):
    """Four flows share a receiver, and the near flow gets as much as the three others together.

    PFC works on ports and classes, not on flows. The receiver's switch divides its port among the packets' ingress
    ports: the near sender has its own port, the three others share one uplink (the parking lot of the DCQCN paper,
    SIGCOMM 2015, figure 3).

    On real gear: ranks in the rack of a storage node or a parameter server are faster than all others, and nothing is
    dropped; pause frames on the uplink and at all NICs.

    The fix: congestion control by flow: ECN and DCQCN.
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
        pairs = [(nic, nics["receiver"]) for name, nic in nics.items() if name != "receiver"]
        with Streams(pairs, ATTRIBUTES) as streams:
            with run.step("four senders write to one receiver"):
                streams.run(p.start)
            with run.step(f"{p.measured:g} s are measured"):
                rates = dict(zip([nic.node.name for nic, _ in pairs], streams.run(p.measured), strict=True))

        near = rates.pop("near")
        share, jain = near / (near + sum(rates.values())), fairness([near, *rates.values()])
        run.note(near=round(near / 1e6, 1), far=[round(rate / 1e6, 1) for rate in rates.values()], jain=round(jain, 3))
        run.expect("the receiver's port is busy", near + sum(rates.values()), lambda rate: 40e6 < rate < 50e6)
        drops = sum(run.lab.interface(end).lossless.queue(LOSSLESS).dropped_packets for end in ("leaf2:e1", "leaf1:e5"))
        run.expect("nothing is dropped", drops, 0)
        if share > 0.4:
            run.observe("fault", f"the near sender has {share:.0%} of the port")
            run.expect("the others share the rest evenly", fairness([*rates.values()]), lambda index: index > 0.95)
        else:
            run.observe("healthy", f"the near sender has {share:.0%} of the port")
            run.expect("all have their share (Jain's index)", jain, lambda index: index > 0.95)
