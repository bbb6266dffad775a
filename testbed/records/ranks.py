"""The ranks of a training job, from ranks.json."""

from __future__ import annotations

import contextlib
from pathlib import Path

from testbed.protocol import RANKS, JobRow, requests


def read(directory: Path) -> JobRow | None:
    """What a variant's directory has of its job; None if there is nothing, or nothing sound."""
    with contextlib.suppress(OSError, ValueError):
        found: JobRow = requests.adapter(JobRow).validate_json((directory / RANKS).read_bytes())
        return found
    return None
