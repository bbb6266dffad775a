"""One call of a plugin, as in libcni's pkg/invoke: environment and stdin in, a JSON object or an error out."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from testbed.cni import installed, spec
from testbed.cni.spec import CONFIG, DECODE, IO
from testbed.cni.spec.stand_ins import INSTEAD
from testbed.errors import InputError, TestbedError, did_you_mean
from testbed.kernel.mounts import Isolated
from testbed.lab.steps import Steps, Until, pause


@dataclass(frozen=True)
class Limit:
    """The time limit of a plugin: `seconds` at most, and not after `until` (`time.monotonic`), which is `of_pod`
    seconds after its pod began."""

    seconds: float = 30.0
    until: float = math.inf
    of_pod: float = math.inf

    def deadline(self) -> float:
        return min(time.monotonic() + self.seconds, self.until)

    def __str__(self) -> str:
        if time.monotonic() < self.until:
            return f"it was still running after {self.seconds:g} s and has been killed"
        return f"it was still running after the pod's limit of {self.of_pod:g} s and has been killed"


OURS = Path(__file__).parents[1] / "bin"
VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_ARGS", "CNI_IFNAME", "CNI_PATH")


class CniError(TestbedError):
    """A plugin failed, or could not be called. `code` and `details` are those of its error object, or `code` is the
    runtime's (docs/cni.md). It is None if several plugins failed."""

    def __init__(self, message: str, *, code: int | None = None, details: str = "", hint: str = "") -> None:
        text = f"{message} (code {code})" if code is not None else message
        super().__init__(f"{text}: {details}" if details else text, hint=hint)
        self.code = code
        self.details = details


class NoAnswerError(CniError):
    """A plugin returned neither a result nor an error in CNI's format."""

    def add_stderr(self, log: BinaryIO, begin: int) -> None:
        """Add the plugin's stderr, the only information there is: the end of `log`, from byte `begin` on."""
        log.seek(begin)
        if text := log.read().decode(errors="replace").strip()[-400:]:
            self.hint = f"On stderr: {text}"


class NotCallableError(CniError, InputError):
    """A conflist names a plugin that cannot be called on this node."""


@dataclass(frozen=True)
class Place:
    node: Isolated
    log: Path
    """The file for their stderr."""


def find(kind: str, path: Sequence[Path], what: str) -> Path:
    """Return the file of plugin `kind`, the first in the directories of `path`. `what` begins a message."""
    for directory in path:
        file = directory / kind
        if file.is_file():
            if not file.stat().st_mode & 0o111:
                hint = f"chmod +x {directory.name}/{kind}"
                raise NotCallableError(f"{what}: it cannot be executed", code=IO, hint=hint)
            return file
    there = [file for directory in path if directory.is_dir() for file in directory.iterdir()]
    names = sorted({file.name for file in there if file.is_file() and os.access(file, os.X_OK)})
    known = f"There are: {', '.join(names)}. Your own: docs/cni-conformance.md."
    hint = f"{INSTEAD[kind]}." if kind in INSTEAD else f"{did_you_mean(kind, names)}{known}"
    raise NotCallableError(f'{what}: failed to find plugin "{kind}"', code=CONFIG, hint=hint)


def supported(file: Path, what: str) -> Steps[list[str]]:
    """Return the versions a plugin supports, asked once per state of its file. `what` begins a message."""
    state = installed.state_of(file)
    if state not in installed.supported:
        installed.supported[state] = yield from ask_versions(file, what)
    return installed.supported[state]


def ask_versions(file: Path, what: str) -> Steps[list[str]]:
    with tempfile.TemporaryFile() as log:
        try:
            given = {"cniVersion": spec.SUPPORTED[-1]}
            running = yield from started(partial(Running, file, installed.VERSION, given, log), what)
            answer = yield from outcome(running, Limit(), what)
        except CniError as error:
            if "unknown CNI_COMMAND: VERSION" in error.message:  # the answer of plugins before 0.2.0
                return ["0.1.0"]
            if isinstance(error, NoAnswerError):
                error.add_stderr(log, 0)
            raise
    match answer:
        case {"supportedVersions": [*found]}:
            return [str(version) for version in found]
    raise CniError(f"{what}: its answer has no supportedVersions", code=DECODE)


