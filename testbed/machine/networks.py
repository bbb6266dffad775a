"""A user's conflist on a machine: `testbed cni`."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.machine import child_processes, files
from testbed.machine.jobs import Job, Machine, below
from testbed.machine.local import LocalMachine
from testbed.protocol import FILES_BYTES, CniAnswer
from testbed.protocol.requests import Cni

Plugins = Mapping[Path, Sequence[str]]
"""The user's directories, and the files of each that are sent."""
LIMIT_S = 3600.0
"""The machine's own seconds; a plugin's deadline ends what hangs long before."""
PLUGIN = re.compile(r"[\w.+-]{1,100}")
NETWORK = re.compile(r"[a-zA-Z0-9][\w.-]*")
OWN = ".cni-plugins"
"""Directory of the user's plugins among a job's files, with a numbered one for each of the user's directories."""


async def load(request: Cni) -> None:
    """Raise what is wrong in a request's files and names, as far as it can be checked without a machine."""
    with child_processes.scratch() as out:
        await use(replace(request, command="load"), {}, LocalMachine(), 0, out)


def own_plugins(conflists: Sequence[Path], whole: Sequence[Path], path: str) -> Plugins:
    """Return the user's plugins to send: all files in the directories `whole`; from those of `path` (CNI_PATH) only the
    plugins that the conflists name and files that are no programs, such as a script's modules: all programs may be
    hundreds of MiB."""
    found: dict[Path, list[str]] = {}
    for directory in whole:
        if not directory.is_dir():
            raise InputError("is no directory", where=str(directory))
        found[directory] = list(files.below(directory))
        if not files.executable(directory, found[directory]):
            raise InputError("it contains no executable file", where=str(directory), hint="chmod +x the plugin.")
    named: set[str] = set()
    for conflist in conflists:
        data = files.read(conflist)
        named = _types(data).union(
            named, *(_types(files.read(conflist.parent / one)) for one in _beside(conflist, data))
        )
    for directory in (Path(part) for part in path.split(":") if part):
        plugins = {name for name in named if (directory / name).is_file()}
        if plugins and directory not in found:
            with files.reading(directory):
                beside = {file.name for file in directory.iterdir() if file.is_file() and file.name[0] != "."}
            found[directory] = sorted(plugins | beside - {*files.executable(directory, beside)})
    return {directory: names for directory, names in found.items() if names}


def _beside(conflist: Path, data: bytes) -> list[Path]:
    """Return the files in the network's directory beside the conflist, where libcni finds more plugins."""
    try:
        name = json.loads(data)["name"]
        known = NETWORK.fullmatch(name)
    except (ValueError, RecursionError, LookupError, TypeError):  # the inside reports the error
        return []
    found = (conflist.parent / name).glob("*.conf") if known else []
    return sorted(file.relative_to(conflist.parent) for file in found)


def _types(conflist: bytes) -> set[str]:
    """Return plugin names at any depth of a conflist (IPAM's are nested). None in invalid JSON: see `load`."""
    found = set()

    def collect(value: dict[str, Any]) -> None:
        kind = value.get("type")
        if isinstance(kind, str) and PLUGIN.fullmatch(kind):
            found.add(kind)

    try:
        json.loads(conflist, object_hook=collect)
    except (ValueError, RecursionError):
        return set()
    return found


def sent(plugins: Plugins) -> tuple[dict[str, bytes], list[str], list[str]]:
    """Return the files of plugins for a job, the executable ones, and the directories to search for them."""
    found: dict[str, bytes] = {}
    executable: list[str] = []
    for number, (directory, names) in enumerate(plugins.items()):
        found |= {f"{OWN}/{number}/{name}": files.read(directory / name) for name in names}
        executable += [f"{OWN}/{number}/{name}" for name in files.executable(directory, names)]
    return found, executable, [f"{OWN}/{number}" for number in range(len(plugins))]


async def use(request: Cni, plugins: Plugins, machine: Machine, seed: int, out: Path) -> CniAnswer:
    """Run a request about the user's files on a machine. A CniError becomes a TestbedError of the same text."""
    conflist = Path(request.conflist)
    named = [conflist, *([Path(request.topology)] if request.topology else [])]
    top = Path(os.path.commonpath([file.resolve().parent for file in named]))
    inner = [str(file.resolve().relative_to(top)) for file in named]
    found = dict(zip(inner, map(files.read, named), strict=True))
    home = Path(inner[0]).parent
    found |= {str(home / file): files.read(conflist.parent / file) for file in _beside(conflist, found[inner[0]])}
    programs, executable, own = sent(plugins)
    found |= programs
    if (size := sum(map(len, found.values()))) > FILES_BYTES:
        message = f"the plugins have {size >> 20} MiB; a machine accepts {FILES_BYTES >> 20} MiB"
        raise InputError(message, where=", ".join(map(str, plugins)), hint=files.SMALLER)
    asked = replace(request, conflist=inner[0], topology=inner[1] if inner[1:] else None, plugins=own)
    job = Job([asked], found, executable, limit_s=LIMIT_S, seed=seed)
    await machine.run(job, out)
    return job.answer(about=conflist, place=below(_shown(conflist, top)))


def _shown(file: Path, top: Path) -> Path:
    """Return the directory `top` as the user, who wrote `file`, would write it."""
    return top if file.is_absolute() else Path(os.path.relpath(top))
