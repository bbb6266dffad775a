"""Measurements on a machine: `testbed bench`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from testbed.machine.jobs import Job, Machine
from testbed.protocol.events import BENCH
from testbed.protocol.requests import Request

R = TypeVar("R")
LIMIT_S = 86400.0
"""The machine's own seconds."""


async def measure(request: Request[R], machine: Machine, seed: int, out: Path, log: Callable[[str], None]) -> R:
    """Return the response to a request; `log` gets a line for each part of it that is done."""

    def listen(record: dict[str, Any]) -> None:
        if (event := record["event"])["kind"] == BENCH.name:
            log(event["text"])

    job = Job([request], limit_s=LIMIT_S, seed=seed, listen=listen)
    await machine.run(job, out)
    return job.answer()
