from training import JOB_S, PROGRAM, RATE, first_step, lose_power, parameters, saved_steps, start

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.workload import Job

DIES_AFTER = 10
"""Steps."""


class Settings(Parameters):
    steps: int = Field(14, ge=12, description="training steps of the whole training")
    every: int = Field(0, ge=0, description="steps from one checkpoint to the next; 0: no checkpoints")
    tcp_retries2: int = Field(15, ge=3, description="the launcher's retransmissions before TCP gives up")


class ElasticRestart(Scenario[Settings]):
    """A node dies, and the job restarts with the remaining ranks: how much work is lost.

    Three nodes train; one loses its power. The others end with RETRY_EXC_ERR, and the job is restarted with two ranks,
    without waiting for a repair. Each of them has a larger share of the data, so the result is near that of three
    ranks, but not equal to the bit.

    Without checkpoints the training begins at 0. The wait costs more than the steps: ranks end after eight seconds, but
    mpirun waits a quarter of an hour for its daemon on the dead node, while its kernel retransmits.

    On real gear: mpirun hangs though all ranks are gone, and `ss -tno` on its node shows a connection with a growing
    retransmission timer. torchrun and Kubernetes' operators have their own timeouts, also of minutes.

    The fixes: checkpoints. With one every four steps up to four are lost; with one every step, no step that all ranks
    had finished. And fewer retransmissions on the launcher: with `tcp_retries2` 5 instead of 15 mpirun ends after 24
    seconds.
    """

    tags = ("training", "recovery", "link")
    training = True
    variants = (
        Variant("as-is", "fault", "no checkpoints: the training begins again"),
        Variant("every-4", "healthy", "a checkpoint every four steps", {"every": 4}),
        Variant("every-step", "healthy", "a checkpoint every step, fewer TCP retries", {"every": 1, "tcp_retries2": 5}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts, launcher = [run.lab.host(f"n{number}") for number in range(3)], run.lab.host("launcher")
        checkpoints = run.lab.file("checkpoints") if p.every else None
        if checkpoints:
            checkpoints.mkdir()
        launcher.sysctl("net/ipv4/tcp_retries2", p.tcp_retries2)
        with run.step("n2 dies in training"):
            job = start(run, hosts, "job", p.steps, checkpoints, p.every)
            lose_power(run, job, hosts[2], after=DIES_AFTER)
        done, saved = job.steps_done(), saved_steps(checkpoints) if checkpoints else 0
        run.note(steps_done=done, steps_lost=done - saved)

        with run.step("the job starts again on the two nodes that are left"):
            again = start(run, hosts[:2], "again", p.steps, checkpoints, p.every)
            again.check(JOB_S)
        run.expect("it begins where the last checkpoint ended", first_step(again), saved)
        run.expect("both ranks train to the end", [len(again.steps(rank)) for rank in range(2)], [p.steps - saved] * 2)
        self.expect_result(run, again, p)
        if not p.every:
            run.observe("fault", f"the training begins again: {done} steps are lost")
            return
        run.observe("healthy", f"the training goes on: {done - saved} of {done} steps are lost")
        run.expect(
            "no more steps are lost than there are between checkpoints", done - saved, lambda n: 0 <= n < p.every
        )

    def expect_result(self, run: Run, again: Job, p: Settings) -> None:
        """Both ranks have the same parameters: those of two ranks from the start, if the training began there; else
        near them, because three ranks did the first steps."""
        arguments = ["--reference=2", f"--steps={p.steps}", RATE]
        alone = Job.alone(run.lab, run.lab.host("launcher"), PROGRAM, *arguments, name="reference")
        alone.check(JOB_S)
        reference, *ranks = parameters(alone, "reference"), *(parameters(again, str(rank)) for rank in range(2))
        run.expect("both ranks have the same parameters", ranks[0] == ranks[1], True)
        apart = max(abs(one - other) for one, other in zip(ranks[0], reference, strict=True))
        run.note(apart_from_two_ranks=f"{apart:.0e}")
        if p.every:
            run.expect("they are near those of two ranks from the start", apart, lambda most: 0 < most < 0.01)
        else:
            run.expect("they are those of two ranks from the start, to the bit", apart, 0)
