"""Problems of a document, collected so that a person fixes a file once and not five times."""

from dataclasses import dataclass

from pydantic_core import ErrorDetails

from testbed.documents.text import Document, Mark, Path, choices, describe, place, quoted
from testbed.errors import InputError, did_you_mean

MAX_SHOWN = 5
_MAX_KEPT = 100
"""Enough to sort and to count; a document with more is refused at once."""


@dataclass(frozen=True, slots=True)
class _Problem:
    mark: Mark
    where: str
    message: str


class Problems:
    """Collector of problems until `stop`, at lines and columns; without a document at ``name: topology.links[0]``."""

    def __init__(self, document: Document | None, name: str = "") -> None:
        self._document = document
        self._name = name
        self._found: list[_Problem] = []

    def add(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Add a problem. `at_key` points at the last key of `path` instead of its value."""
        mark, where = Mark(1, 1), ": ".join(filter(None, (self._name, dotted(path))))
        if self._document is not None:
            mark = self._document.find(path, key=at_key)
            where = place(self._document.source, mark)
        self._found.append(_Problem(mark, where, message))
        if len(self._found) >= _MAX_KEPT:
            self.stop()

    def place(self, path: Path) -> str:
        """Return the words for another place of the same file in a message."""
        return f"line {self._document.find(path).line}" if self._document else dotted(path)

    def stop(self, hint: str = "") -> None:
        """Raise InputError when there is any problem: the first by line, then up to four more, one a line."""
        if not self._found:
            return
        first, *others = sorted(dict.fromkeys(self._found), key=lambda problem: problem.mark)
        also = [(problem.where, problem.message) for problem in others[: MAX_SHOWN - 1]]
        if len(others) >= MAX_SHOWN:
            more = "many" if len(self._found) >= _MAX_KEPT else len(others) - MAX_SHOWN + 1
            also.append(("", f"… and {more} more"))
        raise InputError(first.message, where=first.where, also=also, hint=hint)


def dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "a string",
}


def wrong_value(detail: ErrorDetails, name: str) -> str:
    """Return the message for pydantic's error about the value of `name`."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        expected = context["expected"].replace("False", "false").replace("True", "true")  # as in documents
        known = [choice.strip("'") for choice in expected.replace(" or ", ", ").split(", ")]
        guess = did_you_mean(value, known, aside=True)
        return f"{name} must be {expected}, not {describe(value)}{guess}"
    if kind == "too_short":
        return f"too few entries in {name}: {context['actual_length']}, at least {context['min_length']}"
    if kind == "too_long":
        return f"too many entries in {name}: {context['actual_length']}, at most {context['max_length']}"
    if kind in _EXPECTED:
        quote = "; quote it" if kind == "string_type" and not isinstance(value, dict | list) else ""
        return f"{name} must be {_EXPECTED[kind]}, not {describe(value)}{quote}"
    return f"{name}: {detail['msg']}"


def unknown_key(key: object, name: str, allowed: list[str]) -> str:
    return f"unknown key {quoted(key)} in {name}; allowed: {choices(key, allowed)}"
