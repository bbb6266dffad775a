"""Jobs for machines: requests that are sent together, and the messages that come back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from testbed.errors import MachineError, TestbedError
from testbed.machine.shared_lab import SharedLab
from testbed.protocol import Clock, Failure, messages
from testbed.protocol.requests import Request

R = TypeVar("R")
Place = Callable[[str], str]
"""Callback that maps a place in a job's files, as an error has it, to one of the user's. Empty stays empty."""
Listener = Callable[[dict[str, Any]], None]
"""Callback for each report. The job runs the user's code, so a report may be anything."""

THEN_ID = 1
"""The number of a job's request at its first moment."""
ENDS = {"response", "error", "ended", "crash"}


def below(directory: Path) -> Place:
    """Map places in a job's files to those in `directory` of the user's."""
    return lambda inner: str(directory / inner) if inner else ""


class UnansweredError(MachineError):
    """Error: the process of a job ended before it answered a request."""


@dataclass(eq=False)
class Job(Generic[R]):
    """Requests and their files, sent to a machine together, and the messages that come back. `limit_s` bounds the job
    in the machine's own seconds, `busy_s` those in which the CPU is busy without a pause and without a report; None is
    no bound."""

    requests: Sequence[Request[R]]
    files: Mapping[str, bytes] = field(default_factory=dict)
    executable: Sequence[str] = ()
    """The executable ones of the files."""
    _: KW_ONLY
    limit_s: float
    busy_s: float | None = None
    seed: int = 0
    training: bool = False
    """True if torch is imported when the job begins."""
    lab: SharedLab | None = None
    """The lab that it has with others, if several begin with the same."""
    then: Request[Any] | None = None
    """Request for the machine at the first moment of the job, when its lab is up. It has no response."""
    lives: bool = False
    """True if its messages use the machine's wire, because the job has no end of its own."""
    listen: Listener = lambda _: None
    touched: list[str] = field(default_factory=list)
    """Manual changes to a run that was stopped and then continued."""
    _ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    _crash: str = ""

    def envelope(self, files: str, clock: Clock) -> dict[str, Any]:
        """Return the contents of job.json; `files` is the files' directory on the machine, which has this clock."""
        asked = [messages.ask(number, request) for number, request in enumerate(self.requests)]
        limits = {"limit_s": self.limit_s, **({} if self.busy_s is None else {"busy_s": self.busy_s})}
        return {
            "requests": asked,
            "files": files,
            "seed": self.seed,
            "training": self.training,
            "lives": self.lives,
            "clock": clock,
            **limits,
        }

    def receive(self, message: Mapping[str, Any]) -> None:
        """Receive a message of the machine. MachineError if it is invalid."""
        match message:
            case {"id": int(number), "report": dict(record)} if number in range(len(self.requests)):
                self.listen(record)
            case {"id": int(number)} if ENDS & set(message):
                self._ends[number] = dict(message)
            case {"crash": str(text)}:
                self._crash = text
            case _:
                raise MachineError(f"a line of progress is not a message: {str(message)[:80]}")

    @property
    def unanswered(self) -> list[int]:
        """Return the numbers of requests without an end."""
        return [number for number in range(len(self.requests)) if number not in self._ends]

    @property
    def failed(self) -> bool:
        """Return whether a request was not answered: it was refused, it failed, or its process ended."""
        return bool(self._crash) or any("response" not in self._ends.get(n, {}) for n in range(len(self.requests)))

    def answer(self, number: int = 0, *, about: Path | str = "", place: Place = str) -> R:
        """Return the response to a request, or raise its error if it was refused or failed. `about` is the place of
        errors without one; `place` maps a place in the job's files to one of the user's."""
        end = {"crash": self._crash} if self._crash else self._ends.get(number)
        if end is None or "ended" in end:
            wrote = str(end["ended"]).strip() if end else ""
            text = "its code ended the process before testbed had finished" + (f":\n{wrote}" if wrote else "")
            raise UnansweredError(text, where=str(about))
        if "crash" in end:
            raise TestbedError(str(end["crash"]).strip(), where=str(about))
        if "error" in end:
            raise messages.error_of(messages.checked(Failure, end["error"], "error"), place)
        response: R = messages.checked(self.requests[number].response(), end["response"], "response")
        return response


class Machine(Protocol):
    """A place where a job can run."""

    clock: Clock

    async def run(self, job: Job[Any], out: Path) -> float:
        """Run a job to its end, and leave its files in `out`. Return the wall seconds it took. Raise MachineError when
        the machine itself fails; what came back until then is in the job."""
