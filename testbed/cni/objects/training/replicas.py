"""The pods of training jobs, their Services, and the ConfigMap of an MPIJob, as the operators make them.

Sources: KubeDL (kubedl-io/kubedl), controllers/{pytorch,tensorflow,mpi} and pkg/job_controller/{pod,service,
hostnetwork}.go; Kubeflow's training operator 1.8, pkg/controller.v1/{common,pytorch,tensorflow,mpi}.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.cni.objects.manifests import Object, make
from testbed.cni.objects.training.kinds import HEADLESS, LOCAL_MASTER, TrainingJob
from testbed.cni.objects.training.spec import KUBEDL, KUBEFLOW
from testbed.cni.objects.workloads import reference

PORTS = range(20000, 29999)
"""The ports that KubeDL draws (--hostnetwork-port-range). It never asks whether one is free."""
MPI_FILES, HOSTFILE, KUBEXEC, DISCOVER = "/etc/mpi", "hostfile", "kubexec.sh", "discover_hosts.sh"
KUBECTL = "/opt/kube/kubectl"
"""Where an init container puts kubectl, by which mpirun starts its daemons in the workers."""
VOLUMES = {KUBEDL: ("mpi-config-volume", "kubectl-volume"), KUBEFLOW: ("mpi-job-config", "mpi-job-kubectl")}
"""The names of the volumes with mpirun's files and with kubectl."""
MPI_VARIABLES: Mapping[str, tuple[str, str]] = {
    "OpenMPI": ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"),
    "IntelMPI": ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_HOST_FILE"),
    "MPICH": ("HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"),
}
Variables = Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """A replica of a job: its type and its index, and the ports of the nodes that replicas have, by KubeDL's host
    network."""

    kind: str
    index: int
    host_ports: Mapping[tuple[str, int], int] = field(default_factory=dict)


def labels(job: TrainingJob, kind: str = "", index: int | None = None) -> dict[str, str]:
    """Return the labels by which an operator knows the pods of a job, or one of them."""
    if job.operator == KUBEDL:
        prefix, found = "", {"group-name": "training.kubedl.io", "job-name": job.one.name}
    else:
        prefix = "training.kubeflow.org/"
        found = {f"{prefix}operator-name": f"{job.one.kind.lower()}-controller", f"{prefix}job-name": job.one.name}
    if kind:
        found[f"{prefix}replica-type"] = kind.lower()
    if index is not None and (job.operator, kind) != (KUBEFLOW, "Launcher"):
        found[f"{prefix}replica-index"] = str(index)
    return found


def index_of(job: TrainingJob, kind: str, pod: Object) -> int | None:
    """Return the index of a pod among those of a type, None if it is of another one."""
    found = pod.labels
    if any(found.get(key) != value for key, value in labels(job, kind).items()):
        return None
    number = found.get(f"{'' if job.operator == KUBEDL else 'training.kubeflow.org/'}replica-index", "0")
    return int(number) if number.isascii() and number.isdigit() else None


def pod(job: TrainingJob, place: Place) -> Object:
    """Return the pod of a replica."""
    spec = job.template(place.kind)
    given = job.metadata(place.kind)
    if (port := place.host_ports.get((place.kind, place.index))) is not None:
        spec = _on_host_network(job, spec, port)
    restart = job.restart(place.kind)
    spec["restartPolicy"] = "Never" if restart == "ExitCode" else restart
    more = {} if not _leads(job, place) else {_role(job): "master"}
    spec = _with_mpi(job, place.kind, spec) if job.one.kind == "MPIJob" else _with_variables(job, place, spec)
    return make(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": job.pod_name(place.kind, place.index),
                "namespace": job.one.namespace,
                "labels": {**(given.get("labels") or {}), **labels(job, place.kind, place.index), **more},
                "annotations": dict(given.get("annotations") or {}),
                "ownerReferences": [reference(job.one)],
            },
            "spec": spec,
        }
    )


def _role(job: TrainingJob) -> str:
    return "job-role" if job.operator == KUBEDL else "training.kubeflow.org/job-role"


