"""Signals that end the command: one way out for all of them, whatever they meet, and no traceback."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Each of the signals interrupts as Ctrl-C does. Which came first is known also where the exception got lost, or
    became another one, on its way through what was to be cleaned up."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        for end in self._read, write:
            os.set_blocking(end, False)
        self._came = b""
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # only this one has asyncio cancel its task instead
        for number in ENDING[1:]:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
        sys.unraisablehook = lambda found: None if self.first else sys.__unraisablehook__(found)
        logging.getLogger("asyncio").addFilter(lambda _: not self.first)

    @property
    def first(self) -> int:
        """The number of the signal that came first; 0 if none did."""
        with contextlib.suppress(BlockingIOError):
            self._came += os.read(self._read, 1024)
        return next((number for number in self._came if number in ENDING), 0)

    def over(self) -> None:
        """From now on signals change nothing: the interpreter takes itself apart."""
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def stoppable() -> Iterator[int]:
    """A block that goes on until such a signal, which is no interruption of it: the descriptor is readable then. The
    next signal interrupts."""
    came, write = os.pipe()
    wakeup = signal.set_wakeup_fd(-1)
    before = {number: signal.getsignal(number) for number in ENDING}

    def restore() -> None:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(*_: object) -> None:
        restore()
        os.write(write, b"!")

    for number in ENDING:
        signal.signal(number, stop)
    try:
        yield came
    finally:
        restore()
        os.close(came)
        os.close(write)
