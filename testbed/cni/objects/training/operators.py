"""The next steps of the operators of training jobs, for `cni/objects/workloads.py`: pods, Services, conditions.

Sources: KubeDL (kubedl-io/kubedl), pkg/job_controller/{job,pod,service,failover}.go and
controllers/{pytorch,tensorflow,mpi}/status.go; Kubeflow's training operator 1.8, pkg/controller.v1/common/{job,pod}.go,
pkg/core, and its controllers of the three kinds.
"""

import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from testbed.cni.objects.manifests import Object, make, written
from testbed.cni.objects.training import mpi_operator, replicas
from testbed.cni.objects.training.kinds import TrainingJob, kubedl_gates, read
from testbed.cni.objects.training.mpi_operator import KeyPair
from testbed.cni.objects.training.replicas import PORTS, Place
from testbed.cni.objects.training.spec import KEYS, KUBEDL, KUBEFLOW, MPI_OPERATOR
from testbed.cni.objects.training.state import FINISHED, State, condition, holds
from testbed.cni.objects.workloads import Next, Run, owner_of, seconds_left

RETRYABLE = {KUBEDL: (130, 137, 138, 143), KUBEFLOW: range(128, 256)}
"""The statuses of a container after which restartPolicy ExitCode makes its pod again."""


def follow(
    jobs: Sequence[Object],
    runs: Sequence[Run],
    objects: Iterable[Object],
    number: Callable[[], int],
    key_pair: KeyPair,
    found: Next,
) -> None:
    """Add the next steps for training jobs. `jobs` are all workloads, the Deployment of KubeDL's manager among them, if
    there is one; `objects` all Services, ConfigMaps and Secrets; `number` as for `workloads.following`."""
    gates = kubedl_gates(jobs)
    owned: dict[tuple[str, str, str], list[Object]] = {}
    everything = [*objects, *(one for one in jobs if one.kind == "Job")]
    for one in [*objects, *(one for one in jobs if one.kind == "Job")]:
        owned.setdefault((one.namespace, *owner_of(one)), []).append(one)
    pods: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        pods.setdefault((run.pod.namespace, *owner_of(run.pod)), []).append(run)
    for one in jobs:
        if one.kind in KEYS:
            key = one.namespace, one.kind, one.name
            job = read(one, gates)
            launchers = pods.get((one.namespace, "Job", mpi_operator.launcher_name(job)), [])
            _follow(job, pods.get(key, []), launchers, owned.get(key, []), everything, number, key_pair, found)


def _follow(
    job: TrainingJob,
    own: Sequence[Run],
    launchers: Sequence[Run],
    objects: Sequence[Object],
    everything: Sequence[Object],
    number: Callable[[], int],
    key_pair: KeyPair,
    found: Next,
) -> None:
    one = job.one
    index_of = mpi_operator.index_of if job.operator == MPI_OPERATOR else replicas.index_of
    state = State(job, copy.deepcopy(dict(one.data.get("status") or {})))
    for run in own:
        places = [(kind, index_of(job, kind, run.pod)) for kind in job.replicas]
        place = next(((kind, index) for kind, index in places if index is not None and index < job.count(kind)), None)
        if place is None or place in state.runs:
            state.surplus.append(run)
        else:
            state.runs[place] = run
    own_names = {str(mine) for mine in objects}
    state.others = frozenset(str(other) for other in everything) - own_names
    state.services = {one.name: one for one in objects if one.kind == "Service"}
    if not state.status.get("conditions"):
        condition(state, "Created", f"{one.kind} {one.name} is created.")
    if job.operator == MPI_OPERATOR:
        mpi_operator.follow(state, launchers, objects, key_pair, found)
    elif holds(state.status, *FINISHED):
        _clean_up(state, found, everything=False)
    elif job.policy.suspend and job.operator == KUBEFLOW:
        _suspend(state, found)
    elif reason := _past_limits(state, found):
        condition(state, "Failed", reason)
        _clean_up(state, found, everything=job.operator == KUBEFLOW)
    else:
        _go_on(state, objects, number, found)
    if state.status != (one.data.get("status") or {}):
        found.objects.append(make({**one.data, "status": state.status}))


def _go_on(state: State, objects: Sequence[Object], number: Callable[[], int], found: Next) -> None:
    """Make what is missing, end what is too much, and say how the job is."""
    job = state.job
    if holds(state.status, "Suspended"):
        condition(state, "Suspended", f"{job.one.kind} {job.one.name} is resumed.", true=False)
        state.status.pop("startTime", None)
    if (job.operator, job.one.kind) != (KUBEDL, "MPIJob"):  # which never says when its MPIJobs began
        state.status.setdefault("startTime", written(time.time()))
    found.ended += state.surplus
    restarted = {kind: _restarted(state, kind) for kind in job.replicas}
    _report(state, restarted)
    found.ended += [run for pods in restarted.values() for run in pods]
    if holds(state.status, *FINISHED):
        return
    ports = state.host_ports()
    for kind in job.replicas:
        before = job.after(kind)
        if before and not _all_run(state, before):
            continue
        for index in range(job.count(kind)):
            if (kind, index) not in state.runs:
                if job.host_network:
                    ports[kind, index] = _drawn(job.one, number)
                found.made.append(replicas.pod(job, Place(kind, index, ports)))
    _keep_services(state, ports, found)
    if job.one.kind == "MPIJob":
        _keep_config(state, objects, found)


