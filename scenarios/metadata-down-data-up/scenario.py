from pathlib import Path
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Job, Traffic, mpirun

PROGRAM = Path(__file__).with_name("train.py")
ENDS = {"metadata": "mgmt:p1", "data": "leaf:e1"}
STEPS, CUT_AFTER = 14, 5
JOB_S = 3600.0
SOON_S = 2.0
"""Seconds in which nine steps are done, and mpirun ends a job whose rank has died."""
RETRIES_S = 7.6
"""Seven ACK timeouts of UCX."""


class Settings(Parameters):
    cut: Literal["metadata", "data"] = Field("metadata", description="the network that n1 loses")
    lasting: float = Field(0.0, ge=0, description="seconds for which it is lost; 0: for ever")


class MetadataDownDataUp(Scenario[Settings]):
    """A node loses the management network or the data network in training, and keeps the other one.

    A job has two networks: RoCE for gradients, and TCP for mpirun's daemons (PMIx) or a store, for the ranks'
    rendezvous, finalisation and termination. The networks fail separately, and look the same from outside: the job
    hangs.

    Without the management network the training continues: no step is slow, all are done, the parameters are right. Then
    MPI_Finalize waits for mpirun, and mpirun gets no message from n1's daemon until TCP's keepalive gives up, eight
    minutes later. The job is reported as failed, although all of its work is done. A loss of half a minute is noticed
    only at the end, which is late.

    Without the data network no further step is done. After eight seconds both ranks end with RETRY_EXC_ERR, and mpirun,
    which reaches every daemon, ends the job at once and names the rank. After a loss of three seconds, one step is
    slow.

        lost          steps go on  ranks end with      mpirun ends the job
        management    yes          nothing, they wait  after 8 min 15 s
        data          no           RETRY_EXC_ERR       after 8.3 s

    On real gear: with the management network lost the scheduler has the node as NotReady or down, and the counters of
    `ethtool -S` on its RDMA NIC still grow. With the data network lost ssh works, the node is Ready, and the NIC counts
    only retransmissions.

    The fixes: save the result before MPI_Finalize, so that such a job can count as done; a scheduler timeout longer
    than a short failure of the management network, and for the data network an ACK timeout times retries that is longer
    than a short failure. Alarms on both networks of each node, by name.
    """

    tags = ("training", "link")
    training = True
    variants = (
        Variant("as-is", "fault", "the management network is lost, the data network works"),
        Variant("metadata-flap", "healthy", "the management network is lost for half a minute", {"lasting": 30.0}),
        Variant("data-down", "fault", "the data network is lost, the management network works", {"cut": "data"}),
        Variant("data-flap", "healthy", "the data network is lost for three seconds", {"cut": "data", "lasting": 3.0}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(name) for name in ("n0", "n1")]
        with run.step(f"n1 loses the {p.cut} network in training"):
            options = f"--steps={STEPS}", "--rate=0.1"
            job = mpirun(run.lab, hosts, PROGRAM, *options, launcher=run.lab.host("launcher"))
            begun = run.lab.scheduler.wait(lambda: job.steps_done() >= CUT_AFTER or not job.running, JOB_S, pause=0.05)
            run.expect("the job trains", begun and job.running, True)
            before = job.steps_done()
            data, cut_at = Traffic(hosts[1]["eth1"]), run.now
            run.inject(LinkDown(end=ENDS[p.cut]), lasting=p.lasting or None, may_outlast_run=not p.lasting)
        with run.step("the job ends"):
            run.lab.scheduler.wait(lambda: job.steps_done() == STEPS or not job.running, JOB_S, pause=0.05)
            trained = run.now - cut_at
            failure = job.wait(JOB_S)
            ended = run.now - cut_at
        run.note(steps_before=before, steps=job.steps_done(), ended_after_s=round(ended, 1))
        if p.cut == "data" and not p.lasting:
            run.expect("at most the step that was under way is done", job.steps_done() - before, lambda n: n <= 1)
            run.expect("both ranks end of retries", [is_retry(job, rank) for rank in range(2)], [True, True])
            soon = RETRIES_S + SOON_S
            run.expect("the job ends when the retries are over", ended, lambda s: RETRIES_S <= s <= soon)
            run.observe("fault", f"the job dies: {failure}")
            return
        run.note(trained_after_s=round(trained, 1))
        run.expect("all steps are done", job.steps_done(), STEPS)
        run.expect("gradients came over RoCE", data.packets()["roce_in"], lambda packets: packets > 100)
        saved = [(job.directory / f"parameters-{rank}.f32").read_bytes() for rank in range(2)]
        run.expect("both ranks have saved the same parameters", saved[0] == saved[1], True)
        if p.cut == "data":
            longest = p.lasting + 3 * RETRIES_S / 7 + SOON_S
            run.expect("it took as long as the network was lost, and some retries", ended, lambda s: s <= longest)
            run.expect("no step was done meanwhile", trained, lambda s: s >= p.lasting)
        else:
            run.expect("no step waited for the management network", trained, lambda s: s < SOON_S)
            run.expect("the end did", ended, lambda s: s >= (p.lasting or 300))
            run.expect("no rank says why it ends", [job.seen_by(rank) for rank in job.ranks], ["", ""])
        if failure:
            run.observe("fault", f"the job has done its work and is lost: {failure}")
        else:
            run.observe("healthy", "the job trains to the end")


def is_retry(job: Job, rank: int) -> bool:
    return job.seen_by(job.ranks[rank]).startswith("RETRY_EXC_ERR")
