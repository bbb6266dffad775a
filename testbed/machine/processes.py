"""Child processes that end when we do, however we end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def child(command: list[str], *, death_signal: str = "TERM", **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Starts `command` so that the kernel sends it `death_signal` when this process is gone, kill -9 included.

    On leaving the block a child that still runs gets the signal too, and is waited for.
    """
    process = subprocess.Popen(["setpriv", "--pdeathsig", death_signal, "--", *command], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(getattr(signal, f"SIG{death_signal}"))
            process.wait()
