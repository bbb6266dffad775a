"""Reading of a file, with pydantic's errors as ours, with line and column."""

from pathlib import Path as FilePath
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.documents import text
from testbed.documents.problems import Problems, unknown_key, wrong_value
from testbed.documents.text import Mark, Path, describe, place, quoted
from testbed.documents.yaml import YamlDocument, parse
from testbed.errors import InputError
from testbed.topology import notes
from testbed.topology.models import Place, place_of

Model = TypeVar("Model", bound=BaseModel)


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


def validate(model: type[Model], document: YamlDocument) -> tuple[Model, list[notes.Note]]:
    """Return the document as `model`, the model of a whole file, and the keys in it that have no effect."""
    problems = Problems(document)
    value = document.value()
    if not isinstance(value, dict):
        problems.add((), f"a topology must be a mapping with 'name' and 'topology', not {describe(value)}")
        problems.stop()
    found = notes.take_out(value, document, model)
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
    allowed = sorted(around.model.model_fields)
    if key in around.refused:
        refusal = f"containerlab's key {quoted(key)} is not supported in {around.name}: {around.refused[str(key)]}"
        return f"{refusal}; supported: {', '.join(allowed)}"
    return unknown_key(key, around.name, allowed)
