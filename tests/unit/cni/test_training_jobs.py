"""What the operators of training jobs make, without a lab: pods are as the test says."""

import itertools
import json
import time
from typing import Any

import pytest

from testbed.cni.objects import manifests, workloads
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.training import kinds, operators
from testbed.cni.objects.workloads import Next, Run, State
from testbed.documents.problems import Problems
from testbed.errors import InputError

KUBEDL, KUBEFLOW = "training.kubedl.io/v1alpha1", "kubeflow.org/v1"
KEYS = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}
CONTAINERS = {"PyTorchJob": "pytorch", "TFJob": "tensorflow", "MPIJob": "mpi"}


def job(kind: str, version: str, annotations: dict[str, str] | None = None, /, **given: Any) -> Object:
    """A job with so many replicas of each type in upper case, and the other fields of its spec. A type may be a dict
    with more of its replica."""
    replicas = {}
    for name in [name for name in given if name[0].isupper()]:
        one = given.pop(name)
        more = one if isinstance(one, dict) else {"replicas": one}
        spec = {"containers": [{"name": CONTAINERS[kind], "image": "train:1"}], **more.pop("spec", {})}
        replicas[name] = {"template": {"spec": spec}, **more}
    metadata = {"name": "mnist", "annotations": annotations or {}}
    spec = {KEYS[kind]: replicas, **given}
    return manifests.make({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


class Cluster:
    """The objects of one job and its pods, and the rounds of its operator."""

    def __init__(self, one: Object, *, starts: bool = True) -> None:
        problems = Problems(None, str(one))
        kinds.check(one, problems)
        problems.stop()
        self.name = str(one)
        self.objects = {self.name: one}
        self.runs: list[Run] = []
        self.numbers = itertools.count()
        self.starts = starts

    def next(self) -> Next:
        found = Next()
        there = list(self.objects.values())
        operators.follow(there, self.runs, there, lambda: next(self.numbers), lambda: ("private", "public"), found)
        self.objects |= {str(one): one for one in found.objects}
        for one in found.gone:
            self.objects.pop(str(one), None)
        self.runs = [run for run in self.runs if run not in found.ended]
        self.runs += [Run(pod, next(self.numbers), "running" if self.starts else "waiting") for pod in found.made]
        return found

    def settle(self) -> "Cluster":
        for _ in range(20):
            found = self.next()
            if not (found.made or found.ended or found.objects or found.gone):
                return self
        raise AssertionError("the operator does not come to rest")

    def end(self, name: str, state: State, code: int | None = None) -> "Cluster":
        (run,) = [run for run in self.runs if run.pod.name == name]
        run.state, run.exit_code = state, code
        return self.settle()

    @property
    def names(self) -> list[str]:
        return sorted(run.pod.name for run in self.runs)

    def pod(self, name: str) -> Object:
        (found,) = [run.pod for run in self.runs if run.pod.name == name]
        return found

    def env(self, name: str) -> dict[str, str]:
        return {one["name"]: one["value"] for one in self.pod(name).spec["containers"][0].get("env", ())}

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.objects[self.name].data["status"])

    @property
    def conditions(self) -> list[str]:
        return [one["type"] for one in self.status["conditions"] if one["status"] == "True"]

    def service(self, name: str) -> dict[str, Any]:
        return dict(self.objects[f"Service/default/{name}"].spec)


def test_a_pytorch_job_of_kubedl_has_its_master_first():
    cluster = Cluster(job("PyTorchJob", KUBEDL, Master=1, Worker=2))
    cluster.next()
    assert cluster.names == ["mnist-master-0"]
    cluster.settle()
    assert cluster.names == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
    common = {"MASTER_PORT": "23456", "PYTHONUNBUFFERED": "0", "WORLD_SIZE": "3"}
    assert cluster.env("mnist-master-0") == {**common, "MASTER_ADDR": "localhost", "RANK": "0"}
    assert cluster.env("mnist-worker-1") == {**common, "MASTER_ADDR": "mnist-master-0", "RANK": "2"}
    labels = {"group-name": "training.kubedl.io", "job-name": "mnist"}
    assert cluster.pod("mnist-worker-1").labels == {**labels, "replica-type": "worker", "replica-index": "1"}
    assert cluster.pod("mnist-master-0").labels["job-role"] == "master"
    assert [cluster.pod(name).spec["restartPolicy"] for name in cluster.names] == ["Never", "OnFailure", "OnFailure"]
    assert cluster.service("mnist-master-0") == {
        "clusterIP": "None",
        "selector": {**labels, "replica-type": "master", "replica-index": "0"},
        "ports": [{"name": "pytorchjob-port", "port": 23456, "targetPort": 23456}],
    }
    assert [name for name in cluster.objects if name.startswith("Service")] == ["Service/default/mnist-master-0"]
    assert cluster.conditions == ["Created", "Running"]


def test_workers_wait_for_a_master_that_does_not_start():
    cluster = Cluster(job("PyTorchJob", KUBEDL, Master=1, Worker=1), starts=False)
    assert cluster.settle().names == ["mnist-master-0"]
    assert cluster.conditions == ["Created"]


def test_host_network_of_kubedl_is_a_port_of_the_node_and_a_service_that_leads_to_it():
    cluster = Cluster(job("PyTorchJob", KUBEDL, {"kubedl.io/network-mode": "host"}, Master=1, Worker=1)).settle()
    master, worker = cluster.pod("mnist-master-0"), cluster.pod("mnist-worker-0")
    assert master.spec["hostNetwork"]
    assert master.spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    (port,) = master.spec["containers"][0]["ports"]
    assert port["containerPort"] == port["hostPort"]
    assert 20000 <= port["hostPort"] < 30000
    assert worker.spec["containers"][0]["ports"][0]["hostPort"] != port["hostPort"]
    assert cluster.env("mnist-master-0")["MASTER_PORT"] == str(port["hostPort"])
    assert cluster.env("mnist-worker-0")["MASTER_PORT"] == "23456"
    service = cluster.service("mnist-master-0")
    assert "clusterIP" not in service
    assert service["ports"] == [{"name": "pytorchjob-port", "port": 23456, "targetPort": port["hostPort"]}]


def test_a_failover_draws_another_port_and_the_service_follows():
    cluster = Cluster(job("PyTorchJob", KUBEDL, {"kubedl.io/network-mode": "host"}, Master=1, Worker=1)).settle()
    before = cluster.service("mnist-master-0")["ports"][0]["targetPort"]
    cluster.end("mnist-master-0", "failed", 137)
    after = cluster.env("mnist-master-0")["MASTER_PORT"]
    assert str(before) != after
    assert str(cluster.service("mnist-master-0")["ports"][0]["targetPort"]) == after
    assert cluster.conditions == ["Created", "Running"]


@pytest.mark.parametrize(
    ("version", "kind", "code", "again"),
    [
        (KUBEDL, "TFJob", 137, True),
        (KUBEDL, "TFJob", 138, True),
        (KUBEDL, "TFJob", 139, False),
        (KUBEDL, "TFJob", 1, False),
        (KUBEFLOW, "TFJob", 139, True),
        (KUBEFLOW, "TFJob", 127, False),
        (KUBEFLOW, "PyTorchJob", 1, False),
        (KUBEFLOW, "PyTorchJob", 128, True),
    ],
)
def test_exit_codes_that_make_a_pod_again(version, kind, code, again):
    leader = {"Master": 1} if kind == "PyTorchJob" else {"Chief": 1}
    cluster = Cluster(job(kind, version, **leader, Worker={"replicas": 1, "restartPolicy": "ExitCode"})).settle()
    before = next(run.number for run in cluster.runs if run.pod.name == "mnist-worker-0")
    cluster.end("mnist-worker-0", "failed", code)
    there = {run.pod.name: run for run in cluster.runs}
    assert ("mnist-worker-0" in there and there["mnist-worker-0"].number != before) == again
    assert cluster.conditions[-1] == ("Running" if again else "Failed")


def test_a_tf_job_has_its_cluster_in_each_pod():
    cluster = Cluster(job("TFJob", KUBEDL, PS=1, Worker=2, Evaluator=1)).settle()
    assert cluster.names == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]  # KubeDL makes no evaluators
    text = cluster.env("mnist-worker-1")["TF_CONFIG"]
    workers = '"worker":["mnist-worker-0.default.svc:2222","mnist-worker-1.default.svc:2222"]'
    ends = '"task":{"type":"worker","index":1},"environment":"cloud"}'
    assert text == '{"cluster":{"ps":["mnist-ps-0.default.svc:2222"],' + workers + "}," + ends
    flow = Cluster(job("TFJob", KUBEFLOW, PS=1, Worker=2, Evaluator=1)).settle()
    assert flow.names == ["mnist-evaluator-0", "mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
    assert json.loads(flow.env("mnist-ps-0")["TF_CONFIG"])["cluster"]["evaluator"] == [
        "mnist-evaluator-0.default.svc:2222"
    ]


def test_in_host_network_a_tf_pod_knows_its_own_port_only():
    cluster = Cluster(job("TFJob", KUBEDL, {"kubedl.io/network-mode": "host"}, Worker=2)).settle()
    own = cluster.pod("mnist-worker-0").spec["containers"][0]["ports"][0]["hostPort"]
    config = json.loads(cluster.env("mnist-worker-0")["TF_CONFIG"])
    assert config["cluster"]["worker"] == [f"mnist-worker-0.default.svc:{own}", "mnist-worker-1.default.svc:2222"]


def test_a_job_of_one_pod_has_no_cluster():
    assert "TF_CONFIG" not in Cluster(job("TFJob", KUBEFLOW, Worker=1)).settle().env("mnist-worker-0")


def test_dynamic_workers_know_themselves_and_the_servers():
    cluster = Cluster(job("TFJob", KUBEFLOW, PS=1, Worker=2, enableDynamicWorker=True)).settle()
    config = json.loads(cluster.env("mnist-worker-1")["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": {"1": "mnist-worker-1.default.svc:2222"}, "ps": ["mnist-ps-0.default.svc:2222"]},
        "task": {"type": "worker", "index": 1},
    }


def test_a_pytorch_job_of_kubeflow_has_torchruns_variables():
    cluster = Cluster(job("PyTorchJob", KUBEFLOW, Master=1, Worker=1, nprocPerNode="2")).settle()
    assert cluster.env("mnist-worker-0") == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "mnist-master-0",
        "PET_MASTER_ADDR": "mnist-master-0",
        "WORLD_SIZE": "4",
        "RANK": "1",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_NNODES": "2",
    }
    assert cluster.service("mnist-worker-0")["clusterIP"] == "None"
    role = "training.kubeflow.org/job-role"
    assert cluster.pod("mnist-master-0").labels[role] == "master"
    assert role not in cluster.pod("mnist-worker-0").labels


