"""The inside of a machine: each request of a job bundle is carried out by its handler.

`prepare` is called once before a snapshot, `run` for each job. As a program (``main``, with IN and OUT as arguments)
this runs the job in the directory IN on this very kernel; messages go to file descriptor 3. A third argument, OWNS,
marks a job that builds labs.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

from testbed.errors import TestbedError
from testbed.executor.wire import Device, Wire
from testbed.kernel import ownership, syscalls
from testbed.protocol import JOB, OWNS, messages, requests
from testbed.protocol.messages import Channel, Emit, Write
from testbed.protocol.requests import Request

Devices = tuple[Device, Device] | None
"""The bundle and the result of a micro-VM."""
HANDLERS: dict[type[Request[Any]], str] = {
    requests.Variant: "variant:run",
    requests.Pytest: "user_files:run_tests",
    requests.Cni: "user_files:try_conflist",
    requests.IpamBench: "benchmarks:measure_ipam",
    requests.PodsBench: "benchmarks:measure_pods",
    requests.Layer: "layer:install",
    requests.Collect: "leftovers:collect",
    requests.Live: "live.live_lab:run",
    requests.Describe: "describe:scenario",
    requests.Faults: "describe:faults",
    requests.Profiles: "describe:profiles",
    requests.Plan: "topologies:plan",
    requests.Convert: "topologies:convert",
    requests.ConvertKathara: "topologies:convert_kathara",
    requests.Draw: "topologies:draw",
    requests.DrawPlan: "topologies:draw_plan",
    requests.Fabric: "topologies:fabric",
    requests.Schema: "topologies:schema",
}
"""The module here and the function in it for each kind of request. The function takes the request and a Context and
returns the response. A TestbedError that it raises is sent as the error; any other exception is a crash."""

WARM = (
    "pytest",
    "testbed.cni.plugins.rxe",
    "testbed.executor.live.live_lab",
    "testbed.executor.user_files",
    "testbed.executor.variant",
)
SHARED = "testbed.faults", "testbed.lab", "testbed.scenario.loading", "testbed.workload.verbs"
"""Modules that most scenarios import: imported once for all scenarios that are described."""


@dataclass(frozen=True)
class Context:
    """The places of a job: the directory of its files, one for the files it leaves, and the channel for reports."""

    files: Path
    out: Path
    emit: Emit
    wire: Wire | None = None
    """The wire of a machine that lives, or is on the virtual clock."""


def prepare() -> None:
    """Import and read what any job may use, so that it is in the snapshot."""
    for name in WARM:
        importlib.import_module(name)
    from testbed import nic
    from testbed.cni.runtime import libcni
    from testbed.executor.live.server import handler_of
    from testbed.protocol.live import LiveRequest
    from testbed.switch.profile import load_profiles
    from testbed.workload import ibverbs

    for name in ibverbs.MODULES:
        getattr(ibverbs, name)
    for kind in requests.KINDS.values():
        if issubclass(kind, LiveRequest) and kind.handler:
            handler_of(kind)
    load_profiles()
    nic.prepare()
    libcni.prepare()


def run(job: Mapping[str, Any], out: str, write: Write, devices: Devices = None) -> None:
    """Carry out the requests of a job bundle. On a machine that lives all messages go over the wire."""
    wire = None
    if devices and (job["lives"] or job["clock"] == "virtual"):
        wire = Wire(*devices, virtual=job["clock"] == "virtual")
    if wire and job["lives"]:
        write = lambda line, _: wire.send(line)  # noqa: E731
    if job["training"]:
        from testbed.workload.jobs import fork_server

        for file in (fork_server.SOCKET, fork_server.SHIM):
            ownership.claim_file(file)
        fork_server.start()  # in a snapshot it has long been there
    if len(job["requests"]) > 1:
        for name in SHARED:
            importlib.import_module(name)
    apart = {}
    for message in job["requests"]:
        channel = Channel(message["id"], write)
        with sending_errors(channel):
            request = messages.parse(message)
            context = Context(Path(job["files"]), Path(out), channel.report, wire)
            if request.apart:
                child = Child(message["id"], request, context)
                apart[child.pid] = child
            else:
                channel.respond(handle(request, context))
    while apart:
        pid, _ = os.wait()
        if pid in apart:
            write(apart.pop(pid).end(), True)


def handle(request: Request[Any], context: Context) -> Any:
    module, _, function = HANDLERS[type(request)].partition(":")
    return getattr(importlib.import_module(f"testbed.executor.{module}"), function)(request, context)


@contextlib.contextmanager
def sending_errors(channel: Channel) -> Iterator[None]:
    """Send the TestbedError that the block raises."""
    try:
        yield
    except TestbedError as error:
        channel.fail(error)


class Child:
    """A process that carries out one request, because the request runs user code that nobody asked to run."""

    def __init__(self, number: int, request: Request[Any], context: Context) -> None:
        self._number = number
        self._answer, self._output = map(TemporaryFile, ("w+b", "w+b"))
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            syscalls.end_with(parent)
            self._run(request, context)

    def _run(self, request: Request[Any], context: Context) -> NoReturn:
        def write(line: bytes, _: bool) -> None:
            self._answer.write(line)

        channel = Channel(self._number, write)
        try:
            os.dup2(self._output.fileno(), 1)
            os.dup2(self._output.fileno(), 2)
            os.close(3)  # messages are ours alone
            with sending_errors(channel):
                channel.respond(handle(request, context))
        except BaseException:
            channel.crash(traceback.format_exc())
        finally:
            self._answer.flush()
            with contextlib.suppress(Exception):  # the user's code may have replaced it
                sys.stdout.flush()
            os._exit(0)

    def end(self) -> bytes:
        """Return the last message of the process, which has ended."""
        with self._answer, self._output:
            self._answer.seek(0)
            self._output.seek(0)
            return self._answer.read() or messages.ended(self._number, self._output.read())


class Ended(SystemExit):
    """The end of this process by its parent."""


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # not SIG_IGN, which programs started from here on would inherit


def end(*_: object) -> None:
    """Take the lab down when the parent goes. The first signal begins that; later ones do not cut it short."""
    ignore_sigterm()
    raise Ended(1)


def main() -> None:
    """Run the job of a directory on this kernel. The exit status is 0 whenever the end of the job could be reported."""
    bundle, out = map(os.path.abspath, sys.argv[1:3])  # a job may go to its files' directory
    job = json.loads((Path(bundle) / JOB).read_text())
    signal.signal(signal.SIGTERM, end)
    with os.fdopen(3, "wb") as pipe:

        def write(line: bytes, _: bool) -> None:
            pipe.write(line + b"\n")
            pipe.flush()

        try:
            if sys.argv[3:] == [OWNS]:
                _own(job, out, write)
            else:
                run(job, out, write)
        except Exception:
            write(messages.crash(traceback.format_exc()), True)


def _own(job: Mapping[str, Any], out: str, write: Write) -> None:
    """Run a job that builds labs, if this kernel is free."""
    leftovers = importlib.import_module("testbed.executor.leftovers")
    try:
        with leftovers.owned():
            run(job, out, write)
    except TestbedError as error:
        for message in job["requests"]:
            Channel(message["id"], write).fail(error)
