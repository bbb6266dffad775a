"""A command under a terminal of its own, as a person has it."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
PATIENCE_S = 300
"""Wall seconds for anything to be shown: it bounds a hang and is no measure of speed."""


class Terminal:
    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int] = (24, 80)):
        self.raw = b""
        """All that was written, as it was."""
        self.pid, self._file = pty.fork()
        if not self.pid:
            set_size(0, *size)
            os.chdir(cwd)
            os.execvpe(command[0], list(command), {**env, "TERM": "xterm-256color"})  # noqa: S606 (no shell is wanted)
        os.set_blocking(self._file, False)
        self._from = 0

    @property
    def text(self) -> str:
        """All that was written, without colours."""
        return ESCAPES.sub(b"", self.raw).decode(errors="replace").replace("\r", "")

    def resize(self, rows: int, columns: int) -> None:
        set_size(self._file, rows, columns)

    def send(self, text: str) -> None:
        """Types it, and takes what comes meanwhile: a command that nobody reads from does not read either."""
        left, deadline = text.encode(), time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < deadline, f"nobody reads what is typed: {self.text[-2000:]!r}"
            if select.select([self._file], [self._file], [], 0.05)[1]:
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._file, left) :]
            self.read(0)

    def expect(self, pattern: str, within: float = PATIENCE_S) -> re.Match[str]:
        """Waits for what follows the last thing expected."""
        deadline = time.monotonic() + within
        while not (found := re.compile(pattern, re.MULTILINE).search(self.text, self._from)):
            assert time.monotonic() < deadline, f"{pattern!r} does not come: {self.text[self._from :][-2000:]!r}"
            self.read(0.1)
        self._from = found.end()
        return found

    def read(self, within: float) -> int:
        """Takes what comes in that time, at once when something does; its length, or -1 at the end."""
        if not select.select([self._file], [], [], within)[0]:
            return 0
        try:
            data = os.read(self._file, 1 << 16)
        except OSError:
            data = b""
        self.raw += data
        return len(data) or -1

    def status(self) -> int:
        """Its exit status, when it has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0) > 0:
                    pass
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it goes on: {self.text[-2000:]!r}")

    def close(self) -> None:
        """Takes the terminal away, as closing its window does."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def end(self) -> None:
        self.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
