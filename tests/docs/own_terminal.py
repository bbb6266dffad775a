"""A terminal in an empty directory, with `testbed` as a command and labs of its own."""

import os
import sys
from pathlib import Path


def opened(directory: Path, **variables: str) -> dict[str, str]:
    """Put `testbed` into a directory, and return the variables of a terminal there."""
    command = directory / "testbed"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m testbed "$@"\n')
    command.chmod(0o755)
    own = {"PATH": f"{directory}:{os.environ['PATH']}", "XDG_STATE_HOME": str(directory / "state"), "TESTBED_LAB": ""}
    return {**os.environ, **own, **variables}
