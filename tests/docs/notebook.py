"""Runs the notebooks of docs/notebooks, and writes them with their outputs. It needs tests/docs/notebooks.lock."""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PLACE = Path(__file__).parents[2] / "docs" / "notebooks"
LIMIT_S = 1800
"""Wall seconds for one cell: it bounds a hang."""


def run(file: Path) -> nbformat.NotebookNode:
    """Return a notebook with what its cells print and draw."""
    found = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as directory:  # for the runs
        client = NotebookClient(
            found, timeout=LIMIT_S, resources={"metadata": {"path": directory}}, record_timing=False
        )
        client.execute()
    return found


def main() -> None:
    """Write them all, or the file of the first argument to the place of the second."""
    given = [Path(word) for word in sys.argv[1:]]
    for source, target in [(given[0], given[1])] if given else [(file, file) for file in sorted(PLACE.glob("*.ipynb"))]:
        nbformat.write(run(source), target)


if __name__ == "__main__":
    main()
