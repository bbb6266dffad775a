"""The source of a lab of `testbed up`: a topology file, or a scenario."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.cli import options
from testbed.cli.output import log
from testbed.errors import InputError
from testbed.machine import bound_files, files, networks, questions, runs, scenarios
from testbed.machine.jobs import below
from testbed.protocol import messages
from testbed.protocol.requests import Live

SUFFIXES = ".yml", ".yaml"
PLUGINS = "cni-plugins"
"""The directory of the user's CNI plugins beside a topology file, as beside a scenario."""


@dataclass(frozen=True)
class Found:
    """A source. `shown` is its name for the user; `place` turns places in the job's files into the user's."""

    name: str
    shown: str
    files: Mapping[str, bytes]
    asked: Mapping[str, Any]
    place: Callable[[str], str]
    executable: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    """Images of the nodes that are containers."""

    def request(self) -> dict[str, Any]:
        """Return the job's request, without the lab's name, which does not matter inside."""
        asked: dict[str, Any] = messages.ask(0, Live(**self.asked))["request"]
        return asked


def find(
    what: str, variant: str | None, settings: Mapping[str, str], plugins: Sequence[Path] = (), cni_path: str = ""
) -> Found:
    path = Path(what)
    if path.suffix in SUFFIXES or (path.is_file() and path.suffix != ".py"):
        if variant or settings:
            raise InputError("--variant and --set are for scenarios, and this is a topology file", where=what)
        return with_plugins(of_file(path), path, plugins, cni_path)
    if plugins:
        raise InputError(f"--plugin-dir is for a topology file; a scenario has {PLUGINS} beside it", where=what)
    return of_scenario(what, variant, settings)


def with_plugins(found: Found, path: Path, directories: Sequence[Path], cni_path: str) -> Found:
    """Return the source with the user's CNI plugins: those in `cni-plugins` beside the topology file and in other
    directories whole, from those of CNI_PATH the ones that conflists beside it name."""
    beside = path.parent / PLUGINS
    conflists = [file for pattern in ("*.conflist", "*.conf") for file in sorted(path.parent.glob(pattern))]
    whole = [*([beside] if beside.is_dir() else []), *directories]
    plugins = networks.own_plugins(conflists, whole, cni_path)
    programs, executable, own = networks.sent(plugins)
    for directory, names in plugins.items():
        log(f"your plugins of {directory}: {', '.join(names)}")
    return replace(
        found,
        files={**found.files, **programs},
        executable=[*found.executable, *executable],
        asked={**found.asked, "plugins": own},
    )


def of_file(path: Path) -> Found:
    data = files.read(path)
    name = topology_name(data, path)
    found = Found(name, str(path), {path.name: data}, {"topology": path.name}, below(path.parent))
    if b"image" not in data:
        return found
    plan = questions.plan(path)  # others are planned by the lab's machine alone
    bound = bound_files.collect(path, plan["binds"])
    return replace(
        found,
        images=plan["images"],
        files=bound.files,
        executable=bound.executable,
        asked={"topology": bound.topology},
        place=partial(_place, path, bound.topology),
    )


def _place(path: Path, name: str, where: str) -> str:
    """Return the user's place for one in the lab's topology file."""
    return f"{path}{where.removeprefix(name)}" if where.startswith(name) else where


def topology_name(data: bytes, path: Path) -> str:
    """Return the name in a file, as far as it can be read without a check; else the name of the file."""
    for line in data.decode(errors="replace").splitlines():
        key, colon, value = line.partition(":")
        if key == "name" and colon:
            return value.partition(" #")[0].strip().strip("'\"")
    return path.name.partition(".")[0]


def of_scenario(what: str, variant: str | None, settings: Mapping[str, str]) -> Found:
    source = scenarios.resolve(what)
    [info] = asyncio.run(options.described([(source, settings)], [variant] if variant else []))
    chosen = runs.choose(info, [variant] if variant else [])[0].variant
    found = source.files()
    asked = {"scenario": source.file.name, "variant": chosen["name"], "settings": chosen["settings"]}
    shown = f"{info['name']} {chosen['name']}"
    needs = info["packages"], info["images"]
    return Found(info["name"], shown, found, asked, source.place, source.executable(found), *needs)
