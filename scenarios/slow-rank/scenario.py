from itertools import pairwise, permutations
from pathlib import Path
from statistics import mean
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkLoss, LinkRate
from testbed.workload import Job, mpirun

PROGRAM = Path(__file__).with_name("train.py")
ENDS = "leaf:e2", "n2:eth1"
"""Of the link of rank 2."""
RANKS, STEPS, BYTES = 4, 10, 200_000
COMPUTE_S = 0.1
"""Seconds that train.py computes in a step."""
RING = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}
"""Each rank sends and receives 2 * (RANKS - 1) / RANKS of the gradient, as in rings of NCCL."""
SLOW = 2.0
"""A job is slow that takes so many times what its computation and its bytes need."""
JOB_S = 300.0


class Settings(Parameters):
    link: Literal["sound", "slow", "lossy"] = Field("slow", description="the link of rank 2")
    rate: int = Field(4_000_000, ge=1_000_000, le=40_000_000, description="bit/s of a slow one; the others have 40e6")
    loss: float = Field(3.0, gt=0, le=20, description="percent that a lossy one loses, each way")


class SlowRank(Scenario[Settings]):
    """One degraded link sets the pace of all ranks, and all look alike.

    A link came up with fewer lanes or at a lower speed, a cable is bad, or a NIC sits in a slot of half the width. The
    job runs, its results are right, and each step takes several times as long. All ranks wait in the same Allreduce for
    the bytes on this one link, so all report the same slow step: no log names the rank.

    On real gear: the throughput of the job falls, `nccl-tests` is slow over all nodes and fast over the healthy half of
    them; `show interface status` has a port at another speed than its neighbours, `show queuing interface` or the
    queue's watermark shows that packets wait only at this port, without a drop; with a bad cable FCS errors and
    `out_of_sequence`, `local_ack_timeout_err` on the NICs of both sides of each pair with this rank. Ports of the
    others are idle most of a step.

    The fix: repair the link, or remove the node from the job. Bisecting the nodes finds it, and so do counters:
    `testbed diagnose` names the link: its port sends no more than the others and is busy for longer.
    """

    tags = ("training", "link")
    variants = (
        Variant("slow-link", "fault", "the link of rank 2 has a tenth of the rate of the others"),
        Variant("lossy-link", "fault", "it loses three packets of 100", {"link": "lossy"}),
        Variant("repaired", "healthy", "it is like the others", {"link": "sound"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(f"n{number}") for number in range(RANKS)]
        with run.step("the nodes know each other's MACs"):  # ibv_create_ah waits 1 s: a lost ARP reply ends it
            pairs = permutations(hosts, 2)
            reached = [one.ping(other["eth1"].address().ip, within=1) for one, other in pairs]
            run.expect("each reaches the others", reached, RANKS * (RANKS - 1) * [True])

        with run.step("the job trains"):
            for end in ENDS:
                if p.link == "slow":
                    run.inject(LinkRate(end=end, rate=p.rate))
                elif p.link == "lossy":
                    run.inject(LinkLoss(end=end, loss=p.loss))
            job = mpirun(run.lab, hosts, PROGRAM, *STEPS * [str(BYTES)], launcher=run.lab.host("launcher"), mca=RING)
            job.check(JOB_S)

        steps = [step_times(job, rank) for rank in range(RANKS)]
        paces, totals = [mean(times) for times in steps], [sum(times) for times in steps]
        computing = [mean(times_outside(job, rank)) for rank in range(RANKS)]
        bits = 8 * BYTES * 2 * (RANKS - 1) / RANKS
        expected_s = COMPUTE_S + bits / 40e6
        queues = [run.lab.interface(f"leaf:e{number}").queue_counters() for number in range(RANKS)]
        lost = [queue["queue_lost"] for queue in queues]
        run.note(step_s=[round(pace, 2) for pace in paces], expected_step_s=round(expected_s, 2), lost=lost)
        if max(paces) > SLOW * expected_s:
            run.observe("fault", f"a step takes {max(paces):.2f} s on all ranks, {expected_s:.2f} s on sound links")
        else:
            run.observe("healthy", f"a step takes {max(paces):.2f} s")
        run.expect("all ranks compute for the same time", max(computing) / min(computing), lambda ratio: ratio < 1.2)
        lossy = p.link == "lossy"  # a rank may wait alone for its last packets then, one step at most
        apart = max(map(max, steps)) if lossy else 0.1 * min(totals)
        run.expect("all ranks have the same pace", max(totals) - min(totals), lambda seconds: seconds < apart)
        run.expect(
            "the ports behind which packets are lost", [count > 0 for count in lost], [False, False, lossy, False]
        )
        if p.link == "slow":
            run.expect("the slow link's bytes take the time", max(paces), lambda pace: pace > bits / p.rate)


def step_times(job: Job, rank: int) -> list[float]:
    """Seconds from the end of an Allreduce to the end of the next."""
    ends = [call.began / 1e9 + call.seconds for call in job.calls(rank, "Allreduce")]
    return [after - before for before, after in pairwise(ends)]


def times_outside(job: Job, rank: int) -> list[float]:
    """Seconds of a step outside of MPI."""
    calls = job.calls(rank, "Allreduce")
    return [seconds - call.seconds for seconds, call in zip(step_times(job, rank), calls[1:], strict=True)]
