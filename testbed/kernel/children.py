"""Forked children that never return into their parent's code."""

import gc
import os
import signal
import traceback
import warnings
from collections.abc import Callable

from testbed.kernel import syscalls


def fork(run: Callable[[], None], report: Callable[[str], None]) -> int:
    """
    Run `run` in a child and return its process ID. The child ends with the calling thread at the latest.

    If an exception ends it, `report` gets the traceback and the exit status is 1. The parent handles Ctrl-C. Other
    threads of the parent must hold nothing that the child uses.
    """
    parent, collects = os.getpid(), gc.isenabled()
    gc.disable()  # the parent's objects must not be finalised in the child
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # about threads: see above
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
