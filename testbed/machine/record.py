"""The record of a run in its directory: enough to repeat the run, and to compare another with it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from testbed.errors import InputError, naming
from testbed.machine import cache, emulator, files, snapshot
from testbed.machine.jobs import Machine
from testbed.machine.scenarios import GIVEN, Source
from testbed.machine.vm import VirtualMachine
from testbed.protocol import GIVEN_PROGRAM, RESULT, SCENARIO, Clock, Epoch, Observed, messages, requests
from testbed.records.regular_files import contents
from testbed.version import version

MachineName = Literal["vm", "local"]
WORDS = {
    "testbed": "testbed's version",
    "code": "testbed's code that runs inside",
    "image": "the image",
    "qemu": "QEMU",
    "accelerator": "the accelerator of the guest",
    "kernel": "this machine's kernel",
    "python": "this machine's Python",
    "parameters": "the parameters",
    "topology": "the topology as planned",
}
"""Names, for people, of the things that can differ between two runs of the same scenario."""


@dataclass(frozen=True)
class Identity:
    """The machine and the code of a run, without what differs between hosts that run the same."""

    machine: MachineName
    testbed: str
    code: str
    """Digest of the code that runs inside."""
    image: str | None
    """Digest of the image; None on the local machine."""
    qemu: str | None
    accelerator: str | None
    kernel: str | None
    python: str | None
    """This and the previous field are those of the local machine; the image has its own."""

    @classmethod
    def of(cls, machine: Machine) -> Identity:
        installed, code = version(), snapshot.code_digest()
        if isinstance(machine, VirtualMachine):
            image, accelerator = machine.image.digest, machine.flavour.accelerator
            return cls("vm", installed, code, image, emulator.release(), accelerator, None, None)
        release, python = platform.uname().release, platform.python_version()
        return cls("local", installed, code, None, None, None, release, python)


@dataclass(frozen=True, kw_only=True)
class Origin(Identity):
    """`made_from` of result.json."""

    file: str
    """The name of scenario.py."""
    files: Mapping[str, str]
    """The digest of each of the scenario's files."""
    given_topology: str | None = None
    """The name of the file in the place of the scenario's own topology."""
    given_program: str | None = None
    """The name of the user's program that the scenario runs."""

    @classmethod
    def of_run(cls, identity: Identity, source: Source, found: Mapping[str, bytes]) -> Origin:
        """Return the origin of a run of the scenario, whose files are `found`, on a machine."""
        return cls(
            **asdict(identity),
            file=source.file.name,
            files=digests(found),
            given_topology=source.topology.name if source.topology else None,
            given_program=source.program.name if source.program else None,
        )


@dataclass(frozen=True, kw_only=True)
class VariantResult:
    """The end of a variant. `name` is that of its directory; with `testbed matrix` `variant` is another.

    `observed` is None when it did not come to an observation; `failures` has why it is not as expected. `parameters`,
    `topology` and `epoch` are None when its machine failed before deciding them.
    """

    name: str
    expected: Observed
    observed: Observed | None
    trace: str
    virtual_s: float
    wall_s: float
    evidence: Mapping[str, Any]
    failures: Sequence[str]
    variant: str
    settings: dict[str, Any]
    parameters: Mapping[str, Any] | None
    topology: str | None
    """The digest of topology.json."""
    epoch: Epoch | None
    touched: Sequence[str] = ()
    """Manual changes while the run was stopped: they are not repeated automatically."""
    text: str = ""
    """Text of its steps, as `testbed describe` prints it."""
    warnings: Sequence[str] = ()
    """What the user should look at, and what does not change the verdict."""
    without_faults: Sequence[int] = ()
    """Numbers of the faults that were left out, in the order in which the run injects them."""

    @property
    def as_expected(self) -> bool:
        return self.observed == self.expected and not self.failures


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """result.json: `load` reads what `json` returns."""

    scenario: str
    verdict: Literal["as-expected", "unexpected"]
    seed: int
    clock: Clock
    machine: MachineName
    image: str | None
    trace: str
    """SHA-256 over the variants' names and traces."""
    wall_s: float
    out: Path
    variants: Sequence[VariantResult]
    made_from: Origin
    title: str = ""
    text: str = ""
    """The scenario's description, as `testbed describe` prints it."""

    @classmethod
    def of(
        cls,
        scenario: str,
        seed: int,
        clock: Clock,
        wall_s: float,
        out: Path,
        variants: Sequence[VariantResult],
        made_from: Origin,
        title: str = "",
        text: str = "",
    ) -> RunResult:
        return cls(
            scenario=scenario,
            seed=seed,
            clock=clock,
            wall_s=round(wall_s, 3),
            out=out,
            variants=variants,
            title=title,
            text=text,
            machine=made_from.machine,
            image=made_from.image,
            made_from=made_from,
            verdict="as-expected" if all(one.as_expected for one in variants) else "unexpected",
            trace=cache.digest(*(part for one in variants for part in (one.name, one.trace))),
        )

    @property
    def as_expected(self) -> bool:
        return self.verdict == "as-expected"

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "out": str(self.out)}

    def write(self) -> None:
        """Write result.json into its directory."""
        path = self.out / RESULT
        with naming(path):
            path.write_text(json.dumps(self.json(), indent=1) + "\n")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digests(found: Mapping[str, bytes]) -> dict[str, str]:
    return {name: digest(data) for name, data in sorted(found.items())}


