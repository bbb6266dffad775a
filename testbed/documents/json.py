"""JSON text as plain values, each with its place. Only standard JSON: no NaN, no comments."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from testbed.documents.problems import dotted, wrong_value
from testbed.documents.text import Mark, Path, check_size, decode, place
from testbed.errors import InputError

T = TypeVar("T")
_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class JsonDocument:
    """A JSON document. `source` is the name of the text in errors, `what` is the kind of file."""

    def __init__(self, data: bytes, source: str, what: str) -> None:
        check_size(data, source, what)
        self.source = source
        self._text = decode(data, source)
        self.value = loads(self._text, source)

    def find(self, path: Path, *, key: bool = False) -> Mark:
        """Return the place of the value at `path` (or of its key), else of the nearest thing around it."""
        return _find(self._text, path, key=key)


def value_of(text: str) -> Any:
    """Return a word of a command line as JSON if it is a number, a list, `true` …; else the text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def loads(text: str, source: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        comment = text[error.pos :].lstrip(", \t\r\n").startswith(("//", "/*", "#"))
        hint = "JSON has no comments; libcni refuses them too." if comment else ""
        where = place(source, Mark(error.lineno, error.colno))
        raise InputError(f"not valid JSON: {error.msg}", where=where, hint=hint) from None
    except RecursionError:
        raise InputError("nested too deeply", where=source) from None
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise InputError(f"not valid JSON: {error}", where=source) from None


def typed(
    text: str, wanted: TypeAdapter[T], source: str, worded: Callable[[ErrorDetails, str], str] = wrong_value
) -> T:
    """Return the value of a text that is a part of another document.

    InputError with all errors in it, `worded` from pydantic's error and the name of the value, at the place of the
    first.
    """
    try:
        return wanted.validate_python(loads(text, source))
    except ValidationError as error:
        found = error.errors(include_url=False)
        wrong = [worded(one, dotted(one["loc"]) or "it") for one in found]
        where = place(source, _find(text, found[0]["loc"]))
        raise InputError("; ".join(wrong), where=where) from None


def _find(text: str, path: Path, *, key: bool = False) -> Mark:
    mark = at = _skip(text, 0)
    for step in path:
        # The last one of equal keys counts.
        found = [entry[1:] for entry in _entries(text, at) if entry[0] == step]
        if not found:
            break
        key_at, at = found[-1]
        mark = key_at if key else at
    return Mark.of(text, mark)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _entries(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield each key or index of the object or list at `at`, and the places of key and value. The text is valid."""
    if text[at] not in "{[":
        return
    is_object, index = text[at] == "{", 0
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        key_at, key = at, index
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # behind the colon
        yield key, key_at, at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1


def _skip(text: str, at: int) -> int:
    return _WHITE_SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
