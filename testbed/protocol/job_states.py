"""The state of jobs, as their events tell it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from testbed.protocol import Event, events

if TYPE_CHECKING:
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # typing's can be validated only from Python 3.12 on


class JobState(TypedDict):
    """A distributed job. `hosts` and `devices` are by rank: the nodes, and the RDMA devices, empty for TCP."""

    name: str
    hosts: list[str]
    devices: list[str]
    ok: bool | None
    """Whether it ended well; None while it runs."""
    stalled: bool
    """Whether no rank goes on."""
    steps: int
    """Steps that all ranks have done."""
    step_s: list[float]
    """The time of each rank for the last one."""


class JobStates:
    """The jobs of a lab, by name. A job that starts again is the same one."""

    def __init__(self, rows: Iterable[JobState] = ()) -> None:
        self._jobs = {row["name"]: row for row in rows}

    def rows(self) -> list[JobState]:
        return [*self._jobs.values()]

    def take(self, event: Event) -> None:
        """Follow an event, of whatever kind."""
        match events.read(event):
            case events.Job(name=name, hosts=list(hosts), devices=devices):
                self._jobs[name] = {
                    "name": name,
                    "hosts": hosts,
                    "devices": devices or [""] * len(hosts),
                    "ok": None,
                    "stalled": False,
                    "steps": 0,
                    "step_s": [],
                }
            case events.Job(name=name, ok=bool(ok)) if name in self._jobs:
                self._jobs[name]["ok"], self._jobs[name]["stalled"] = ok, False
            case events.JobStep(name=str(name), number=number, seconds=seconds) if name in self._jobs:
                self._jobs[name]["steps"], self._jobs[name]["step_s"] = number, seconds
            case events.Resumed(name=name) as data if name in self._jobs:
                self._jobs[name]["stalled"] = isinstance(data, events.Stalled)
