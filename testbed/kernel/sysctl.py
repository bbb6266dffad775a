"""Sysctls of the calling thread's network namespace and of the machine, by path."""

from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/proc/sys")


def read(path: str) -> str:
    """Return a value; `path` is below /proc/sys, for example ``net/ipv4/ip_forward``."""
    return (ROOT / path).read_text().strip()


def write(path: str, value: int | str) -> None:
    """Set a value. OSError if no sysctl has this name, or it refuses the value."""
    (ROOT / path).write_text(f"{value}\n")


def write_all(below: str, values: Mapping[str, int | str]) -> None:
    """Set several values whose paths have a common prefix."""
    for name, value in values.items():
        write(f"{below}/{name}", value)
