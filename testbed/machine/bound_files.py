"""The files of this machine that containers of a topology file mount: those that its binds name, and no others."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import InputError
from testbed.machine import files
from testbed.protocol import FILES_BYTES

NEVER = {".git", "__pycache__"}
"""Names that are not copied from a directory."""
KINDS = {stat.S_ISSOCK: "a socket", stat.S_ISFIFO: "a pipe", stat.S_ISBLK: "a device", stat.S_ISCHR: "a device"}


@dataclass
class Bound:
    """Files for a lab. A name that ends with a slash is an empty directory."""

    topology: str
    """The path of the topology file among them."""
    files: dict[str, bytes] = field(default_factory=dict)
    executable: list[str] = field(default_factory=list)


def collect(topology: Path, binds: Mapping[str, str]) -> Bound:
    """Return the topology file with the files of its binds, which have the paths in a lab by their names in the file
    (PlanInfo). Those from the root or from a home directory have others than here.

    InputError for what is not there, is no file or directory, leads out of the tree by a link, or is too large.
    """
    base = Path(os.path.abspath(topology.parent))
    relative = [source for source, name in binds.items() if source == name]
    above = max((Path(source).parts.count("..") for source in relative), default=0)  # a normal path has them in front
    if above >= len(base.parts):
        raise InputError(f"a bind leads above the root: {max(relative, key=len)}", where=str(topology))
    inside = Path(*base.parts[len(base.parts) - above :])
    tree = Path(*base.parts[: len(base.parts) - above])
    bound = Bound(str(inside / topology.name))
    bound.files[bound.topology] = files.read(topology)
    for source, name in binds.items():
        outside = source != name
        path = Path(source).expanduser() if outside else Path(os.path.normpath(base / source))
        with files.reading(path):
            path.stat()
        _add(bound, path, os.path.normpath(inside / name), path.resolve() if outside else tree.resolve())
    return bound


def _add(bound: Bound, path: Path, name: str, tree: Path) -> None:
    for file, inner in _below(path, name, tree, ()):
        if inner.endswith("/"):
            bound.files[inner] = b""
            continue
        with files.reading(file):
            size = file.stat().st_size
        total = sum(map(len, bound.files.values())) + size
        if total > FILES_BYTES:
            text = f"the bind of {path} is too large: with it a lab has more than {FILES_BYTES >> 20} MiB"
            raise InputError(text, where=str(file), hint=f"This file has {size >> 20} MiB. {files.SMALLER}")
        bound.files[inner] = files.read(file)
        if files.can_be_executed(file):
            bound.executable.append(inner)


def _below(path: Path, name: str, tree: Path, around: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    """Yield a file, or the files of a directory, with their names in a lab."""
    real = path.resolve()
    if not real.is_relative_to(tree):
        raise InputError(f"is a link to {real}, outside of {tree}", where=str(path), hint="Copy the file.")
    with files.reading(path):
        mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        yield path, name
        return
    if not stat.S_ISDIR(mode):
        kind = next((text for is_kind, text in KINDS.items() if is_kind(mode)), "no file")
        raise InputError(f"is {kind} of this machine, which a lab cannot have", where=str(path))
    if real in around:
        raise InputError("is a link to a directory that it is in", where=str(path), hint="Remove it.")
    with files.reading(path):
        inner = sorted(entry for entry in os.listdir(path) if entry not in NEVER)
    if not inner:
        yield path, f"{name}/"
    for entry in inner:
        yield from _below(path / entry, f"{name}/{entry}", tree, (*around, real))
