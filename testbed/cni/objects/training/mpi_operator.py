"""MPIJobs of Kubeflow's mpi-operator (kubeflow.org/v2beta1): workers with sshd, and a Job whose pod runs mpirun.

Source: kubeflow/mpi-operator 0.8, pkg/controller/mpi_job_controller.go and pkg/apis/kubeflow.
"""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.cni.objects.manifests import Object, make, written
from testbed.cni.objects.training.kinds import TrainingJob
from testbed.cni.objects.training.state import FINISHED, State, condition, holds
from testbed.cni.objects.workloads import Next, Run, reference

LABELS = "training.kubeflow.org/"
CONFIG, SSH = "mpi-job-config", "ssh-auth"
FILES, ROOT_SSH = "/etc/mpi", "/root/.ssh"
KEYS = {"id_rsa": "ssh-privatekey", "id_rsa.pub": "ssh-publickey", "authorized_keys": "ssh-publickey"}
"""The files of a user's .ssh, and the keys of the Secret."""
EXTERNAL = "kueue.x-k8s.io/multikueue"
"""The manager of jobs that the operator leaves alone."""
ATTEMPTS = "-o ConnectionAttempts=10"
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": f"{FILES}/hostfile",
        "OMPI_MCA_plm_rsh_args": ATTEMPTS,
    },
    "Intel": {"I_MPI_HYDRA_HOST_FILE": f"{FILES}/hostfile", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": ATTEMPTS},
    "MPICH": {"HYDRA_HOST_FILE": f"{FILES}/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": ATTEMPTS},
}
SLOTS = {"OpenMPI": "OMPI_MCA_orte_set_default_slots", "Intel": "I_MPI_PERHOST"}
KeyPair = Callable[[], tuple[str, str]]
"""Makes a private key and its public one, as ssh-keygen writes them."""


def follow(state: State, launchers: Sequence[Run], objects: Sequence[Object], key_pair: KeyPair, found: Next) -> None:
    """Add the next steps for a job. `launchers` are the pods of its launcher's Job, `objects` what it owns."""
    job, there = state.job, {str(one): one for one in objects}
    if job.policy.managedBy == EXTERNAL:
        return
    launcher = there.get(f"Job/{job.one.namespace}/{launcher_name(job)}")
    ended = _ended(launcher)
    suspended = job.policy.suspend
    if holds(state.status, *FINISHED):
        _clean_up(state, found, everything=job.clean == "All" or suspended)
        return
    if not suspended:
        state.status.setdefault("startTime", written(time.time()))
    if not ended:
        running = [run.pod.name for run in state.of("Worker") if run.state == "running"]
        for wanted in (_service(job), _config(job, running)):
            known = there.get(str(wanted))
            if known is None or known.data.get("data") != wanted.data.get("data"):
                state.put(found, wanted)
        secret = f"Secret/{job.one.namespace}/{job.one.name}-ssh"
        if secret not in there and secret not in state.others:
            state.put(found, _secret(job, *key_pair()))
        if not suspended:
            found.ended += state.surplus
            found.made += [_worker(job, index) for index in range(_workers(job)) if ("Worker", index) not in state.runs]
        at_once = job.spec.launcherCreationPolicy == "AtStartup"
        if launcher is None and (at_once or len(running) == _workers(job)):
            state.put(found, _launcher(job))
    if launcher and bool(launcher.spec.get("suspend")) != suspended:
        found.objects.append(make({**launcher.data, "spec": {**launcher.spec, "suspend": suspended}}))
    if suspended:
        _clean_up(state, found, everything=True)
    _report(state, launcher, launchers, ended)


def launcher_name(job: TrainingJob) -> str:
    return f"{job.one.name}-launcher"


def _workers(job: TrainingJob) -> int:
    return job.count("Worker") if "Worker" in job.replicas else 0


def _ended(launcher: Object | None) -> str:
    """Return how the launcher's Job has ended: Complete, Failed or not."""
    conditions = ((launcher.data.get("status") or {}).get("conditions") or ()) if launcher else ()
    return next((str(one["type"]) for one in conditions), "")


