"""Scenarios as the outside sees them: where they are, and what they say of themselves. Their code is never imported
here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import InputError, MachineError, TestbedError, did_you_mean
from testbed.machine import processes
from testbed.machine.local import LocalMachine
from testbed.protocol import DESCRIBED, OUTPUT, Job, ScenarioInfo

SHIPPED = Path(__file__).parents[2] / "scenarios"
FILE = "scenario.py"
DESCRIBE_S = 60.0
LARGEST = 32 << 20


@dataclass(frozen=True)
class Source:
    """A scenario's directory and the file in it."""

    name: str
    file: Path

    def files(self) -> dict[str, bytes]:
        """Everything beside the scenario, as it travels to the machine."""
        root = self.file.parent
        found = {}
        for path in sorted(root.rglob("*")):
            inner = path.relative_to(root)
            if (
                path.is_file()
                and "__pycache__" not in inner.parts
                and not any(part.startswith(".") for part in inner.parts)
            ):
                found[str(inner)] = path.read_bytes()
        if sum(map(len, found.values())) > LARGEST:
            raise InputError(f"the scenario's directory holds more than {LARGEST >> 20} MiB", where=str(root))
        return found


Asked = tuple[Source, Mapping[str, str]]
"""A scenario, and what the user sets of its parameters."""


def shipped() -> list[Source]:
    return [Source(path.parent.name, path) for path in sorted(SHIPPED.glob(f"*/{FILE}"))]


def resolve(name: str) -> Source:
    """A shipped scenario's name, or the path of a directory or file of the user's own."""
    for source in shipped():
        if source.name == name:
            return source
    path = Path(name)
    if path.is_dir() and (path / FILE).is_file():
        return Source(path.resolve().name, path / FILE)
    if path.is_file():
        return Source(path.resolve().parent.name if path.name == FILE else path.stem, path)
    names = [source.name for source in shipped()]
    hint = did_you_mean(name, names) or "A path needs to be a scenario.py or a directory with one. "
    raise InputError(f"there is no scenario {name!r}", hint=f"{hint}Shipped: {', '.join(names)} (`testbed list`).")


async def describe(asked: Sequence[Asked], named: Sequence[str] = ()) -> list[ScenarioInfo]:
    """What scenarios say of themselves, after the user's settings were checked, for the variants they named or for all;
    the code of each runs in a process of its own."""
    sources = [source for source, _ in asked]
    job: Job = {
        "kind": "describe",
        "name": ", ".join(source.name for source in sources),
        "scenarios": [(source.name, source.file.name, dict(settings)) for source, settings in asked],
        "named": list(named),
    }
    files = {f"{number}/{name}": data for number, source in enumerate(sources) for name, data in source.files().items()}
    with processes.scratch() as out:
        try:
            await LocalMachine().run(job, files, out, lambda _: None, limit_s=DESCRIBE_S)
        except MachineError as error:
            late = [source for number, source in enumerate(sources) if not (out / f"{number}/{DESCRIBED}").exists()]
            where = ", ".join(str(source.file) for source in late)
            raise InputError(f"the scenario cannot be loaded: {error.message}", where=where) from error
        return [result_of(out / str(number), "info.json", source) for number, source in enumerate(sources)]


def raise_refusal(out: Path, source: Source) -> None:
    """Raises here what the job refused there."""
    if (crash := left(out, "error.txt")) is not None:
        raise TestbedError(crash.strip(), where=str(source.file))
    match left_json(out, "refusal.json"):
        case None:
            return
        case {"message": str(message), "where": str(place), "hint": str(hint), "status": 1 | 2 | 3 as status}:
            where = str(source.file.parent / place) if place else ""
            error = TestbedError(message, where=where, hint=hint)
            error.exit_status = status
            raise error
        case refusal:
            raise MachineError(f"the job left a damaged refusal.json: {refusal}")


def result_of(out: Path, name: str, source: Source) -> Any:
    """The file a job leaves when it did what it was asked; raises what it refused, or that it ended without a word."""
    raise_refusal(out, source)
    found = left_json(out, name)
    if found is None:
        wrote = (left(out, OUTPUT) or "").strip()
        raise InputError(
            "its code ended the process before testbed was done" + (f":\n{wrote}" if wrote else ""),
            where=str(source.file),
        )
    return found


def left(out: Path, name: str) -> str | None:
    """The file that a job left under this name, if it is there. The job ran the user's code: it may be anything."""
    try:
        return (out / name).read_text(errors="replace")
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise MachineError(f"the job left a directory {name}") from None


def left_json(out: Path, name: str) -> Any:
    """The same as JSON; None if there is no such file."""
    text = left(out, name)
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MachineError(f"the job left a damaged {name}: {error}") from error
