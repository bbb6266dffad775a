"""Cache of descriptions of scenarios, faults and profiles, and of drawings of plans. A scenario's code sees its files,
its settings and this testbed: the same inputs give the same description, and the same plan gives the same drawing."""

import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.machine import cache, snapshot

PLACE = "descriptions"
KEEP = 500
"""Descriptions and drawings kept, of a few kilobytes each."""


def key(asked: Sequence[object], files: Mapping[str, bytes]) -> str:
    """Return a cache key for the request `asked` (JSON-serializable) about something that has these files."""
    packages = Path(sysconfig.get_path("purelib")).stat().st_mtime_ns
    text = json.dumps([asked, sys.version, packages], sort_keys=True)
    return cache.digest(snapshot.code_digest(), text, *(part for item in files.items() for part in item))


def load(key: str) -> Any:
    """Return the cached value; None if there is none."""
    with suppress(OSError, ValueError):
        return json.loads((cache.root() / PLACE / key).read_text())
    return None


def keep(key: str, info: object) -> None:
    """Store a JSON-serializable value if there is space for it, and remove the oldest ones."""
    with suppress(OSError):
        directory = cache.directory(PLACE)
        handle = os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o644)
        with os.fdopen(handle, "w") as file:
            json.dump(info, file)
            file.flush()
            cache.publish(handle, directory / key)
        cache.prune(directory, KEEP)
