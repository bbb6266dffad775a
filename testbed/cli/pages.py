"""The page that a run or a lab leaves at its end."""

from __future__ import annotations

from pathlib import Path

from testbed.machine import questions
from testbed.protocol import REPORT


def write_report(directory: Path) -> Path:
    """Write the report of a run, or of a lab that lived, into its directory. Where it is."""
    from testbed.report import write  # what a run needs first is there by then
    from testbed.report.model import read_run

    write([read_run(directory)], questions.draw_plan, directory / REPORT)
    return directory / REPORT