def _clean_up(state: State, found: Next, *, everything: bool) -> None:
    if everything or state.job.clean == "Running":
        found.ended += [run for run in state.of("Worker") if everything or run.state in ("running", "waiting")]
    state.status.get("replicaStatuses", {}).get("Worker", {}).pop("active", None)


def _report(state: State, launcher: Object | None, launchers: Sequence[Run], ended: str) -> None:
    name, status = f"MPIJob {state.job.one.namespace}/{state.job.one.name}", state.status
    if state.job.policy.suspend:
        condition(state, "Suspended", "MPIJob suspended")
        if holds(status, "Running"):
            condition(state, "Running", f"{name} is suspended.", true=False)
        return
    if holds(status, "Suspended"):
        condition(state, "Suspended", "MPIJob resumed", true=False)
        status["startTime"] = written(time.time())
    running = sum(run.state == "running" for run in launchers)
    of_job: Mapping[str, Any] = (launcher.data.get("status") or {}) if launcher else {}
    failed = int(of_job.get("failed") or 0)
    first = {"active": 0 if ended else running, "succeeded": int(ended == "Complete"), "failed": failed}
    states = [run.state for run in state.of("Worker")]
    workers = {
        "active": states.count("running"),
        "succeeded": states.count("succeeded"),
        "failed": states.count("failed"),
    }
    counts: dict[str, dict[str, int]] = {"Launcher": first} if launcher else {}
    counts["Worker"] = workers
    status["replicaStatuses"] = {
        kind: {key: value for key, value in one.items() if value} for kind, one in counts.items()
    }
    if ended == "Complete":
        status.setdefault("completionTime", of_job.get("completionTime") or written(time.time()))
        condition(state, "Succeeded", f"{name} successfully completed.")
    elif ended:
        status.setdefault("completionTime", written(time.time()))
        first_of: Mapping[str, Any] = next(iter(of_job.get("conditions") or ()), {})
        reason = str(first_of.get("reason") or "")
        reason += "/" if reason == "BackoffLimitExceeded" else ""  # and the reason of its last pod, which has none
        condition(state, "Failed", str(first_of.get("message") or f"{name} has failed"), reason=reason)
    elif running and workers["active"] == _workers(state.job):
        condition(state, "Running", f"{name} is running.")


def _metadata(job: TrainingJob, name: str) -> dict[str, Any]:
    labels = {"app": job.one.name}
    return {"name": name, "namespace": job.one.namespace, "labels": labels, "ownerReferences": [reference(job.one)]}


def _labels(job: TrainingJob, role: str = "") -> dict[str, str]:
    found = {f"{LABELS}operator-name": "mpi-operator", f"{LABELS}job-name": job.one.name}
    return {**found, **({f"{LABELS}job-role": role} if role else {})}


def index_of(job: TrainingJob, kind: str, pod: Object) -> int | None:
    """Return the index of a pod among the workers, None if it is none."""
    number = pod.labels.get(f"{LABELS}replica-index", "")
    if kind != "Worker" or pod.labels.get(f"{LABELS}job-role") != "worker" or not number.isdigit():
        return None
    return int(number) - job.spec.runLauncherAsWorker


