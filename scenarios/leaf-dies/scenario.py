from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, Literal

from testbed import Field, Host, Parameters, Pod, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import mpirun

PROGRAM = Path(__file__).with_name("train.py")
STEPS, BYTES = 8, 100_000
BROKEN_AT = 3
"""Steps after which the leaf dies."""
RETRY_S = 1.1
"""UCX's ACK timeout, 1.07 s."""
DOWN = ("leaf1:e0", "leaf1:e1", "leaf1:up")
JOB_S = 120.0
STATUS = {"eth1": {"RETRY_EXC_ERR", "WR_FLUSH_ERR"}, "bond0": {"WR_FLUSH_ERR"}}
"""The completions of a job that dies, by what the pods are on."""
SECOND_RAIL = "10.0.20"
"""The first three bytes of its addresses."""


class Settings(Parameters):
    rails: int = Field(1, ge=1, le=2, description="RDMA devices of a pod, the second one on the other leaf")
    master: Literal["eth1", "bond0", "br0"] = Field(
        "eth1",
        description="what the pods' macvlan is on: one NIC, an active-backup bond of both, a bridge above that bond",
    )


class LeafDies(Scenario[Settings]):
    """A leaf dies while a job trains, and the device above a node's two links decides whether the job survives.

    Each node has a link to two leaves, which are no pair for LACP. One of them loses power. With one rail, queue pairs
    have no other path: the retries are used up, and the job ends. With an active-backup bond the frames have another
    path after 0.1 s, but soft-RoCE's queue pairs do not survive: the host drops the packets that they send before that,
    and at the failover Linux recreates the bond's GIDs, to which the queue pairs refer. They end with WR_FLUSH_ERR,
    sooner than without a bond. A bridge above the bond hides both: a step waits for one retransmission at most, and the
    job continues.

    On real gear: all ports of the leaf are down in the telemetry of its neighbours, half the nodes' NICs lose their
    carrier at once, and each job with a rank there ends within seconds. A NIC with RoCE LAG (bond of both ports in its
    firmware) has one RDMA device, and its queue pairs survive, as with the bridge here. A second rail does not help a
    running job: UCX distributes its messages over both, moves no queue pair to the other device, and ends (NCCL as
    well). A job that is restarted on the remaining rail works.

    The fixes: RoCE LAG with two leaves that are a pair (MLAG, EVPN multihoming), on soft-RoCE a bridge above the bond;
    retries longer than the failover; checkpoints, and a restart on the other rail.
    """

    tags = ("training", "link", "cni")
    variants = (
        Variant("one-rail", "fault", "pods are on one NIC"),
        Variant(
            "second-rail", "fault", "they have an RDMA device on each of two NICs, and UCX uses both", {"rails": 2}
        ),
        Variant("bond-itself", "fault", "they are on an active-backup bond of both", {"master": "bond0"}),
        Variant("bridge-over-bond", "healthy", "they are on a bridge above the bond", {"master": "br0"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nodes = [run.lab.host("node0"), run.lab.host("node1")]
        with run.step("the workers are up"):
            for node in nodes:
                prepare(node, p.master)
            pods = [start_pod(run, f"worker{number}", node, p) for number, node in enumerate(nodes)]

        with run.step("the job trains"):
            gradients = STEPS * [str(BYTES)]
            launcher, both = run.lab.host("launcher"), rails_of(pods) if p.rails > 1 else None
            job = mpirun(run.lab, pods, PROGRAM, *gradients, launcher=launcher, data="net1", environment=both)
            trains = job.reaches("Allreduce", BROKEN_AT, within=JOB_S)
            run.expect(f"the ranks have done {BROKEN_AT} steps", trains, True)

        with run.step("the leaf dies"):
            for end in DOWN:
                run.inject(LinkDown(end=end))
            before = [node["eth2"].counters()["tx_bytes"] for node in nodes]
            if p.rails > 1:
                run.expect("UCX uses the second rail, too", min(before), lambda count: count > BYTES)
            failure = job.wait(JOB_S)
            moved = [node["eth2"].counters()["tx_bytes"] - count for node, count in zip(nodes, before, strict=True)]

        seconds = [call.seconds for call in job.calls(0, "Allreduce")]
        run.note(bytes_over_the_other_leaf=moved)
        if failure is None:
            slowest = max(seconds[BROKEN_AT:])
            run.note(slowest_step_s=round(slowest, 2))
            run.observe("healthy", "all ranks train to the end")
            run.expect("every step was done", len(seconds), STEPS)
            run.expect("no step waits for more than some retransmissions", slowest, lambda s: s < 3 * RETRY_S)
            least = (STEPS - BROKEN_AT - 1) * BYTES
            run.expect("the gradients go over the other leaf", min(moved), lambda count: count > least)
            return
        run.note(completion=failure.status)
        run.observe("fault", f"the job dies: {failure}")
        run.expect("its queue pairs end", failure.status, lambda status: status in STATUS[p.master])
        if p.rails > 1:
            with run.step("the job starts again, on the other rail alone"):
                again = mpirun(run.lab, pods, PROGRAM, *gradients, launcher=launcher, data="net2", name="again")
                run.expect("it trains to the end", again.wait(JOB_S) is None, True)


def prepare(node: Host, master: str) -> None:
    """Does what an administrator did before there were pods: a bond of both NICs, and a bridge above it."""
    if master == "eth1":
        return
    bond = [f"link set {link} {what}\n" for link in ("eth1", "eth2") for what in ("down", "master bond0")]
    bridge = (
        ["link add br0 type bridge\n", "link set bond0 master br0\n", "link set br0 up\n"] if master == "br0" else []
    )
    add = "link add bond0 type bond mode active-backup miimon 100\n"
    node.run("ip", "-b", "-", text="".join([add, *bond, "link set bond0 up\n", *bridge]))


def rails_of(pods: list[Pod]) -> dict[str, str]:
    """Settings of UCX by which a rank sends over both its devices. It ignores those of other pods in the list."""
    devices = [f"{pod[net].device}:1" for pod in pods for net in ("net1", "net2")]
    return {"UCX_NET_DEVICES": ",".join(devices), "UCX_MAX_EAGER_RAILS": "2", "UCX_MAX_RNDV_RAILS": "2"}


def start_pod(run: Run, name: str, node: Host, p: Settings) -> Pod:
    """A pod with the management network on eth0, and macvlan with an RDMA device on net1; on net2 the second rail."""
    metadata, first = node["mgmt0"].address(), node["eth1"].address()
    networks = [
        network("metadata", macvlan("mgmt0", metadata)),
        network("rdma", macvlan(p.master, first), {"type": "rxe"}),
    ]
    if p.rails > 1:
        second = IPv4Interface(f"{SECOND_RAIL}.{first.ip.packed[-1]}/24")
        networks.append(network("rail2", macvlan("eth2", second), {"type": "rxe"}))
    return run.lab.pods.create(node, name, networks)


def network(name: str, *plugins: dict[str, Any]) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": name, "plugins": plugins}


def macvlan(master: str, node: IPv4Interface) -> dict[str, Any]:
    """macvlan with one address, by host-local, in the subnet of a node's own."""
    ip = node.ip + 100
    only = {"subnet": str(node.network), "rangeStart": str(ip), "rangeEnd": str(ip)}
    return {"type": "macvlan", "master": master, "ipam": {"type": "host-local", "ranges": [[only]]}}
