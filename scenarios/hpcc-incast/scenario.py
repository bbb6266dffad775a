import statistics
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Streams, connect_pair, open_endpoint

LOSSLESS = 3
ATTRIBUTES = Attributes(timeout=20, traffic_class=26 << 2 | 2)
"""DSCP 26, the lossless class, ECN-capable."""
WORKERS = 4
SCALE = 800
"""50 Mbit/s stand for 40 Gbit/s."""


class Settings(Parameters):
    control: Literal["none", "dcqcn", "hpcc"] = Field("dcqcn", description="congestion control of the workers' NICs")
    settle: float = Field(3.0, gt=0, le=60, description="seconds in which rates settle")


class HpccIncast(Scenario[Settings]):
    """Four workers write to one host, and a client's small messages wait behind them: DCQCN needs a queue to see one.

    DCQCN slows senders down by marks, and switches mark when packets wait. So in an incast a queue of tens of kilobytes
    stands at the receiver's port all the time, and every message behind it waits for it. HPCC (SIGCOMM 2019) has each
    hop put its queue length, bytes sent and rate into packets (INT). A sender knows how full the path is after one
    round trip, aims at 95 % of it, and the queue stays near zero.

    On real gear: the port's queue watermark (`show queue watermark unicast`) against its rate; the tail of small
    messages' latency (`ib_write_lat` beside the incast) while nothing is dropped. HPCC needs switches with INT and NICs
    that use it (Alibaba's, and programmable congestion control of ConnectX-6 Dx and later). Rates are scaled by 800.

    The fix: congestion control by telemetry. The price: 5 % of the bandwidth, and an answer to each packet, which this
    lab sends as a frame of its own. The telemetry itself is in memory that ports and NICs share, not in the packets.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "DCQCN, with the thresholds of its paper"),
        Variant("pfc-only", "fault", "no congestion control: pause frames only", {"control": "none"}),
        Variant("hpcc", "healthy", "HPCC", {"control": "hpcc"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        receiver, client, *workers = run.nics("receiver", "client", *(f"worker{n}" for n in range(1, WORKERS + 1)))
        values: dict[str, float] = {} if p.control == "none" else {"scale": SCALE}
        if p.control == "hpcc":
            values["base_rtt_us"] = 2.5
        for nic in (receiver, *workers):
            nic.control_congestion(p.control, **values)
        client.control_congestion("none")
        port = run.lab.interface("leaf:e0").lossless
        near, far = open_endpoint(client), open_endpoint(receiver)
        connect_pair(near, far, ATTRIBUTES)
        with run.step("the client's small messages have the port for themselves"):
            idle = statistics.median(near.write(64, within=5).elapsed_s for _ in range(5))

        queues: list[int] = []
        latencies: list[float] = []

        def look() -> None:
            queues.append(port.queue(LOSSLESS).bytes)
            latencies.append(near.write(64, within=5).elapsed_s)

        with Streams([(worker, receiver) for worker in workers], ATTRIBUTES, ahead=8) as streams:
            with run.step(f"four workers write, and their rates settle: {p.control}"):
                streams.run(p.settle)
            with run.step("a second is measured, and the client's messages"):
                rates = streams.run(1.0, look)
        dropped = port.queue(LOSSLESS).dropped_packets
        # A queue of DCQCN comes and goes: in some runs most messages meet none, so a median does not see it.
        latency, mean = statistics.fmean(latencies), statistics.fmean(queues)
        run.note(mean_queue=round(mean), longest_queue=max(queues), mbit=round(sum(rates) / 1e6, 1))
        run.note(idle_us=round(idle * 1e6), message_us=round(latency * 1e6), slowest_us=round(max(latencies) * 1e6))
        run.note(rates_mbit=[round(rate / 1e6, 1) for rate in rates])
        run.expect("nothing is dropped", dropped, 0)
        run.expect("the receiver's link is in use", sum(rates), lambda rate: rate > 0.85 * 46e6)
        text = f"a small message takes {latency / idle:.1f} times as long as on an idle network, on average"
        if latency > 5 * idle:
            run.observe("fault", text)
            run.expect("packets wait at the receiver's port", mean, lambda waiting: waiting > 10_000)
        else:
            run.observe("healthy", text)
            run.expect("hardly a packet waits", mean, lambda waiting: waiting < 4_000)
