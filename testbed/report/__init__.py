"""Reports of runs: one HTML file each, made from the files of a run's directory.

A report is read without testbed, without a network and years later. Nothing here runs a lab or the user's code.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import naming
from testbed.report.contents import Draw, contents
from testbed.report.page import page
from testbed.report.run_model import Run


def write(runs: Sequence[Run], draw: Draw, output: Path, *, side_by_side: bool = False) -> None:
    """Write the report of runs to a file, whole or not at all. `draw` makes the drawing of a plan. Links lead to the
    files of the runs from the place of `output`. With `side_by_side` it opens with all variants beside each other."""
    base = output.parent.resolve()
    names = ", ".join(run.name for run in runs)
    verdicts = {True: "as expected", False: "unexpected", None: "no verdict"}
    plain = " ".join(f"{run.name}: {verdicts[run.as_expected]}." for run in runs)
    data = {**contents(runs, draw, base), "side_by_side": side_by_side}
    text = page(f"{names} – testbed", f"{plain} The rest of this report needs JavaScript.", data)
    scratch = output.with_name(f".{output.name}-{os.getpid()}")
    try:
        with naming(output):
            scratch.write_text(text)
        scratch.replace(output)
    finally:
        scratch.unlink(missing_ok=True)
