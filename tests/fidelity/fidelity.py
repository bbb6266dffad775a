"""`make fidelity`: published results beside what the lab measures; the table in docs/fidelity.md is written again.

Ends with status 1 if one does not agree and nobody knows why. Figures are of the virtual clock, so they are the same in
each run. `--only E6` (also several, E6 E7) runs some and writes nothing.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import EXPERIMENTS, Experiment, Row

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"
BEGIN, END = "<!-- published results: make fidelity -->\n", "<!-- /published results -->"
HEAD = ("Id", "Source", "Result", "Published", "Here", "Ratio", "Agrees", "Note")


def cells(experiment: Experiment, row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    agrees = {True: "yes", False: "**no**", None: ""}[row.agrees]
    return (experiment.id, experiment.source, row.what, row.published, row.ours, ratio, agrees, row.note)


def table(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (HEAD, ["---"] * len(HEAD), *lines))


def written(text: str, lines: Sequence[Sequence[str]]) -> str:
    """The page with another table between its marks."""
    block = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert block.search(text), f"{PAGE} has no {BEGIN.strip()}"
    return block.sub(lambda _: f"{BEGIN}{table(lines)}{END}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[experiment.id for experiment in EXPERIMENTS], metavar="ID")
    only = parser.parse_args().only
    chosen = [experiment for experiment in EXPERIMENTS if not only or experiment.id in only]
    found = [(experiment, row) for experiment in chosen for row in experiment.rows()]
    lines = [cells(*one) for one in found]
    print(table(lines), end="")
    if not only:
        PAGE.write_text(written(PAGE.read_text(), lines))
    if off := sorted({experiment.id for experiment, row in found if row.agrees is False and not row.known}):
        sys.exit(f"fidelity: not as published: {', '.join(off)}")


if __name__ == "__main__":
    main()
