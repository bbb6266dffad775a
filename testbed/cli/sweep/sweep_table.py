"""The table of a sweep: a row for each variant and combination of values, and the first run that is not as expected."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from testbed.cli import summary
from testbed.cli.console import OUTCOME
from testbed.cli.scenario_list import columns
from testbed.cli.words import duration, plain, plain_lines
from testbed.machine.sweeps.points import Key, Point
from testbed.machine.sweeps.result_file import Recorded
from testbed.protocol import Observed

Found = Mapping[Key, Recorded]
NOTHING = "nothing"
"""Name for runs without an observation."""


@dataclass
class Row:
    """Runs of a variant with the same values."""

    variant: str
    values: Mapping[str, str]
    expected: Observed
    observed: Counter[str] = field(default_factory=Counter)
    """Number of runs by observation."""
    unexpected: list[int] = field(default_factory=list)
    """Seeds of unexpected runs."""
    shortest_s: float = float("inf")
    longest_s: float = 0.0

    @property
    def runs(self) -> int:
        return self.observed.total()

    def add(self, seed: int, run: Recorded) -> None:
        self.observed[run.observed or NOTHING] += 1
        if not run.as_expected:
            self.unexpected.append(seed)
        self.shortest_s, self.longest_s = min(self.shortest_s, run.virtual_s), max(self.longest_s, run.virtual_s)


def rows(planned: Sequence[Point], found: Found) -> list[Row]:
    grouped: dict[str, Row] = {}
    for point in planned:
        run = found[point.key]
        row = grouped.setdefault(point.label, Row(point.variant["name"], point.values, run.expected))
        row.add(point.seed, run)
    return [*grouped.values()]


def first_unexpected(planned: Sequence[Point], found: Found) -> tuple[Point, Recorded] | None:
    return next(((point, found[point.key]) for point in planned if not found[point.key].as_expected), None)


def as_json(
    name: str, scenario: str, file: Path, table: Sequence[Row], planned: Sequence[Point], found: Found
) -> dict[str, Any]:
    first = first_unexpected(planned, found)
    return {
        "scenario": scenario,
        "verdict": "unexpected" if first else "as-expected",
        "results": str(file),
        "runs": len(planned),
        "rows": [
            {
                "variant": row.variant,
                "values": {**row.values},
                "expected": row.expected,
                "runs": row.runs,
                "observed": {**row.observed},
                "unexpected_seeds": row.unexpected,
                "virtual_s": [row.shortest_s, row.longest_s],
            }
            for row in table
        ],
        "first_unexpected": first and _first_as_json(name, *first),
    }


def _first_as_json(name: str, point: Point, run: Recorded) -> dict[str, Any]:
    return {
        "variant": point.variant["name"],
        "values": {**point.values},
        "seed": point.seed,
        "observed": run.observed,
        "failures": run.failures,
        "directory": run.directory,
        "command": point.command(name),
    }


def report(
    screen: Console, name: str, scenario: str, file: Path, table: Sequence[Row], planned: Sequence[Point], found: Found
) -> None:
    """Print the table, the first run that is not as expected and its command, and the verdict."""
    shown = columns("variant", *table[0].values, "runs", "expected", "users see", "unexpected", "virtual time")
    for row in table:
        shown.add_row(
            plain(row.variant),
            *map(plain, row.values.values()),
            str(row.runs),
            Text(row.expected, OUTCOME[row.expected]),
            observations(row.observed),
            Text(_seeds(row), "bold red") if row.unexpected else "",
            _times(row),
        )
    screen.print()
    screen.print(shown)
    if first := first_unexpected(planned, found):
        show_first(screen, name, *first)
    screen.print()
    count = sum(len(row.unexpected) for row in table)
    verdict = (f"{count} not as expected", "bold red") if count else ("as expected", "bold green")
    summary.end(screen, scenario, (": ", verdict), f" · {summary.number(len(planned), 'run')}", file)


def show_first(screen: Console, name: str, point: Point, run: Recorded) -> None:
    screen.print()
    screen.print(Text(plain(f"The first that is not as expected is {point.label} with seed {point.seed}:"), "bold red"))
    for failure in run.failures:
        screen.print(Padding(Text(plain_lines(failure)), (0, 0, 0, 2)))
    screen.print(Text(f"Run it again: {plain(point.command(name))}"), soft_wrap=True)
    if run.directory:
        screen.print(Text(f"It left: {plain(run.directory)}"), soft_wrap=True)


def observations(observed: Mapping[str, int]) -> Text:
    """Return `fault`, or each observation with its number of runs where they differ."""
    if len(observed) == 1:
        [only] = observed
        return Text(only, OUTCOME.get(only, "bold red"))
    return Text(", ".join(f"{count} {one}" for one, count in sorted(observed.items())), "bold red")


def _seeds(row: Row) -> str:
    """Return `3, from seed 17 on`: the number of seeds, and the first of them."""
    if len(row.unexpected) == 1:
        return f"seed {row.unexpected[0]}"
    return f"{len(row.unexpected)}, first seed {row.unexpected[0]}"


def _times(row: Row) -> str:
    shortest, longest = duration(row.shortest_s), duration(row.longest_s)
    return longest if shortest == longest else f"{shortest} to {longest}"
