"""The record of a run in its directory: enough to repeat the run, and to compare another with it."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.errors import InputError
from testbed.machine import cache, files, qemu, snapshot
from testbed.machine.jobs import Machine
from testbed.machine.scenarios import GIVEN, Source
from testbed.machine.vm import VirtualMachine
from testbed.protocol import RESULT, SCENARIO, Clock
from testbed.version import version

MachineName = Literal["vm", "local"]
WORDS = {
    "testbed": "testbed's version",
    "code": "testbed's code that runs inside",
    "image": "the image",
    "qemu": "QEMU",
    "accelerator": "what executes the guest",
    "kernel": "this machine's kernel",
    "python": "this machine's Python",
    "parameters": "the parameters",
    "topology": "the topology as planned",
}
"""The things that can differ between two runs of the same scenario, for people."""


@dataclass(frozen=True)
class Identity:
    """The machine and the code of a run; what tells hosts apart that run the same is not in it."""

    machine: MachineName
    testbed: str
    code: str
    """Digest of the code that runs inside."""
    image: str | None = None
    """Digest of the image; None on the local machine."""
    qemu: str | None = None
    """QEMU's version, that of its package included."""
    accelerator: str | None = None
    kernel: str | None = None
    python: str | None = None
    """The last two are those of the local machine; the image has its own."""

    @classmethod
    def of(cls, machine: Machine, image: str | None) -> Identity:
        installed, code = version(), code_digest()
        if image is None:
            release = platform.uname().release
            return cls("local", installed, code, kernel=release, python=platform.python_version())
        accelerator = machine.flavour.accelerator if isinstance(machine, VirtualMachine) else None
        return cls("vm", installed, code, image, qemu.release(), accelerator)


def code_digest() -> str:
    return cache.digest(*(part for item in snapshot.code_files().items() for part in item))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digests(found: Mapping[str, bytes]) -> dict[str, str]:
    return {name: digest(data) for name, data in sorted(found.items())}


def keep_files(found: Mapping[str, bytes], source: Source, out: Path) -> None:
    """Copies the scenario's files, as they were read, into the run directory `out`."""
    for name, data in found.items():
        copy = out / SCENARIO / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        shutil.copymode(source.path(name), copy)


class Recorded(BaseModel):
    """Part of result.json; keys that repeating a run does not need are left out."""

    model_config = ConfigDict(strict=True, frozen=True)


class VariantRecord(Recorded):
    """Of a variant in result.json. `name` is that of its directory; with `testbed matrix` `variant` is another."""

    name: str
    variant: str
    observed: str | None
    trace: str
    settings: dict[str, Any]
    parameters: dict[str, Any] | None
    topology: str | None


class Origin(Recorded):
    """`made_from` of result.json."""

    machine: MachineName
    testbed: str
    code: str
    image: str | None
    qemu: str | None
    accelerator: str | None
    kernel: str | None
    python: str | None
    file: str
    """The name of scenario.py."""
    given_topology: str | None = None
    """The name of the file of `--topology`."""
    files: dict[str, str]
    """The digest of each of the scenario's files."""


class Record(Recorded):
    """As much of result.json as repeating the run needs."""

    scenario: str
    seed: int
    clock: Clock
    trace: str
    variants: list[VariantRecord]
    made_from: Origin


def load(directory: Path) -> Record:
    """The record of a run directory, whole: its copy of the scenario's files is what was run. Else InputError."""
    path = directory / RESULT
    if not path.is_file():
        raise InputError("is no run directory: it has no result.json", where=str(directory), hint=_guess(directory))
    with files.reading(path):
        text = path.read_bytes()
    try:
        record = Record.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(
            f"does not say what the run was made from: {key + ': ' if key else ''}{first['msg']}", where=str(path),
            hint="It is damaged, or of a testbed that did not record it yet.",
        ) from None  # fmt: skip
    for name in (record.scenario, *(variant.name for variant in record.variants)):
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise InputError(f"{name!r} cannot be the name of a scenario or a variant", where=str(path))
    _check_files(record.made_from, source_of(record, directory))
    return record


def source_of(record: Record, directory: Path) -> Source:
    """The copy of a scenario in a run directory."""
    copy, given = directory / SCENARIO, record.made_from.given_topology
    return Source(record.scenario, copy / record.made_from.file, topology=copy / GIVEN / given if given else None)


def _check_files(origin: Origin, source: Source) -> None:
    copy = source.file.parent
    there = digests(source.files()) if copy.is_dir() else {}
    names = sorted({*there, *origin.files, origin.file})
    if wrong := [name for name in names if name not in there or there[name] != origin.files.get(name)]:
        raise InputError(
            f"is damaged: {', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not as the run had it",
            where=str(copy), hint="A changed scenario is run by `testbed run`, a run directory is repeated as it is.",
        )  # fmt: skip


def _guess(directory: Path) -> str:
    for place in (directory / "latest", directory.parent):
        if (place / RESULT).is_file():
            return f"Did you mean {place}?"
    return "Run directories are runs/<scenario>/<time>; runs/<scenario>/latest is the last one."


def differences(then: Origin, now: Identity) -> dict[str, tuple[Any, Any]]:
    """The differences of the machine and the code, by key: then and now."""
    current = asdict(now)
    before = then.model_dump(include=set(current))
    return {key: (before[key], value) for key, value in current.items() if before[key] != value}
