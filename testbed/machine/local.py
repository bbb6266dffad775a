"""This very kernel as a lab machine, and what every machine offers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from testbed.errors import MachineError
from testbed.machine import processes
from testbed.machine.patience import patiently, processes_of
from testbed.protocol import FILES, OUTPUT, Job

END_S = 20.0
DEEPEST = 50
"""Levels of what a job leaves as JSON; ours have five."""
PACKAGE = Path(__file__).parents[1] / "__init__.py"
ENTER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("testbed", sys.argv.pop(1))
sys.modules["testbed"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["testbed"])
from testbed.inside import main
main()
"""
"""Loads this very testbed, wherever the process is started and whatever is called like a module there."""
Listener = Callable[[dict[str, Any]], None]


class Machine(Protocol):
    """Somewhere a job can run."""

    async def run(self, job: Job, files: Mapping[str, bytes], out: Path, listen: Listener, *, limit_s: float) -> float:
        """Runs `job` with `files` beside it, shows its progress to `listen`, leaves its artefacts in `out`.

        `limit_s` bounds the job in the machine's own seconds. Returns the wall seconds it took. Raises MachineError
        when the machine
        itself fails; what the job made of its task is in `out`.
        """
        ...


def load_json(data: bytes) -> Any:
    """What a job left as JSON: it ran the user's code, so it may be anything. ValueError if it is no JSON, or is nested
    deeper than what shows and keeps it could follow."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if data.count(b"[") + data.count(b"{") > DEEPEST:  # few are
        level = [found]
        for _ in range(DEEPEST):
            level = [inner for value in level for inner in _values(value)]
        if level:
            raise ValueError("nested too deep")
    return found


def _values(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def record(line: bytes) -> dict[str, Any]:
    """A line of a job's progress. The job ran the user's code, so it may be anything."""
    with contextlib.suppress(ValueError):
        if isinstance(said := load_json(line), dict):
            return said
    raise MachineError(f"a line of progress is damaged: {line[:80]!r}")


@dataclass(frozen=True)
class LocalMachine:
    """Runs a job in a process of this machine. Labs need root here; a description needs nothing."""

    async def run(self, job: Job, files: Mapping[str, bytes], out: Path, listen: Listener, *, limit_s: float) -> float:
        started = time.monotonic()
        with processes.scratch() as parcel:
            (parcel / "job.json").write_text(json.dumps({**job, "in": str(parcel / FILES)}))
            for name, data in files.items():
                path = parcel / FILES / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            readable, writable = os.pipe()
            with (out / OUTPUT).open("w+b") as output:
                process = await spawn([str(parcel), str(out)], writable, output)
                os.close(writable)
                try:
                    await patiently(self._follow(readable, listen), limit_s, processes_of(process.pid))
                    status = await process.wait()
                except TimeoutError:
                    raise MachineError(f"still running after {limit_s:g} s") from None
                finally:
                    await _end(process)
                if status:
                    output.seek(0)
                    said = output.read().decode(errors="replace")
                    raise MachineError(f"the job ended with status {status}:\n{said}")
        return time.monotonic() - started

    async def _follow(self, readable: int, listen: Listener) -> None:
        reader = asyncio.StreamReader(limit=1 << 24)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb")
        )
        try:
            while line := await _line(reader):
                listen(record(line))
        finally:
            transport.close()


async def spawn(arguments: Sequence[str], progress: int, output: IO[bytes]) -> asyncio.subprocess.Process:
    """The process of a job, which has `progress` as its file descriptor 3 and ends with this one.

    Ctrl-C is for this process alone, which then ends the job: two signals would cut the job's teardown short.
    """
    command = ["setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", 'exec "$@" 3>"/dev/fd/$0"', str(progress)]
    return await asyncio.create_subprocess_exec(
        *command, sys.executable, "-P", "-c", ENTER, str(PACKAGE), *arguments,
        pass_fds=(progress,), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError as error:  # longer than the reader's limit
        raise MachineError(f"a line of progress is damaged: {error}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    """Lets the job take its lab down; ends it by force if it does not."""
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            process.kill()
            await process.wait()
