import math
from pathlib import Path

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import mpirun

PROGRAM = Path(__file__).with_name("train.py")
UNIT_S = 4.096e-6
"""An ACK timeout is this, times a power of 2."""
STEPS, BYTES = 8, 100_000
BROKEN_AT = 3
"""Steps after which the link goes down."""
JOB_S = 120.0
SLOW_S = 0.5
"""An Allreduce that lasts so long is slow: others take milliseconds, the first waits for the last rank's start."""


class Settings(Parameters):
    down: float = Field(3.6, gt=0, description="seconds that the link of the last rank is down")
    timeout: float = Field(1.0, gt=0.01, le=8, description="UCX_RC_VERBS_TIMEOUT in seconds; UCX rounds it up")
    retries: int = Field(3, ge=1, le=6, description="UCX_RC_VERBS_RETRY_COUNT; 7 is for ever on soft-RoCE")

    @property
    def between_s(self) -> float:
        """Seconds between two retransmissions: the timeout, rounded up to 4.096 us * 2^n."""
        return math.ldexp(UNIT_S, math.ceil(math.log2(self.timeout / UNIT_S)))


class LinkFlapDuringAllreduce(Scenario[Settings]):
    """A link flaps while a job trains: one slow step, or the end of the job.

    An optic renegotiates, or somebody cleans a connector, while ranks add up their gradients. At first there is no
    error: the NICs retransmit after each ACK timeout until their retries are used up, and all ranks wait in the same
    Allreduce. If the link is back before the last retransmission, at retries * timeout, the step is slow and the result
    is right to the bit. If not, the sender waits one timeout more and ends with RETRY_EXC_ERR. This ends the job, even
    if the link has long been up again. With UCX's timeout, 1.07 s, and 3 retries the last retransmission goes out after
    3.2 s, the job ends after 4.3 s.

    On real gear: the port flaps in the switch's log (`%ETHPORT-5-IF_DOWN`), both ends count it (`ethtool -S`:
    link_down_events_phy), `local_ack_timeout_err` grows on the NICs of the peers; the training log has one step that
    takes seconds, or "transport retry counter exceeded". The rank that ends first is a peer of the one with the bad
    link.

    The fixes: more retries, or a longer timeout, so that retries * timeout is longer than the flaps of the optics
    (UCX_RC_TIMEOUT and UCX_RC_RETRY_COUNT, for NCCL NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT); checkpoints for longer
    flaps. `testbed matrix link-flap-during-allreduce --over down=2,3,4,5,6,7` shows the limit, for any `--set
    retries=…` and `--set timeout=…`.
    """

    tags = ("training", "link")
    variants = (
        Variant("longer", "fault", "the link is down for 3.6 s, the last retry comes after 3.2 s"),
        Variant("shorter", "healthy", "it is down for 2.8 s", {"down": 2.8}),
        Variant("more-retries", "healthy", "it is down for 3.6 s; 6 retries, 6.4 s", {"retries": 6}),
        Variant("longer-timeout", "healthy", "the same; 3 retries 2.1 s apart, 6.4 s", {"timeout": 2.0}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(name) for name in ("n0", "n1", "n2")]
        settings = {"UCX_RC_VERBS_TIMEOUT": f"{p.timeout:g}s", "UCX_RC_VERBS_RETRY_COUNT": str(p.retries)}
        with run.step("the job trains"):
            job = mpirun(
                run.lab, hosts, PROGRAM, *STEPS * [str(BYTES)], launcher=run.lab.host("launcher"), environment=settings
            )
            trains = job.reaches("Allreduce", BROKEN_AT, within=JOB_S)
            run.expect(f"the ranks have done {BROKEN_AT} steps", trains, True)

        with run.step("the link of the last rank flaps"):
            down_at = run.now
            run.inject(LinkDown(end="leaf:e2"), lasting=p.down, may_outlast_run=True)
            failure = job.wait(JOB_S)
            after_s = run.now - down_at

        retries = sum(host["eth1"].rdma_counters()["completer_retry_err"] for host in hosts)
        last_retry_s, over_s = p.retries * p.between_s, (p.retries + 1) * p.between_s
        run.note(last_retry_s=round(last_retry_s, 1), retries=retries)
        run.expect("packets were sent again", retries, lambda count: count > 0)
        if failure:
            run.note(completion=failure.status, died_after_s=round(after_s, 1))
            run.observe("fault", f"the job dies: {failure}")
            run.expect("it dies of unanswered retries", failure.status, "RETRY_EXC_ERR")
            run.expect("it dies when the timeout of the last one is over", after_s, lambda s: over_s < s < over_s + 3)
            run.expect("the last retry found the link down", p.down, lambda seconds: seconds > last_retry_s - SLOW_S)
            return
        seconds = [call.seconds for call in job.calls(0, "Allreduce")]
        slow = {number: round(one, 1) for number, one in enumerate(seconds[1:], 2) if one > SLOW_S}
        run.note(slow_steps=", ".join(f"{one} s in step {number}" for number, one in slow.items()))
        run.observe("healthy", "all ranks train to the end")
        run.expect("every step was done", len(seconds), STEPS)
        run.expect("the steps from the flap on are slow", min(slow, default=0), BROKEN_AT + 1)
        lost_s = sum(slow.values())
        run.expect("they lost the flap and some retries", lost_s, lambda s: p.down - SLOW_S < s < p.down + 2 * over_s)
