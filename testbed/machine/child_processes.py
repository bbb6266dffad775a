"""Child processes and directories that are gone when this process is, however it ends."""

import contextlib
import fcntl
import functools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "__init__.py"
PREFIX = "testbed."
PR_SET_PDEATHSIG = 1
"""linux/prctl.h."""
REMOVE = 'read -r _; for _ in $(seq 100); do rm -rf -- "$1" 2>/dev/null && exit; sleep 0.1; done'
"""Removal is retried: processes that are being killed may still write there."""


def ours(module: str, *arguments: str) -> list[str]:
    """Return the command that calls `main` of this very testbed's module, whatever the directory and modules there."""
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("testbed", {str(PACKAGE)!r})
sys.modules["testbed"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["testbed"])
from {module} import main
main()
"""
    return [sys.executable, "-P", "-c", code, *arguments]


def dying(signal_: str) -> list[str]:
    """Return the words before a command with which the kernel sends it a signal when this process is gone. A command
    whose parent is gone before the kernel knows that does not start."""
    return [*death_signal_words(signal_), "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]


@functools.cache
def death_signal_words(signal_: str) -> tuple[str, ...]:
    """Return the words before a command that make the kernel send it a signal when its parent is gone. Busybox' setpriv
    cannot do that: Python takes its place."""
    words = ("setpriv", "--pdeathsig", signal_, "--")
    with contextlib.suppress(OSError):
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    number = int(getattr(signal, f"SIG{signal_}"))
    call = f"ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {number})"
    code = f"import ctypes, os, sys; {call}; os.execvp(sys.argv[1], sys.argv[1:])"
    return (sys.executable, "-I", "-S", "-c", code)


@contextlib.contextmanager
def child(command: list[str], *, death_signal: str = "TERM", **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start `command`; the kernel sends it `death_signal` when this process is gone, kill -9 included. A child that
    still runs at the end of the block gets the signal too, with its process group, and is waited for. The group is its
    own: mmdebstrap that cannot write its tar sends SIGHUP to all of its group."""
    command = [*dying(death_signal), *command]
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, getattr(signal, f"SIG{death_signal}"))
            process.wait()


@contextlib.contextmanager
def scratch(parent: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """Yield a directory for the block. A second process removes it when this one is gone, kill -9 included; if that was
    killed too, the next caller does."""
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent, prefix)
    with contextlib.ExitStack() as stack:
        while (path := _own_directory(parent, prefix, stack)) is None:
            pass
        yield path


def _own_directory(parent: Path, prefix: str, stack: contextlib.ExitStack) -> Path | None:
    """Make a new directory, locked while `stack` lasts; None if another process removed it just before the lock."""
    path = parent / f"{prefix}{secrets.token_hex(8)}"
    remove = ["sh", "-c", REMOVE, "sh", str(path)]
    silent = subprocess.DEVNULL
    remover = subprocess.Popen(remove, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True)
    assert remover.stdin
    stack.callback(remover.wait)  # as a context manager it waits a quarter of a second only after Ctrl-C
    stack.callback(remover.stdin.close)
    path.mkdir(0o700)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    stack.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return path if path.exists() else None


def sweep(parent: Path, prefix: str = PREFIX) -> None:
    """Remove the scratch directories of this user that no living process has locked."""
    for path in parent.glob(f"{prefix}{'[0-9a-f]' * 16}"):
        with contextlib.suppress(OSError):  # removed meanwhile, or locked
            if path.lstat().st_uid != os.geteuid():
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                # Without root a build leaves files of subordinate users, whom only mmdebstrap's namespace knows.
                if path.exists() and shutil.which("mmdebstrap"):
                    helper = ["mmdebstrap", "--unshare-helper", "rm", "-rf", str(path)]
                    subprocess.run(helper, capture_output=True, check=False)
            finally:
                os.close(handle)
