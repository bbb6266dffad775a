"""Processes in namespaces, with all their output kept."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from testbed.errors import DeadlineError, TestbedError
from testbed.kernel import netns, own_devices
from testbed.kernel.own_devices import NO_BINDS, Binds
from testbed.kernel.syscalls import at_once, closing_fd, explained, readable

ENDING = signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT
MOST_ROUNDS = 20
"""Attempts to kill all programs of a node: one may have made others meanwhile."""
STOP_S = 5.0
POLL_S = 0.002
Ready = Callable[[Sequence[Any], float], bool]
"""A wait of so many seconds for a file to be readable: `readable`, or `Lab.ready`, which keeps the timers."""


def how_it_ended(status: int) -> str:
    """Return the words for an exit status, which is negative for a signal."""
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


class Process:
    """A program running in a namespace; its output goes to `log`."""

    def __init__(
        self,
        node: str,
        namespace: str,
        command: Sequence[str],
        log: Path,
        ready: Ready = readable,
        env: Mapping[str, str] | None = None,
        devices_of: str = "",
        launcher: Sequence[str] = (),
        *,
        own_run: bool = True,
        binds: Binds = NO_BINDS,
        entered: Callable[[], AbstractContextManager[Sequence[str]]] | None = None,
    ) -> None:
        """Start a program. `env` is beside the machine's. It finds the RDMA devices of `namespace`, or of
        `devices_of`, and with `own_run` the node's /run, and the files of `binds`, unless a launcher starts it. The
        words of `launcher` stand before the command, see `Namespace.launcher`. With `entered` it starts there, and the
        words from there stand before all."""
        self.node = node
        self.command = list(command)
        self.log = log
        self._ready = ready
        self._launched = bool(launcher)
        self.stopped = False
        """True if it ran when `stop` or `send` ended it."""
        self.seen = False
        """True if somebody has asked for its state or output since it ended."""
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        own = own_run and not launcher  # runc finds its containers in the machine's /run
        there = entered() if entered else own_devices.entered(namespace, devices_of, own_run=own, binds=binds)
        with log.open("wb") as output, there as rights:
            words = [*(rights or ()), *launcher]
            self._popen = _started(node, command, words, env, **files, stdout=output, start_new_session=True)

    def __str__(self) -> str:
        return f"{self.node}: {' '.join(self.command)}"

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def ended(self) -> int | None:
        """Return the exit status as `status` does, for the lab: it is not seen by this."""
        return self._popen.poll()

    @property
    def output(self) -> str:
        self.seen |= self.ended is not None
        return self.log.read_text(errors="replace")

    @property
    def status(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        self.seen |= self.ended is not None
        return self.ended

    @property
    def running(self) -> bool:
        return self.status is None

    def wait(self, within: float) -> int:
        """Return the exit status, negative for a signal. `within` in seconds."""
        if (status := self.status) is not None:
            return status
        with closing_fd(os.pidfd_open(self._popen.pid)) as handle:
            if not self._ready([handle], within):
                raise DeadlineError(f"{self}: still running after {within:g} s")
        self.seen = True
        return self._popen.wait()

    def wait_output(self, text: str, within: float) -> None:
        """Return when the output contains `text`."""
        self.wait_until(f"say {text!r}", lambda: text in self.output, within)

    def wait_until(self, what: str, condition: Callable[[], bool], within: float) -> None:
        """Return when `condition` holds: when the program did `what` it has to do while it runs."""
        deadline = time.monotonic() + within
        while not condition():
            if not self.running:
                raise TestbedError(f"{self}: ended with status {self.status} and did not {what}:\n{self.output}")
            if time.monotonic() > deadline:
                raise DeadlineError(f"{self}: did not {what} within {within:g} s:\n{self.output}")
            self._ready([], POLL_S)

    def send(self, number: int) -> None:
        """Send a signal. One that ends programs is an end by the scenario."""
        self.stopped |= self.ended is None and number in ENDING
        self._popen.send_signal(number)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End the process, all that it started and all that it left behind, by force if necessary."""
        self.stopped |= self.ended is None
        seen = self.seen
        self._send_to_all(signal_number)
        with contextlib.suppress(DeadlineError):
            self.wait(STOP_S)
        self._send_to_all(signal.SIGKILL)
        self._popen.wait()
        self.seen = seen

    def _send_to_all(self, number: int) -> None:
        if self._launched and number == signal.SIGKILL:
            kill_children(self._popen.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)  # a PID is reused only after all the others


