"""The kinds of training jobs, and what the operators of KubeDL and Kubeflow put where a job says nothing.

Sources: KubeDL (kubedl-io/kubedl), apis/training/v1alpha1; Kubeflow's training operator 1.8,
pkg/apis/kubeflow.org/v1 and pkg/webhooks.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from testbed.cni.objects import fields
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.training.spec import (
    KEYS,
    KUBEDL,
    KUBEFLOW,
    MPI_OPERATOR,
    Replica,
    RestartPolicy,
    RunPolicy,
    TrainingSpec,
)
from testbed.documents.problems import Problems, dotted
from testbed.documents.text import choices
from testbed.errors import did_you_mean

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LONGEST_LABEL = 63
"""Characters of a DNS label, which the name of a Service is."""
KUBEDL_SYSTEM, FEATURE_GATES = "kubedl-system", "--feature-gates="
LOCAL_MASTER, HEADLESS = "PyTorchLocalMasterAddr", "HostNetWithHeadlessSvc"
GATES = {LOCAL_MASTER: True, HEADLESS: False, "DAGScheduling": True}
"""The feature gates of KubeDL that change pods and Services, and what they are by default (pkg/features)."""
NETWORK_MODE = "kubedl.io/network-mode"


@dataclass(frozen=True)
class Framework:
    """What both operators know of a kind."""

    container: str
    """The name that the container of the program must have."""
    port_name: str
    types: tuple[str, ...]
    leaders: tuple[str, ...]
    """The types with which the job succeeds, if it has one of them."""


FRAMEWORKS = {
    "PyTorchJob": Framework("pytorch", "pytorchjob-port", ("Master", "Worker"), ("Master",)),
    "TFJob": Framework(
        "tensorflow", "tfjob-port", ("PS", "Master", "Chief", "Worker", "Evaluator"), ("Chief", "Master")
    ),
    "MPIJob": Framework("mpi", "mpi-port", ("Worker", "Launcher"), ("Launcher",)),
}


@dataclass(frozen=True)
class Defaults:
    """What an operator puts into a job."""

    restart: Mapping[str, RestartPolicy]
    """By type; that of "" for all others."""
    clean: Literal["All", "Running", "None"]
    port: int
    with_port: tuple[str, ...]
    """The types whose container gets a port."""
    after: Mapping[str, str]
    """The type that a type waits for: its pods run before."""


_AFTER_PS = dict.fromkeys(("Master", "Chief", "Worker"), "PS")
_LAUNCHER_LAST = {"Launcher": "Worker"}
DEFAULTS = {
    (KUBEDL, "PyTorchJob"): Defaults(
        {"Master": "ExitCode", "": "OnFailure"}, "None", 23456, ("Master",), {"Worker": "Master"}
    ),
    (KUBEDL, "TFJob"): Defaults({"": "ExitCode"}, "Running", 2222, FRAMEWORKS["TFJob"].types, _AFTER_PS),
    (KUBEDL, "MPIJob"): Defaults({"": "Never"}, "Running", 2222, FRAMEWORKS["MPIJob"].types, _LAUNCHER_LAST),
    # A worker of Kubeflow waits in an init container until its master's name is known, a launcher for its workers.
    (KUBEFLOW, "PyTorchJob"): Defaults(
        {"": "OnFailure"}, "None", 23456, FRAMEWORKS["PyTorchJob"].types, {"Worker": "Master"}
    ),
    (KUBEFLOW, "TFJob"): Defaults({"": "Never"}, "None", 2222, FRAMEWORKS["TFJob"].types, {}),
    (KUBEFLOW, "MPIJob"): Defaults({"": "Never"}, "None", 0, (), _LAUNCHER_LAST),
    (MPI_OPERATOR, "MPIJob"): Defaults({"Launcher": "OnFailure", "": "Never"}, "None", 0, (), {}),
}
NEVER_MADE: Mapping[str, tuple[str, ...]] = {KUBEDL: ("Evaluator",), KUBEFLOW: (), MPI_OPERATOR: ()}
"""Types that an operator knows and makes no pods of (KubeDL, GetReconcileOrders of TFJobs)."""
_POLICY = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy")
_KEYS = {
    (KUBEDL, "PyTorchJob"): (*_POLICY, "cronPolicy", "modelVersion", "cacheBackend"),
    (KUBEDL, "TFJob"): (*_POLICY, "cronPolicy", "modelVersion", "cacheBackend", "successPolicy"),
    (KUBEDL, "MPIJob"): (*_POLICY, "cronPolicy", "runPolicy", "slotsPerWorker", "mainContainer", "mpiDistribution"),
    (KUBEFLOW, "PyTorchJob"): ("runPolicy", "elasticPolicy", "nprocPerNode"),
    (KUBEFLOW, "TFJob"): ("runPolicy", "successPolicy", "enableDynamicWorker"),
    (KUBEFLOW, "MPIJob"): ("runPolicy", "cleanPodPolicy", "slotsPerWorker", "mainContainer"),
    (MPI_OPERATOR, "MPIJob"): (
        *("runPolicy", "slotsPerWorker", "runLauncherAsWorker"),
        *("sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"),
    ),
}
"""The keys of `spec` beside that of the replicas. Those of KubeDL's MPIJob before v1 are not among them."""
_POLICY_KEYS = {
    KUBEDL: (*_POLICY, "cronPolicy"),
    KUBEFLOW: (*_POLICY, "suspend"),
    MPI_OPERATOR: (*_POLICY, "suspend", "managedBy"),
}


