import statistics
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Streams

LOSSLESS = 3
ATTRIBUTES = Attributes(timeout=20, traffic_class=26 << 2 | 2)
"""DSCP 26, the lossless class, ECN-capable."""
WORKERS = 8
FEW, MANY = 4, 16
LINE_BPS = 46.4e6
"""Payload that a link of 50 Mbit/s carries."""
DCQCN = {"scale": 100, "additive_bps": 10e6, "hyper_bps": 100e6, "least_bps": 5e6, "increase_bytes": 1_250_000}


class Settings(Parameters):
    ecn_control: Literal["fixed", "adaptive"] = Field("fixed", description="how the leaf marks")
    interval: float = Field(0.2, gt=0, le=1, description="seconds between two steps of the leaf's controller")
    settle: float = Field(6.0, gt=0, le=60, description="seconds in which rates and thresholds settle")


class AutoEcn(Scenario[Settings]):
    """A leaf's ECN thresholds fit four senders. With 16, pause frames stop all before enough packets are marked.

    Each queue pair under DCQCN needs its marks, so more queue pairs need a higher share of marked packets, and the
    queue grows until the switch marks that share. Here 5 % just below Kmax are enough for four queue pairs, but not
    for 16: their queue would stand at Kmax, and before it gets there the buffer's thresholds stop the workers' ports. A
    worker's stream to an idle host is stopped, too. With automatic ECN the leaf moves the share (Pmax) so that the
    average queue stays in the middle between Kmin and Kmax, whatever the load.

    The algorithm is Adaptive RED (Floyd, Gummadi and Shenker, 2001), which Linux has as `tc qdisc ... red adaptative`.
    What switches do is not published in full: ACC (SIGCOMM 2021) and vendors' AI ECN choose Kmin, Kmax and Pmax by a
    model that was trained, and print neither it nor its weights.

    On real gear: the queue is marked (`show queue wredcounters`, `np_ecn_marked_roce_packets`), and PFC frames grow all
    the same (`show pfc counters`); its watermark stands below Kmax, where the buffer's threshold is. With automatic ECN
    read the thresholds that are in force, not those of the configuration. Rates are scaled by 100.

    The fix: automatic ECN, or thresholds for the highest load, lower than those that the buffer gives PFC.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "5 % of the packets are marked just below Kmax"),
        Variant("auto", "healthy", "the leaf moves that share", {"ecn_control": "adaptive"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        leaf.change_profile(ecn_control=p.ecn_control, ecn_interval=p.interval)
        kmin, kmax, pmax = (leaf.profile()[f"ecn_{name}"] for name in ("min", "max", "probability"))
        receiver, bystander, *workers = run.nics("receiver", "bystander", *(f"worker{n + 1}" for n in range(WORKERS)))
        for nic in (receiver, bystander, *workers):
            nic.control_congestion("dcqcn", **DCQCN)
        port = run.lab.interface("leaf:e0").lossless
        ports = [run.lab.interface(f"leaf:e{n + 1}").lossless for n in range(WORKERS)]
        queues: list[int] = []

        def pauses() -> int:
            return sum(one.counters()[f"SAI_PORT_STAT_PFC_{LOSSLESS}_TX_PKTS"] for one in ports)

        flows = [(workers[number % WORKERS], receiver) for number in range(MANY)]
        with run.step(f"{FEW} queue pairs write to one receiver"), Streams(flows[:FEW], ATTRIBUTES, ahead=8) as few:
            few.run(2.0)
            before = pauses()
            few.run(1.0, lambda: queues.append(port.queue(LOSSLESS).bytes))
            few_pauses = pauses() - before
        run.note(few_pauses=few_pauses, few_queue=round(statistics.fmean(queues)))
        queues.clear()
        with Streams([*flows, (workers[0], bystander)], ATTRIBUTES, ahead=8) as many:
            with run.step(f"{MANY} write to it, and one to the bystander, whose port is free"):
                many.run(p.settle)
            before = pauses()
            with run.step("two seconds are measured"):
                *rates, victim = many.run(2.0, lambda: queues.append(port.queue(LOSSLESS).bytes))
            stopped = pauses() - before
        queue = statistics.fmean(queues)
        run.note(pauses=stopped, queue=round(queue), longest_queue=max(queues))
        run.note(mbit=round(sum(rates) / 1e6, 1), bystander_mbit=round(victim / 1e6, 1))
        run.expect("the receiver's link is in use", sum(rates), lambda rate: rate > 0.85 * LINE_BPS)
        run.expect("nothing is dropped", port.queue(LOSSLESS).dropped_packets, 0)
        text = f"the worker's stream to the idle host gets {victim / 1e6:.0f} Mbit/s"
        if victim < 0.2 * LINE_BPS:
            run.observe("fault", text)
            run.expect("the queue stays below Kmax", queue, lambda waiting: 0.8 * kmax < waiting < kmax)
            run.expect(f"{FEW} were hardly stopped", few_pauses, lambda frames: frames < 200)
            run.expect("pause frames stop the workers", stopped, lambda frames: frames > 1000)
        elif victim > 0.6 * LINE_BPS:
            run.observe("healthy", text)
            way = (queue - kmin) / (kmax - kmin)
            run.expect("the queue is near the middle of Kmin and Kmax", way, lambda part: 0.35 < part < 0.65)
            in_force = port.counters()[f"ecn_probability_ppm:{LOSSLESS}"] / 1e4
            run.note(pmax_percent=round(in_force, 1))
            run.expect("the leaf marks more", in_force, lambda percent: percent > 1.5 * pmax)
