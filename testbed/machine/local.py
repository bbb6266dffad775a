"""This very kernel as a lab machine."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from testbed.errors import MachineError
from testbed.machine import child_processes
from testbed.machine.jobs import Job
from testbed.machine.patience import patiently, processes_of
from testbed.protocol import FILES, JOB, MESSAGE_BYTES, OUTPUT, OWNS, RUNS, Clock, messages

END_S = 20.0


class LocalMachine:
    """Machine that runs a job in a process of this machine. Labs need root here; a description needs nothing."""

    clock: Clock = "real"

    def __init__(self, *, labs: bool = False, log: Callable[[str], None] = lambda _: None) -> None:
        """Create the machine. With `labs`, remove what jobs leave on this kernel; `log` gets what cannot be removed."""
        self._labs = labs
        self._log = log

    async def run(self, job: Job[Any], out: Path) -> float:
        started, before = time.monotonic(), records()
        with child_processes.scratch() as bundle:
            (bundle / JOB).write_text(json.dumps(job.envelope(str(bundle / FILES), self.clock)))
            for name, data in job.files.items():
                path = bundle / FILES / name
                if name.endswith("/"):
                    path.mkdir(parents=True, exist_ok=True)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(0o755 if name in job.executable else 0o644)
            readable, writable = os.pipe()
            with (out / OUTPUT).open("w+b") as output:
                process = await spawn([str(bundle), str(out), *([OWNS] if self._labs else [])], writable, output)
                os.close(writable)
                try:
                    await patiently(_follow(readable, job), job.limit_s, processes_of(process.pid))
                    status = await process.wait()
                except TimeoutError:
                    raise MachineError(f"still running after {job.limit_s:g} s") from None
                finally:
                    await _end(process)
                    if self._labs and records() - before:
                        self._log("the run left something on this kernel: `testbed gc` removes it")
                output.seek(max(0, output.seek(0, os.SEEK_END) - messages.LAST_BYTES))
                wrote = output.read()
                if status:
                    raise MachineError(f"the job ended with status {status}:\n{wrote.decode(errors='replace')}")
                for number in job.unanswered:
                    job.receive(messages.load(messages.ended(number, wrote)))
        return time.monotonic() - started


def records() -> set[Path]:
    """Return the records of runs that own something on this kernel."""
    return set(Path(RUNS).glob("*.json"))


async def _follow(readable: int, job: Job[Any]) -> None:
    reader = asyncio.StreamReader(limit=MESSAGE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb")
    )
    try:
        while line := await _line(reader):
            job.receive(messages.load(line))
    finally:
        transport.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError as error:  # longer than the reader's limit
        raise MachineError(f"a line of progress is damaged: {error}") from error


async def spawn(arguments: Sequence[str], progress: int, output: IO[bytes]) -> asyncio.subprocess.Process:
    """Start the process of a job, which has `progress` as file descriptor 3 and ends with this one. Ctrl-C signals this
    process alone, which then ends the job: two signals would cut the job's teardown short."""
    command = [*child_processes.dying("TERM"), "sh", "-c", 'exec "$@" 3>"/proc/self/fd/$0"', str(progress)]
    return await asyncio.create_subprocess_exec(
        *command,
        *child_processes.ours("testbed.executor", *arguments),
        pass_fds=(progress,),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let the job take its lab down; kill it if it does not."""
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            process.kill()
            await process.wait()
