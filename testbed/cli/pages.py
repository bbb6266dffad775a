"""The page that a run or a lab leaves at its end."""

from __future__ import annotations

import importlib
from pathlib import Path

from testbed.errors import InputError
from testbed.machine import questions
from testbed.protocol import REPORT


def load() -> None:
    """Import what makes reports; that takes as long as making one, and can be done while a machine runs."""
    importlib.import_module("testbed.report")


def write_report(directory: Path) -> Path:
    """Write the report of a run, or of a lab that lived, into its directory. Where it is."""
    from testbed.report import write
    from testbed.report.model import read_run

    write([read_run(directory)], questions.draw_plan, directory / REPORT)
    return directory / REPORT


def report_line(directory: Path) -> str:
    """Write the report of a session of tests with labs, if it can be: its files are the tests', so anything may be in
    them. Returns a line that says so."""
    try:
        return f"report: {write_report(directory)}"
    except InputError as error:
        return f"there is no report: {error.where} {error.message}"
