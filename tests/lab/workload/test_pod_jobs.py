"""Training jobs of manifests with torch: plain torch.distributed, torchrun in both operators' forms, children."""

import pytest

from testbed.errors import TestbedError
from testbed.workload import pod_job

FLAT = """
name: flat
topology:
  nodes:
    sw: {kind: bridge}
    node1: {kind: host}
    node2: {kind: host}
  links:
    - {endpoints: ["sw:p1", "node1:eth1"], rdma: false}
    - {endpoints: ["sw:p2", "node2:eth1"], rdma: false}
"""
pytestmark = pytest.mark.topology(FLAT)
SUM = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor(float(dist.get_rank()))
dist.all_reduce(value)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", value.item(), flush=True)
if len(sys.argv) > 1 and dist.get_rank() == 1:
    raise RuntimeError("rank 1 gives up")
time.sleep(5 * (len(sys.argv) > 1))
os._exit(0)
"""
SPAWN = """
import multiprocessing
def child():
    print("the child runs", flush=True)
if __name__ == "__main__":
    one = multiprocessing.get_context("spawn").Process(target=child)
    one.start()
    one.join()
    raise SystemExit(one.exitcode)
"""
JOB_S = 120


@pytest.fixture
def network(lab):
    subnet = lab.host("node1")["eth1"].address().network
    pool = {"name": "jobs", "subnet": str(subnet), "ips": [f"{subnet[100]}-{subnet[119]}"]}
    plugin = {"type": "macvlan", "master": "eth1", "ipam": {"type": "ippool", "pools": [pool]}}
    yield {"cniVersion": "1.0.0", "name": "jobs", "plugins": [plugin]}
    for one in lab.objects.list("PyTorchJob"):
        lab.pods.delete_object("PyTorchJob", one["metadata"]["name"])


def job(lab, tmp_path, network, version, command, workers=2, master=True, **spec):
    (tmp_path / "train.py").write_text(SUM)
    (tmp_path / "spawn.py").write_text(SPAWN)
    part = {"spec": {"containers": [{"name": "pytorch", "image": "train:1", "command": command}]}}
    replicas = {"Worker": {"replicas": workers, "restartPolicy": "Never", "template": part}}
    if master:
        replicas["Master"] = {"replicas": 1, "restartPolicy": "Never", "template": part}
    metadata, given = {"name": "mnist"}, {"pytorchReplicaSpecs": replicas, **spec}
    one = {"apiVersion": version, "kind": "PyTorchJob", "metadata": metadata, "spec": given}
    return pod_job(lab, one, name=tmp_path.name, networks=[network], beside=tmp_path)


KUBEDL, KUBEFLOW = "training.kubedl.io/v1alpha1", "kubeflow.org/v1"


@pytest.mark.parametrize("version", [KUBEDL, KUBEFLOW])
def test_plain_torch_finds_its_master_by_the_variables(lab, tmp_path, network, version):
    found = job(lab, tmp_path, network, version, ["python", "train.py"])
    assert found.wait(JOB_S) is None, [found.output(rank) for rank in range(3)]
    said = [found.output(rank).splitlines()[-1] for rank in range(3)]
    assert said == [f"rank {rank} of 3 sum 3.0" for rank in range(3)]
    assert [str(rank.host) for rank in found.ranks] == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]


def test_a_rank_that_raises_is_named_with_its_words(lab, tmp_path, network):
    failure = job(lab, tmp_path, network, KUBEFLOW, ["python", "train.py", "fail"]).wait(JOB_S)
    assert failure is not None
    assert str(failure) == "rank 1 on mnist-worker-0: RuntimeError: rank 1 gives up"


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (KUBEFLOW, []),  # all is in the operator's variables
        (KUBEDL, ["--nnodes=2", "--nproc_per_node=2", "--node_rank=$(RANK)", "--master_addr=$(MASTER_ADDR)"]),
    ],
)
def test_torchrun_starts_several_ranks_in_a_pod(lab, tmp_path, network, version, options):
    more = {} if options else {"nprocPerNode": "2"}
    found = job(lab, tmp_path, network, version, ["torchrun", *options, "train.py"], workers=1, **more)
    assert found.wait(JOB_S) is None, [found.output(rank) for rank in range(4)]
    assert [str(rank.host) for rank in found.ranks] == ["mnist-master-0"] * 2 + ["mnist-worker-0"] * 2
    assert all(f"rank {rank} of 4 sum 6.0" in found.output(rank) for rank in range(4))


def test_elastic_workers_meet_at_the_first_one(lab, tmp_path, network):
    policy = {"rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 2, "maxRestarts": 0}
    found = job(
        lab, tmp_path, network, KUBEFLOW, ["torchrun", "train.py"], master=False, elasticPolicy=policy, nprocPerNode="1"
    )
    assert found.wait(JOB_S) is None, found.launcher_output()


def test_how_a_job_ended_is_unknown_when_its_object_is_gone(lab, tmp_path, network):
    found = job(lab, tmp_path, network, KUBEFLOW, ["sleep", "1000"], workers=1, master=False)
    lab.pods.delete_object("PyTorchJob", "mnist")
    with pytest.raises(TestbedError, match="its object is gone, and how it ended is unknown"):
        found.wait(JOB_S)


def test_a_child_that_is_spawned_finds_its_program(lab, tmp_path, network):
    found = job(lab, tmp_path, network, KUBEFLOW, ["python", "./spawn.py"], workers=1, master=False)
    assert found.wait(JOB_S) is None, found.output(0)
    assert "the child runs" in found.output(0)
