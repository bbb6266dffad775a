"""The programs of a terminal, and whether they wait for the user."""

import contextlib
import os
import struct
from pathlib import Path

READ, WRITE, SELECT, POLL, EPOLL_WAIT, PSELECT6, PPOLL, EPOLL_PWAIT = 0, 1, 23, 7, 232, 270, 271, 281
LIMITS = {SELECT: 5, PSELECT6: 5, POLL: 3, PPOLL: 3, EPOLL_WAIT: 4, EPOLL_PWAIT: 4}
"""System calls that wait for several files, and which of their arguments is the longest time."""
FOR_OTHERS = (61, 247, 130, 34)
"""wait4, waitid, rt_sigsuspend, pause: another process is what counts."""
SHORT_MS = 1000
TERMINALS = "/dev/pts/", "/dev/tty"
FOR_EVER = dict.fromkeys((POLL, EPOLL_WAIT, EPOLL_PWAIT), (0xFFFFFFFF, (1 << 64) - 1))
"""The timeouts that mean no limit, where that is no null pointer: -1."""


def waits_for_input(terminal: int) -> bool:
    """Return whether all programs in the foreground of a terminal sleep, and one of them until something is typed."""
    with contextlib.suppress(OSError):
        group = os.tcgetpgrp(terminal)
        waits = [how for entry in os.listdir("/proc") if entry.isdigit() and (how := waiting(entry, group)) is not None]
        return bool(waits) and all(waits) and "input" in waits
    return False


def waiting(process: str, group: int) -> str | None:
    """Return the reason why a process of a group waits: ``input``, ``others``, or an empty text while it works. None
    for one of another group, or one that has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if int(stat[2]) != group or stat[0] == "Z":
            return None
        called = Path(f"/proc/{process}/syscall").read_text().split()
        return "" if called[0] == "running" else waits_in(process, *(int(word, 0) for word in called))
    except (OSError, ValueError, IndexError):
        return None


def waits_in(process: str, number: int, *arguments: int) -> str:
    """Return the reason why a process waits, as `waiting` does, from the system call that it is in."""
    if number in LIMITS:
        for_ever = arguments[LIMITS[number] - 1] in FOR_EVER.get(number, (0,))
        return "input" if for_ever or (number == POLL and asks_terminal(process, *arguments[:3])) else ""
    if number in (READ, WRITE):
        file = os.readlink(f"/proc/{process}/fd/{arguments[0]}")
        if file.startswith("pipe:"):
            return "others"
        return "input" if number == READ and file.startswith(TERMINALS) else ""
    return "others" if number in FOR_OTHERS else ""


def asks_terminal(process: str, files: int, count: int, timeout_ms: int) -> bool:
    """Return whether poll(2) is about a terminal alone, with a timeout so short that it is repeated, as in Python's
    prompt."""
    if count != 1 or timeout_ms > SHORT_MS:
        return False
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        memory.seek(files)
        (file,) = struct.unpack("i", memory.read(4))
    return os.readlink(f"/proc/{process}/fd/{file}").startswith(TERMINALS)
