"""Topology files and faults as the outside sees them: read, planned, drawn, made by a process of the inside."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.machine import files, processes, scenarios
from testbed.machine.scenarios import Source
from testbed.protocol import GraphStyle, Job, Note

LIMIT_S = 60.0


def plan(file: Path) -> dict[str, Any]:
    """The plan of a file: `name`, and `interfaces` as rows of node, kind, interface, peer, mac, address (of IPv4),
    address6, gateway, gateway6, vlan (an integer or None), trunk (a list of them), routed, rdma. SVIs with an address
    have a row too, without a peer. `notes` are keys of the file that have no effect.

    Raises what the file's reader raises, InputError for what is wrong in it.
    """
    found: dict[str, Any] = _ask({"kind": "topology", "name": str(file)}, _named(file))
    return found


def plan_of_mininet(file: Path, name: str) -> dict[str, Any]:
    """The same of the Topo `name` (nothing if there is only one) in a file as `mn --custom` takes it, and the `text` of
    a topology file that says as much."""
    job: Job = {"kind": "topology", "name": file.name, "mininet": name}
    found: dict[str, Any] = _ask(job, Source(file.name, file), {file.name: files.read(file)})
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema of the format."""
    found: dict[str, Any] = _ask({"kind": "topology", "name": ""})
    return found


def faults() -> list[dict[str, Any]]:
    """Of each fault `name`, `title`, `text`, and the JSON Schema of its `parameters`."""
    found: list[dict[str, Any]] = _ask({"kind": "faults", "name": ""}, answer="faults.json")
    return found


def profiles() -> list[dict[str, Any]]:
    """Of each switch profile `name`, `about`, and by name its `values`: `value`, `unit`, `source` and `text`."""
    found: list[dict[str, Any]] = _ask({"kind": "profiles", "name": ""}, answer="profiles.json")
    return found


def new(kind: str, options: dict[str, int | str | bool]) -> str:
    """The text of a file with a fabric. InputError, which names the option, for one that cannot be made."""
    return str(_ask({"kind": "fabric", "name": kind, "options": options}))


def graph(file: Path, style: GraphStyle) -> tuple[str, list[Note]]:
    """A drawing of a file, as text, and the file's notes. Raises what `plan` does."""
    found = _ask({"kind": "graph", "name": str(file), "style": style}, _named(file))
    return found["text"], found["notes"]


def _named(file: Path) -> Source:
    """A file that the job reads itself, under the name that the user gave it."""
    with files.reading(file):
        file.stat()
    return Source(str(file), file, Path())


def _ask(
    job: Job, source: Source | None = None, parcel: Mapping[str, bytes] | None = None, answer: str = "topology.json"
) -> Any:
    async def ask() -> Any:
        with processes.scratch() as out:
            await scenarios.ask(job, parcel or {}, out, LIMIT_S, lambda: [source.file] if source else [])
            return scenarios.result_of(out, answer, source or Source(job["name"], Path()))

    return asyncio.run(ask())
