"""`make fidelity`: published results beside what the lab measures; the table in docs/fidelity.md is written again.

Ends with status 1 if one does not agree and nobody knows why. Figures are of the virtual clock, so they are the same in
each run of the same code. `--only E6` (also several, E6 E7) runs some and writes nothing.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import made_from
import measure
from experiments import EXPERIMENTS
from rows import Experiment, Row

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"
BEGIN, END = "<!-- published results: make fidelity -->\n", "<!-- /published results -->"
HEAD = ("Id", "Source", "Result", "Published", "Computed", "Here", "Ratio", "Agrees", "Note")


def cells(experiment: Experiment, row: Row) -> tuple[str, ...]:
    source = ", ".join(filter(None, (experiment.source, row.place)))
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    agrees = {True: "yes", False: "**no**", None: ""}[row.agrees]
    return (experiment.id, source, row.what, row.published, row.computed, row.ours, ratio, agrees, row.note)


def table(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (HEAD, ["---"] * len(HEAD), *lines))


def written(text: str, block: str) -> str:
    """The page with something else between its marks."""
    old = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert old.search(text), f"{PAGE} has no {BEGIN.strip()}"
    return old.sub(lambda _: f"{BEGIN}{block}{END}", text)


def measured(chosen: Sequence[Experiment]) -> list[tuple[Experiment, Row]]:
    """All wait for their machines side by side."""
    with ThreadPoolExecutor(len(chosen)) as threads:
        found = [threads.submit(lambda each: list(each.rows()), experiment) for experiment in chosen]
        try:
            return [(experiment, row) for experiment, rows in zip(chosen, found, strict=True) for row in rows.result()]
        finally:
            measure.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[experiment.id for experiment in EXPERIMENTS], metavar="ID")
    only = parser.parse_args().only
    parts = made_from.digests()  # now: what changes meanwhile is newer
    found = measured([experiment for experiment in EXPERIMENTS if not only or experiment.id in only])
    lines = [cells(*one) for one in found]
    print(table(lines), end="")
    if not only:
        made = (
            f"\nLinux {measure.kernel()}, seeds {measure.SEEDS[0]} to {measure.SEEDS[-1]}.\n\n{made_from.table(parts)}"
        )
        PAGE.write_text(written(PAGE.read_text(), table(lines) + made))
    if off := sorted({experiment.id for experiment, row in found if row.agrees is False and not row.known}):
        sys.exit(f"fidelity: does not agree: {', '.join(off)}")


if __name__ == "__main__":
    main()
