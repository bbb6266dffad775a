from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Streams, fairness

OUT = "leaf:e5"
"""To the receiver."""
LOSSLESS = 3
"""The priority of DSCP 26."""
ATTRIBUTES = Attributes(timeout=18, traffic_class=26 << 2 | 2)
"""DSCP 26, ECN-capable."""


class Settings(Parameters):
    kmin: int = Field(2_200, ge=0, le=1_000_000, description="bytes in the queue at which marking begins")
    kmax: int = Field(30_000, ge=1, le=1_000_000, description="bytes in the queue at which every packet is marked")
    pmax: float = Field(10, ge=0, le=100, description="percent of the packets that are marked just below kmax")
    cnp_us: float = Field(50, gt=0, le=1e6, description="a receiver sends one CNP of a queue pair in so long (N)")
    increase_us: float = Field(55, gt=0, le=1e6, description="without a CNP for so long the rate rises (T)")
    additive_bps: float = Field(10e6, gt=0, le=1e12, description="by so much (R_AI)")
    hyper_bps: float = Field(100e6, gt=0, le=1e12, description="by so much after long silence (R_HAI)")
    start: float = Field(1.5, gt=0, le=60, description="seconds in which the rates settle")
    measured: float = Field(1.0, gt=0, le=60, description="seconds that are measured")


class DcqcnTuning(Scenario[Settings]):
    """DCQCN is on with wrong values: marks come after the pauses, or rates fall and do not recover.

    Thresholds: ECN has to act before PFC. If Kmin is above the queue that PFC allows, no packet is ever marked, and
    only pause frames stop senders, as without DCQCN (DCQCN, SIGCOMM 2015, section 4, has the calculation). With a
    threshold at the first waiting packet, each burst counts as congestion: rates are cut again and again, and half of
    the port is idle. Timers: a rate that rises every 1500 us in steps of 1 Mbit/s is cut once at the start and does not
    recover in seconds. With at most one CNP in 1000 us instead of 50, cuts come too late and too rarely, and PFC stops
    the senders although all packets are marked (`--set cnp_us=1000 --variant published`). `testbed matrix dcqcn-tuning
    --variant published --over kmin=0,2200,20000,100000` compares others.

    On real gear: Kmin too high: `rx_prio3_pause` at NICs, no ECN-marked packets in `show queue counters`, the queue's
    watermark at its limit. Too low or too slow: only `rp_cnp_handled` rises, the port is not full, no pause. CNPs too
    rare: `np_ecn_marked_roce_packets` far above `np_cnp_sent`, and pauses. Bytes are as in the buffer of the lab's
    switch, times 100 times longer and rates 100 times lower (docs/lossless.md). The right values of a fabric depend on
    its rates and buffers, so use the pattern from here and not the numbers.

    The fixes: Kmin below the pause threshold with all ports busy, and above a few packets per flow; Kmax far above it
    with a low Pmax; the NIC vendor's timers, changed on all hosts or none.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("published", "healthy", "Kmin, Kmax and timers in proportion to the published ones"),
        Variant("kmin-high", "fault", "Kmin is above what PFC lets wait", {"kmin": 100_000, "kmax": 200_000}),
        Variant("kmin-low", "fault", "every packet that finds another one waiting is marked", {"kmin": 0, "kmax": 1}),
        Variant(
            "slow-increase",
            "fault",
            "rates rise every 1500 us, by a tenth",
            {"increase_us": 1500, "additive_bps": 1e6, "hyper_bps": 1e6},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        out = run.lab.interface(OUT).lossless
        with run.step("switch and NICs get their values"):
            run.lab.switch("leaf").change_profile(ecn_min=p.kmin, ecn_max=p.kmax, ecn_probability=p.pmax)
            values = {"scale": 100, "least_bps": 5e6, "increase_bytes": 1_250_000, "cnp_us": p.cnp_us}
            values |= {"increase_us": p.increase_us, "additive_bps": p.additive_bps, "hyper_bps": p.hyper_bps}
            for nic in (*senders, receiver):
                nic.control_congestion("dcqcn", **values)

        def pauses() -> int:
            return sum(sender.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for sender in senders)

        with Streams([(sender, receiver) for sender in senders], ATTRIBUTES) as streams:
            with run.step("four senders write without a pause"):
                streams.run(p.start)
            with run.step(f"{p.measured:g} s are measured"):
                before, queued = pauses(), list[int]()
                rates = streams.run(p.measured, lambda: queued.append(out.queue(LOSSLESS).bytes))
                paused = pauses() - before

        total, queue = sum(rates), round(sum(queued) / len(queued))
        marked, cnps = out.queue(LOSSLESS).marked_packets, receiver.lossless.counters()["np_cnp_sent"]
        run.note(goodput_mbit=round(total / 1e6, 1), jain=round(fairness(rates), 3), mean_queue=queue)
        run.note(pause_frames=paused, marked=marked, cnps=cnps)
        run.expect("nothing is dropped", out.queue(LOSSLESS).dropped_packets, 0)
        if paused > 100:
            run.observe("fault", f"{paused} pause frames in {p.measured:g} s, {queue / 1000:.0f} kB in the queue")
            run.expect("the port is busy", total, lambda rate: 43e6 < rate < 52e6)
            run.expect("the queue is as long as PFC lets it be", queue, lambda length: length > 30_000)
            if p.kmin > out.queue(LOSSLESS).most_bytes:
                run.expect("nothing is marked", (marked, cnps), (0, 0))
        elif total < 40e6:
            run.observe("fault", f"{total / 1e6:.0f} of 50 Mbit/s are used")
            run.expect("hardly anything waits", queue, lambda length: length < 1_100)
            run.expect("nobody pauses", paused, 0)
            run.expect("the senders were told to slow down", cnps, lambda count: count > 0)
        else:
            run.observe("healthy", f"{total / 1e6:.0f} of 50 Mbit/s, {queue / 1000:.0f} kB in the queue")
            run.expect("some packets are marked", marked, lambda packets: packets > 10)
            run.expect("all have their share (Jain's index)", fairness(rates), lambda index: index > 0.9)
