"""Training jobs of KubeDL and Kubeflow: their pods find each other by name, and their programs are the ranks."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from networks import FLAT

from testbed.errors import TestbedError
from testbed.workload import pod_job

pytestmark = pytest.mark.topology(FLAT)
KUBEDL, KUBEFLOW = "training.kubedl.io/v1alpha1", "kubeflow.org/v1"
MASTER = """
import os, socket, sys
server = socket.create_server(("0.0.0.0", int(os.environ["MASTER_PORT"])))
print("master listens", flush=True)
for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
    one, peer = server.accept()
    one.sendall(b"welcome")
    one.close()
"""
WORKER = """
import os, socket, time
end = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
for _ in range(200):
    try:
        one = socket.create_connection(end, 5)
        break
    except OSError as error:
        time.sleep(0.1)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], one.recv(100).decode(), flush=True)
"""
RING = """
from mpi4py import MPI
import socket, sys
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank)
sys.stdout.write(f'{comm.rank} {socket.gethostname()} {total}\\n')
"""
POOL = {"name": "jobs", "subnet": "10.0.20.0/24", "ips": ["10.0.20.150-10.0.20.169"]}
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "jobs",
    "plugins": [
        {"type": "macvlan", "master": "eth1", "ipam": {"type": "ippool", "pools": [POOL]}},
        {"type": "coordinator", "hijackCIDR": ["10.96.0.0/12"]},
        {"type": "rxe"},
    ],
}


def container(name, *command, **more):
    return {"name": name, "image": "nowhere/train:1", "command": list(command), **more}


def replica(name, *command, replicas=1, restart="Never", **more):
    spec = {"containers": [container(name, *command)], **more}
    return {"replicas": replicas, "restartPolicy": restart, "template": {"spec": spec}}


def manifest(version, kind, key, replicas, annotations=None, **spec):
    metadata = {"name": "mnist", "annotations": annotations or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {key: replicas, **spec}}


@pytest.fixture
def scripts(tmp_path):
    for name, text in {"master.py": MASTER, "worker.py": WORKER}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def clean(lab):
    yield
    for kind in ("PyTorchJob", "TFJob", "MPIJob", "StatefulSet", "Job", "Service", "Pod", "ConfigMap", "Secret"):
        for one in lab.objects.list(kind):
            try:
                lab.pods.delete_object(kind, one["metadata"]["name"], one["metadata"].get("namespace", "default"))
            except TestbedError:  # it went with its owner
                continue


@pytest.mark.parametrize("version", [KUBEDL, KUBEFLOW])
def test_pods_of_a_pytorch_job_find_their_master_by_its_name(lab, clean, scripts, version):
    parts = {
        "Master": replica("pytorch", "python3", "master.py"),
        "Worker": replica("pytorch", "python", "-u", "worker.py", replicas=2),
    }
    one = manifest(version, "PyTorchJob", "pytorchReplicaSpecs", parts)
    job = pod_job(lab, one, name=f"names-{version[0]}", networks=[NETWORK], beside=scripts)
    assert [str(rank.host) for rank in job.ranks] == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
    assert job.wait(60) is None
    assert "rank 2 of 3 welcome" in job.launcher_output()
    status = lab.objects.get("PyTorchJob", "mnist")["status"]
    assert [one["type"] for one in status["conditions"] if one["status"] == "True"] == ["Created", "Succeeded"]
    lab.pods.delete_object("PyTorchJob", "mnist")
    assert not lab.objects.list("Service")
    assert not [name for name in lab.nodes if name.startswith("mnist")]


def test_a_master_that_fails_over_is_found_at_its_new_port(lab, log, clean, scripts):
    """The first master is killed; its successor has another port of its node, and the Service leads there."""
    (scripts / "master.py").write_text(
        f"import os\nif not os.path.exists('died'):\n    open('died', 'w')\n    os.kill(os.getpid(), 9)\n{MASTER}"
    )
    parts = {
        "Master": replica("pytorch", "python3", "master.py", restart="ExitCode"),
        "Worker": replica("pytorch", "python3", "worker.py"),
    }
    hosts = {"kubedl.io/network-mode": "host"}
    for host in ("node1", "node2"):
        lab.host(host).run("ip", "route", "replace", "10.96.0.0/12", "dev", "eth1")
    one = manifest(KUBEDL, "PyTorchJob", "pytorchReplicaSpecs", parts, hosts)
    job = pod_job(lab, one, name="failover", beside=scripts)
    assert job.wait(60) is None
    for host in ("node1", "node2"):
        lab.host(host).run("ip", "route", "delete", "10.96.0.0/12")
    texts = [one["text"] for one in log.find("service")]
    ports = {end for text in texts for end in re.findall(r"mnist-master-0 10\.0\.20\.\d+:(\d+)", text)}
    assert len(ports) == 2


def test_a_container_that_fails_is_started_again_after_kubelets_pauses(lab, clean, scripts):
    (scripts / "fails.py").write_text("import time\nprint(time.monotonic(), flush=True)\nraise SystemExit(3)\n")
    parts = {"Worker": replica("pytorch", "python3", "fails.py", restart="OnFailure")}
    one = manifest(KUBEFLOW, "PyTorchJob", "pytorchReplicaSpecs", parts, runPolicy={"backoffLimit": 4})
    job = pod_job(lab, one, name="loops", networks=[NETWORK], beside=scripts)
    failure = job.wait(120)
    assert failure is not None
    assert "ended with status 3" in failure.text
    times = [float(line) for line in job.launcher_output().split()]
    pauses = [round(later - before) for before, later in pairwise(times)]
    assert pauses[:3] == [0, 10, 20]
    conditions = lab.objects.get("PyTorchJob", "mnist")["status"]["conditions"]
    assert "reached the specified backoff limit" in conditions[-1]["message"]


def test_mpirun_of_a_launcher_starts_ranks_in_the_workers(lab, clean, scripts):
    (scripts / "ring.py").write_text(RING)
    parts = {
        "Launcher": replica("mpi", "mpirun", "-np", "4", "python3", "ring.py"),
        "Worker": replica("mpi", replicas=2),
    }
    del parts["Worker"]["template"]["spec"]["containers"][0]["command"]
    one = manifest(KUBEFLOW, "MPIJob", "mpiReplicaSpecs", parts, slotsPerWorker=2)
    job = pod_job(lab, one, name="mpi", networks=[NETWORK], beside=scripts)
    assert [str(rank.host) for rank in job.ranks] == ["mnist-worker-0"] * 2 + ["mnist-worker-1"] * 2
    assert job.wait(120) is None, job.launcher_output()
    lines = sorted(line for line in job.launcher_output().splitlines() if line[:1].isdigit())
    assert lines == [f"{rank} mnist-worker-{rank // 2} 6" for rank in range(4)]


@pytest.mark.parametrize("keys", ["/root/.ssh", "/home/mpiuser/.ssh"])
def test_mpirun_of_the_mpi_operator_reaches_its_workers_by_ssh(lab, clean, scripts, keys):
    (scripts / "ring.py").write_text(RING)
    parts = {
        "Launcher": replica("launcher", "mpirun", "-n", "2", "python3", "ring.py", restart="OnFailure"),
        "Worker": replica("worker", "/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config", replicas=2),
    }
    one = manifest("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", parts, sshAuthMountPath=keys)
    job = pod_job(lab, one, name=f"ssh{len(keys)}", networks=[NETWORK], beside=scripts)
    assert job.wait(120) is None, job.launcher_output()
    assert [str(rank.host) for rank in job.ranks] == ["mnist-worker-0", "mnist-worker-1"]
    lines = sorted(line for line in job.launcher_output().splitlines() if line[:1].isdigit())
    assert lines == [f"{rank} mnist-worker-{rank} 1" for rank in range(2)]
    status = lab.objects.get("MPIJob", "mnist")["status"]
    assert [one["type"] for one in status["conditions"] if one["status"] == "True"] == ["Created", "Succeeded"]


def test_a_headless_service_names_the_pods_of_a_stateful_set(lab, clean):
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container("db")]}}
    labels = {"matchLabels": {"app": "db"}}
    spec = {"serviceName": "db", "replicas": 2, "selector": labels, "template": template}
    headless = {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 5432}]}
    lab.pods.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": headless})
    done = lab.pods.apply(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}, [NETWORK]
    )
    first, second = done.pods
    ip = str(second["eth0"].address().ip)
    for name in ("db-1.db", "db-1.db.default.svc", "db-1.db.default.svc.cluster.local"):
        assert first.run("getent", "hosts", name).stdout.split()[0] == ip
    both = {line.split()[0] for line in first.run("getent", "ahostsv4", "db").stdout.splitlines()}
    assert both == {str(pod["eth0"].address().ip) for pod in done.pods}
    assert second.run("hostname").stdout.strip() == "db-1"


def test_a_pod_on_the_host_network_knows_the_cluster_only_if_it_says_so(lab, clean):
    lab.pods.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    )

    def pod(name, **spec):
        given = {"hostNetwork": True, "containers": [container("main")], **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": given}

    (usual,) = lab.pods.apply(pod("usual")).pods
    told = next(
        one for one in lab.pods.apply(pod("told", dnsPolicy="ClusterFirstWithHostNet")).pods if one.name == "told"
    )
    assert usual.run("getent", "hosts", "web", check=False).returncode == 2
    assert told.run("getent", "hosts", "web").stdout.startswith("10.96.")


def test_volumes_have_what_their_objects_say(lab, clean):
    lab.pods.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"a": "1", "b": "2"}}
    )
    lab.pods.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": {"k": "c2VjcmV0"}})
    mounts = [
        {"name": "conf", "mountPath": "/etc/conf"},
        {"name": "key", "mountPath": "/etc/key"},
        {"name": "work", "mountPath": "/scratch"},
        {"name": "conf", "mountPath": "/etc/one.conf", "subPath": "file"},
    ]
    volumes = [
        {"name": "conf", "configMap": {"name": "conf", "items": [{"key": "a", "path": "file", "mode": 0o400}]}},
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "work", "emptyDir": {}},
    ]
    spec = {"containers": [container("main", volumeMounts=mounts)], "volumes": volumes}
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mounts"}, "spec": spec}
    (pod,) = lab.pods.apply(one, [NETWORK]).pods
    assert pod.run("sh", "-c", "cat /etc/conf/file /etc/key/k /etc/one.conf; ls /etc/conf").stdout == "1secret1file\n"
    pod.run("sh", "-c", "echo here > /scratch/x")
    assert pod.run("cat", "/scratch/x").stdout == "here\n"
    assert not Path("/scratch/x").exists()
    lab.pods.delete_object("Pod", "mounts")
    assert not Path("/etc/conf").exists()
    assert not Path("/etc/one.conf").exists()


def test_a_volume_of_nothing_keeps_its_pod_waiting(lab, clean):
    mounts, volumes = [{"name": "conf", "mountPath": "/etc/conf"}], [{"name": "conf", "configMap": {"name": "none"}}]
    spec = {"containers": [container("main", volumeMounts=mounts)], "volumes": volumes}
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mounts"}, "spec": spec}
    ((_, why),) = lab.pods.apply(one, [NETWORK]).waiting.items()
    assert 'MountVolume.SetUp failed for volume "conf": configmap "none" not found' in why
    lab.pods.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none"}, "data": {}})
    assert not lab.pods.reconcile().waiting


@pytest.mark.parametrize("place", ["/", "/proc/1", "//proc/../proc"])
def test_nothing_is_mounted_where_no_runtime_would(lab, clean, place):
    mounts, volumes = [{"name": "work", "mountPath": place}], [{"name": "work", "emptyDir": {}}]
    spec = {"containers": [container("main", volumeMounts=mounts)], "volumes": volumes}
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mounts"}, "spec": spec}
    ((_, why),) = lab.pods.apply(one, [NETWORK]).waiting.items()
    assert "nothing can be mounted at /" in why


def test_a_tf_job_tells_each_pod_who_is_who(lab, clean, scripts):
    (scripts / "who.py").write_text(
        "import json, os, socket, time\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "names, found = [one.partition(':')[0] for one in config['cluster']['worker']], []\n"
        "while len(found) < len(names):\n"
        "    try:\n"
        "        found = [socket.gethostbyname(name) for name in names]\n"
        "    except OSError:\n"
        "        time.sleep(0.1)\n"
        "print(json.dumps([config['task'], found]), flush=True)\n"
        "time.sleep(2)\n"  # a name goes with its pod
    )
    parts = {"Worker": replica("tensorflow", "python3", "who.py", replicas=2)}
    one = manifest(KUBEDL, "TFJob", "tfReplicaSpecs", parts, successPolicy="AllWorkers", cleanPodPolicy="None")
    job = pod_job(lab, one, name="tf", networks=[NETWORK], beside=scripts)
    assert job.wait(60) is None, job.launcher_output()
    said = [json.loads(line) for line in job.launcher_output().splitlines()]
    assert [task["index"] for task, _ in said] == [0, 1]
    assert said[0][1] == said[1][1]


def test_two_jobs_of_one_name_cannot_have_one_pod(lab, log, clean):
    """The second operator is told that the pod is there, as by an API server, and the lab lives on."""
    sleeps = "sleep", "1000"
    pytorch = manifest(KUBEFLOW, "PyTorchJob", "pytorchReplicaSpecs", {"Worker": replica("pytorch", *sleeps)})
    tensorflow = manifest(KUBEFLOW, "TFJob", "tfReplicaSpecs", {"Worker": replica("tensorflow", *sleeps)})
    (pod,) = lab.pods.apply(pytorch, [NETWORK]).pods
    assert lab.pods.apply(tensorflow, [NETWORK]).pods == [pod]
    texts = [event["text"] for event in log.find("object")]
    assert texts.count('TFJob/mnist: pods "mnist-worker-0" already exists') == 1
    (service,) = lab.objects.list("Service")
    assert service["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"
    lab.pods.delete_object("PyTorchJob", "mnist")
    (pod,) = lab.pods.reconcile().pods
    assert pod.metadata.manifest["metadata"]["ownerReferences"][0]["kind"] == "TFJob"


def test_an_operator_leaves_alone_what_is_not_its_own(lab, log, clean):
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mnist-config"}, "data": {"mine": "x"}}
    lab.pods.apply(mine)
    parts = {"Launcher": replica("l", "sleep", "9"), "Worker": replica("w", "sleep", "9")}
    lab.pods.apply(manifest("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", parts), [NETWORK])
    assert lab.objects.get("ConfigMap", "mnist-config") == mine
    lab.pods.delete_object("MPIJob", "mnist")
    assert lab.objects.get("ConfigMap", "mnist-config") == mine


def test_a_mount_onto_something_else_is_the_reason_of_its_pod_alone(lab, clean):
    mounts, volumes = [{"name": "work", "mountPath": "/etc/passwd"}], [{"name": "work", "emptyDir": {}}]
    spec = {"containers": [container("main", volumeMounts=mounts)], "volumes": volumes}
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": spec}
    good = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "good"},
        "spec": {"containers": [container("main")]},
    }
    assert "Are you trying to mount a directory onto a file" in lab.pods.apply(bad, [NETWORK]).waiting["bad"]
    done = lab.pods.apply(good, [NETWORK])
    assert [pod.name for pod in done.pods] == ["good"]
    assert list(done.waiting) == ["bad"]
    lab.pods.delete_object("Pod", "bad")


def test_volumes_are_as_kubelet_has_them(lab, clean):
    """Read-only, binary, with octal modes; a part of one does not follow its object, and a key that is gone is gone."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}}
    lab.pods.apply({**config, "data": {"a": "1", "b": "2"}, "binaryData": {"bin": "AAECA/8="}})
    mounts = [{"name": "conf", "mountPath": "/etc/conf"}, {"name": "conf", "mountPath": "/etc/part", "subPath": "a"}]
    volumes = [{"name": "conf", "configMap": {"name": "conf", "defaultMode": "0600"}}]
    spec = {"containers": [container("main", volumeMounts=mounts)], "volumes": volumes}
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mounts"}, "spec": spec}
    (pod,) = lab.pods.apply(one, [NETWORK]).pods
    assert pod.run("od", "-An", "-tx1", "/etc/conf/bin").stdout.split() == ["00", "01", "02", "03", "ff"]
    assert pod.run("stat", "-c", "%a", "/etc/conf/a").stdout == "600\n"
    assert "Read-only" in pod.run("sh", "-c", "echo x > /etc/conf/a", check=False).stderr
    lab.pods.apply({**config, "data": {"a": "changed"}})
    assert pod.run("sh", "-c", "cat /etc/conf/a; ls /etc/conf").stdout == "changeda\n"
    assert pod.run("cat", "/etc/part").stdout == "1"


