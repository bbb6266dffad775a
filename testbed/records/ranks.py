"""The ranks of a training job, from ranks.json."""

import contextlib
from pathlib import Path

from testbed.protocol import RANKS, JobRow, requests


def read(directory: Path) -> JobRow | None:
    """Return the job of a variant's directory; None if there is none, or the file is damaged."""
    with contextlib.suppress(OSError, ValueError):
        found: JobRow = requests.adapter(JobRow).validate_json((directory / RANKS).read_bytes())
        return found
    return None