def _drawn(one: Object, number: Callable[[], int]) -> int:
    digest = hashlib.sha256(f"{one}/{number()}".encode()).digest()
    return PORTS[int.from_bytes(digest[:4]) % len(PORTS)]


def _all_run(state: State, kind: str) -> bool:
    """Return whether all pods of a type run or have ended."""
    there = state.of(kind)
    return len(there) >= state.job.count(kind) and all(run.state != "waiting" for run in there)


def _restarted(state: State, kind: str) -> list[Run]:
    """Return the failed pods of a type that are made again, by the policy of the type."""
    policy, operator = state.job.restart(kind), state.job.operator
    if (operator, state.job.one.kind) == (KUBEFLOW, "MPIJob"):
        return []
    failed = [run for run in state.of(kind) if run.state == "failed"]
    if policy == "ExitCode":
        return [run for run in failed if run.exit_code in RETRYABLE[operator]]
    return failed if operator == KUBEFLOW and policy != "Never" else []


def _keep_services(state: State, ports: Mapping[tuple[str, int], int], found: Next) -> None:
    """Make the Services that are missing, and let those of KubeDL's host network follow the ports of their pods."""
    wanted: set[str] = set()
    for kind in state.job.replicas:
        before = state.job.after(kind)
        if before and not _all_run(state, before):
            continue
        for index in range(state.job.count(kind)):
            name = state.job.pod_name(kind, index)
            wanted.add(name)
            there = state.services.get(name)
            if there is None:
                made = replicas.service(state.job, kind, index, ports)
                if made:
                    state.put(found, made)
            elif (kind, index) in ports:
                (first, *others) = there.spec["ports"]
                if first.get("targetPort") != ports[kind, index]:
                    first = {**first, "targetPort": ports[kind, index]}
                    found.objects.append(make({**there.data, "spec": {**there.spec, "ports": [first, *others]}}))
    found.gone += [one for name, one in state.services.items() if name not in wanted]


def _keep_config(state: State, objects: Sequence[Object], found: Next) -> None:
    running = [run.pod.name for run in state.of("Worker") if run.state == "running"]
    wanted = replicas.config(state.job, running)
    there = next((one for one in objects if (one.kind, one.name) == (wanted.kind, wanted.name)), None)
    if there is None or (state.job.operator == KUBEFLOW and there.data.get("data") != wanted.data["data"]):
        state.put(found, wanted)


def _suspend(state: State, found: Next) -> None:
    """End all pods of a job that waits for its time, with their Services."""
    _clean_up(state, found, everything=True)
    if not holds(state.status, "Suspended"):
        if holds(state.status, "Running"):
            condition(state, "Running", f"{state.job.one.kind} {state.job.one.name} is suspended.", true=False)
        condition(state, "Suspended", f"{state.job.one.kind} {state.job.one.name} is suspended.")


def _past_limits(state: State, found: Next) -> str:
    """Return the reason why a job has failed by its limits, or an empty string."""
    policy, name = state.job.policy, state.job.one.name
    if policy.backoffLimit is not None:
        counted = ("OnFailure", "Always") + (() if state.job.operator == KUBEDL else ("ExitCode",))
        kinds = [kind for kind in state.job.replicas if state.job.restart(kind) in counted]
        restarts = sum(run.restarts for kind in kinds for run in state.of(kind) if run.state == "running")
        # The number of requeues, which they add to it, is 0 in both operators.
        lost = policy.backoffLimit == 0 and any(run.state == "failed" for run in state.runs.values())
        if restarts >= max(1, policy.backoffLimit) or lost:
            return f"Job {name} has failed because it has reached the specified backoff limit"
    if policy.activeDeadlineSeconds is not None and (began := state.status.get("startTime")):
        left = seconds_left(began, policy.activeDeadlineSeconds)
        if left <= 0:
            return f"Job {name} has failed because it was active longer than specified deadline"
        found.later = min(found.later, left)
    return ""


def _clean_up(state: State, found: Next, *, everything: bool) -> None:
    """End pods of a job that has ended, with their Services, as its cleanPodPolicy says, and the job after its time."""
    clean = "All" if everything else state.job.clean
    if holds(state.status, *FINISHED):
        state.status.setdefault("completionTime", written(time.time()))
    waiting_too = state.job.operator == KUBEFLOW
    for run in [*state.runs.values(), *state.surplus]:
        runs = run.state == "running" or (waiting_too and run.state == "waiting")
        if clean == "All" or (clean == "Running" and runs):
            found.ended.append(run)
            found.gone += [one for name, one in state.services.items() if name == run.pod.name]
    for one in (state.status.get("replicaStatuses") or {}).values():
        if holds(state.status, "Succeeded") and one.get("active"):
            one["succeeded"] = one.get("succeeded", 0) + one.pop("active")
    after = state.job.policy.ttlSecondsAfterFinished
    if after is not None and "completionTime" in state.status:
        left = seconds_left(state.status["completionTime"], after)
        found.gone += [state.job.one] if left <= 0 else []
        found.later = min(found.later, left if left > 0 else math.inf)


