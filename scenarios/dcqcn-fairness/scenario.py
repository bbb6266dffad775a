from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Streams, fairness

OUT = "leaf:e5"
"""To the receiver."""
LOSSLESS = 3
"""The priority of DSCP 26."""
TRAFFIC_CLASS = 26 << 2 | 2
"""DSCP 26, ECN-capable."""

TIMELY = {"scale": 40, "additive_bps": 12e6, "least_bps": 12e6}
"""Steps that are large enough for two seconds."""
BUSY = {"none": 43e6, "dcqcn": 43e6, "timely": 25e6}
"""Bits per second that the port carries at least; TIMELY still rises, from cuts at the start."""


class Settings(Parameters):
    control: Literal["dcqcn", "timely", "none"] = Field("dcqcn", description="how the NICs react to congestion marks")
    start: float = Field(
        2.0, gt=0, le=60, description="seconds in which the rates settle", json_schema_extra={"unit": "s"}
    )
    measured: float = Field(1.5, gt=0, le=60, description="seconds that are measured")
    sample: float = Field(0.02, ge=0.001, le=1, description="seconds between two samples of queues and rates")


class DcqcnFairness(Scenario[Settings]):
    """Four flows share a port: with congestion control they find their rates, without it only pauses stop them.

    The switch marks packets with CE as its queue grows (Kmin, Kmax, Pmax). The receiver's NIC answers with CNPs, at
    most one per queue pair in 50 us; the sender's NIC cuts the queue pair's rate and raises it again step by step
    (DCQCN, SIGCOMM 2015). In the end each flow has its share, the queue is short, and pauses are rare. Without DCQCN
    only PFC slows the senders: the queue is as long as the buffer allows, and the pauses hit all other traffic of the
    sender in that class. TIMELY measures round trips instead of marks: the queue is also short, but TIMELY does not
    make shares equal ("ECN or Delay", CoNEXT 2016).

    On real gear: `np_cnp_sent` and `np_ecn_marked_roce_packets` at the receiver, `rp_cnp_handled` at the senders,
    `rx_prio3_pause` there; queue watermarks on the switch. Bytes are as published, times are 100 times longer and rates
    100 times lower (docs/lossless.md has the law). Thresholds are lower, because soft-RoCE has at most 65 packets of a
    queue pair in flight.

    The fix: ECN on the switches for the class, NP and RP on the NICs for its priority, CNPs in a separate class.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("pfc-only", "fault", "the NICs do not react to marks", {"control": "none"}),
        Variant("dcqcn", "healthy", "the NICs run DCQCN"),
        Variant("timely", "healthy", "the NICs run TIMELY", {"control": "timely"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        out = run.lab.interface(OUT).lossless
        for nic in (*senders, receiver) if p.control != "dcqcn" else ():
            nic.control_congestion(p.control, **(TIMELY if p.control == "timely" else {}))

        def pauses() -> int:
            return sum(sender.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for sender in senders)

        pairs = [(sender, receiver) for sender in senders]
        attributes = Attributes(timeout=18, traffic_class=TRAFFIC_CLASS)
        with run.sampled(p.sample), Streams(pairs, attributes) as streams:
            with run.step("the senders write without a pause"):
                streams.run(p.start)
            with run.step(f"{p.measured:g} s are measured"):
                before, queued = pauses(), list[int]()
                rates = streams.run(p.measured, lambda: queued.append(out.queue(LOSSLESS).bytes))
                paused = pauses() - before

        jain, queue = round(fairness(rates), 3), round(sum(queued) / len(queued))
        run.note(mbit_per_s=[round(rate / 1e6, 1) for rate in rates], sum=round(sum(rates) / 1e6, 1), jain=jain)
        run.note(mean_queue=queue, pause_frames=paused, marked=out.queue(LOSSLESS).marked_packets)
        cnps = receiver.lossless.counters()["np_cnp_sent"]
        handled = sum(sender.lossless.counters()["rp_cnp_handled"] for sender in senders)
        run.note(cnps=cnps)
        run.expect("the port is busy", sum(rates), lambda rate: BUSY[p.control] < rate < 50e6)
        run.expect("nothing is dropped", out.queue(LOSSLESS).dropped_packets, 0)
        if paused > 100:
            run.observe("fault", f"{paused} pause frames in {p.measured:g} s, {queue / 1000:.0f} kB in the queue")
            run.expect("nobody sends CNPs", cnps, 0)
        else:
            run.observe("healthy", f"{paused} pause frames in {p.measured:g} s, {queue / 1000:.0f} kB in the queue")
            run.expect("each CNP is heeded", handled, cnps)
            run.expect("CNPs are DCQCN's", cnps > 0, p.control == "dcqcn")
            if p.control == "dcqcn":
                run.expect("all have their share (Jain's index)", jain, lambda index: index > 0.95)
