"""What is wrong with a topology, collected so that a person mends a file once and not five times."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.errors import InputError, nearest
from testbed.topology.document import Document, Mark, Path

MAX_SHOWN = 5
_MAX_KEPT = 100
"""Enough to sort and to count; a file with more is refused without looking further."""
_MAX_COMPARED = 200


def closest(name: object, allowed: Iterable[object]) -> str:
    """`; did you mean 'x'?` when something allowed is near, else nothing."""
    near = nearest(str(name), map(str, itertools.islice(allowed, _MAX_COMPARED)))
    return f"; did you mean {near!r}?" if near else ""


def listing(items: Iterable[object], limit: int = 20) -> str:
    """`a, b, c`, shortened when there are many."""
    names = [str(item) for item in items]
    return ", ".join(names[:limit]) + (f", … ({len(names)} in all)" if len(names) > limit else "") if names else "none"


@dataclass(frozen=True, slots=True)
class _Problem:
    mark: Mark
    where: str
    message: str


class Problems:
    """Collects problems until `stop`. Places are lines and columns, or without a document ``topology.links[0]``."""

    def __init__(self, document: Document | None) -> None:
        self._document = document
        self._found: list[_Problem] = []

    def add(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """`at_key` points at the last key of `path` instead of its value."""
        mark, where = Mark(1, 1), _dotted(path)
        if self._document is not None:
            mark = self._document.find(path, key=at_key)
            where = f"{self._document.source}:{mark.line}:{mark.column}"
        self._found.append(_Problem(mark, where, message))
        if len(self._found) >= _MAX_KEPT:
            self.stop()

    def place(self, path: Path) -> str:
        """How a message refers to another place of the same file."""
        return f"line {self._document.find(path).line}" if self._document else _dotted(path)

    def stop(self) -> None:
        """Raise InputError when there is any problem: the first by line, then up to four more, one a line."""
        if not self._found:
            return
        first, *others = sorted(dict.fromkeys(self._found), key=lambda problem: problem.mark)
        also = [(problem.where, problem.message) for problem in others[: MAX_SHOWN - 1]]
        if len(others) >= MAX_SHOWN:
            more = "many" if len(self._found) >= _MAX_KEPT else len(others) - MAX_SHOWN + 1
            also.append(("", f"… and {more} more"))
        raise InputError(first.message, where=first.where, also=also)


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
