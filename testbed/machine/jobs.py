"""Jobs for machines: requests that travel together, and the messages that come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from testbed.errors import MachineError, TestbedError
from testbed.protocol import Clock, Failure, messages
from testbed.protocol.requests import Request

R = TypeVar("R")
Place = Callable[[str], str]
"""Turns a place in a job's files, as an error has it, into one of the user's. Nothing stays nothing."""
Listener = Callable[[dict[str, Any]], None]
"""Gets each report. The job runs the user's code, so it may be anything."""

ENDS = {"response", "error", "ended", "crash"}


def below(directory: Path) -> Place:
    """The places of a directory of the user's, whose files are the job's."""
    return lambda inner: str(directory / inner) if inner else ""


class UnansweredError(MachineError):
    """The process of a job ended before it had answered a request."""


@dataclass(eq=False)
class Job(Generic[R]):
    """Requests and the files they are about, which travel to a machine together; and the messages that come back.
    `limit_s` bounds the job in the machine's own seconds, `busy_s` those in which the CPU is busy without a pause and
    without a report; None is no bound."""

    requests: Sequence[Request[R]]
    files: Mapping[str, bytes] = field(default_factory=dict)
    executable: Sequence[str] = ()
    """Those of the files that can be executed."""
    _: KW_ONLY
    limit_s: float
    busy_s: float | None = None
    seed: int = 0
    training: bool = False
    """Whether torch is to be imported when it begins."""
    lives: bool = False
    """Whether its messages go over the wire of the machine, for it has no end of its own."""
    listen: Listener = lambda _: None
    touched: list[str] = field(default_factory=list)
    """What was done by hand to a run that was stopped, and went on so."""
    _ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    _crash: str = ""

    def envelope(self, files: str, clock: Clock) -> dict[str, Any]:
        """The contents of job.json; `files` is where the files are on the machine, which has this clock."""
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

    def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message of the machine. MachineError for what is none."""
        match message:
            case {"id": int(number), "report": dict(record)} if number in range(len(self.requests)):
                self.listen(record)
            case {"id": int(number)} if ENDS & set(message):
                self._ends[number] = dict(message)
            case {"crash": str(text)}:
                self._crash = text
            case _:
                raise MachineError(f"a line of progress is no message: {str(message)[:80]}")

    @property
    def unanswered(self) -> list[int]:
        """The numbers of requests without an end."""
        return [number for number in range(len(self.requests)) if number not in self._ends]

    def answer(self, number: int = 0, *, about: Path | str = "", place: Place = str) -> R:
        """The response to a request; raises the error of one that was refused or failed. `about` is the place of errors
        without one; `place` turns a place in the job's files into one of the user's."""
        end = {"crash": self._crash} if self._crash else self._ends.get(number)
        if end is None or "ended" in end:
            wrote = str(end["ended"]).strip() if end else ""
            text = "its code ended the process before testbed was done" + (f":\n{wrote}" if wrote else "")
            raise UnansweredError(text, where=str(about))
        if "crash" in end:
            raise TestbedError(str(end["crash"]).strip(), where=str(about))
        if "error" in end:
            raise messages.error_of(messages.checked(Failure, end["error"], "error"), place)
        response: R = messages.checked(self.requests[number].response(), end["response"], "response")
        return response


class Machine(Protocol):
    """Somewhere a job can run."""

    clock: Clock

    async def run(self, job: Job[Any], out: Path) -> float:
        """Runs a job to its end, and leaves its files in `out`. Returns the wall seconds it took. Raises MachineError
        when the machine itself fails; what came back until then is in the job."""