def test_a_launcher_that_fails_is_tried_again_and_its_job_fails_then(lab, clean, scripts):
    (scripts / "fails.py").write_text("raise SystemExit(3)\n")
    parts = {
        "Launcher": replica("l", "mpirun", "-n", "1", "python3", "fails.py"),
        "Worker": replica("w", "/usr/sbin/sshd", "-De"),
    }
    policy = {"backoffLimit": 1}
    one = manifest("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", parts, runPolicy=policy)
    job = pod_job(lab, one, name="retried", networks=[NETWORK], beside=scripts)
    failure = job.wait(120)
    assert failure is not None
    assert str(failure.rank) == "rank 0 on mnist-worker-0"


def test_what_a_program_leaves_behind_ends_with_its_pod(lab, clean, scripts):
    (scripts / "behind.sh").write_text(
        "setsid nohup sleep 7777 >/dev/null 2>&1 &\nsleep 0.2\npgrep -f 'sleep 7777'\nexit 0\n"
    )
    for network in ([NETWORK], None):
        part = replica("pytorch", "sh", "behind.sh", **({} if network else {"hostNetwork": True}))
        one = manifest(KUBEFLOW, "PyTorchJob", "pytorchReplicaSpecs", {"Worker": part})
        job = pod_job(lab, one, name=f"behind-{bool(network)}", networks=network or [], beside=scripts)
        assert job.wait(60) is None
        assert job.launcher_output().split()  # the number of what it left
        assert lab.host("node1").run("pgrep", "-f", "sleep 7777", check=False).stdout == ""
        lab.pods.delete_object("PyTorchJob", "mnist")


def test_variables_that_no_shell_knows_do_not_stop_a_program(lab, clean, scripts):
    data = {"run.sh": "text", "KNOWN": "yes"}
    lab.pods.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "env"}, "data": data})
    part = replica("pytorch", "sh", "-c", "echo $KNOWN")
    part["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "env"}}]
    one = manifest(KUBEFLOW, "PyTorchJob", "pytorchReplicaSpecs", {"Worker": part})
    job = pod_job(lab, one, name="variables", networks=[NETWORK], beside=scripts)
    assert job.wait(60) is None
    assert job.launcher_output() == "yes\n"


def test_the_program_is_that_of_the_container_by_which_the_operator_judges(lab, clean, scripts):
    part = replica("pytorch", "sh", "-c", "exit 5")
    part["template"]["spec"]["containers"].insert(0, container("proxy", "true"))
    one = manifest(KUBEFLOW, "PyTorchJob", "pytorchReplicaSpecs", {"Worker": part})
    job = pod_job(lab, one, name="proxied", networks=[NETWORK], beside=scripts)
    failure = job.wait(60)
    assert failure is not None
    assert failure.text == "ended with status 5"