def _service(job: TrainingJob) -> Object:
    spec = {"clusterIP": "None", "selector": _labels(job), "publishNotReadyAddresses": job.spec.runLauncherAsWorker}
    return make({"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job, job.one.name), "spec": spec})


def _config(job: TrainingJob, running: Sequence[str]) -> Object:
    """Return the ConfigMap with mpirun's host file and, for elastic programs, the workers that run."""

    def full(name: str) -> str:
        return f"{name}.{job.one.name}.{job.one.namespace}.svc"

    hosts = [launcher_name(job)] if job.spec.runLauncherAsWorker else []
    workers = [job.pod_name("Worker", index) for index in range(_workers(job))]
    sign = " slots=" if job.spec.mpiImplementation == "OpenMPI" else ":"
    data = {
        "hostfile": "".join(f"{full(name)}{sign}{job.spec.slotsPerWorker}\n" for name in (*hosts, *workers)),
        "discover_hosts.sh": "#!/bin/sh\n" + "".join(f"echo {full(name)}\n" for name in (*hosts, *sorted(running))),
    }
    metadata = _metadata(job, f"{job.one.name}-config")
    return make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def _secret(job: TrainingJob, private: str, public: str) -> Object:
    given = {"ssh-privatekey": private, "ssh-publickey": public}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in given.items()}
    head = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth"}
    return make({**head, "metadata": _metadata(job, f"{job.one.name}-ssh"), "data": data})


def _worker(job: TrainingJob, index: int) -> Object:
    name = job.pod_name("Worker", index)
    given, spec = job.metadata("Worker"), _pod_spec(job, "Worker", name)
    first, *others = spec["containers"]
    if not first.get("command") and not first.get("args"):
        first = {**first, "command": ["/usr/sbin/sshd", "-De"]}
    search = f"{job.one.name}.{job.one.namespace}.svc.cluster.local"
    dns = spec.get("dnsConfig") or {}
    spec |= {"containers": [first, *others], "dnsConfig": {**dns, "searches": [*(dns.get("searches") or ()), search]}}
    number = index + job.spec.runLauncherAsWorker
    labels = {**(given.get("labels") or {}), **_labels(job, "worker"), f"{LABELS}replica-index": str(number)}
    metadata = {
        "name": name,
        "namespace": job.one.namespace,
        "labels": labels,
        "annotations": dict(given.get("annotations") or {}),
        "ownerReferences": [reference(job.one)],
    }
    return make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _pod_spec(job: TrainingJob, kind: str, name: str) -> dict[str, Any]:
    """Return the spec of a pod with its host name, its role and the keys for ssh."""
    spec = {**job.template(kind), "hostname": name, "subdomain": job.one.name, "restartPolicy": job.restart(kind)}
    if spec.get("hostNetwork"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    secret: dict[str, Any] = {"secretName": f"{job.one.name}-ssh"}
    secret["items"] = [{"key": key, "path": path} for path, key in KEYS.items()]
    if job.spec.sshAuthMountPath == ROOT_SSH:
        secret["defaultMode"] = 0o600
    first, *others = spec["containers"]
    mounts = [*(first.get("volumeMounts") or ()), {"name": SSH, "mountPath": job.spec.sshAuthMountPath}]
    role = {"name": "K_MPI_JOB_ROLE", "value": kind.lower()}
    first = {**first, "env": [*(first.get("env") or ()), role], "volumeMounts": mounts}
    volumes = [*(spec.get("volumes") or ()), {"name": SSH, "secret": secret}]
    return {**spec, "containers": [first, *others], "volumes": volumes}


def _launcher(job: TrainingJob) -> Object:
    """Return the Job whose pod runs mpirun."""
    given, spec = job.metadata("Launcher"), _pod_spec(job, "Launcher", launcher_name(job))
    more = dict(VARIABLES[job.spec.mpiImplementation])
    if slots := SLOTS.get(job.spec.mpiImplementation):
        more[slots] = str(job.spec.slotsPerWorker)
    if not job.spec.runLauncherAsWorker:
        more |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    first, *others = spec["containers"]
    env = [*first["env"], *({"name": name, "value": value} for name, value in more.items())]
    mounts = [*first["volumeMounts"], {"name": CONFIG, "mountPath": FILES}]
    items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
    items.append({"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555})
    config = {"name": CONFIG, "configMap": {"name": f"{job.one.name}-config", "items": items}}
    spec |= {"containers": [{**first, "env": env, "volumeMounts": mounts}, *others]}
    spec |= {"volumes": [*spec["volumes"], config]}
    labels = {**(given.get("labels") or {}), **_labels(job, "launcher")}
    labels |= {f"{LABELS}replica-index": "0"} if job.spec.runLauncherAsWorker else {}
    template = {"metadata": {"labels": labels, "annotations": dict(given.get("annotations") or {})}, "spec": spec}
    limits = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    said = {key: getattr(job.policy, key) for key in limits}
    of_job = {"template": template, **{key: value for key, value in said.items() if value is not None}}
    if job.policy.suspend:
        of_job["suspend"] = True
    return make(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(job, launcher_name(job)), "spec": of_job}
    )
