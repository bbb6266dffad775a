"""The size of a tool's result, and what a terminal or a model must not get of a lab's text."""

import json
from typing import Any

from testbed.cli.words import plain_lines

RESULT = 20_000
"""Characters of a result, as JSON."""
CELL = 1_000
"""Characters of a text in a row."""
ROWS = 500
"""Rows that a tool gives at most."""
PAGE = 100_000
"""Characters of a resource: a page of the documentation, a topology."""
LEFT_OUT = "left_out"
"""The key of a result with the number of its rows that are left out."""


def clean(value: Any) -> Any:
    """Return a value of JSON with its texts as the command prints them: without control characters, lines kept."""
    match value:
        case str():
            return plain_lines(value)
        case dict():
            return {plain_lines(str(key)): clean(one) for key, one in value.items()}
        case list() | tuple():
            return [clean(one) for one in value]
        case _:
            return value


def bounded(result: dict[str, Any], *, newest_last: bool = False) -> dict[str, Any]:
    """Return a clean result of at most RESULT characters of JSON: long texts lose their middle, then lists and objects
    their last rows, or their first ones if the newest are last. `left_out` counts these rows."""
    found = {key: cut(clean(value), RESULT // 2 if isinstance(value, str) else CELL) for key, value in result.items()}
    while (excess := size(found) - RESULT) > 0:
        longest = max(found, key=lambda key: size(found[key]))
        value = found[longest]
        if isinstance(value, str):
            found[longest] = shortened(value, max(0, len(value) - excess))
            continue
        rows = list(value.items() if isinstance(value, dict) else value)
        kept = fitting(rows[::-1] if newest_last else rows, size(value) - excess)
        found[LEFT_OUT] = found.get(LEFT_OUT, 0) + len(rows) - len(kept)
        found[longest] = type(value)(kept[::-1] if newest_last else kept)
    return found


def size(value: Any) -> int:
    return len(compact(value))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cut(value: Any, most: int) -> Any:
    """Return a value of JSON whose texts have at most `most` characters."""
    match value:
        case str():
            return shortened(value, most)
        case dict():
            return {key: cut(one, most) for key, one in value.items()}
        case list():
            return [cut(one, most) for one in value]
        case _:
            return value


def shortened(text: str, most: int) -> str:
    """Return a text without its middle, if it has more than `most` characters."""
    if len(text) <= most:
        return text
    gap = left_out(len(text))
    kept = max(0, most - len(gap))
    begin = kept // 2
    return text[:begin] + left_out(len(text) - kept) + text[len(text) - (kept - begin) :]


def left_out(count: int, what: str = "characters") -> str:
    return f"\n… {count} {what} left out …\n"


def fitting(rows: list[Any], most: int) -> list[Any]:
    """Return the first rows that have at most `most` characters together, one less than all at least."""
    kept, used = [], 2
    for row in rows[:-1]:
        used += size(row) + 1
        if used > most:
            break
        kept.append(row)
    return kept


class Ends:
    """The beginning and the end of a stream of bytes, of any length, in little memory."""

    def __init__(self, most: int) -> None:
        """`most` are the bytes of each."""
        self._most = most
        self._begin = self._end = b""
        self._count = 0

    def write(self, data: bytes) -> None:
        self._count += len(data)
        room = self._most - len(self._begin)
        self._begin += data[:room]
        self._end = (self._end + data[room:])[-self._most :]

    def text(self) -> str:
        gap = self._count - len(self._begin) - len(self._end)
        between = left_out(gap, "bytes").encode() if gap else b""
        return (self._begin + between + self._end).decode(errors="replace")
