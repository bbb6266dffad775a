"""Topology files and faults as the outside sees them: read, planned, drawn, made by a process of the inside."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.machine import files, processes, scenarios
from testbed.machine.scenarios import Source
from testbed.protocol import FaultInfo, GraphStyle, Job, Note, Picture, PlanInfo, ProfileInfo

LIMIT_S = 60.0


def plan(file: Path) -> PlanInfo:
    """The plan of a file. SVIs with an address have a row too. `notes` are keys of the file that have no effect.

    Raises what the file's reader raises, InputError for what is wrong in it.
    """
    found: PlanInfo = _ask({"kind": "topology", "name": str(file)}, PlanInfo, _named(file))
    return found


def plan_of_mininet(file: Path, name: str) -> PlanInfo:
    """The same of the Topo `name` (nothing if there is only one) in a file as `mn --custom` takes it, and the `text` of
    a topology file that says as much."""
    job: Job = {"kind": "topology", "name": file.name, "mininet": name}
    found: PlanInfo = _ask(job, PlanInfo, Source(file.name, file), {file.name: files.read(file)})
    if "text" not in found:
        raise MachineError("the job left a damaged topology.json: text is missing")
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema of the format."""
    found: dict[str, Any] = _ask({"kind": "topology", "name": ""}, dict[str, Any])
    return found


def faults() -> list[FaultInfo]:
    found: list[FaultInfo] = _ask({"kind": "faults", "name": ""}, list[FaultInfo], answer="faults.json")
    return found


def profiles() -> list[ProfileInfo]:
    found: list[ProfileInfo] = _ask({"kind": "profiles", "name": ""}, list[ProfileInfo], answer="profiles.json")
    return found


def new(kind: str, options: dict[str, int | str | bool]) -> str:
    """The text of a file with a fabric. InputError, which names the option, for one that cannot be made."""
    text: str = _ask({"kind": "fabric", "name": kind, "options": options}, str)
    return text


def graph(file: Path, style: GraphStyle) -> tuple[str, list[Note]]:
    """A drawing of a file, as text, and the file's notes. Raises what `plan` does."""
    found: Picture = _ask({"kind": "graph", "name": str(file), "style": style}, Picture, _named(file))
    return found["text"], found["notes"]


def _named(file: Path) -> Source:
    """A file that the job reads itself, under the name that the user gave it."""
    with files.reading(file):
        file.stat()
    return Source(str(file), file, Path())


def _ask(
    job: Job,
    kind: Any,
    source: Source | None = None,
    parcel: Mapping[str, bytes] | None = None,
    answer: str = "topology.json",
) -> Any:
    """An answer of the shape of `kind`."""

    async def ask() -> Any:
        with processes.scratch() as out:
            await scenarios.ask(job, parcel or {}, out, LIMIT_S, lambda: [source.file] if source else [])
            return scenarios.result_of(out, answer, source or Source(job["name"], Path()), kind)

    return asyncio.run(ask())
