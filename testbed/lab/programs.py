"""The programs that labs start, as a source of events: one that ends by itself is an event."""

import os
import select
import shlex
from collections.abc import Callable

from testbed.lab.processes import Process, how_it_ended
from testbed.protocol import events
from testbed.protocol.events import Emit


class Programs:
    """Wakes waits when a program ends, and reports the end of those that `spawn` started."""

    def __init__(self) -> None:
        self._ends = select.epoll()
        self._running: dict[int, tuple[Process, Emit | None]] = {}
        """By pidfd."""
        self._watched: dict[int, Callable[[], None]] = {}
        """What to do at the end of other processes, by pidfd."""
        self._ended: list[Process] = []
        self.warnings: list[str] = []
        """Failures of commands of the file, in words."""

    def follow(self, program: Process, emit: Emit | None) -> None:
        """Follow a program until it ends; without `emit` its starter reports the end."""
        handle = os.pidfd_open(program.pid)
        self._running[handle] = program, emit
        self._ends.register(handle, select.EPOLLIN)

    def watch(self, pid: int, then: Callable[[], None]) -> None:
        """Call `then` when a process has ended, from the next wait."""
        handle = os.pidfd_open(pid)
        self._watched[handle] = then
        self._ends.register(handle, select.EPOLLIN)

    def close(self) -> None:
        for handle in (*self._running, *self._watched):
            os.close(handle)
        self._running.clear()
        self._watched.clear()
        self._ends.close()

    def failed(self) -> list[str]:
        """Return in words the failed commands of the file, and the programs that ended by themselves and whose state
        and output nobody has asked for."""
        self.drain()
        return self.warnings + [
            f"{program.node}: {_how(program)}, and the scenario did not look: {program.log.name}"
            for program in self._ended
            if not program.seen
        ]

    # A source of the scheduler

    def fileno(self) -> int:
        return self._ends.fileno()

    def catch_up(self) -> None:
        self.drain()

    def drain(self) -> None:
        if self._ends.closed:
            return
        for handle, _ in self._ends.poll(0):
            self._ends.unregister(handle)  # a process that was forked meanwhile has it open, too
            os.close(handle)
            if then := self._watched.pop(handle, None):
                then()
                continue
            program, emit = self._running.pop(handle)
            if emit and not program.stopped:
                self._ended.append(program)
                command = shlex.join(program.command)
                ended = events.PROGRAM_ENDED(command=command, status=program.ended or 0, log=program.log.name)
                emit(ended, program.node, _how(program))


def _how(program: Process) -> str:
    return f"{shlex.join(program.command)} {how_it_ended(program.ended or 0)}"
