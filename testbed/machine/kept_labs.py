"""Labs that are up and prepared, kept in the cache: a run with the same code, files and seed begins there."""

import contextlib
import os

from testbed.errors import InputError
from testbed.machine import cache, child_processes
from testbed.machine.memory_files import Bundle
from testbed.machine.moments import Saved, extents
from testbed.machine.snapshot import Snapshot

PLACE = "labs"
KEEP = 8
"""Labs kept, by last use; each is 100 to 300 MB."""


def key(source: Snapshot, bundle: Bundle) -> str:
    """Return the key of the lab that a job makes which begins at a snapshot."""
    return cache.digest(source.key, *(data for _, data in extents(bundle)))


def find(key: str) -> Saved | None:
    """Return the machine at the first moment of the job, if it is kept."""
    path = cache.root() / PLACE / key[:24]
    with contextlib.suppress(OSError, InputError):
        saved = Saved.read(path)
        os.utime(path)
        return saved
    return None


def keep(key: str, saved: Saved) -> None:
    """Keep it for other runs. On a full disk it is not kept."""
    parent = cache.directory(PLACE)
    with contextlib.suppress(OSError), child_processes.scratch(parent, cache.MAKING) as made:
        saved.write(made).rename(parent / key[:24])
        cache.prune(parent, KEEP)
