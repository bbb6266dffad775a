"""Parsers of the output of perftest and rping."""

from __future__ import annotations

import json
import re

from testbed.errors import TestbedError
from testbed.workload.completion import STATUSES

_STATUS = re.compile(r"Failed status (\d+)")
_EVENT = re.compile(r"RDMA_CM_EVENT_\w+")


def error_in(output: str) -> str:
    """The reason why a client failed, by the standard name if it gives one."""
    if found := _STATUS.search(output):
        return STATUSES[int(found[1])]
    if found := _EVENT.search(output):
        return found[0]
    return next((line.strip() for line in output.splitlines() if line.strip()), "ended without a word")


def figures_in(report: str) -> dict[str, float]:
    """The results in a report of perftest (--out_json)."""
    try:
        results = json.loads(report)["results"]
        return {name: float(value) for name, value in results.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TestbedError(f"the report of perftest cannot be read: {error!r}\n{report}") from error
