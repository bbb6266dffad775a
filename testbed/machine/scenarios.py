"""Scenarios as the outside sees them: where they are, and what they say of themselves. Their code is never imported
here."""

from __future__ import annotations

import math
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import InputError, MachineError, TestbedError, did_you_mean
from testbed.machine import files, processes
from testbed.machine.local import LocalMachine, load_json
from testbed.protocol import DESCRIBED, OUTPUT, VARIANT, Job, ScenarioInfo

SHIPPED = Path(__file__).parents[2] / "scenarios"
FILE = "scenario.py"
GIVEN = ".given"
"""Directory of a topology file that the user gave. Hidden files do not travel, so a scenario has none of that name."""
DESCRIBE_S = 60.0
LARGEST = 64 << 20
"""Bytes of a file that is read whole."""


@dataclass(frozen=True)
class Source:
    """A scenario's directory and the file in it, or another file that a job is about."""

    name: str
    file: Path
    base: Path | None = None
    """Where the paths in the job's errors begin, if not in the file's directory."""
    topology: Path | None = None
    """A topology file in the place of the scenario's own."""

    def files(self) -> dict[str, bytes]:
        """Everything beside the scenario, as it travels to the machine."""
        found = files.below(self.file.parent)
        return {**found, self.inner_topology: files.read(self.topology)} if self.topology else found

    def path(self, name: str) -> Path:
        """Where the file is that travels under this name."""
        return self.topology if self.topology and name == self.inner_topology else self.file.parent / name

    @property
    def inner_topology(self) -> str:
        """Where `topology` is on the machine; files of the scenario's own have no such names."""
        return f"{GIVEN}/{self.topology.name}" if self.topology else ""

    def executable(self, names: Iterable[str]) -> list[str]:
        """Those of its files that can be executed."""
        return files.executable(self.file.parent, (name for name in names if name != self.inner_topology))

    def place(self, inner: str) -> str:
        """A place in an error of the job, as the user would write it."""
        if self.topology and inner.startswith(self.inner_topology):
            return f"{self.topology}{inner.removeprefix(self.inner_topology)}"
        return str((self.file.parent if self.base is None else self.base) / inner) if inner else ""


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
    with files.reading(path):
        if path.is_dir() and (path / FILE).is_file():
            return Source(path.resolve().name, path / FILE)
        if path.is_file():
            return Source(path.resolve().parent.name if path.name == FILE else path.stem, path)
        if path.is_dir():
            inner = [str(file.parent) for file in sorted(path.glob(f"*/{FILE}"))]
            hint = f"There are {', '.join(inner[:5])}." if inner else "A scenario is a directory with one, or the file."
            raise InputError(f"this directory has no {FILE}", where=name, hint=hint)
    known = [source.name for source in shipped()]
    if (near := files.nearest_path(path)) and (near.is_file() or (near / FILE).is_file()):
        known.append(str(near))
    shown = "`testbed list` shows those that are shipped; a path is that of a scenario.py or of a directory with one."
    raise InputError(f"there is no scenario {name!r}", hint=did_you_mean(name, known) + shown)


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
    if given := {source.inner_topology for source in sources if source.topology}:
        [job["topology"]] = given
    parcel = {
        f"{number}/{name}": data for number, source in enumerate(sources) for name, data in source.files().items()
    }
    with processes.scratch() as out:

        def late() -> list[Path]:
            places = [out / str(number) / DESCRIBED for number in range(len(sources))]
            return [source.file for source, place in zip(sources, places, strict=True) if not place.exists()]

        await ask(job, parcel, out, DESCRIBE_S, late)
        return [info_of(out / str(number), source) for number, source in enumerate(sources)]


def info_of(out: Path, source: Source) -> ScenarioInfo:
    """What a scenario says of itself. Its variants have directories of their names, and its limit is one."""
    info: ScenarioInfo = result_of(out, "info.json", source, ScenarioInfo)
    names = [variant["name"] for variant in info["variants"]]
    if not names or not all(map(VARIANT.fullmatch, names)) or len({*names}) < len(names):
        raise MachineError(f"the job left a damaged info.json: variants {names}"[:200])
    if not (0 < info["limit_s"] < math.inf and info["busy_limit_s"] > 0):
        raise MachineError("the job left a damaged info.json: its limits are no seconds")
    return {**info, "notes": [{**note, "where": source.place(note["where"])} for note in info["notes"]]}


async def ask(
    job: Job, parcel: Mapping[str, bytes], out: Path, limit_s: float, late: Callable[[], Sequence[Path]]
) -> None:
    """Has a process of its own answer a job. One that does not come to its end is the fault of the user's files that
    `late` names then, if it names any."""
    try:
        await LocalMachine().run(job, parcel, out, lambda _: None, limit_s=limit_s)
    except MachineError as error:
        if not (found := late()):
            raise
        raise InputError(f"cannot be loaded: {error.message}", where=", ".join(map(str, found))) from error


def raise_refusal(out: Path, source: Source) -> None:
    """Raises here what the job refused there."""
    if (crash := left(out, "error.txt")) is not None:
        raise TestbedError(crash.strip(), where=str(source.file))
    match left_json(out, "refusal.json"):
        case None:
            return
        case {
            "message": str(message), "where": str(place), "hint": str(hint), "also": list(others),
            "status": 1 | 2 | 3 as status,
        } if all(type(other) is list and [*map(type, other)] == [str, str] for other in others):  # fmt: skip
            also = [(source.place(where), text) for where, text in others]
            error = TestbedError(message, where=source.place(place), hint=hint, also=also)
            error.exit_status = status
            raise error
        case refusal:
            raise MachineError(f"the job left a damaged refusal.json: {refusal}")


def result_of(out: Path, name: str, source: Source, kind: Any) -> Any:
    """The file a job leaves when it did what it was asked, of the shape of `kind`; raises what it refused, or that it
    ended without a word."""
    raise_refusal(out, source)
    found = left_json(out, name)
    if found is None:
        wrote = (left(out, OUTPUT) or "").strip()
        raise InputError(
            "its code ended the process before testbed was done" + (f":\n{wrote}" if wrote else ""),
            where=str(source.file),
        )
    return checked(kind, found, name)


def left(out: Path, name: str) -> str | None:
    """The file that a job left under this name, if it is there."""
    data = _left_bytes(out, name)
    return None if data is None else data.decode(errors="replace")


def left_json(out: Path, name: str) -> Any:
    """The same as JSON; None if there is no such file."""
    data = _left_bytes(out, name)
    try:
        return None if data is None else load_json(data)
    except ValueError as error:
        raise MachineError(f"the job left a damaged {name}: {error}") from error


def _left_bytes(out: Path, name: str) -> bytes | None:
    """The job ran the user's code: the file may be anything, a pipe without an end too."""
    try:
        mode = (out / name).stat().st_mode
        if not stat.S_ISREG(mode):
            raise MachineError(f"the job left a {'directory' if stat.S_ISDIR(mode) else 'special file'} {name}")
        with (out / name).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineError(f"the job left a {name} that cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise MachineError(f"the job left a {name} of more than {LARGEST >> 20} MiB")
    return data


def checked(kind: Any, found: Any, name: str) -> Any:
    """What a job left as `name`, if it has the shape of `kind`. The job ran the user's code: it may be anything."""
    from pydantic import TypeAdapter, ValidationError  # not for those who ask for help

    try:
        TypeAdapter(kind).validate_python(found, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise MachineError(f"the job left a damaged {name}: {place}: {first['msg']}") from error
    return found
