"""Whether processes that are no children of a test end."""

import os
import select

LIMIT_S = 60


def ended(pid: int) -> bool:
    """Whether the process ends, which may take a moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], LIMIT_S)[0])
    finally:
        os.close(handle)
