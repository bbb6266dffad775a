from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import DscpMismatch
from testbed.workload import Attributes, Streams

OUT = "leaf:e5"
"""To the receiver."""
LOSSLESS, LOSSY = 3, 0
ATTRIBUTES = Attributes(timeout=18, retry_cnt=3, traffic_class=26 << 2)


class Settings(Parameters):
    priority: int = Field(LOSSLESS, ge=0, le=5, description="priority of DSCP 26 at the port of the first sender")
    measured: float = Field(1.5, gt=0, le=60, description="seconds that are measured")


class DscpIsMismatched(Scenario[Settings]):
    """One port of a switch has another DSCP map: packets that arrive there are lossy, the rest of the class is not.

    The first sender marks its packets as all others do, and its NIC honours pause frames. But its port maps DSCP 26 to
    priority 0: the port sends no pause frames, and the packets wait in the lossy queue and are dropped there. The
    others lose nothing.

    On real gear: one host, one rack or one vendor's switches have `out_of_sequence` and retries while their neighbours
    are healthy; drops in a queue that should have no RoCE (`show queue counters`); no pause frame at that NIC.

    The fix: one DSCP map everywhere (`show qos map dscp_to_tc`), checked by a tool and not by eye.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "the first sender's port takes DSCP 26 for priority 0", {"priority": LOSSY}),
        Variant("one-map", "healthy", "all ports have one map"),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        if p.priority != LOSSLESS:
            run.inject(DscpMismatch(end="leaf:e1", dscp=26, priority=p.priority))
        with Streams([(sender, receiver) for sender in senders], ATTRIBUTES) as streams:
            with run.step(f"four senders write for {p.measured:g} s"):
                first, *others = streams.run(p.measured)
            statuses = streams.statuses

        out = run.lab.interface(OUT).lossless
        drops = {priority: out.queue(priority).dropped_packets for priority in (LOSSY, LOSSLESS)}
        pauses = [sender.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for sender in senders]
        run.note(first=round(first / 1e6, 1), others=[round(rate / 1e6, 1) for rate in others], pauses=pauses)
        gaps = receiver.rdma_counters()["out_of_seq_request"]
        run.note(lossy_drops=drops[LOSSY], gaps_at_receiver=gaps, first_ends=statuses[0])
        run.expect("the lossless class loses nothing", drops[LOSSLESS], 0)
        run.expect("the others live", statuses[1:], ["SUCCESS"] * 3)
        run.expect("the others are told to stop", min(pauses[1:]), lambda frames: frames > 10)
        if drops[LOSSY]:
            run.observe("fault", f"the first sender has {first / 1e6:.1f} Mbit/s, and loses {drops[LOSSY]} packets")
            run.expect("nobody tells it to stop", pauses[0], 0)
            run.expect("what it lost is sent again", gaps, lambda count: count > 0)
        else:
            run.observe("healthy", "all senders lose nothing")
            run.expect("the first one is told to stop, too", pauses[0], lambda frames: frames > 10)
