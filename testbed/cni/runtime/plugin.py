"""One plugin called once, as libcni's pkg/invoke calls it: environment and stdin in, a JSON object or an error out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from testbed.cni.plugins import rxe
from testbed.cni.spec import versions
from testbed.errors import InputError, TestbedError, did_you_mean
from testbed.kernel import mounts, netns

DEADLINE_S = 30.0
"""Seconds that a plugin may take, with all it starts itself. libcni has no limit, kubelet one of minutes for a pod."""
KILLED_S = 5.0
OURS = Path(__file__).parents[1] / "bin"
RXE = OURS / "rxe"
"""Our own plugin is a program like the others. Here it is called in a thread, where it finds the same: its Python alone
would take 0.3 s to start in an emulated machine, four times as long as all the others of a pod together."""
VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_ARGS", "CNI_IFNAME", "CNI_PATH")


class CniError(TestbedError):
    """A plugin failed, or is no plugin. `code` and `details` are those of its error object; without such an object
    `code` is None. Codes: CNI specification, section 5."""

    def __init__(self, message: str, *, code: int | None = None, details: str = "") -> None:
        text = f"{message} (code {code})" if code is not None else message
        super().__init__(f"{text}: {details}" if details else text)
        self.code = code
        self.details = details

    def add_stderr(self, log: IO[bytes], begin: int) -> None:
        """Without an error object of the plugin, its stderr is all there is: the end of `log`, from byte `begin` on."""
        log.seek(begin)
        if self.code is None and (text := log.read().decode(errors="replace").strip()[-400:]):
            self.hint = f"On stderr: {text}"


@dataclass(frozen=True)
class Place:
    """The place where a node's plugins run. `binds` are the directories that each node has for itself."""

    namespace: str
    binds: Mapping[str, Path]
    log: Path
    """Takes what they write to stderr."""


def find(kind: str, path: Sequence[Path], where: str) -> Path:
    """The file of plugin `kind`, the first in the directories of `path`."""
    for directory in path:
        file = directory / kind
        if file.is_file():
            if not file.stat().st_mode & 0o111:
                hint = f"chmod +x {directory.name}/{kind}"
                raise InputError(f'{where}: plugin "{kind}" cannot be executed', hint=hint)
            return file
    there = [file for directory in path if directory.is_dir() for file in directory.iterdir()]
    names = sorted({file.name for file in there if file.is_file() and os.access(file, os.X_OK)})
    hint = f"{did_you_mean(kind, names)}There are: {', '.join(names)}. Your own: docs/cni.md, A plugin of your own."
    raise InputError(f'{where}: failed to find plugin "{kind}"', hint=hint)


def supported(file: Path, what: str) -> list[str]:
    """The versions of CNI that a plugin supports, asked once for each state of its file. `what` begins a message."""
    status = file.stat()
    known = (str(file), status.st_mtime_ns, status.st_size)
    if known not in _supported:
        _supported[known] = ask_versions(file, what)
    return _supported[known]


_supported: dict[tuple[str, int, int], list[str]] = {}


def ask_versions(file: Path, what: str) -> list[str]:
    """VERSION, which needs no network; the dummies are libcni's."""
    variables = {"CNI_COMMAND": "VERSION", **dict.fromkeys(("CNI_NETNS", "CNI_IFNAME", "CNI_PATH"), "dummy")}
    with tempfile.TemporaryFile() as log:
        try:
            answer = finish(start(file, variables, log, what), {"cniVersion": versions.SUPPORTED[-1]}, what)
        except CniError as error:
            if "unknown CNI_COMMAND: VERSION" in error.message:  # as plugins before 0.2.0 say
                return ["0.1.0"]
            error.add_stderr(log, 0)
            raise
    match answer:
        case {"supportedVersions": [*found]}:
            return [str(version) for version in found]
    raise CniError(f"{what}: its answer has no supportedVersions")


def call(
    file: Path, variables: Mapping[str, str], stdin: Mapping[str, Any], place: Place, what: str
) -> dict[str, Any] | None:
    """Call a plugin; its answer, None after DEL and CHECK. CniError, with `what` in front, if it failed."""
    if file == RXE:
        given = json.dumps(stdin).encode()
        status, output = mounts.isolated(netns.path(place.namespace), place.binds, lambda: rxe.answer(variables, given))
        return understand(status, output.encode(), what)
    with place.log.open("ab") as log:
        begin = log.tell()
        process = mounts.isolated(netns.path(place.namespace), place.binds, lambda: start(file, variables, log, what))
    try:
        return finish(process, stdin, what)
    except CniError as error:
        with place.log.open("rb") as written:
            error.add_stderr(written, begin)
        raise


def start(file: Path, variables: Mapping[str, str], stderr: IO[bytes] | int, what: str) -> subprocess.Popen[bytes]:
    """Start it in the namespaces of the calling thread. All six variables are there always, as with libcni."""
    environment = {**os.environ, **{name: variables.get(name, "") for name in VARIABLES}}
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen([file], env=environment, stdin=pipe, stdout=pipe, stderr=stderr, start_new_session=True)
    except OSError as error:
        raise CniError(f"{what}: it cannot be started: {error.strerror}") from error


def finish(process: subprocess.Popen[bytes], stdin: Mapping[str, Any], what: str) -> dict[str, Any] | None:
    """Feed a plugin, wait for it, and read its answer."""
    try:
        output, _ = process.communicate(json.dumps(stdin).encode(), timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        kill(process)
        raise CniError(f"{what}: it was still running after {DEADLINE_S:g} s and has been killed") from None
    except BaseException:  # it has a session of its own, and would be at work while DEL is called
        kill(process)
        raise
    return understand(process.returncode, output, what)


def understand(status: int, output: bytes, what: str) -> dict[str, Any] | None:
    """The answer in the standard output of a plugin. Raises CniError for an exit status other than 0."""
    if status:
        raise refusal(status, output, what)
    if not output.strip():
        return None
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise CniError(f"{what}: its answer is no JSON object: {shown(output)}")
    return answer


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the plugin and all that it started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # what left the session may hold its stdout
        process.communicate(timeout=KILLED_S)


def refusal(status: int, output: bytes, what: str) -> CniError:
    """The error of a plugin that ended with a status other than 0."""
    end = f"signal {-status}" if status < 0 else f"status {status}"
    if not output.strip():
        return CniError(f"{what}: it ended with {end} and no error object")
    try:
        error = json.loads(output)
        code, message, details = int(error["code"]), str(error.get("msg", "")), str(error.get("details", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return CniError(f"{what}: it ended with {end} and what is no error object: {shown(output)}")
    return CniError(f"{what}: {message}", code=code, details=details)


def shown(output: bytes) -> str:
    text = output.decode(errors="replace")
    return repr(text if len(text) <= 80 else text[:77] + "...")
