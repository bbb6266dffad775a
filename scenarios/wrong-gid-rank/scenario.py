from pathlib import Path

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.workload import mpirun

HERE = Path(__file__).parent
GRADIENTS = ["100000"] * 3
"""Bytes of each step."""
JOB_S = 120.0


class Settings(Parameters):
    index: int | None = Field(7, ge=0, le=255, description="UCX_IB_GID_INDEX of the last rank; None: its address's")


class WrongGidRank(Scenario[Settings]):
    """One rank has a wrong GID index for its address, and the job ends before its first collective.

    The template of a job has a constant, UCX_IB_GID_INDEX or NCCL_IB_GID_INDEX, that was right on the original nodes.
    On one node the table differs: one address less, one VLAN more, a NIC that had its address before IPv6 was on. There
    the index is an empty entry, and UCX finds no transport on a healthy device. Or it is the link-local GID, or on a
    NIC with RoCE v1 and v2 a v1 GID, and the rank cannot be reached over a router. The node is blamed, because the
    other ranks' logs have no error of their own.

    On real gear: `show_gids` on that node, beside another one, has another index for the address and "v2"; UCX reports
    *network device is not available* or *ibv_create_ah … failed: Network is unreachable*, NCCL "Call to ibv_modify_qp
    failed with error No such device" or "Invalid argument", in this rank alone.

    The fix: no constant. Each rank looks up the index of its address, as NCCL does without NCCL_IB_GID_INDEX (or with
    NCCL_IB_ADDR_RANGE), UCX by itself if possible, and rdma_cm always. The scenario gid-index covers pods that share a
    NIC's table.
    """

    tags = ("training", "kubernetes")
    variants = (
        Variant("empty-place", "fault", "the index of the last rank is an empty place of the table"),
        Variant("link-local", "fault", "its index is that of the link-local GID", {"index": 0}),
        Variant("by-address", "healthy", "each rank has the index of its address", {"index": None}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(name) for name in ("n0", "n1", "n2")]
        last = hosts.index(run.lab.host("n2"))
        program, arguments = HERE / "train.py", GRADIENTS
        if p.index is not None:
            program, arguments = HERE / "start.sh", [str(last), str(p.index), str(HERE / "train.py"), *GRADIENTS]
        with run.step("the job starts"):
            job = mpirun(run.lab, hosts, program, *arguments, launcher=run.lab.host("launcher"))
            failure = job.wait(JOB_S)

        done = [len(job.calls(rank.number, "Allreduce")) for rank in job.ranks]
        run.note(allreduces=done)
        if failure is None:
            run.observe("healthy", "all ranks train to the end")
            run.expect("every rank did every step", done, [len(GRADIENTS)] * len(hosts))
            return
        run.observe("fault", f"the job dies: {failure}")
        run.expect("the error names the rank", failure.rank.number, last)
        words = "fe80:" if p.index == 0 else "not available"
        run.expect("it names the device or the GID", failure.text, lambda text: words in text)
        run.expect("no rank came to an Allreduce", done, [0] * len(hosts))
        run.expect("its device is there, and is active", state(hosts[last]), "ACTIVE")


def state(host: Host) -> str:
    """The state of the port of a host's RDMA device."""
    file = f"/sys/class/infiniband/{host['eth1'].rdma}/ports/1/state"
    return host.run("cat", file).stdout.split()[-1]