def test_an_elastic_job_has_a_rendezvous_at_its_first_worker():
    policy = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvId": "x",
        "maxRestarts": 5,
        "rdzvConf": [{"key": "a", "value": "1"}],
    }
    cluster = Cluster(job("PyTorchJob", KUBEFLOW, Worker=2, elasticPolicy=policy)).settle()
    assert cluster.env("mnist-worker-1") == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_ENDPOINT": "mnist-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:3",
        "PET_MAX_RESTARTS": "5",
        "PET_RDZV_ID": "x",
        "PET_RDZV_CONF": "a=1",
    }
    assert cluster.end("mnist-worker-1", "succeeded").conditions == ["Created", "Succeeded"]


def test_an_mpi_job_of_kubeflow_starts_its_launcher_last():
    one = job("MPIJob", KUBEFLOW, Launcher={"spec": {}}, Worker=2, slotsPerWorker=4)
    cluster = Cluster(one)
    cluster.next()
    assert cluster.names == ["mnist-worker-0", "mnist-worker-1"]
    cluster.settle()
    assert "mnist-launcher" in cluster.names
    data = cluster.objects["ConfigMap/default/mnist-config"].data["data"]
    assert data["hostfile"] == "mnist-worker-0 slots=4\nmnist-worker-1 slots=4\n"
    assert data["discover_hosts.sh"] == "#!/bin/sh\necho mnist-worker-0:4\necho mnist-worker-1:4"
    assert data["kubexec.sh"].endswith('\n/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"')
    env = cluster.env("mnist-launcher")
    assert env["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    worker = cluster.pod("mnist-worker-0").spec["containers"][0]
    assert (worker["command"], worker["args"]) == (["sleep"], ["365d"])
    assert cluster.pod("mnist-worker-0").spec["volumes"][0]["configMap"]["items"][0]["path"] == "kubexec.sh"
    assert cluster.end("mnist-launcher", "succeeded").conditions == ["Created", "Succeeded"]
    assert cluster.names == ["mnist-launcher", "mnist-worker-0", "mnist-worker-1"]  # cleanPodPolicy: None


def test_the_launcher_of_kubedl_is_a_host_of_mpirun():
    cluster = Cluster(job("MPIJob", KUBEDL, Launcher=1, Worker=1)).settle()
    data = cluster.objects["ConfigMap/default/mnist-config"].data["data"]
    assert data["hostfile"] == "mnist-launcher-0 slots=1\nmnist-worker-0 slots=1\n"
    assert cluster.end("mnist-launcher-0", "succeeded").names == ["mnist-launcher-0"]  # cleanPodPolicy: Running


def test_a_job_of_kubedl_needs_its_workers_one_of_kubeflow_only_its_master():
    kubedl = Cluster(job("PyTorchJob", KUBEDL, Master=1, Worker=1)).settle()
    assert kubedl.end("mnist-master-0", "succeeded").conditions == ["Created", "Running"]
    assert kubedl.end("mnist-worker-0", "succeeded").conditions == ["Created", "Succeeded"]
    kubeflow = Cluster(job("PyTorchJob", KUBEFLOW, Master=1, Worker=1)).settle()
    assert kubeflow.end("mnist-master-0", "succeeded").conditions == ["Created", "Succeeded"]
    assert kubeflow.status["replicaStatuses"] == {"Master": {"succeeded": 1}, "Worker": {"succeeded": 1}}
    assert kubeflow.names == ["mnist-master-0", "mnist-worker-0"]


@pytest.mark.parametrize(("policy", "left"), [("Running", ["mnist-master-0"]), ("All", []), ("None", None)])
def test_pods_end_with_their_job_as_its_policy_says(policy, left):
    given = {"runPolicy": {"cleanPodPolicy": policy}}
    cluster = Cluster(job("PyTorchJob", KUBEFLOW, Master=1, Worker=1, **given)).settle()
    cluster.end("mnist-master-0", "succeeded")
    assert cluster.names == (["mnist-master-0", "mnist-worker-0"] if left is None else left)
    services = [name for name in cluster.objects if name.startswith("Service")]
    assert len(services) == {"Running": 1, "All": 0, "None": 2}[policy]


def test_a_tf_job_succeeds_with_its_first_worker_or_with_all():
    first = Cluster(job("TFJob", KUBEFLOW, Worker=2)).settle()
    assert first.end("mnist-worker-0", "succeeded").conditions == ["Created", "Succeeded"]
    every = Cluster(job("TFJob", KUBEFLOW, Worker=2, successPolicy="AllWorkers")).settle()
    assert every.end("mnist-worker-0", "succeeded").conditions == ["Created", "Running"]
    assert every.end("mnist-worker-1", "succeeded").conditions == ["Created", "Succeeded"]


def test_a_pod_of_no_replica_ends_and_so_does_its_service():
    cluster = Cluster(job("PyTorchJob", KUBEFLOW, Master=1, Worker=3)).settle()
    smaller = job("PyTorchJob", KUBEFLOW, Master=1, Worker=1)
    cluster.objects[cluster.name] = manifests.make({**smaller.data, "status": cluster.status})
    assert cluster.settle().names == ["mnist-master-0", "mnist-worker-0"]
    assert "Service/default/mnist-worker-2" not in cluster.objects


def test_a_deadline_and_a_time_after_the_end(monkeypatch):
    now = time.time()
    policy = {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 30}
    cluster = Cluster(job("TFJob", KUBEFLOW, Worker=1, runPolicy=policy)).settle()
    assert 59 <= cluster.next().later <= 61
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert cluster.settle().conditions == ["Created", "Failed"]
    assert cluster.names == []
    monkeypatch.setattr(time, "time", lambda: now + 95)
    cluster.settle()
    assert cluster.name not in cluster.objects


def test_a_backoff_limit_counts_restarts():
    cluster = Cluster(job("PyTorchJob", KUBEFLOW, Master=1, runPolicy={"backoffLimit": 2})).settle()
    cluster.runs[0].restarts = 1
    assert cluster.settle().conditions == ["Created", "Running"]
    cluster.runs[0].restarts = 2
    assert cluster.settle().conditions == ["Created", "Failed"]


def test_a_suspended_job_has_no_pods_until_it_is_resumed():
    cluster = Cluster(job("PyTorchJob", KUBEFLOW, Master=1, runPolicy={"suspend": True})).settle()
    assert cluster.names == []
    assert cluster.conditions == ["Created", "Suspended"]
    resumed = job("PyTorchJob", KUBEFLOW, Master=1)
    cluster.objects[cluster.name] = manifests.make({**resumed.data, "status": cluster.status})
    assert cluster.settle().names == ["mnist-master-0"]
    assert "Suspended" not in cluster.conditions


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (lambda: job("PyTorchJob", KUBEDL, Worker=1), "Job must contain master replica spec"),
        (lambda: job("PyTorchJob", KUBEFLOW, Master=2), "must be 1"),
        (lambda: job("PyTorchJob", KUBEFLOW, Master={}), "must be 1"),
        (lambda: job("PyTorchJob", KUBEFLOW, Boss=1), "Unsupported value: 'Boss'"),
        (lambda: job("PyTorchJob", KUBEFLOW), "must be required"),
        (lambda: job("PyTorchJob", KUBEFLOW, Worker=1, runPolicy={"suspended": True}), "spec.runPolicy.suspended"),
        (lambda: job("PyTorchJob", KUBEFLOW, Worker=1, cleanPodPolicy="All"), 'unknown field "spec.cleanPodPolicy"'),
        (lambda: job("TFJob", KUBEFLOW, Chief=1, Master=1), "must not have more than 1 Chief or Master role"),
        (
            lambda: job("TFJob", KUBEDL, Worker={"spec": {"containers": [{"name": "a"}]}}),
            "container with name tensorflow",
        ),
        (lambda: job("MPIJob", KUBEFLOW, Worker=1), "Master ReplicaSpec must be present"),
        (lambda: job("PyTorchJob", KUBEFLOW, Worker={"spec": {"hostnetwork": True}}), "spec.hostnetwork"),
        (
            lambda: job("PyTorchJob", KUBEFLOW, Worker=1, nprocPerNode="2", elasticPolicy={"nProcPerNode": 2}),
            "must not be used with spec.nprocPerNode",
        ),
    ],
)
def test_what_an_operator_refuses(one, text):
    with pytest.raises(InputError) as error:
        Cluster(one())
    assert text in error.value.message


