from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown, LinkLoss
from testbed.workload import Job, mpirun

PROGRAM = Path(__file__).with_name("train.py")
STEPS, BYTES = 12, 200_000
BROKEN_AT = 5
"""Steps after which the leaf is lost, in the middle of the next one's gradient."""
JOB_S = 120.0
NODES = {"802.3ad": ("lacp", "e1"), "active-backup": ("backup", "e2"), "none": ("single", "e3")}
"""The node with each bond, and its port on the leaves."""
LINKS = {"tor1": ("up", "e1", "e2", "e3"), "tor2": ("up", "e1", "e2")}


class Settings(Parameters):
    bond: Literal["802.3ad", "active-backup", "none"] = Field(
        "802.3ad", description="the bond of the node's links to two leaves; none: it has one link"
    )
    loss: Literal["dies", "hangs"] = Field("dies", description="all links of the leaf go down, or stay up and lose all")
    timeout: float = Field(1.0, gt=0.001, le=8, description="UCX_RC_VERBS_TIMEOUT in seconds; UCX rounds it up")
    retries: int = Field(6, ge=1, le=6, description="UCX_RC_VERBS_RETRY_COUNT; 7 is for ever on soft-RoCE")


class TrainingLosesATor(Scenario[Settings]):
    """A leaf (ToR) is lost while a job trains. Whether the job goes on depends on the bond and on the QPs' patience.

    A node with one link to one leaf takes the whole job with it: a leaf is a single point of failure for all jobs of
    its rack. So fabrics for training have two leaves a rack, and each NIC a link to both. If one leaf dies, the port
    loses its carrier, and so do the spines' ports. The other leaf announces the node, too, and queue pairs go on by it,
    after one retransmission: one step is slow, the next ones are as fast as before. How slow depends on what was lost:
    a receiver answers to a gap at once, but only the sender's timeout tells of a lost end. This needs three things. The
    bond has to keep queue pairs: LACP does, active-backup does not on soft-RoCE (`bond-failover-rdma`). Somebody has to
    notice: a leaf that hangs with its ports up is missed by BFD after a second and by LACP's fast rate after three, at
    the slow rate after 90. And retries have to outlast that.

    On real gear: all ports of the leaf are down in its neighbours' telemetry, or LACP's and BFD's logs have its name;
    one step of the training log takes longer, up to seconds. With a single link, "transport retry counter exceeded" or
    NCCL's "unhandled system error" on the peers. Afterwards each NIC has half of its bandwidth, which jobs notice that
    use both links; the one queue pair here uses one link all the time.

    The fixes: two leaves a rack (Alibaba HPN's non-stacked dual-ToR, MLAG, EVPN multihoming) with LACP at the fast
    rate; retries that outlast the change (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT, UCX_RC_TIMEOUT); checkpoints for what is
    left.

    Sources: Alibaba HPN (Qian et al., SIGCOMM 2024) gives leaves as a single point of failure as the reason for its
    dual-ToR. Meta's racks (Gangidi et al., SIGCOMM 2024) have one leaf, the RTSW.
    """

    tags = ("training", "fabric", "link")
    variants = (
        Variant("single-homed", "fault", "the node has one link, to the leaf that dies", {"bond": "none"}),
        Variant("dual-homed", "healthy", "LACP to two leaves: one step waits for a retransmission"),
        Variant(
            "active-backup", "fault", "active-backup: the failover ends the queue pairs", {"bond": "active-backup"}
        ),
        Variant("hangs", "healthy", "LACP, and the leaf hangs with its ports up", {"loss": "hangs"}),
        Variant(
            "short-timeout",
            "fault",
            "the same, and queue pairs give up before anybody has noticed",
            {"loss": "hangs", "timeout": 0.1, "retries": 3},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        name, port = NODES[p.bond]
        node, (peer,) = run.lab.host(name), run.nics("peer")
        nic = node["eth1" if p.bond == "none" else "bond0"]
        run.expect("the node knows its gateway", nic.ping_gateway(within=5), True)
        run.lab.routing.converged(within=10)

        settings = {"UCX_RC_VERBS_TIMEOUT": f"{p.timeout:g}s", "UCX_RC_VERBS_RETRY_COUNT": str(p.retries)}
        leaves = [run.lab.switch(leaf) for leaf in ("tor1", "tor2")[: 1 if p.bond == "none" else 2]]
        with run.step("the job trains"):
            before = [leaf[port].counters()["tx_bytes"] for leaf in leaves]
            job = mpirun(
                run.lab,
                [nic, peer],
                PROGRAM,
                *STEPS * [str(BYTES)],
                launcher=run.lab.host("launcher"),
                environment=settings,
            )
            trains = job.reaches("Allreduce", BROKEN_AT, within=JOB_S)
            run.expect(f"the ranks have done {BROKEN_AT} steps", trains, True)
            sent = [leaf[port].counters()["tx_bytes"] - count for leaf, count in zip(leaves, before, strict=True)]
            leaf = leaves[sent.index(max(sent))]
            enough = leaf[port].counters()["tx_bytes"] + BYTES // 2
            in_the_middle = run.lab.scheduler.wait(
                lambda: leaf[port].counters()["tx_bytes"] > enough or not job.running, JOB_S, pause=0.002
            )
            run.expect("a gradient is on its way", in_the_middle and job.running, True)

        with run.step(f"{leaf}, by which the job's packets reach the node, {p.loss}"):
            for end in (leaf[link] for link in LINKS[leaf.name]):
                if p.loss == "dies":
                    run.inject(LinkDown(end=str(end)), may_outlast_run=True)
                else:
                    for side in (end, end.peer):
                        run.inject(LinkLoss(end=str(side), loss=100), may_outlast_run=True)
            done = len([call for call in job.calls(0, "Allreduce") if call.ended is not None])
            lost_at, moved = run.now, [other[port].counters()["tx_bytes"] for other in leaves]
            failure = job.wait(JOB_S)
            after_s = run.now - lost_at
            moved = [other[port].counters()["tx_bytes"] - count for other, count in zip(leaves, moved, strict=True)]

        seconds = step_times(job)
        run.note(step_before_s=round(median(seconds[1:BROKEN_AT]), 3))
        if failure:
            run.note(completion=failure.status, died_after_s=round(after_s, 1))
            run.observe("fault", f"the job dies: {failure}")
            ends = {"WR_FLUSH_ERR"} if p.bond == "active-backup" else {"RETRY_EXC_ERR"}
            run.expect("its end", {failure.status}, ends)
            return
        within, after = max(seconds[1:]), median(seconds[-4:])
        run.note(step_within_s=round(within, 3), step_after_s=round(after, 3))
        run.observe("healthy", "all ranks train to the end")
        run.expect("every step was done", len(seconds), STEPS)
        run.expect("the slow step is the one in which the leaf was lost", seconds.index(within), done)
        usual = median(seconds[1:BROKEN_AT])
        run.expect("it waits for retransmissions", within, lambda s: 1.2 * usual < s < (p.retries + 1) * p.timeout)
        run.expect("steps afterwards are as fast as before (10 %)", after / usual, near_one)
        least = (STEPS - done - 1) * BYTES
        run.expect("they went by the other leaf", sum(moved) - moved[leaves.index(leaf)], lambda count: count > least)


def step_times(job: Job) -> list[float]:
    """Seconds of each step of rank 0, from the end of the one before it; those of the first are its allreduce's."""
    calls = [call for call in job.calls(0, "Allreduce") if call.ended is not None]
    ends = [call.ended / 1e9 for call in calls if call.ended is not None]
    return [call.seconds for call in calls[:1]] + [end - before for before, end in pairwise(ends)]


def near_one(part: float) -> bool:
    return 0.9 < part < 1.1
