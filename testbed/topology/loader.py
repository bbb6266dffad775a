"""Reading a file, and turning pydantic's errors into ours, with the line and column of the culprit."""

from __future__ import annotations

import stat
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.errors import InputError
from testbed.topology import containerlab
from testbed.topology.containerlab import Note
from testbed.topology.document import MAX_BYTES, Document, Path, describe, quoted
from testbed.topology.models import Place, place_of
from testbed.topology.problems import Problems, closest, listing
from testbed.topology.values import KINDS

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "a string",
}


def read(file: FilePath) -> str:
    """The text of a topology file. Bounded, and never waits: pipes and devices are refused."""
    source = str(file)
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            inside = sorted(file.glob("*.clab.y*ml"))
            raise InputError(
                "is a directory, not a topology file",
                where=source,
                hint=f"Give the file, for example {inside[0] if inside else file / 'topology.clab.yml'}",
            )
        if not stat.S_ISREG(mode):
            raise InputError("is not a regular file", where=source)
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        names = [path.name for path in sorted(file.parent.glob("*.y*ml"))]
        hint = f"Topology files in {file.parent}: {listing(names)}{closest(file.name, names)}"
        raise InputError("no such file", where=source, hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot be read: {reason}", where=source) from None
    if len(data) > MAX_BYTES:
        raise InputError(f"the file is larger than {MAX_BYTES >> 20} MiB, the limit for a topology", where=source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise InputError(f"byte 0x{data[error.start]:02x} is not UTF-8", where=f"{source}:{line}:{column}") from None


def validate(model: type[Model], document: Document) -> tuple[Model, list[Note]]:
    """The document as `model`, the model of a whole file, and the keys in it that have no effect."""
    problems = Problems(document)
    value = document.value()
    if not isinstance(value, dict):
        problems.add((), f"a topology is a mapping with 'name' and 'topology', not {describe(value)}")
        problems.stop()
    notes = containerlab.pass_over(value, document, KINDS)
    try:
        return model.model_validate(value), notes
    except ValidationError as error:
        for detail in _causes(error.errors(include_url=False)):
            _explain(detail, problems, ("the file", model, {}))
    problems.stop()
    raise AssertionError("a ValidationError without errors")


def _causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """What else is wrong with a link of a type that there is not follows from its type."""
    foreign = [detail["loc"] for detail in details if detail["loc"][-1] == "type" and detail["loc"][1:2] == ("links",)]
    return [
        detail for detail in details if detail["loc"] in foreign or detail["loc"][:3] not in {x[:3] for x in foreign}
    ]


def _explain(detail: ErrorDetails, problems: Problems, top: Place) -> None:
    loc: Path = detail["loc"]
    at_key = loc[-1:] == ("[key]",)
    path = loc[:-1] if at_key else loc
    kind = detail["type"]
    if kind in ("extra_forbidden", "invalid_key"):  # the latter is one that is no string
        problems.add(path, _unknown_key(path, top), at_key=True)
    elif kind == "missing":
        name, _, _ = place_of(path[:-1], top)
        problems.add(path[:-1], f"{name} lacks the key {path[-1]!r}")
    else:
        problems.add(path, _wrong_value(detail, path, at_key), at_key=at_key)


def _unknown_key(path: Path, top: Place) -> str:
    name, model, foreign = place_of(path[:-1], top)
    key, allowed = path[-1], sorted(model.model_fields)
    if key in foreign:
        refusal = f"containerlab's key {quoted(key)} is not supported in {name}: {foreign[key]}"
        return f"{refusal}; supported: {', '.join(allowed)}"
    return f"unknown key {quoted(key)} in {name}; allowed: {', '.join(allowed)}{closest(key, allowed)}"


def _wrong_value(detail: ErrorDetails, path: Path, at_key: bool) -> str:
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "value_error":
        return str(context["error"])
    name = f"key {quoted(path[-1])}" if at_key else quoted(path[-1])
    if isinstance(path[-1], int) and not at_key:
        name = f"an entry of {quoted(path[-2])}"
    if kind == "literal_error":
        return f"{name} must be {context['expected']}, not {describe(value)}{closest(value, _choices(context))}"
    if kind == "too_short":
        return f"too few entries in {name}: {context['actual_length']}, at least {context['min_length']}"
    if kind == "too_long":
        return f"too many entries in {name}: {context['actual_length']}, at most {context['max_length']}"
    if kind in _EXPECTED:
        quote = "; quote it" if kind == "string_type" and not isinstance(value, dict | list) else ""
        return f"{name} must be {_EXPECTED[kind]}, not {describe(value)}{quote}"
    return f"{name}: {detail['msg']}"


def _choices(context: dict[str, Any]) -> list[str]:
    return [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")]