def call(
    file: Path, variables: Mapping[str, str], stdin: Mapping[str, Any], place: Place, limit: Limit, what: str
) -> Steps[dict[str, Any] | None]:
    """Call a plugin; return its answer, or None. CniError, beginning with `what`, if it failed."""
    with place.log.open("ab") as log:
        begin = log.tell()
        start = partial(Running, file, variables, stdin, log)
        running = yield from started(partial(place.node.run, start), what)
    try:
        return (yield from outcome(running, limit, what))
    except NoAnswerError as error:
        with place.log.open("rb") as written:
            error.add_stderr(written, begin)
        raise


BUSY_RUNS, BUSY_PAUSE = 6, 1.0
"""The attempts, and the pause (s), for a plugin whose file is open for writing (RawExec.ExecPlugin)."""


def started(start: Callable[[], Running], what: str) -> Steps[Running]:
    """Start a plugin with `start`, and repeat that while its file is busy."""
    runs = 1
    while True:
        try:
            return start()
        except OSError as error:
            if error.errno != errno.ETXTBSY or runs == BUSY_RUNS:
                raise CniError(f"{what}: it cannot be started: {error.strerror}", code=IO) from error
        yield from pause(BUSY_PAUSE)
        runs += 1


class Running:
    """A plugin that runs in the namespaces of the calling thread. As in libcni, all six variables are always set, and
    it has ended when its standard output ends: a daemon that it starts must close it."""

    def __init__(self, file: Path, variables: Mapping[str, str], stdin: Mapping[str, Any], stderr: BinaryIO) -> None:
        environment = {**os.environ, **{name: variables.get(name, "") for name in VARIABLES}}
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(stdin).encode())
            given.seek(0)
            self._process = subprocess.Popen(
                [file], env=environment, stdin=given, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
        self._handle = os.pidfd_open(self._process.pid)
        assert self._process.stdout
        self._stdout = self._process.stdout
        self._output: list[bytes] = []
        self._awaited = self._stdout.fileno()

    def fileno(self) -> int:
        """Return the descriptor to wait for: the end of its output, and then of the process."""
        return self._awaited

    def go_on(self) -> bool:
        """Read what is available when `fileno` is readable; return whether the plugin has ended."""
        if self._awaited == self._handle:
            return True
        self._output.append(os.read(self._awaited, 1 << 16))
        if not self._output[-1]:
            self._awaited = self._handle
        return False

    def end(self) -> tuple[int, bytes]:
        """Return its exit status, negative for a signal, and its output."""
        os.close(self._handle)
        with self._process:
            return self._process.wait(), b"".join(self._output)

    def kill(self) -> None:
        """Kill the plugin and all processes of its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.end()


def outcome(running: Running, limit: Limit, what: str) -> Steps[dict[str, Any] | None]:
    """Return the answer of a plugin. Kill it at its time limit, or when nobody waits for it any more."""
    deadline = limit.deadline()
    ended = False
    try:
        while not ended and (yield Until(deadline, [running])):
            ended = running.go_on()
    finally:
        if not ended:
            running.kill()  # it has a session of its own, and would still run while DEL is called
    if not ended:
        raise NoAnswerError(f"{what}: {limit}", code=IO)
    return understand(*running.end(), what)


def understand(status: int, output: bytes, what: str) -> dict[str, Any] | None:
    """Return the answer in the standard output of a plugin. Raise CniError for an exit status other than 0."""
    if status:
        raise refusal(status, output, what)
    if not output.strip():
        return None
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswerError(f"{what}: its answer is not a JSON object: {shown(output)}", code=DECODE)
    return answer


def refusal(status: int, output: bytes, what: str) -> CniError:
    """Return the error of a plugin that ended with a status other than 0."""
    end = f"signal {-status}" if status < 0 else f"status {status}"
    if not output.strip():
        return NoAnswerError(f"{what}: it ended with {end} and no error object", code=DECODE)
    try:
        error = json.loads(output)
        code, message, details = int(error["code"]), str(error.get("msg", "")), str(error.get("details", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        wrong = f"it ended with {end} and, instead of an error object: {shown(output)}"
        return NoAnswerError(f"{what}: {wrong}", code=DECODE)
    return CniError(f"{what}: {message}", code=code, details=details)


def shown(output: bytes) -> str:
    text = output.decode(errors="replace")
    return repr(text if len(text) <= 80 else text[:77] + "...")
