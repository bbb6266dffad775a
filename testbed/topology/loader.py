"""Reading of a file, with pydantic's errors as ours, with line and column, and its notes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.documents import text
from testbed.documents.problems import Problems, unknown_key, wrong_value
from testbed.documents.text import Document, Mark, Path, describe, place, quoted
from testbed.documents.variables import Variable
from testbed.documents.yaml import YamlDocument, parse
from testbed.errors import InputError, nearest
from testbed.topology import containerlab
from testbed.topology.kinds import KINDS
from testbed.topology.models import Place, place_of

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
    `kinds` that are neither known nor misspelled. Rename old keys. `file` is the model of the whole file."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path, mapping in _mappings(value, ()):
        noted = there.noted if (there := place_of(path, file)) else {}
        for old, new in containerlab.RENAMED.items():
            if there and old in mapping and new not in mapping:
                mapping[new] = mapping.pop(old)
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
    return key == "network-mode" and value != "host"


def other_format(value: dict[Any, Any]) -> tuple[str, str] | None:
    """Return what a file of another tool is, and the way from there; None for a topology, also a wrong one."""
    if value.get("type") == "topology" and "project_id" in value:
        text = "this is a project of GNS3, whose nodes are images of machines and routers that a lab does not run"
        return text, "Write its links as a topology file with `linux` nodes: docs/mininet.md, Files of containerlab."
    if "topology" not in value and "nodes" in value and ({"module", "provider", "defaults", "links"} & value.keys()):
        text = "this is a topology of netlab, which writes a file for containerlab from it"
        return text, "Run `netlab create --provider clab FILE`, and use the clab.yml that it writes."
    return None


Model = TypeVar("Model", bound=BaseModel)


def notes_on(variables: list[Variable], source: str) -> list[Note]:
    """Return a note for each variable whose default was read."""
    text = "${{{0}}} is {1!r} here: the default in the file, since a lab does not depend on anybody's environment"
    found: dict[tuple[str, str], list[Mark]] = {}
    for variable in variables:
        found.setdefault((variable.name, variable.default), []).append(variable.mark)
    return [
        Note(key[0], place(source, marks[0]), text.format(*key), tuple(dict.fromkeys(mark.line for mark in marks)))
        for key, marks in found.items()
    ]


def read(file: FilePath) -> str:
    """Return the text of a topology file."""
    data = text.read(file, "topology file", "*.y*ml")
    return text.decode(data, str(file)).removeprefix("\ufeff")


def document(text: str, source: str) -> YamlDocument:
    """Return the one document of a topology."""
    found = parse(text, source, "a topology")
    if not found:
        wrong = "the file is empty; a topology needs 'name' and 'topology'"
        raise InputError(wrong, where=place(source, Mark(1, 1)))
    if len(found) > 1:
        second = place(source, found[1].find(()))
        raise InputError("a topology must be one YAML document; a second one starts here", where=second)
    return found[0]


def validate(model: type[Model], document: YamlDocument) -> tuple[Model, list[Note]]:
    """Return the document as `model`, the model of a whole file, and the keys in it that have no effect."""
    problems = Problems(document)
    value = document.value()
    if not isinstance(value, dict):
        problems.add((), f"a topology must be a mapping with 'name' and 'topology', not {describe(value)}")
        problems.stop()
    if way := other_format(value):
        raise InputError(way[0], where=place(document.source, Mark(1, 1)), hint=way[1])
    found = take_out(value, document, model)
    if isinstance(value.get("mgmt"), list) and value["mgmt"]:
        text = "'mgmt': a lab has one management network, the first of the list"
        found.append(note(document, "mgmt", text, [("mgmt",)]))
        value["mgmt"] = value["mgmt"][0]
    try:
        return model.model_validate(value), found
    except ValidationError as error:
        for detail in _causes(error.errors(include_url=False)):
            _explain(detail, problems, model)
    problems.stop()
    raise AssertionError("a ValidationError without errors")


def _causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drop the other errors of a link whose type is unknown: they follow from its type."""
    foreign = [detail["loc"] for detail in details if detail["loc"][-1] == "type" and detail["loc"][1:2] == ("links",)]
    return [
        detail for detail in details if detail["loc"] in foreign or detail["loc"][:3] not in {x[:3] for x in foreign}
    ]


def _explain(detail: ErrorDetails, problems: Problems, file: type[BaseModel]) -> None:
    loc: Path = detail["loc"]
    at_key = loc[-1:] == ("[key]",)
    path = loc[:-1] if at_key else loc
    kind = detail["type"]
    around = place_of(path[:-1], file)
    if around and kind in ("extra_forbidden", "invalid_key"):  # the latter is a key that is no string
        problems.add(path, _unknown_key(path[-1], around), at_key=True)
    elif around and kind == "missing":
        problems.add(path[:-1], f"{around.name} lacks the key {path[-1]!r}")
    else:
        problems.add(path, wrong_value(detail, _name(path, at_key)), at_key=at_key)


def _name(path: Path, at_key: bool) -> str:
    if at_key:
        return f"key {quoted(path[-1])}"
    return f"an entry of {quoted(path[-2])}" if isinstance(path[-1], int) else quoted(path[-1])


def _unknown_key(key: object, around: Place) -> str:
    allowed = sorted(field.alias or name for name, field in around.model.model_fields.items())
    if key in around.refused:
        refusal = f"containerlab's key {quoted(key)} is not supported in {around.name}: {around.refused[str(key)]}"
        return f"{refusal}; supported: {', '.join(allowed)}"
    return unknown_key(key, around.name, allowed)
