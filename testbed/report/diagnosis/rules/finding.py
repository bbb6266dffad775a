"""The result of a rule."""

from collections.abc import Sequence
from dataclasses import dataclass

HEALTHY, UNKNOWN = "healthy", "unknown"
"""Causes of a job without trouble, and of one that no rule explains."""


@dataclass(frozen=True)
class Finding:
    """A cause. `ranks` are the first ones that it hit, `since` is a virtual time in nanoseconds."""

    cause: str
    since: int
    text: str
    ranks: Sequence[int] = ()
    link: str = ""
    address: str = ""
    evidence: Sequence[tuple[int, str]] = ()
    """Facts, each with its time."""
