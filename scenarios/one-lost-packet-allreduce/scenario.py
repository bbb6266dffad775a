from dataclasses import replace
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import ExactPacket
from testbed.workload import Attributes, Group, Model, Parallel, Training

RANKS = 4
MESSAGE = 64 << 10
TRAINING = Training(Model(layers=1, hidden=128, sequence=64, vocabulary=512), Parallel(data=RANKS), micro_batches=1)
BLOCK = TRAINING.gradient // RANKS
LAST = 2 * (RANKS - 1) * -(-BLOCK // MESSAGE)
"""Messages that a rank gets in an allreduce. Each ends with a packet SEND_LAST."""
TO_VICTIM = "leaf1:e2"
"""The port to rank 1."""


class Settings(Parameters):
    lost: Literal["last", "middle", "none"] = Field(
        "last", description="the packet of the first allreduce that is lost"
    )
    timeout: int = Field(20, ge=12, le=21, description="the QP's ACK timeout, 4.096 us * 2^timeout; NCCL has 20")
    computes: float = Field(1.0, gt=0, le=60, description="seconds from one allreduce to the next one")


class OneLostPacketAllreduce(Scenario[Settings]):
    """The last packet of an allreduce is lost, and all ranks wait until the next packet or the ACK timeout.

    A receiver detects a loss by the next packet. If there is one, it sends a NAK at once, and go-back-N costs a window:
    some milliseconds. No packet follows the last one of an allreduce, because the sender has all its data and computes.
    The receiver cannot compute: it waits until the sender's ACK timeout (4.3 s with NCCL's 20) or until the next
    allreduce sends it a packet, whichever comes first. After that it still has to compute, and in the next allreduce
    all ranks wait for it. So the job loses

        min(ACK timeout, time until the next message to that rank)

    and this run compares the end times of all ranks with those of the same steps without the loss. loss-vs-goodput has
    the other case: there is always a next packet.

    On real gear: `local_ack_timeout_err` of one NIC grows by one, or `out_of_sequence` of its peer, and one step in
    thousands is longer. The receiver of the packet is the rank that waits. Profilers show all other ranks as slow, in
    the next allreduce.

    The fixes: find the link with losses (symbol errors, FCS errors, discards). A shorter NCCL_IB_TIMEOUT, but longer
    than queueing delays: 14 is 67 ms. Adaptive retransmission of NICs (ROCE_ADAPTIVE_RETRANS), which begins with a
    short timeout.
    """

    tags = ("link", "training")
    variants = (
        Variant("as-is", "fault", "the last packet of an allreduce is lost; NCCL's timeout"),
        Variant("short-timeout", "healthy", "the same, with an ACK timeout of 67 ms", {"timeout": 14}),
        Variant("middle", "healthy", "a packet in the middle is lost", {"lost": "middle"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = run.nics(*(f"host{number}" for number in range(1, RANKS + 1)))
        attributes = Attributes(timeout=p.timeout)
        training = replace(TRAINING, computes_s=p.computes / 2)  # forward, and backward
        steps = [[*step, *step] for step in training.steps()]
        with Group(nics, attributes, message=MESSAGE) as group:
            with run.step("two steps without loss"):
                clean = group.carry_out(steps, "two steps", within=60)
            if p.lost == "last":
                run.inject(ExactPacket(end=TO_VICTIM, action="drop", opcode="SEND_LAST", number=LAST))
            elif p.lost == "middle":
                run.inject(ExactPacket(end=TO_VICTIM, action="drop", opcode="SEND_MIDDLE", number=100))
            with run.step(f"the same, one packet is lost: {p.lost}"):
                lossy = group.carry_out(steps, "two steps", within=60)

        late = [after - before for before, after in zip(clean.finished_s, lossy.finished_s, strict=True)]
        formula = min(attributes.retry_s / (attributes.retry_cnt + 1), p.computes) if p.lost == "last" else 0.0
        gaps, timeouts = nics[1].rdma_counters()["out_of_seq_request"], nics[0].rdma_counters()["completer_retry_err"]
        run.note(late_ms=", ".join(f"{seconds * 1e3:.0f}" for seconds in late), formula_ms=round(formula * 1e3))
        run.note(two_steps_s=round(clean.elapsed_s, 3), gaps_at_receiver=gaps, retries=timeouts)
        run.expect("all ranks are late by as much (20 ms)", max(late) - min(late), lambda spread: spread < 0.02)
        run.expect("as late as the formula says (60 ms)", max(late) - formula, lambda error: abs(error) < 0.06)
        share = max(late) / clean.elapsed_s
        text = f"all {RANKS} ranks end {max(late) * 1e3:.0f} ms later by one lost packet, {share:.0%} of two steps"
        run.observe("fault" if share > 0.2 else "healthy", text)
