from contextlib import ExitStack

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import QueueTooSmall
from testbed.workload import Attributes, Streams

PORT = "leaf:e5"
"""To the receiver."""
MESSAGE, MESSAGES = 64 << 10, 3
FRAME = 1024 + 16 + 8 + 20 + 14
"""A full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""
ECT = 2
"""ECN-capable transport: packets are marked, not dropped, where a switch marks."""


class Settings(Parameters):
    queue: int = Field(100, ge=70, le=1000, description="packets that the port to the receiver holds; a QP sends 65")
    at_once: int = Field(4, ge=1, le=4, description="senders that write at the same time")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class Incast(Scenario[Settings]):
    """Many senders, one receiver, a shallow buffer: drops, then a storm of retries.

    A shuffle, the reduction at a parameter server, a read from striped storage: data that is requested together arrives
    together. The port drains at its rate, the rest waits, and the port drops packets when the buffer is full. A RoCE
    receiver takes nothing out of order, so after one lost packet the queue pair resends everything after it
    (go-back-N), into the same full buffer. The goodput collapses, and a sender without retries left ends with
    RETRY_EXC_ERR.

    On real gear: output discards and the buffer watermark of the receiver's port; `out_of_sequence` at the receiver,
    `packet_seq_err` and `local_ack_timeout_err` at the senders. With working ECN and DCQCN, marks come first and the
    senders slow down. Soft-RoCE has no congestion control: here marks are counted without effect, as with NICs on which
    DCQCN is off. There is no PFC here. Rates are scaled: 50 Mbit/s stand for 400 Gbit/s.

    The fixes: a buffer, or a share of it, that holds a window of each sender (dynamic thresholds, alpha). Or fewer
    senders at a time, by pacing or by credits, as in receiver-driven collectives and storage. Beyond this lab: DCQCN
    with thresholds below the buffer, PFC as the last resort.
    """

    tags = ("fabric", "congestion")
    variants = (
        Variant("as-is", "fault", "four senders at once; the port holds 100 packets"),
        Variant("deep-buffer", "healthy", "the port holds 1000 packets, a window of each and more", {"queue": 1000}),
        Variant("paced", "healthy", "one sender at a time; the port holds 100 packets", {"at_once": 1}),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        port = run.lab.interface(PORT).sends
        if p.queue != port.quality.queue:
            run.inject(QueueTooSmall(end=PORT, queue=p.queue))

        # 0.27 s: a packet that waits its turn in the deep buffer is not taken for lost.
        attributes = Attributes(timeout=16, retry_cnt=p.retry_cnt, traffic_class=ECT)
        groups = [senders[first : first + p.at_once] for first in range(0, len(senders), p.at_once)]
        with ExitStack() as opened:
            with run.step("the senders are connected"):
                pairs = ([(sender, receiver) for sender in group] for group in groups)
                connected = [opened.enter_context(Streams(some, attributes, size=MESSAGE)) for some in pairs]
            with run.step(f"each writes {MESSAGES * MESSAGE >> 10} KB, {p.at_once} at a time"):
                began = run.now
                ended = [completion for streams in connected for completion in streams.write(MESSAGES)]
                seconds = run.now - began
            statuses = [
                run.completed(sender, completion).status for sender, completion in zip(senders, ended, strict=True)
            ]

        there, gaps = port.counters(), receiver.rdma_counters()["out_of_seq_request"]
        retries = sum(sender.rdma_counters()["completer_retry_err"] for sender in senders)
        alone = len(senders) * MESSAGES * MESSAGE / 1024 * FRAME * 8 / (port.quality.rate or 1)
        slowdown = round(seconds / alone, 2)
        dead = [status for status in statuses if status != "SUCCESS"]
        run.note(slowdown=slowdown, dead=f"{len(dead)} of {len(statuses)}", port_drops=there["dropped"])
        run.note(ce_marked=there["marked"], gaps_at_receiver=gaps, retries=retries)
        if dead or slowdown > 1.5:
            run.observe("fault", f"{slowdown} times what the port's rate takes; {len(dead)} of {len(statuses)} die")
            run.expect("who dies does so of unanswered retries", set(dead) | {"RETRY_EXC_ERR"}, {"RETRY_EXC_ERR"})
            run.expect("the port drops", there["dropped"], lambda packets: packets > p.queue)
            run.expect("the receiver misses packets", gaps, lambda count: count > 0)
            run.expect("before it drops, the port marks", there["marked"], lambda packets: packets > 0)
        else:
            run.observe("healthy", f"all arrive, in {slowdown} times what the port's rate takes")
            run.expect("nothing is dropped", there["dropped"], 0)
            run.expect("nothing is sent again", (gaps, retries), (0, 0))
            run.expect("the port is as fast as it can be", slowdown, lambda times: 0.9 < times < 1.3)
