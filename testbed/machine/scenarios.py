"""Scenarios outside the guest: their paths and descriptions. Their code is never imported here."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from testbed.errors import InputError, MachineError, did_you_mean
from testbed.machine import files, questions
from testbed.machine.jobs import below
from testbed.machine.shipped import PACKAGE, SCENARIOS
from testbed.protocol import GIVEN_PROGRAM, HOST_FILES, VARIANT, ScenarioInfo
from testbed.protocol.requests import Describe

FILE = "scenario.py"
GIVEN = ".given"
"""Directory of a topology file that the user gave. Hidden files are not sent, so no scenario has one of that name."""


@dataclass(frozen=True)
class Source:
    """A scenario's directory and the file in it."""

    name: str
    file: Path
    topology: Path | None = None
    """A topology file in place of the scenario's own."""
    program: Path | None = None
    """A program of the user's that the scenario runs. Everything beside it is sent too."""

    def files(self) -> dict[str, bytes]:
        """Return everything beside the scenario and the program, as it is sent to the machine."""
        found = files.below(self.file.parent)
        if self.topology:
            found[self.inner_topology] = files.read(self.topology)
        if self.program:
            beside = files.below(self.program.parent)
            found |= {f"{GIVEN_PROGRAM}/{name}": data for name, data in beside.items()}
        return found

    def path(self, name: str) -> Path:
        """Return the file that is sent under this name."""
        if self.topology and name == self.inner_topology:
            return self.topology
        if self.program and PurePath(name).parts[0] == GIVEN_PROGRAM:
            return self.program.parent / PurePath(name).relative_to(GIVEN_PROGRAM)
        return self.file.parent / name

    @property
    def is_shipped(self) -> bool:
        """Return whether it comes with testbed, whose code runs on this machine anyway."""
        file = self.file.resolve()  # a path with `..`, or a link, may lead elsewhere
        return file.is_relative_to(SCENARIOS.resolve()) or file.is_relative_to(PACKAGE.resolve())

    @property
    def inner_topology(self) -> str:
        """Return the path of `topology` on the machine; files of the scenario's own have no such names."""
        return f"{GIVEN}/{self.topology.name}" if self.topology else ""

    def executable(self, names: Iterable[str]) -> list[str]:
        """Return its executable files."""
        return [name for name in names if name != self.inner_topology and files.can_be_executed(self.path(name))]

    def place(self, inner: str) -> str:
        """Return a place in an error of the job, as the user would write it."""
        if self.topology and inner.startswith(self.inner_topology):
            return f"{self.topology}{inner.removeprefix(self.inner_topology)}"
        return below(self.file.parent)(inner)

    def taken(self) -> TakenSource:
        """Return the source with its files as they are now."""
        files = self.files()
        place = self.name, self.file, self.topology, self.program
        return TakenSource(*place, contents=files, executables=self.executable(files))


@dataclass(frozen=True, kw_only=True)
class TakenSource(Source):
    """A scenario whose files were read: many runs of it, some on other machines, use the same files."""

    contents: Mapping[str, bytes]
    executables: Sequence[str]

    def files(self) -> dict[str, bytes]:
        return {**self.contents}

    def executable(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.executables]


def shipped() -> list[Source]:
    return [Source(path.parent.name, path) for path in sorted(SCENARIOS.glob(f"*/{FILE}"))]


def own() -> list[Source]:
    """Return the scenarios below the directories that TESTBED_SCENARIOS names, or else the nearest pyproject.toml.
    InputError for a directory that is not there."""
    found = []
    for directory in _own_directories():
        if not directory.is_dir():
            hint = "TESTBED_SCENARIOS, or `scenarios` of [tool.testbed] in pyproject.toml, names it."
            raise InputError("this directory of scenarios does not exist", where=str(directory), hint=hint)
        found += [Source(path.resolve().parent.name, path) for path in sorted(directory.glob(f"*/{FILE}"))]
    return found


