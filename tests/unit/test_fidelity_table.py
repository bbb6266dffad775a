"""docs/fidelity.md has the table of published results, with the experiments that `make fidelity` measures."""

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "fidelity.md"
PROGRAM = TOP / "tests" / "fidelity"
LIST = "from experiments import EXPERIMENTS; print(*(experiment.id for experiment in EXPERIMENTS))"
BLOCK = re.compile(r"<!-- published results: make fidelity -->\n(.*?)<!-- /published results -->", re.DOTALL)


def test_the_table_has_each_experiment_in_its_order() -> None:
    listed = subprocess.run([sys.executable, "-c", LIST], cwd=PROGRAM, capture_output=True, text=True, check=True)
    (block,) = BLOCK.findall(PAGE.read_text().partition("\n## Published results\n")[2])
    _, _, *rows = block.splitlines()
    assert list(dict.fromkeys(row.split(" | ")[0].removeprefix("| ") for row in rows)) == listed.stdout.split()


def test_a_figure_that_differs_has_its_reason() -> None:
    (block,) = BLOCK.findall(PAGE.read_text())
    assert [row for row in block.splitlines() if "| **no** |  |" in row] == []