@dataclass(frozen=True)
class TrainingJob:
    """A training job with what its operator puts into it."""

    one: Object
    spec: TrainingSpec
    replicas: Mapping[str, Replica]
    """By type, as the operator spells it, in the order in which it makes them."""
    gates: Mapping[str, bool]
    """KubeDL's feature gates."""

    @property
    def operator(self) -> str:
        return str(self.one.data["apiVersion"])

    @property
    def key(self) -> str:
        """Return the key of the replicas in `spec`."""
        return KEYS[self.one.kind]

    @property
    def framework(self) -> Framework:
        return FRAMEWORKS[self.one.kind]

    @property
    def defaults(self) -> Defaults:
        return DEFAULTS[self.operator, self.one.kind]

    @property
    def policy(self) -> RunPolicy:
        """Return the run policy: KubeDL's PyTorchJobs and TFJobs have its keys in `spec` itself."""
        inline = self.operator == KUBEDL and self.one.kind != "MPIJob"
        return self.spec if inline else self.spec.runPolicy

    @property
    def clean(self) -> str:
        """Return which pods end with the job: All, Running or None."""
        return self.policy.cleanPodPolicy or self.spec.cleanPodPolicy or self.defaults.clean

    @property
    def host_network(self) -> bool:
        """Return whether KubeDL gives each pod its node's network and a port of it."""
        return self.operator == KUBEDL and self.one.annotations.get(NETWORK_MODE) == "host"

    def count(self, kind: str) -> int:
        """Return how many pods of a type the job has."""
        none = self.operator != KUBEDL and (self.one.kind, kind) == ("MPIJob", "Worker")
        found = self.replicas[kind].replicas
        return found if found is not None else int(not none)

    def after(self, kind: str) -> str:
        """Return the type whose pods run before those of a type; empty for none."""
        ordered = self.operator == KUBEFLOW or self.gates["DAGScheduling"]
        before = self.defaults.after.get(kind, "") if ordered else ""
        return before if before in self.replicas else ""

    def restart(self, kind: str) -> RestartPolicy:
        return self.replicas[kind].restartPolicy or self.defaults.restart.get(kind, self.defaults.restart[""])

    def pod_name(self, kind: str, index: int) -> str:
        if self.operator != KUBEDL and kind == "Launcher":
            return f"{self.one.name}-launcher"
        return f"{self.one.name}-{kind.lower()}-{index}"

    def template(self, kind: str) -> dict[str, Any]:
        """Return the `spec` of its template, with the port that the operator puts there."""
        spec = dict(self.one.spec[self.key][self._written(kind)]["template"]["spec"])
        if kind not in self.defaults.with_port:
            return spec
        place = self._place(spec["containers"])
        if place is None or any(
            one.get("name") == self.framework.port_name for one in spec["containers"][place].get("ports") or ()
        ):
            return spec
        containers = [dict(one) for one in spec["containers"]]
        port = {"name": self.framework.port_name, "containerPort": self.defaults.port}
        containers[place]["ports"] = [*(containers[place].get("ports") or ()), port]
        return {**spec, "containers": containers}

    def metadata(self, kind: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.one.spec[self.key][self._written(kind)]["template"].get("metadata") or {}
        return found

    def _place(self, containers: list[Mapping[str, Any]]) -> int | None:
        """Return which container gets the port: the one with the framework's name, else the first one; KubeDL gives
        PyTorchJobs none then."""
        names = [one.get("name") for one in containers]
        if self.framework.container in names:
            return names.index(self.framework.container)
        return None if (self.operator, self.one.kind) == (KUBEDL, "PyTorchJob") else 0

    def _written(self, kind: str) -> str:
        """Return a type as the user spells it."""
        given: Mapping[str, Any] = self.one.spec[self.key]
        return next(key for key in given if _spelt(self.one.kind, key) == kind)


def _spelt(kind: str, given: str) -> str:
    """Return a type of replicas as the operator spells it, who takes any case but for MPIJobs."""
    types = FRAMEWORKS[kind].types if kind != "MPIJob" else ()
    return next((one for one in types if one.lower() == given.lower()), given)


def kubedl_gates(workloads: Iterable[Object]) -> Mapping[str, bool]:
    """Return KubeDL's feature gates, as the arguments of its manager say (--feature-gates of a Deployment in
    kubedl-system)."""
    found = dict(GATES)
    for one in workloads:
        if (one.kind, one.namespace) == ("Deployment", KUBEDL_SYSTEM):
            for container in one.spec["template"]["spec"]["containers"]:
                for word in [*(container.get("command") or ()), *(container.get("args") or ())]:
                    if word.startswith(FEATURE_GATES):
                        given = (pair.partition("=") for pair in word.removeprefix(FEATURE_GATES).split(","))
                        found |= {name: value == "true" for name, _, value in given if name in GATES}
    return found


def read(one: Object, gates: Mapping[str, bool] = GATES) -> TrainingJob:
    """Return the training job of an object. InputError for what `check` refuses."""
    spec = TrainingSpec.model_validate(one.spec)
    given = {_spelt(one.kind, kind): replica for kind, replica in (getattr(spec, KEYS[one.kind]) or {}).items()}
    left_out = NEVER_MADE[str(one.data["apiVersion"])]
    order = [kind for kind in FRAMEWORKS[one.kind].types if kind in given and kind not in left_out]
    return TrainingJob(one, spec, {kind: given[kind] for kind in order}, gates)


def check(one: Object, problems: Problems) -> None:
    """Add what an API server and the operator's webhook refuse, and what its controller never carries out."""
    operator, framework, of_replicas = str(one.data["apiVersion"]), FRAMEWORKS[one.kind], KEYS[one.kind]
    known = (of_replicas, *_KEYS[operator, one.kind])
    _check_keys(one.spec, known, ("spec",), problems)
    if policy := one.spec.get("runPolicy"):
        _check_keys(policy, _POLICY_KEYS[operator], ("spec", "runPolicy"), problems)
    given = one.spec.get(of_replicas)
    if not given:
        problems.add(("spec",), f"spec.{of_replicas}: Required value: must be required")
        return
    for key, replica in given.items():
        at = ("spec", of_replicas, key)
        fields.check_part("core_v1", "PodTemplateSpec", replica["template"], (*at, "template"), problems)
        strict = (operator, one.kind) == (KUBEFLOW, "PyTorchJob")  # its webhook looks before the case is put right
        if (key if strict else _spelt(one.kind, key)) not in framework.types:
            problems.add(at, f"Unsupported value: {key!r}: supported values: {choices(key, framework.types)}")
    problems.stop()
    for path, wrong in _refused(read(one)):
        problems.add(("spec", *path), f"{dotted(('spec', *path))}: {wrong}")


def _check_keys(given: Mapping[str, Any], known: tuple[str, ...], path: tuple[str, ...], problems: Problems) -> None:
    for key in given:
        if key not in known:
            near = did_you_mean(key, known, aside=True)
            problems.add((*path, key), f'unknown field "{dotted((*path, key))}"{near}', at_key=True)


def _refused(job: TrainingJob) -> list[tuple[tuple[str, ...], str]]:
    """Return what is wrong with a job, with the places below `spec`."""
    found: list[tuple[tuple[str, ...], str]] = []
    framework, kinds = job.framework, [kind for kind in job.framework.leaders if kind in job.replicas]
    for kind, replica in job.replicas.items():
        path = (job.key, kind)
        containers = replica.template.spec.containers
        if job.operator == KUBEFLOW and any(not one.image for one in containers):
            found.append(((*path, "template", "spec", "containers"), "Required value: image: must be required"))
        named = framework.container in [one.name for one in containers]
        if not named and (job.operator == KUBEFLOW or job.one.kind == "TFJob") and job.one.kind != "MPIJob":
            wrong = f"Required value: must have at least one container with name {framework.container}"
            found.append(((*path, "template", "spec", "containers"), wrong))
        alone = kind in ("Master", "Launcher") and job.one.kind != "TFJob"
        said = (job.operator, job.one.kind) == (KUBEFLOW, "PyTorchJob")
        if alone and replica.replicas not in ((1,) if said else (None, 1)):
            found.append(((*path, "replicas"), "Forbidden: must be 1"))
        if len(job.pod_name(kind, max(0, job.count(kind) - 1))) > LONGEST_LABEL:
            wrong = f"the name of a pod, {job.pod_name(kind, 0)}, has more than {LONGEST_LABEL} characters"
            found.append((path, wrong))
    if job.operator == MPI_OPERATOR:
        found += _refused_by_mpi_operator(job)
    if job.one.kind == "MPIJob" and not kinds:
        found.append(((job.key,), "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"))
    if (job.operator, job.one.kind) == (KUBEDL, "PyTorchJob") and not kinds:
        found.append(((job.key,), "invalid config: Job must contain master replica spec"))
    if job.operator != MPI_OPERATOR and job.one.kind != "MPIJob" and not LABEL.fullmatch(job.one.name):
        found.append(((), f"metadata.name: Invalid value: {job.one.name!r}: a DNS-1035 label must begin with a letter"))
    if job.operator == KUBEFLOW and job.one.kind == "TFJob" and len(kinds) > 1:
        found.append(((job.key,), "Forbidden: must not have more than 1 Chief or Master role"))
    elastic = job.spec.elasticPolicy
    if elastic and elastic.nProcPerNode is not None and job.spec.nprocPerNode is not None:
        found.append((("elasticPolicy", "nProcPerNode"), "Forbidden: must not be used with spec.nprocPerNode"))
    if elastic and "Worker" not in job.replicas:
        found.append((("elasticPolicy",), "cannot find the worker spec"))
    return found


def _refused_by_mpi_operator(job: TrainingJob) -> list[tuple[tuple[str, ...], str]]:
    """Return what the validation of kubeflow/mpi-operator says of a job, after its defaults
    (pkg/apis/kubeflow/validation)."""
    found: list[tuple[tuple[str, ...], str]] = []
    for kind in job.replicas:
        if job.restart(kind) not in ("Never", "OnFailure"):
            wrong = f'Unsupported value: "{job.restart(kind)}": supported values: "Never", "OnFailure"'
            found.append(((job.key, kind, "restartPolicy"), wrong))
    if "Worker" in job.replicas and job.count("Worker") <= 0:
        found.append(((job.key, "Worker"), "replicas: Invalid value: 0: must be greater than or equal to 1"))
    last = job.pod_name("Worker", max(1, job.count("Worker") if "Worker" in job.replicas else 1) - 1)
    if not LABEL.fullmatch(last) or len(last) > LONGEST_LABEL:
        wrong = f'metadata.name: Invalid value: "{job.one.name}": no pod and service can have the DNS label "{last}"'
        found.append(((), wrong))
    return found
