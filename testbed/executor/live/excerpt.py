"""What came back from a command, as a text for people: the begin and the end of it."""

import re

MOST = 2000
"""Bytes kept of the begin, and of the end."""
ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
"""A terminal's commands (ECMA-48): colours, movements, titles."""


class Excerpt:
    """The begin and the end of an output, however long it is."""

    def __init__(self) -> None:
        self._head, self._tail, self._length = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        self._length += len(data)
        room = MOST - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        del self._tail[:-MOST]

    def text(self) -> str:
        """Return it without a terminal's commands, with a line that says how much is left out."""
        left_out = self._length - len(self._head) - len(self._tail)
        gap = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        text = bytes(self._head + gap + self._tail).decode(errors="replace")
        return ESCAPE.sub("", text).replace("\r\n", "\n").strip("\n")
