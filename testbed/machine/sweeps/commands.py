"""Commands of this testbed in processes of their own."""

import subprocess
import sys
from collections.abc import Sequence

from testbed.errors import MachineError
from testbed.machine import child_processes


def printed(words: Sequence[str]) -> str:
    """Return what a command prints, given by its words after `testbed`; it ends with this process. MachineError with
    its last words if it fails."""
    command = [sys.executable, "-P", "-m", "testbed", *words]
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    with child_processes.child(command, stdin=nothing, stdout=pipe, stderr=pipe, text=True) as process:
        out, told = process.communicate()
    if process.returncode:
        raise MachineError(told.strip() or f"it ended with status {process.returncode}")
    return str(out)
