"""Numbers and foreign text for people."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.protocol import Note

MINUTE, HOUR, DAY = 60, 3600, 86400
MAX_LINES = 5
"""Maximum of further lines that a note names."""


def duration(seconds: float) -> str:
    """Return `85 ms`, `1.24 s`, `25 min 03 s`, `4 h 00 min 03 s`, `7 d 00 h 00 min`; `3 s` for an integer."""
    if 0 < seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} µs"
    if 0 < seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < MINUTE - 0.005:
        return f"{seconds:g} s" if isinstance(seconds, int) or not seconds else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min {whole % MINUTE:02} s"
    return f"{whole // DAY} d {whole % DAY // HOUR:02} h {whole % HOUR // MINUTE:02} min"


def clock(nanoseconds: int) -> str:
    """Return a virtual time for a column: `0:00:01.240`, `4:00:03.124`."""
    milliseconds = nanoseconds // 1_000_000
    seconds = milliseconds // 1000
    return f"{seconds // HOUR}:{seconds % HOUR // MINUTE:02}:{seconds % MINUTE:02}.{milliseconds % 1000:03}"


def size(count: int) -> str:
    """Return bytes as `1.3 GB`, `250 MB`, `12 kB`."""
    for unit, factor in ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000):
        number = count / factor
        if number >= 0.9995:
            return f"{number:.1f} {unit}" if number < 9.95 else f"{number:.0f} {unit}"
    return f"{count} B"


def setting(value: Any) -> str:
    """Return a parameter's value as it is written behind `KEY=`."""
    return plain(json.dumps(value, ensure_ascii=False).strip('"'))


def noted(note: Note) -> str:
    """Return a note on a topology file as one line."""
    others = [str(line) for line in note["lines"][1:]]
    shown = ", ".join(others[:MAX_LINES]) + (f" and {len(others) - MAX_LINES} more" if others[MAX_LINES:] else "")
    also = f" (also in line{'s' if len(others) > 1 else ''} {shown})" if others else ""
    return plain(f"note: {note['where']}: {note['text']}{also}")


def plain(text: object) -> str:
    """Return text from a guest or a file as one line, without terminal control characters."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def plain_lines(text: str) -> str:
    """Return such text with its lines kept."""
    return "\n".join(plain(line.expandtabs()) for line in re.split(r"\r?\n", text.removesuffix("\n")))
