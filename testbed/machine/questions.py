"""Requests that need no lab. What runs somebody's code is answered in a micro-VM, unless the user has chosen this very
kernel for it; the rest by a process of the inside on this machine."""

import asyncio
import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import InputError, MachineError, UnsupportedError
from testbed.machine import cache, child_processes, files, image, snapshot
from testbed.machine.jobs import Job, Place, UnansweredError, below
from testbed.machine.layers import Log
from testbed.machine.local import LocalMachine
from testbed.machine.qemu import Flavour
from testbed.machine.vm import VirtualMachine
from testbed.protocol import ConvertedPlan, GraphStyle, Picture, PlanInfo, PlanRows, messages, requests
from testbed.protocol.requests import Request

MOST_MODULES = 200
"""Python files beside a script, at most, that go along with it."""
LIMIT_S, BUSY_S = 60.0, 20.0
"""Bounds of a file's code, in seconds of the machine that it runs on."""
ON_THIS_KERNEL: ContextVar[bool] = ContextVar("on_this_kernel", default=False)
"""True if the user has chosen --machine local: code of scenarios has this machine and the user's rights then."""
LOG: ContextVar[Log] = ContextVar("log", default=lambda _: None)  # a function
"""What gets the lines on slow steps of the machine in which code is run."""
R = TypeVar("R")


async def answers(
    asked: Sequence[tuple[Request[R], Path | None, Place]],
    found: Mapping[str, bytes] | None = None,
    *,
    runs_code: bool = False,
) -> list[R]:
    """Return the responses to requests. Each has the user's file that it is about, if any, and the map of places in its
    errors. A process that does not end is the fault of such a file. `runs_code` says that the files' code is run."""
    job = Job([request for request, _, _ in asked], found or {}, limit_s=LIMIT_S, busy_s=BUSY_S)
    try:
        with child_processes.scratch() as out:
            await (machine_for_code() if runs_code and not ON_THIS_KERNEL.get() else LocalMachine()).run(job, out)
        return [job.answer(number, about=file or "", place=place) for number, (_, file, place) in enumerate(asked)]
    except UnansweredError as error:
        raise InputError(error.message, where=error.where) from error
    except MachineError as error:
        if not (late := [str(file) for number in job.unanswered if (file := asked[number][1])]):
            raise
        raise InputError(f"cannot be loaded: {error.message}", where=", ".join(late)) from error


def machine_for_code() -> VirtualMachine:
    """Return a micro-VM. UnsupportedError without an image."""
    found = image.find()
    if found is None:
        hint = "`testbed image build` makes it. With --machine local, where a command has it, code runs on this kernel."
        raise UnsupportedError("this needs to run code of a file, in a micro-VM, and there is no image", hint=hint)
    return VirtualMachine(found, Flavour("virtual"), LOG.get())


def ask(
    request: Request[R],
    file: Path | None = None,
    found: Mapping[str, bytes] | None = None,
    place: Place = str,
    *,
    runs_code: bool = False,
) -> R:
    """Return the response to one request, as `answers` does."""
    [answer] = asyncio.run(answers([(request, file, place)], found, runs_code=runs_code))
    return answer


def kept(request: Request[R]) -> R:
    """Return the response to a request about this testbed alone, which is sent once and cached."""
    cached = cache_key([messages.ask(0, request)], {})
    found: R | None = load(cached)
    if found is None:
        found = ask(request)
        keep(cached, found)
    return found


def plan(file: Path) -> PlanInfo:
    """Return the plan of a file. SVIs with an address have a row too. InputError for what is wrong in the file."""
    return ask(requests.Plan(file=named(file)), file)


def draw(file: Path, style: GraphStyle) -> Picture:
    """Return a drawing of a file, as text, and the file's notes. Raise what `plan` does."""
    return ask(requests.Draw(file=named(file), style=style), file)


def draw_plan(plan: PlanRows, style: GraphStyle = "svg") -> str:
    """Return a drawing of a planned topology. It is cached."""
    cached = cache_key(["draw", plan, style], {})
    if not isinstance(drawn := load(cached), str):
        drawn = ask(requests.DrawPlan(plan=plan, style=style))
        keep(cached, drawn)
    return drawn


def plan_of_mininet(file: Path, name: str, *, stp: bool = False, routing: str = "") -> ConvertedPlan:
    """Return the plan of the Topo `name`, or of the only one, in a file for `mn --custom`, and its topology file. The
    modules beside it go along."""
    request = requests.Convert(file=file.name, topo=name, stp=stp, routing=routing)
    found = {file.name: files.read(file)}
    for pattern in "*.py", "*/*.py":
        for module in sorted(file.parent.glob(pattern))[:MOST_MODULES]:
            if module.is_file():
                found[str(module.relative_to(file.parent))] = files.read(module)
    return ask(request, file, found, below(file.parent), runs_code=True)


def named(file: Path) -> str:
    """Return the path for a process that reads the file itself, under the name that the user gave it."""
    with files.reading(file):
        file.stat()
    return str(file)


PLACE = "descriptions"
KEEP = 500
"""Descriptions and drawings kept, of a few kilobytes each."""


def cache_key(asked: Sequence[object], files: Mapping[str, bytes]) -> str:
    """Return a cache key for the request `asked` (JSON-serializable) about something that has these files."""
    packages = 0
    with suppress(FileNotFoundError):  # they are elsewhere
        packages = Path(sysconfig.get_path("purelib")).stat().st_mtime_ns
    text = json.dumps([asked, sys.version, packages], sort_keys=True)
    return cache.digest(snapshot.code_digest(), text, *(part for item in files.items() for part in item))


def load(key: str) -> Any:
    """Return the cached value; None if there is none."""
    with suppress(OSError, ValueError):
        return json.loads((cache.root() / PLACE / key).read_text())
    return None


def keep(key: str, info: object) -> None:
    """Store a JSON-serializable value if there is space for it, and remove the oldest ones."""
    with suppress(OSError, UnsupportedError):
        directory = cache.directory(PLACE)
        handle = os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o644)
        with os.fdopen(handle, "w") as file:
            json.dump(info, file)
            file.flush()
            cache.publish(handle, directory / key)
        cache.prune(directory, KEEP)
