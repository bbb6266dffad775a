"""Signals that end the command: one way out for all of them, in any state, and no traceback."""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TWICE_S = 0.5
"""Wall seconds within which repeated signals count as one: timeout(1) signals a command and the command's group."""


class Interrupts:
    """Handlers with which each signal interrupts as Ctrl-C does. The first signal is known even if cleaning up lost the
    exception or replaced it by another one."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        for end in self._read, write:
            os.set_blocking(end, False)
        self._came = b""
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # only this one makes asyncio cancel its task
        for number in ENDING[1:]:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
        sys.unraisablehook = lambda found: None if self.first else sys.__unraisablehook__(found)
        logging.getLogger("asyncio").addFilter(lambda _: not self.first)

    @property
    def first(self) -> int:
        """Return the number of the signal that came first; 0 if none did."""
        with contextlib.suppress(BlockingIOError):
            self._came += os.read(self._read, 1024)
        return next((number for number in self._came if number in ENDING), 0)

    def over(self) -> None:
        """Ignore signals from now on: the interpreter shuts down."""
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def stoppable() -> Iterator[int]:
    """Yield a descriptor that is readable after the first signal, which does not interrupt the block. A later signal
    interrupts."""
    came, write = os.pipe()
    before = {number: signal.getsignal(number) for number in ENDING}
    first: list[float] = []

    def restore() -> None:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, _: object) -> None:
        if not first:
            first.append(time.monotonic())
            os.write(write, b"!")
        elif time.monotonic() - first[0] > TWICE_S:
            restore()
            signal.raise_signal(number)

    for number in ENDING:
        signal.signal(number, stop)
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield came
    finally:
        restore()
        os.close(came)
        os.close(write)
