"""What is gone when we are, however we end: child processes, directories, the claim to a CPU."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REMOVE = 'read -r _; for _ in $(seq 100); do rm -rf -- "$1" 2>/dev/null && exit; sleep 0.1; done'
"""Again and again, for processes that are being killed may still write there."""


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


@contextlib.contextmanager
def scratch(prefix: str = "testbed-", parent: Path | None = None) -> Iterator[Path]:
    """A directory for the block. A process beside us removes it when we are gone, kill -9 included."""
    path = (parent or Path(tempfile.gettempdir())) / f"{prefix}{secrets.token_hex(8)}"
    remove = ["sh", "-c", REMOVE, "sh", str(path)]
    silent = subprocess.DEVNULL
    with subprocess.Popen(remove, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True):
        path.mkdir(0o700)
        yield path


@contextlib.contextmanager
def cpu() -> Iterator[int]:
    """A CPU of those this process may use, for the block: one that nobody else has from here, while there are such.

    Who has one shows it by an abstract socket, which the kernel removes with its owner.
    """
    allowed = sorted(os.sched_getaffinity(0))
    with socket.socket(socket.AF_UNIX) as sign:
        for turn, number in ((turn, number) for turn in itertools.count() for number in allowed):
            try:
                sign.bind(f"\0testbed/cpu/{number}/{turn}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            break
        yield number
