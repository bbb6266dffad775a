"""A user's conflist on a machine: `testbed cni`."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.machine import files, processes, scenarios
from testbed.machine.local import LocalMachine, Machine
from testbed.machine.scenarios import Source
from testbed.protocol import CniAnswer, CniRequest, Job

LIMIT_S = 3600.0
"""The machine's own seconds; a plugin's deadline ends what hangs long before."""


async def load(request: CniRequest) -> None:
    """Raises what is wrong in a request's files and names, as far as that can be seen without a machine."""
    with processes.scratch() as out:
        await _run({**request, "command": "load"}, LocalMachine(), 0, out)


async def use(request: CniRequest, machine: Machine, seed: int, out: Path) -> CniAnswer:
    """Has a machine do it. Raises what it refused: CniError becomes a TestbedError with its code and message."""
    return await _run(request, machine, seed, out)


async def _run(request: CniRequest, machine: Machine, seed: int, out: Path) -> CniAnswer:
    named = [Path(name) for name in (request["conflist"], request["topology"]) if name is not None]
    data = [files.read(file) for file in named]
    top = Path(os.path.commonpath([file.resolve().parent for file in named]))
    inner_names = [str(file.resolve().relative_to(top)) for file in named]
    conflist, *topology = inner_names
    inner: CniRequest = {**request, "conflist": conflist, "topology": topology[0] if topology else None}
    job: Job = {"kind": "cni", "name": conflist, "seed": seed, "cni": inner}
    await machine.run(job, dict(zip(inner_names, data, strict=True)), out, lambda _: None, limit_s=LIMIT_S)
    source = Source(conflist, _shown(named[0], top) / scenarios.FILE)
    answer: CniAnswer = scenarios.result_of(out, "cni.json", source, CniAnswer)
    return answer


def _shown(file: Path, top: Path) -> Path:
    """The directory `top` as the user would write it, who wrote `file`."""
    return Path(os.path.relpath(top)) if not file.is_absolute() else top