def _started(
    node: str, command: Sequence[str], launcher: Sequence[str], env: Mapping[str, str] | None, **options: Any
) -> subprocess.Popen[bytes]:
    with explained(f"{node}: {command[0]} cannot be started"):
        return subprocess.Popen([*launcher, *command], env={**os.environ, **(env or {})}, **options)


def run(
    node: str,
    namespace: str,
    command: Sequence[str],
    within: float,
    text: str = "",
    ready: Ready = readable,
    env: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
    *,
    binds: Binds = NO_BINDS,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; with `check` raise if it fails. `text` is its input; `env`, `launcher` and `binds` as
    for `Process`."""
    with ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        given.write(text)
        given.seek(0)
        with own_devices.entered(namespace, own_run=not launcher, binds=binds):
            process = _started(node, command, launcher, env, stdin=given, stdout=out, stderr=err)
        handle = os.pidfd_open(process.pid)
        ended = False
        try:
            ended = ready([handle], within)
        finally:
            if not ended:
                if launcher:
                    kill_children(process.pid)
                process.kill()
            os.close(handle)
            status = process.wait()
        texts = []
        for file in out, err:
            file.seek(0)
            texts.append(file.read())
    if not ended:
        raise DeadlineError(f"{node}: {' '.join(command)}: still running after {within:g} s")
    if check and status:
        raise TestbedError(f"{node}: {' '.join(command)}: status {status}: {(texts[1] or texts[0]).strip()}")
    return subprocess.CompletedProcess(list(command), status, *texts)


def kill_children(launcher: int) -> None:
    """Kill what a launcher started, each in a session of its own: it passes on all signals except SIGKILL."""
    for thread in Path(f"/proc/{launcher}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for child in map(int, thread.read_text().split()):
                (os.killpg if os.getpgid(child) == child else os.kill)(child, signal.SIGKILL)


def end_all(*namespaces: str) -> None:
    """Kill every program in network namespaces, daemons that left their session included. Those that make others
    without end are killed at once: nothing else has the CPU meanwhile."""
    wanted = {netns.path(namespace).stat().st_ino for namespace in namespaces}
    _end_where(lambda number: _namespace_of(number) in wanted)


def end_marked(variable: str, value: str) -> None:
    """Kill every program that has a variable with this value in its environment, as `end_all` does."""
    wanted = f"{variable}={value}".encode()
    _end_where(lambda number: wanted in _environment_of(number))


def kill_marked(variable: str, value: str, namespaces: Collection[str]) -> list[int]:
    """Kill the programs in network namespaces that have a variable with this value in their environment, once, before
    they do any more; return those that have ended."""
    wanted = f"{variable}={value}".encode()
    with at_once():
        found = [number for number in sorted(running(namespaces)) if wanted in _environment_of(number)]
        for number in found:
            os.kill(number, signal.SIGKILL)
    return [number for number in found if _await_end(number)]


def _environment_of(number: int) -> list[bytes]:
    try:
        return Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def _end_where(belongs: Callable[[int], bool]) -> None:
    for _ in range(MOST_ROUNDS):
        with at_once():
            found = [number for number in _numbers() if number != os.getpid() and belongs(number)]
            for number in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        for number in found:
            _await_end(number)
        if not found:
            return


def _await_end(number: int) -> bool:
    """Return whether a program that was killed has ended, after five seconds at most."""
    with contextlib.suppress(ProcessLookupError), closing_fd(os.pidfd_open(number)) as handle:
        return readable([handle], STOP_S)
    return True


def running(namespaces: Collection[str]) -> set[int]:
    """Return the programs in network namespaces."""
    wanted = {netns.path(namespace).stat().st_ino for namespace in namespaces}
    return {number for number in _numbers() if _namespace_of(number) in wanted}


def _numbers() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _namespace_of(number: int) -> int:
    try:
        return os.stat(f"/proc/{number}/ns/net").st_ino
    except OSError:  # it has ended
        return 0
