"""Forked processes that must not outlive the one that forked them."""

from __future__ import annotations

import os
import signal

from testbed.kernel import syscalls

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel kill this child when the thread of process `parent` that forked it ends."""
    syscalls.call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
