"""Topology files and faults as the outside sees them: read, planned and described by a process of the inside."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from testbed.machine import processes, scenarios
from testbed.machine.local import LocalMachine
from testbed.machine.scenarios import Source
from testbed.protocol import Job

LIMIT_S = 60.0


def plan(file: Path) -> dict[str, Any]:
    """The plan of a file: `name`, and `interfaces` as rows of node, kind, interface, peer, mac, address, vlan, rdma.

    Raises what the file's reader raises, InputError for what is wrong in it.
    """
    return asyncio.run(_ask(file, {file.name: file.read_bytes()}))


def schema() -> dict[str, Any]:
    """The JSON Schema of the format."""
    return asyncio.run(_ask(None, {}))


def faults() -> list[dict[str, Any]]:
    """Of each fault `name`, `title`, `text`, and the JSON Schema of its `parameters`."""
    found: list[dict[str, Any]] = asyncio.run(_do({"kind": "faults", "name": ""}, {}, "faults.json", Path()))
    return found


async def _ask(file: Path | None, files: dict[str, bytes]) -> dict[str, Any]:
    job: Job = {"kind": "topology", "name": file.name if file else ""}
    found: dict[str, Any] = await _do(job, files, "topology.json", file or Path())
    return found


async def _do(job: Job, files: dict[str, bytes], answer: str, about: Path) -> Any:
    with processes.scratch() as out:
        await LocalMachine().run(job, files, out, lambda _: None, limit_s=LIMIT_S)
        return scenarios.result_of(out, answer, Source(job["name"], about))
