"""Jobs of other shapes than one rank on each of two hosts: in pods, on rails, with more ranks."""

from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.lab import Host, HostInterface, Pod
from testbed.topology.fabrics import leaf_spine, single
from testbed.workload import Traffic, mpirun, torchrun

PROGRAMS = Path(__file__).with_name("programs")
NODES = """
name: shapes
topology:
  nodes:
    leaf: {kind: bridge}
    mgmt: {kind: bridge}
    node1: {kind: host, rdma: false}
    node2: {kind: host, rdma: false}
    bare: {kind: host}
    launcher: {kind: host}
  links:
    - {endpoints: ["leaf:p1", "node1:eth1"]}
    - {endpoints: ["leaf:p2", "node2:eth1"]}
    - {endpoints: ["leaf:p3", "bare:eth1"]}
    - {endpoints: ["mgmt:p1", "node1:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p2", "node2:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p3", "bare:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p4", "launcher:mgmt0"], rdma: false}
"""
JOB_S = 120
SENT = 500_000


def macvlan(name: str, end: HostInterface, node: int, *more: dict[str, str]) -> dict[str, object]:
    """A network of pods on a node's interface, with addresses of its own in the subnet there."""
    subnet, first = end.address().network, 100 + 10 * node
    addresses = {"subnet": str(subnet), "rangeStart": str(subnet[first]), "rangeEnd": str(subnet[first + 9])}
    plugin = {"type": "macvlan", "master": end.name, "ipam": {"type": "host-local", "ranges": [[addresses]]}}
    return {"cniVersion": "1.0.0", "name": name, "plugins": [plugin, *more]}


def create_pods(lab, per_node: int) -> list[Pod]:
    """Pods with the management network as eth0 and an RDMA device on net1."""
    found = []
    for number, node in enumerate((lab.host("node1"), lab.host("node2"))):
        metadata = macvlan("metadata", node["mgmt0"], number)
        data = macvlan("rdma", node["eth1"], number, {"type": "rxe"})
        names = [f"worker{number * per_node + count}" for count in range(per_node)]
        found += [lab.pods.create(node, name, [metadata, data]) for name in names]
    return found


def check_sums(job, ranks: int) -> None:
    job.check(JOB_S)
    wanted = f"sum {ranks * (ranks + 1) / 2} of {ranks}\n"
    assert [job.output(rank) for rank in range(ranks)] == [wanted] * ranks


def hosts_of(lab, number: int) -> list[Host]:
    return [lab.host(f"host{count + 1}") for count in range(number)]


@pytest.mark.topology(NODES)
def test_four_ranks_in_pods_on_two_nodes(lab):
    pods = create_pods(lab, 2)
    traffic = [Traffic(node["eth1"]) for node in (lab.host("node1"), lab.host("node2"))]
    job = mpirun(lab, pods, PROGRAMS / "allreduce.py", launcher=lab.host("launcher"), data="net1")
    check_sums(job, 4)
    assert [rank.host.name for rank in job.ranks] == ["worker0", "worker1", "worker2", "worker3"]
    for counted in (one.bytes() for one in traffic):
        assert counted["roce_out"] > 8000
        assert (counted["tcp_out"], counted["tcp_in"]) == (0, 0)


@pytest.mark.topology(NODES)
def test_a_job_has_ranks_in_pods_and_in_host_network(lab):
    pods = create_pods(lab, 1)
    bare = lab.host("bare")
    traffic = Traffic(bare["eth1"])
    places = [pods[0]["net1"], bare, pods[1]["net1"]]
    check_sums(mpirun(lab, places, PROGRAMS / "allreduce.py", launcher=lab.host("launcher")), 3)
    assert traffic.bytes()["roce_out"] > 8000
    job = torchrun(lab, [bare, *pods], PROGRAMS / "whoami.py", name="control")
    job.check(JOB_S)
    assert "rank 2 of 3" in job.output(2)


@pytest.mark.topology(NODES)
def test_a_job_ends_when_one_of_its_pods_is_deleted(lab):
    pods = create_pods(lab, 1)
    job = mpirun(lab, pods, PROGRAMS / "misbehave.py", "hangs", launcher=lab.host("launcher"), data="net1")
    logs = [job.directory / f"rank-{rank}.log" for rank in range(2)]
    assert lab.scheduler.wait(lambda: all(log.exists() for log in logs), 30)
    pods[1].delete()
    assert str(job.wait(JOB_S)) == "rank 1 on worker1: mpirun lost contact with it"


@pytest.mark.topology(NODES)
def test_a_pod_that_the_launcher_does_not_reach_is_named(lab):
    node = lab.host("node1")
    data = macvlan("rdma", node["eth1"], 0, {"type": "rxe"})
    pods = [lab.pods.create(node, name, [data]) for name in ("one", "two")]
    with pytest.raises(InputError, match=r"one has no address in \S+, the management network of the job"):
        mpirun(lab, pods, "hostname", launcher=lab.host("launcher"), data="eth0")


@pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=2, rails=2, management=True).topology())
def test_each_rank_of_a_host_has_its_own_rail(lab):
    hosts = hosts_of(lab, 2)
    rails = [host[name] for host in hosts for name in ("eth1", "eth2")]
    first, second = (Traffic(hosts[0][name]) for name in ("eth1", "eth2"))
    job = mpirun(lab, rails, PROGRAMS / "send.py", str(SENT), "1", "3", launcher=lab.host("launcher"))
    job.check(JOB_S)
    assert second.bytes()["roce_out"] > SENT
    assert first.bytes()["roce_out"] < SENT / 10


@pytest.mark.parametrize(
    ("hosts", "ranks_per_host"),
    [
        pytest.param(hosts, each, marks=pytest.mark.topology(single(hosts=hosts, management=True).topology()))
        for hosts, each in ((8, 1), (4, 4), (8, 4))
    ],
)
def test_eight_sixteen_and_32_ranks_add_up(lab, hosts, ranks_per_host):
    launcher = lab.host("launcher")
    traffic = Traffic(lab.host("host1")["eth1"])
    job = mpirun(lab, hosts_of(lab, hosts), PROGRAMS / "allreduce.py", launcher=launcher, ranks_per_host=ranks_per_host)
    check_sums(job, hosts * ranks_per_host)
    assert traffic.bytes()["roce_out"] > 8000
