"""The keys of a file without an effect in a lab: removed before validation, and noted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from testbed.documents.text import Document, Path, place
from testbed.errors import nearest
from testbed.topology.kinds import KINDS
from testbed.topology.models import place_of

_KEPT = ("labels",)
"""The keys that are noted, and checked by the models."""


@dataclass(frozen=True, slots=True)
class Note:
    """A key of a file without an effect in a lab. `lines` has the line of each place, `where` is the first one."""

    key: str
    where: str
    text: str
    lines: tuple[int, ...]


def note(document: Document, key: str, text: str, paths: list[Path]) -> Note:
    marks = sorted(document.find(path, key=True) for path in paths)
    return Note(key, place(document.source, marks[0]), text, tuple(dict.fromkeys(mark.line for mark in marks)))


def take_out(value: dict[Any, Any], document: Document, file: type[BaseModel]) -> list[Note]:
    """Remove from a file's value the keys that are noted, except those that the models have too, and the entries of
    `kinds` that are neither known nor misspelled. `file` is the model of the whole file."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path, mapping in _mappings(value, ()):
        noted = there.noted if (there := place_of(path, file)) else {}
        if path == ("topology", "kinds"):
            foreign = [kind for kind in mapping if kind not in KINDS and nearest(str(kind), KINDS) is None]
            noted = dict.fromkeys(foreign, "a lab has no nodes of this kind")
        for key in [key for key in mapping if key in noted and not _matters(key, mapping[key])]:
            found.setdefault((str(key), noted[key]), []).append((*path, key))
            if key not in _KEPT:
                del mapping[key]
    notes = [note(document, key, f"{key!r} has no effect: {reason}", paths) for (key, reason), paths in found.items()]
    return sorted(notes, key=lambda note: note.lines)


def _mappings(value: Any, path: Path) -> Iterator[tuple[Path, dict[Any, Any]]]:
    if isinstance(value, dict):
        yield path, value
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _mappings(item, (*path, key))


def _matters(key: str | int, value: Any) -> bool:
    """Return whether a noted key has a value that changes the lab."""
    if key == "network-mode":
        return not isinstance(value, str | None) or (value or "").startswith("container:")
    if key == "stages":
        stages = value.values() if isinstance(value, dict) else ()
        return any(isinstance(stage, dict) and stage.get("exec") for stage in stages)
    return False