def test_the_case_of_a_type_does_not_matter_to_kubedl():
    cluster = Cluster(job("TFJob", KUBEDL, PS=1, WORKER=1)).settle()
    assert cluster.names == ["mnist-ps-0", "mnist-worker-0"]


def test_the_owner_of_all_that_it_makes_is_the_job():
    cluster = Cluster(job("MPIJob", KUBEFLOW, Launcher=1, Worker=1)).settle()
    made = [run.pod for run in cluster.runs] + [one for name, one in cluster.objects.items() if name != cluster.name]
    assert {workloads.owner_of(one) for one in made} == {("MPIJob", "mnist")}


MPI_OPERATOR = "kubeflow.org/v2beta1"


def mpi_job(**given: Any) -> Cluster:
    parts = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}, **given.pop("parts", {})}
    return Cluster(job("MPIJob", MPI_OPERATOR, **parts, **given))


def launched(cluster: Cluster, state: State | None = None, ended: str = "") -> Cluster:
    """The pod of the launcher's Job is there, or the Job has ended."""
    launcher = cluster.objects["Job/default/mnist-launcher"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist-launcher", "controller": True}
    metadata = {"name": "mnist-launcher-x", "ownerReferences": [reference]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": launcher.spec["template"]["spec"]}
    cluster.runs = [run for run in cluster.runs if run.pod.name != "mnist-launcher-x"]
    if state:
        cluster.runs.append(Run(manifests.make(pod), next(cluster.numbers), state))
    if ended:
        status = {"conditions": [{"type": ended, "status": "True"}], "failed": int(ended == "Failed")}
        cluster.objects[str(launcher)] = manifests.make({**launcher.data, "status": status})
    return cluster.settle()


def test_the_mpi_operator_makes_workers_with_sshd_and_a_job_for_mpirun():
    cluster = mpi_job(slotsPerWorker=2).settle()
    assert cluster.names == ["mnist-worker-0", "mnist-worker-1"]
    worker = cluster.pod("mnist-worker-0")
    assert (worker.spec["hostname"], worker.spec["subdomain"]) == ("mnist-worker-0", "mnist")
    assert worker.spec["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert worker.spec["dnsConfig"]["searches"] == ["mnist.default.svc.cluster.local"]
    assert cluster.service("mnist")["clusterIP"] == "None"
    data = cluster.objects["ConfigMap/default/mnist-config"].data["data"]
    assert data["hostfile"] == "mnist-worker-0.mnist.default.svc slots=2\nmnist-worker-1.mnist.default.svc slots=2\n"
    launcher = cluster.objects["Job/default/mnist-launcher"]
    assert workloads.owner_of(launcher) == ("MPIJob", "mnist")
    spec = launcher.spec["template"]["spec"]
    assert spec["restartPolicy"] == "OnFailure"
    env = {one["name"]: one["value"] for one in spec["containers"][0]["env"]}
    assert env["OMPI_MCA_orte_set_default_slots"] == "2"
    assert env["K_MPI_JOB_ROLE"] == "launcher"
    assert {one["mountPath"] for one in spec["containers"][0]["volumeMounts"]} == {"/root/.ssh", "/etc/mpi"}
    assert cluster.objects["Secret/default/mnist-ssh"].data["data"]["ssh-publickey"] == "cHVibGlj"


def test_the_job_of_the_launcher_decides():
    cluster = launched(mpi_job(runPolicy={"cleanPodPolicy": "Running"}).settle(), "running")
    assert cluster.conditions == ["Created", "Running"]
    launched(cluster, None, "Complete")
    assert cluster.conditions == ["Created", "Succeeded"]
    assert cluster.names == []
    failed = launched(mpi_job().settle(), None, "Failed")
    assert failed.conditions == ["Created", "Failed"]
    assert failed.names == ["mnist-worker-0", "mnist-worker-1"]  # cleanPodPolicy: None


def test_a_launcher_can_wait_for_its_workers():
    cluster = Cluster(
        job("MPIJob", MPI_OPERATOR, Launcher=1, Worker=1, launcherCreationPolicy="WaitForWorkersReady"), starts=False
    ).settle()
    assert "Job/default/mnist-launcher" not in cluster.objects
    cluster.runs[0].state = "running"
    assert "Job/default/mnist-launcher" in cluster.settle().objects


def test_a_launcher_can_be_a_worker():
    cluster = mpi_job(runLauncherAsWorker=True).settle()
    data = cluster.objects["ConfigMap/default/mnist-config"].data["data"]
    assert data["hostfile"].splitlines()[0] == "mnist-launcher.mnist.default.svc slots=1"
    assert cluster.pod("mnist-worker-0").labels["training.kubeflow.org/replica-index"] == "1"


def test_a_suspended_mpi_job_has_a_suspended_launcher_and_no_workers():
    cluster = mpi_job(runPolicy={"suspend": True}).settle()
    assert cluster.names == []
    assert cluster.objects["Job/default/mnist-launcher"].spec["suspend"]
    assert cluster.conditions == ["Created", "Suspended"]
    resumed = mpi_job().objects["MPIJob/default/mnist"]
    cluster.objects[cluster.name] = manifests.make({**resumed.data, "status": cluster.status})
    assert cluster.settle().names == ["mnist-worker-0", "mnist-worker-1"]
    assert not cluster.objects["Job/default/mnist-launcher"].spec["suspend"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"parts": {"Worker": {}}}, "must be greater than or equal to 1"),
        ({"parts": {"Worker": {"replicas": 1, "restartPolicy": "Always"}}}, 'Unsupported value: "Always"'),
        ({"mainContainer": "x"}, 'unknown field "spec.mainContainer"'),
        ({"mpiImplementation": "MVAPICH"}, "mpiImplementation"),
    ],
)
def test_what_the_mpi_operator_refuses(given, text):
    with pytest.raises(InputError) as error:
        mpi_job(**given)
    assert text in error.value.message
