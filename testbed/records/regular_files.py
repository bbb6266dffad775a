"""Files of run directories, opened without a wait: somebody else may have put a pipe, a device or a link there."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from testbed.errors import InputError

MOST = 512 << 20
"""Bytes of a file that is read as a whole."""


def opened(path: Path) -> BinaryIO:
    """Open a regular file. OSError for what is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(handle, "rb")


def contents_if_any(path: Path) -> bytes | None:
    """Read a file as `contents` does; None if there is none. InputError if it cannot be read."""
    try:
        return contents(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def contents(path: Path) -> bytes:
    """Read a regular file of MOST bytes at most. OSError for what is none, or larger."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST:
            raise OSError(errno.EFBIG, f"it has more than {MOST >> 20} MiB")
        return file.read()