def _own_directories() -> list[Path]:
    if named := os.environ.get("TESTBED_SCENARIOS"):
        return [Path(one).expanduser() for one in named.split(os.pathsep) if one]
    here = Path.cwd()
    project = next((file for place in (here, *here.parents) if (file := place / "pyproject.toml").is_file()), None)
    if project is None:
        return []
    try:
        given = tomllib.loads(files.read(project).decode()).get("tool", {}).get("testbed", {}).get("scenarios", [])
    except ValueError as error:
        raise InputError(f"is no valid TOML: {error}", where=str(project)) from None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        wrong = "`scenarios` of [tool.testbed] must be a list of directories"
        raise InputError(wrong, where=str(project), hint='Such as scenarios = ["scenarios"].')
    return [Path(os.path.relpath(project.parent / one)) for one in given]


def resolve(name: str) -> Source:
    """Find a scenario by its shipped name, by that of one of the user's own, or by the path of a directory or file."""
    for source in shipped():
        if source.name == name:
            return source
    mine = [] if os.sep in name else own()
    for source in mine:
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
            hint = f"It contains {', '.join(inner[:5])}." if inner else "Give a scenario.py, or a directory with one."
            if (path / "lab.conf").is_file():
                hint = f"It is a lab of Kathará: testbed topology from-kathara {name}"
            raise InputError(f"this directory has no {FILE}", where=name, hint=hint)
    known = [source.name for source in (*shipped(), *mine)]
    if (near := files.nearest_path(path)) and (near.is_file() or (near / FILE).is_file()):
        known.append(str(near))
    shown = "`testbed list` shows the shipped scenarios; a path must lead to a scenario.py or to a directory with one."
    raise InputError(f"scenario {name!r} does not exist", hint=did_you_mean(name, known) + shown)


async def describe(asked: Sequence[tuple[Source, Mapping[str, Any]]], named: Sequence[str] = ()) -> list[ScenarioInfo]:
    """Describe scenarios, each in a process of its own; those of others than testbed's in a micro-VM. The user's
    settings must fit the variants `named`, or all."""
    infos: dict[int, ScenarioInfo] = {}
    found: dict[str, bytes] = {}
    requests = {}
    for number, (source, settings) in enumerate(asked):
        scenario, topology = f"{number}/{source.file.name}", source.inner_topology
        request = Describe(name=source.name, scenario=scenario, settings=settings, named=[*named], topology=topology)
        own = source.files()
        places = [str(source.file), str(source.topology), str(source.program)]
        key = questions.cache_key([source.name, *places, settings, named], own)
        if known := questions.load(key):
            infos[number] = known
        else:
            found |= {f"{number}/{name}": data for name, data in own.items()}
            requests[number] = key, (request, source.file, source.place)
    if requests:
        foreign = any(not asked[number][0].is_shipped for number in requests)
        made = await questions.answers([request for _, request in requests.values()], found, runs_code=foreign)
        for (number, (key, _)), info in zip(requests.items(), made, strict=True):
            infos[number] = info_of(info, asked[number][0])
            questions.keep(key, infos[number])
    return [infos[number] for number in range(len(asked))]


def info_of(info: ScenarioInfo, source: Source) -> ScenarioInfo:
    """Return a description with places as the user writes them. Check variant names (as directories) and limits."""
    names = [variant["name"] for variant in info["variants"]]
    valid = all(map(VARIANT.fullmatch, names)) and HOST_FILES.isdisjoint(names)
    if not names or not valid or len({*names}) < len(names):
        raise MachineError(f"the response is damaged: variants {names}"[:200])
    if not (0 < info["limit_s"] < math.inf and info["busy_limit_s"] > 0):
        raise MachineError("the response is damaged: its limits are not numbers of seconds")
    return {**info, "notes": [{**note, "where": source.place(note["where"])} for note in info["notes"]]}
