"""What a tool asks of a lab that lives, and what limits a server to some of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.cli.live.lab_tables import brief
from testbed.errors import TestbedError
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection

if TYPE_CHECKING:
    from testbed.protocol.requests import Request

R = TypeVar("R")


@dataclass(frozen=True)
class Access:
    """What a server gives: the lab `only`, or those of the user if that is empty; without `changes` no tool that
    changes one. `out` is the parent of the run directories of labs that it brings up."""

    only: str = ""
    changes: bool = True
    out: Path = Path("runs")


class LabCalls:
    """The requests of one call of a tool, each over a connection of its own, as a command has it. Another thread may
    abort them: the lab then stops what was asked of it."""

    def __init__(self, lab: labs.Lab, typed: str) -> None:
        """`typed` is the call in words, for the lab's report."""
        self.lab = lab
        self._typed = typed
        self._open: set[Connection] = set()
        self._aborted = False
        self._lock = threading.Lock()

    @classmethod
    def of(cls, name: str, typed: str) -> LabCalls:
        """Return the calls to a lab by its name, or to the only one for no name. InputError if unclear."""
        lab = labs.named(name)
        if not lab.alive():
            raise TestbedError(f"lab {lab.name} is dead: {brief(lab)}", hint=f"`testbed down {lab.name}` removes it.")
        if lab.state == "starting":
            raise TestbedError(f"lab {lab.name} is not up yet", hint="Try again in some seconds.")
        return cls(lab, typed)

    @property
    def virtual(self) -> bool:
        """Return whether time moves in the lab only while something is asked of it."""
        return self.lab.clock == "virtual"

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        with Connection(self.lab, typed=self._typed) as connection:
            with self._lock:
                self._open.add(connection)
                aborted = self._aborted
            try:
                if aborted:
                    connection.abort()
                yield connection
            finally:
                with self._lock:
                    self._open.discard(connection)

    def ask(self, request: Request[R], listen: Callable[[dict[str, Any]], None] = lambda _: None) -> R:
        """Return the response to a request. Raise its error."""
        with self.connected() as connection:
            return connection.answer(request, listen)

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            for connection in self._open:
                connection.abort()
