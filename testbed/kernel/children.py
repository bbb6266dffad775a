"""Forked children that never go back into their parent's code."""

from __future__ import annotations

import gc
import os
import signal
import traceback
import warnings
from collections.abc import Callable

from testbed.kernel import syscalls


def fork(run: Callable[[], None], report: Callable[[str], None]) -> int:
    """
    Carry `run` out in a child that ends with the calling thread at the latest; its process ID.

    `report` gets the traceback of whatever ended it, and its status is 1 then. Ctrl-C is the parent's to handle. Other
    threads of the parent must hold nothing that the child uses.
    """
    parent, collects = os.getpid(), gc.isenabled()
    gc.disable()  # the parent's objects must not be finalised in the child
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of threads: see above
            pid = os.fork()
        if pid == 0:
            gc.freeze()
    finally:
        if collects:
            gc.enable()
    if pid:
        return pid
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    syscalls.end_with(parent)
    try:
        run()
    except BaseException:
        report(traceback.format_exc())
        os._exit(1)
    os._exit(0)
