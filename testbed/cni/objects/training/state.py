"""A training job as its operator looks at it: its pods and its conditions."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.cni.objects.manifests import Object, written
from testbed.cni.objects.training.kinds import TrainingJob
from testbed.cni.objects.training.spec import KUBEDL
from testbed.cni.objects.workloads import Next, Run

FINISHED = ("Succeeded", "Failed")
Status = dict[str, Any]


@dataclass
class State:
    """A job, its pods by type and index, and its status while its operator looks at it."""

    job: TrainingJob
    status: Status
    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    surplus: list[Run] = field(default_factory=list)
    """Pods of no replica: of an index that the job has no more."""
    services: dict[str, Object] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    """Objects that are there and not the job's own."""

    def put(self, found: Next, one: Object) -> None:
        """Make or change an object of the job, unless somebody else has one of this name."""
        if str(one) in self.others:
            text = f'{self.job.one}: {one.kind} "{one.name}" already exists and is not managed by {self.job.one.kind}'
            found.conflicts.append(text)
        else:
            found.objects.append(one)

    def of(self, kind: str) -> list[Run]:
        return [run for (of, _), run in self.runs.items() if of == kind]

    def host_ports(self) -> dict[tuple[str, int], int]:
        """Return the ports that the pods have on their nodes."""
        if not self.job.host_network:
            return {}
        name = self.job.framework.port_name
        found: dict[tuple[str, int], int] = {}
        for place, run in self.runs.items():
            ports = [port for one in run.pod.spec["containers"] for port in one.get("ports") or ()]
            if named := [port for port in ports if port.get("name") == name]:
                found[place] = int(named[0]["containerPort"])
        return found


def holds(status: Mapping[str, Any], *types: str) -> bool:
    """Return whether one of the conditions holds."""
    return any(one["type"] in types and one["status"] == "True" for one in status.get("conditions") or ())


def condition(state: State, kind: str, message: str, *, true: bool = True, reason: str = "") -> None:
    """Put a condition into the status, as UpdateJobConditions of both operators: Running and Restarting exclude each
    other, the end of the job ends Running, and what has failed stays so."""
    there = [dict(one) for one in state.status.get("conditions") or ()]
    if holds(state.status, "Failed"):
        return
    now = written(time.time())
    of_kind = "Job" if state.job.operator == KUBEDL else state.job.one.kind
    new = {"type": kind, "status": str(true), "reason": reason or f"{of_kind}{kind}", "message": message}
    before = next((one for one in there if one["type"] == kind), None)
    if before and before["status"] == new["status"]:
        return
    other = {"Running": "Restarting", "Restarting": "Running"}.get(kind)
    kept = [one for one in there if one["type"] not in (kind, other)]
    for one in kept:
        if kind in FINISHED and one["type"] == "Running":
            one["status"] = "False"
    state.status["conditions"] = [*kept, {**new, "lastUpdateTime": now, "lastTransitionTime": now}]