def keep_files(found: Mapping[str, bytes], executable: Sequence[str], out: Path) -> None:
    """Write the scenario's files, as they were read, into the run directory `out`."""
    for name, data in found.items():
        copy = out / SCENARIO / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with naming(copy):
            copy.write_bytes(data)
        if name in executable:
            copy.chmod(copy.stat().st_mode | 0o111)


def check_names(record: RunResult, where: str) -> None:
    """Raise InputError unless the names can be those of directories."""
    for name in (record.scenario, *(variant.name for variant in record.variants)):
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise InputError(f"{name!r} cannot be the name of a scenario or a variant", where=where)


def load(directory: Path) -> RunResult:
    """Return a run directory's complete record: its copy of the scenario's files is what was run. Else InputError."""
    path = directory / RESULT
    if not directory.exists():
        raise InputError("does not exist", where=str(directory), hint=_guess(directory))
    if not path.is_file():
        raise InputError("is not a run directory: it has no result.json", where=str(directory), hint=_guess(directory))
    from pydantic import ValidationError  # not needed for writing

    with files.reading(path):
        text = contents(path)
    try:
        record: RunResult = requests.adapter(RunResult).validate_json(text, strict=True)
    except ValidationError as error:
        raise InputError(
            f"does not record the inputs of the run: {messages.first_problem(error)}",
            where=str(path),
            hint="It is damaged, or an older testbed made it.",
        ) from None
    check_names(record, str(path))
    _check_files(record.made_from, source_of(record, directory))
    return record


def source_of(record: RunResult, directory: Path) -> Source:
    """Return the copy of a scenario in a run directory."""
    copy, given = directory / SCENARIO, record.made_from.given_topology
    program = record.made_from.given_program
    return Source(
        record.scenario,
        copy / record.made_from.file,
        topology=copy / GIVEN / given if given else None,
        program=copy / GIVEN_PROGRAM / program if program else None,
    )


def _check_files(origin: Origin, source: Source) -> None:
    copy = source.file.parent
    there = digests(source.files()) if copy.is_dir() else {}
    names = sorted({*there, *origin.files, origin.file})
    if wrong := [name for name in names if name not in there or there[name] != origin.files.get(name)]:
        raise InputError(
            f"is damaged: {', '.join(wrong)} {'differs' if len(wrong) == 1 else 'differ'} from the recorded run",
            where=str(copy),
            hint="Run a changed scenario with `testbed run`; `testbed rerun` repeats an unchanged run directory.",
        )


def _guess(directory: Path) -> str:
    for place in (directory / "latest", directory.parent):
        if (place / RESULT).is_file():
            return f"Did you mean {place}?"
    return "Run directories are runs/<scenario>/<time>; runs/<scenario>/latest is the latest one."


def differences(then: Origin | VariantResult, now: Origin | VariantResult) -> dict[str, tuple[Any, Any]]:
    """Return the differences of two runs, or of two runs of a variant, by the keys of WORDS: then and now."""
    found = {key: (getattr(then, key), getattr(now, key)) for key in WORDS if hasattr(then, key)}
    return {key: (before, after) for key, (before, after) in found.items() if before != after}


def short(value: object) -> str:
    """Return the first digits of a digest, anything else unchanged."""
    text = "none" if value is None else str(value)
    return text[:12] if re.fullmatch("[0-9a-f]{64}", text) else text
