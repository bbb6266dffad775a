"""Files as text, places in a text, and values in messages."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Protocol

from testbed.errors import InputError, did_you_mean

MAX_BYTES = 1 << 20

Path = tuple[str | int, ...]
"""Keys and indices from the top of the document: ``("topology", "links", 0, "vlan")``."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a text; both numbers count from 1."""

    line: int
    column: int

    @classmethod
    def of(cls, text: str | bytes, offset: int) -> Mark:
        newline = "\n" if isinstance(text, str) else b"\n"
        before = text[:offset]
        return cls(before.count(newline) + 1, offset - before.rfind(newline))  # type: ignore[arg-type]


class Document(Protocol):
    """A parsed file. `source` is the name of the text in errors: a file's name, or any other."""

    source: str

    def find(self, path: Path, *, key: bool = False) -> Mark:
        """Return the place of the value at `path` (or of its key), else of the nearest thing around it."""


def place(source: str, mark: Mark) -> str:
    return f"{source}:{mark.line}:{mark.column}"


def read(file: FilePath, what: str, pattern: str) -> bytes:
    """Read a file of MAX_BYTES at most, a `what` like `pattern`. Never wait: pipes and devices are refused."""
    source = str(file)
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            inside = sorted(file.glob(pattern))
            hint = f"Give the file, for example {inside[0]}" if inside else "Give the file."
            if (file / "lab.conf").exists():
                hint = f"It is a Kathará lab: testbed topology from-kathara {file} -o lab.clab.yml"
            raise InputError(f"is a directory; expected a {what}", where=source, hint=hint)
        if not stat.S_ISREG(mode):
            raise InputError("is not a regular file", where=source)
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        names = [path.name for path in sorted(file.parent.glob(pattern))]
        hint = f"{did_you_mean(file.name, names)}{what.capitalize()}s in {file.parent}: {listing(names)}."
        raise InputError("no such file", where=source, hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot be read: {reason}", where=source) from None
    check_size(data, source, what)
    return data


def check_size(data: bytes | str, source: str, what: str) -> None:
    if len(data) > MAX_BYTES:
        raise InputError(f"larger than {MAX_BYTES >> 20} MiB, the limit for a {what}", where=source)


def decode(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise InputError(wrong, where=place(source, Mark.of(data, error.start))) from None


def listing(items: Iterable[object], limit: int = 20) -> str:
    """Return `a, b, c`, shortened when there are many."""
    names = [str(item) for item in items]
    return ", ".join(names[:limit]) + (f", … ({len(names)} in all)" if len(names) > limit else "") if names else "none"


def choices(name: object, known: Sequence[str]) -> str:
    """Return the end of a message: the known names, and those that `name` may mean."""
    return f"{listing(known)}{did_you_mean(name, known, aside=True)}"


def quoted(name: object) -> str:
    """Return a name for an error message, cut when it is long."""
    text = str(name)
    return repr(text if len(text) <= 64 else text[:61] + "...")


def describe(value: Any) -> str:
    """Return a value for an error message: its kind, and a short form of a scalar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)