def _leads(job: TrainingJob, place: Place) -> bool:
    """Return whether a pod has the role of a master."""
    if any(kind in job.replicas for kind in job.framework.leaders):
        return place.kind in job.framework.leaders and (job.operator, place.kind) != (KUBEDL, "Launcher")
    return job.operator == KUBEFLOW and (place.kind, place.index) == ("Worker", 0)


def _on_host_network(job: TrainingJob, spec: Mapping[str, Any], port: int) -> dict[str, Any]:
    containers = [dict(one) for one in spec["containers"]]
    names = [one.get("name") for one in containers]
    chosen = containers[names.index(job.framework.container) if job.framework.container in names else 0]
    ports = [dict(one) for one in chosen.get("ports") or ()]
    there = [one for one in ports if one.get("name") == job.framework.port_name]
    if not there:
        ports.append({"name": job.framework.port_name})
    (there or ports[-1:])[0].update(containerPort=port, hostPort=port)
    chosen["ports"] = ports
    return {**spec, "hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "containers": containers}


def port(job: TrainingJob, kind: str) -> int | None:
    """Return the port of a type in the job's spec; None if no container of the framework's name has it."""
    for one in job.template(kind)["containers"] if kind in job.replicas else ():
        if one.get("name") == job.framework.container:
            for found in one.get("ports") or ():
                if found.get("name") == job.framework.port_name:
                    return int(found["containerPort"])
    return None


def _with_variables(job: TrainingJob, place: Place, spec: dict[str, Any]) -> dict[str, Any]:
    if job.one.kind == "TFJob":
        found: Variables = {"TF_CONFIG": _tf_config(job, place)} if sum(map(job.count, job.replicas)) != 1 else {}
        names = (job.framework.container,)
    else:
        found = _of_kubedl(job, place) if job.operator == KUBEDL else _of_kubeflow(job, place)
        names = tuple(one["name"] for one in spec["containers"])
    return {**spec, "containers": [_given(one, found) if one["name"] in names else one for one in spec["containers"]]}


def _given(container: Mapping[str, Any], variables: Variables) -> dict[str, Any]:
    """Return a container with more variables, behind its own: the last one of a name counts."""
    more = [{"name": name, "value": value} for name, value in variables.items()]
    return {**container, "env": [*(container.get("env") or ()), *more]}


def _rank(place: Place) -> int:
    return place.index + (place.kind == "Worker")


def _of_kubedl(job: TrainingJob, place: Place) -> Variables:
    """Return the variables of a PyTorchJob of KubeDL. The master's own port is that of its node, the workers' that of
    its Service, or with a headless Service that of the node, too."""
    master = place.kind == "Master"
    own = place.host_ports.get(("Master", 0)) if master or job.gates[HEADLESS] else None
    local = master and job.gates[LOCAL_MASTER]
    return {
        "MASTER_PORT": str(own or port(job, "Master") or ""),
        "MASTER_ADDR": "localhost" if local else job.pod_name("Master", 0),
        "RANK": str(_rank(place)),
        "PYTHONUNBUFFERED": "0",
        "WORLD_SIZE": str(sum(map(job.count, job.replicas))),
    }


def _of_kubeflow(job: TrainingJob, place: Place) -> Variables:
    total, elastic = sum(map(job.count, job.replicas)), job.spec.elasticPolicy
    each = job.spec.nprocPerNode or ("auto" if elastic is None or elastic.nProcPerNode is None else None)
    found = {"PYTHONUNBUFFERED": "1"}
    if "Master" in job.replicas:
        address, number = job.pod_name("Master", 0), str(port(job, "Master") or "")
        found |= {"MASTER_PORT": number, "PET_MASTER_PORT": number, "MASTER_ADDR": address, "PET_MASTER_ADDR": address}
        rank = str(_rank(place))
        found["WORLD_SIZE"] = str(total * (int(each) if each and each.isdigit() else 1))
        found |= {"RANK": rank, "PET_NODE_RANK": rank}
    if each:
        found["PET_NPROC_PER_NODE"] = each
    return {**found, **(_elastic(job) if elastic else {"PET_NNODES": str(total)})}


def _elastic(job: TrainingJob) -> Variables:
    policy = job.spec.elasticPolicy
    assert policy
    host = policy.rdzvHost or f"{job.one.name}-worker-0"
    workers = job.count("Worker")
    least = policy.minReplicas if policy.minReplicas is not None else policy.maxReplicas
    most = policy.maxReplicas if policy.maxReplicas is not None else policy.minReplicas
    found = {
        "PET_RDZV_ENDPOINT": f"{host}:{policy.rdzvPort or port(job, 'Worker')}",
        "PET_RDZV_BACKEND": policy.rdzvBackend,
        "PET_NNODES": f"{workers if least is None else least}:{workers if most is None else most}",
    }
    if policy.maxRestarts is not None:
        found["PET_MAX_RESTARTS"] = str(policy.maxRestarts)
    if policy.nProcPerNode is not None:
        found["PET_NPROC_PER_NODE"] = str(policy.nProcPerNode)
    if policy.rdzvId is not None:
        found["PET_RDZV_ID"] = policy.rdzvId
    if policy.rdzvConf:
        found["PET_RDZV_CONF"] = ",".join(f"{one.get('key', '')}={one.get('value', '')}" for one in policy.rdzvConf)
    return {**found, **({"PET_STANDALONE": ""} if policy.standalone else {})}


def _tf_config(job: TrainingJob, place: Place) -> str:
    """Return TensorFlow's description of a cluster, as Go writes JSON: the keys of maps sorted."""

    def ends(kind: str) -> list[str]:
        found = []
        for index in range(job.count(kind)):
            own = (kind, index) == (place.kind, place.index)
            number = place.host_ports.get((kind, index)) if own else None
            found.append(f"{job.pod_name(kind, index)}.{job.one.namespace}.svc:{number or port(job, kind)}")
        return found

    task = {"type": place.kind.lower(), "index": place.index}
    cluster: dict[str, Any] = {kind.lower(): ends(kind) for kind in sorted(job.replicas, key=str.lower)}
    found: dict[str, Any] = {"cluster": cluster, "task": task, "environment": "cloud"}
    if job.spec.enableDynamicWorker:
        own = ends(place.kind)[place.index]
        servers = {"ps": [own], "worker": cluster.get("ps", [])}.get(place.kind.lower(), [])
        workers = {str(place.index): own} if place.kind == "Worker" else {}
        found = {"cluster": {"worker": workers, "ps": servers}, "task": task}
    return json.dumps(found, separators=(",", ":"))


def _with_mpi(job: TrainingJob, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod of an MPIJob: a worker sleeps, a launcher has mpirun's host file and the script by which
    it starts a daemon in a worker."""
    launcher = kind == "Launcher"
    config_volume, kubectl_volume = VOLUMES[job.operator]
    files = [KUBEXEC, *([HOSTFILE] if launcher else [])]
    files += [DISCOVER] if launcher and job.operator == KUBEFLOW else []
    items = [{"key": name, "path": name, "mode": 0o444 if name == HOSTFILE else 0o555} for name in files]
    volumes: list[dict[str, Any]] = [{"name": config_volume, "configMap": {"name": config_name(job), "items": items}}]
    mounts = [{"name": config_volume, "mountPath": MPI_FILES}]
    if launcher:
        volumes.append({"name": kubectl_volume, "emptyDir": {}})
        mounts.append({"name": kubectl_volume, "mountPath": KUBECTL.rpartition("/")[0]})
    every = job.operator == KUBEDL
    containers = [
        _mpi_container(job, kind, one, mounts) if every or number == 0 else one
        for number, one in enumerate(spec["containers"])
    ]
    return {**spec, "containers": containers, "volumes": [*(spec.get("volumes") or ()), *volumes]}


def _mpi_container(
    job: TrainingJob, kind: str, given: Mapping[str, Any], mounts: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    found = {**given, "volumeMounts": [*(given.get("volumeMounts") or ()), *mounts]}
    if kind == "Worker":
        idle = not given.get("command") and (job.operator == KUBEFLOW or not given.get("args"))
        return {**found, **({"command": ["sleep"], "args": ["365d"]} if idle else {})}
    agent, hosts = MPI_VARIABLES[job.spec.mpiDistribution]
    more = {agent: f"{MPI_FILES}/{KUBEXEC}", hosts: f"{MPI_FILES}/{HOSTFILE}"}
    if job.operator == KUBEFLOW:
        if not _has_gpu(job):
            more |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
        own = {one["name"] for one in given.get("env") or ()}
        intel = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": f"{MPI_FILES}/{KUBEXEC}"}
        more |= {name: value for name, value in intel.items() if name not in own}
    return _given(found, more)


def _has_gpu(job: TrainingJob) -> bool:
    """Return whether the launcher has a GPU, and so is a host of mpirun, too."""
    containers = job.template("Launcher")["containers"] if "Launcher" in job.replicas else ()
    limits = [((one.get("resources") or {}).get("limits") or {}) for one in containers]
    return any(name.endswith(".com/gpu") or "gpu" in name for one in limits for name in one)


def config_name(job: TrainingJob) -> str:
    return f"{job.one.name}-config"


def config(job: TrainingJob, running: Sequence[str]) -> Object:
    """Return the ConfigMap of an MPIJob. `running` are the names of the workers that run."""
    inside = f" --container {job.spec.mainContainer}" if job.spec.mainContainer else ""
    script = f'#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{KUBECTL} exec ${{POD_NAME}}{inside} -- /bin/sh -c "$*"'
    slots = job.spec.slotsPerWorker
    # KubeDL's --launcher-runs-workloads is on, and its launcher is a host of mpirun with or without a GPU.
    works = job.operator == KUBEDL or _has_gpu(job)
    hosts = [job.pod_name("Launcher", 0)] if works and "Launcher" in job.replicas else []
    workers = [job.pod_name("Worker", index) for index in range(job.count("Worker") if "Worker" in job.replicas else 0)]
    sign = ":" if job.spec.mpiDistribution != "OpenMPI" else " slots="
    lines = [f"{name} slots={slots}" for name in hosts] + [f"{name}{sign}{slots}" for name in workers]
    data = {HOSTFILE: "".join(f"{line}\n" for line in lines), KUBEXEC: script}
    if job.operator == KUBEFLOW:
        found = [f"\necho {name}:{slots}\n" for name in hosts] + [f"\necho {name}:{slots}" for name in sorted(running)]
        data[DISCOVER] = "#!/bin/sh" + "".join(found)
    metadata = {
        "name": config_name(job),
        "namespace": job.one.namespace,
        "labels": {"app": job.one.name},
        "ownerReferences": [reference(job.one)],
    }
    return make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def service(job: TrainingJob, kind: str, index: int, host_ports: Mapping[tuple[str, int], int]) -> Object | None:
    """Return the Service of a replica: headless, or of an address if KubeDL's host network gives the replica a port of
    its node. None if the operator makes none."""
    if job.one.kind == "MPIJob" or (job.operator == KUBEDL and job.one.kind == "PyTorchJob" and kind != "Master"):
        return None
    if job.operator == KUBEDL:
        number = port(job, kind)
        if number is None:
            return None
        to = number if job.gates[HEADLESS] else host_ports.get((kind, index), number)
        ports = [{"name": job.framework.port_name, "port": number, "targetPort": to}]
    else:
        own = [one for one in job.template(kind)["containers"] if one.get("name") == job.framework.container]
        given = own[0].get("ports") or () if own else ()
        ports = [{"name": str(one.get("name", "")), "port": one["containerPort"]} for one in given]
    spec: dict[str, Any] = {"selector": labels(job, kind, index), "ports": ports}
    if not job.host_network or job.gates[HEADLESS]:
        spec["clusterIP"] = "None"
    metadata = {
        "name": job.pod_name(kind, index),
        "namespace": job.one.namespace,
        "labels": labels(job, kind, index),
        "ownerReferences": [reference(job.one)],
    }
    return make({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
