"""Where a machine begins to run our code: `prepare` once before the snapshot, `run` for each job."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.protocol import Job

Emit = Callable[[dict[str, Any]], None]
PARCEL = "/run/testbed/in"


def prepare(job: dict[str, Any], out: str, emit: Emit) -> None:
    """Imports what any job may use, so that it is in the snapshot."""
    for name in ("pytest",):
        importlib.import_module(name)


def run(job: Job, out: str, emit: Emit) -> None:
    match job["kind"]:
        case "pytest":
            run_pytest(job, Path(out), emit)


class Terminal(io.TextIOBase):
    """Standard output of a job, shown to the user as it is written."""

    encoding = "utf-8"

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def write(self, text: str) -> int:
        self._emit({"write": text})
        return len(text)


def run_pytest(job: Job, out: Path, emit: Emit) -> None:
    import pytest

    os.chdir(PARCEL)
    sys.stdout = Terminal(emit)
    arguments = ["-p", "no:cacheprovider", "--color=yes", *job["arguments"]]
    status = pytest.main(arguments)
    (out / "result.json").write_text(json.dumps({"status": int(status)}))