def _report(state: State, restarted: Mapping[str, Sequence[Run]]) -> None:
    """Put into the status how many pods of each type run and have ended, and what follows of it for the job."""
    job, counts = state.job, {kind: _counted(state, kind) for kind in state.job.replicas}
    state.status["replicaStatuses"] = {
        kind: {key: value for key, value in one.items() if value} for kind, one in counts.items()
    }
    if job.one.kind == "MPIJob":
        _report_mpi(state, counts, restarted)
        return
    name, kind, again = job.one.name, job.one.kind, any(restarted.values())
    for one in job.replicas if job.operator == KUBEFLOW else ():
        if job.restart(one) == "ExitCode" and counts[one]["failed"] > len(restarted[one]):
            condition(state, "Failed", f'job "{name}" is failing because "{one}" replica(s) failed.')
    leaders = [one for one in job.framework.leaders if one in job.replicas] or ["Worker"]
    for leader in [one for one in leaders if one in counts]:
        if counts[leader]["active"]:
            condition(state, "Running", f"{kind} {name} is running.")
        if _succeeded(state, leader, counts):
            condition(state, "Succeeded", f"{kind} {name} is successfully completed.")
            return
    for one, count in counts.items():
        if not count["failed"] or _may_lose(state, one, count):
            continue
        goes_on = again or (job.operator == KUBEFLOW and kind == "PyTorchJob" and job.restart(one) != "Never")
        verb = "restarting" if goes_on else "failed"
        text = f"{kind} {name} is {verb} because {count['failed']} {one} replica(s) failed."
        condition(state, "Restarting" if goes_on else "Failed", text)


def _may_lose(state: State, kind: str, count: Mapping[str, int]) -> bool:
    """Return whether a job goes on whatever has become of its failed pods of a type."""
    job = state.job
    if job.one.kind == "TFJob":
        return job.spec.enableDynamicWorker and kind == "Worker"
    return job.operator == KUBEFLOW and job.count(kind) <= count["succeeded"] + count["active"]


def _counted(state: State, kind: str) -> dict[str, int]:
    states = [run.state for run in state.of(kind)]
    lost = "failed" if state.job.operator == KUBEFLOW else "active"
    found = {
        "active": states.count("running"),
        "succeeded": states.count("succeeded"),
        "failed": states.count("failed"),
    }
    found[lost] += states.count("terminating")
    if state.job.operator == KUBEDL:  # counts what waits on its node, too (pkg/job_controller/status.go)
        found["active"] += sum(run.state == "waiting" and bool(run.node) for run in state.of(kind))
    return found


def _succeeded(state: State, leader: str, counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether the job has succeeded by the pods of the type that leads."""
    job = state.job
    done = {kind: job.count(kind) <= counts[kind]["succeeded"] for kind in counts}
    first = state.runs.get(("Worker", 0))
    ended = first is not None and first.state == "succeeded"
    every = job.spec.successPolicy == "AllWorkers"
    if leader == "Worker":
        if job.one.kind == "PyTorchJob":
            return done[leader] or bool(job.spec.elasticPolicy and counts[leader]["succeeded"])
        return done[leader] or (ended and not every)
    if job.operator == KUBEFLOW or not (every or job.one.kind == "PyTorchJob"):
        return done[leader]
    return done[leader] and done.get("Worker", True)


def _report_mpi(state: State, counts: Mapping[str, Mapping[str, int]], restarted: Mapping[str, Sequence[Run]]) -> None:
    job, name = state.job, state.job.one.name
    launcher = counts.get("Launcher", {"active": 0, "succeeded": 0, "failed": 0})
    workers = counts.get("Worker", {"active": 0, "failed": 0})
    if launcher["succeeded"]:
        condition(state, "Succeeded", f"MPIJob {name} is successfully completed.")
    elif launcher["failed"] or workers["failed"]:
        kind = "Launcher" if launcher["failed"] else "Worker"
        # Kubeflow's says so of ExitCode, and makes no pod again.
        again = bool(restarted.get("Worker")) and kind == "Worker"
        again = job.restart(kind) == "ExitCode" if job.operator == KUBEFLOW else again
        if again or job.operator == KUBEFLOW or kind == "Launcher":
            verb = "restarting" if again else "failed"
            text = f"MPIJob {name} is {verb} because {counts[kind]['failed']} {kind} replica(s) failed."
            condition(state, "Restarting" if again else "Failed", text)
    elif launcher["active"]:
        condition(state, "Running", f"MPIJob {name} is running.")
