"""Report page of a run or a lab."""

import importlib
from pathlib import Path

from testbed.errors import InputError
from testbed.machine import questions
from testbed.protocol import REPORT


def load() -> None:
    """Import the modules that make reports: as slow as making one, and possible while a machine runs."""
    importlib.import_module("testbed.report")


def write_report(directory: Path) -> Path:
    """Write the report of a run or of a lab into its directory. Return its path."""
    from testbed.report import write
    from testbed.report.run_model import read_run

    write([read_run(directory)], questions.draw_plan, directory / REPORT)
    return directory / REPORT


def report_line(directory: Path) -> str:
    """Write the report of a session of tests with labs, if possible: its files come from the tests, so they may hold
    anything. Return a line on the result."""
    try:
        return f"report: {write_report(directory)}"
    except InputError as error:
        return f"there is no report: {error.where} {error.message}"
