"""The display of a running sweep: a bar on a terminal, occasional lines in a log.

Its table has a row for each variant and combination of values, and the first run that is not as expected.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from testbed.cli import summary
from testbed.cli.console import OUTCOME, result_line
from testbed.cli.progress import terminal
from testbed.cli.scenario_list import columns
from testbed.cli.words import duration, plain, plain_lines
from testbed.machine.record import VariantResult
from testbed.machine.sweeps.points import Key, Point
from testbed.machine.sweeps.result_file import Recorded
from testbed.protocol import Observed

Found = Mapping[Key, Recorded]
NOTHING = "nothing"
"""Name for runs without an observation."""
LINES = 10
"""Maximum of lines that a log has of a whole short sweep."""
PAUSE_S = 60.0
"""Wall seconds between lines in the log of a long sweep."""


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


class Remarks:
    """Lines on `console` that belong to no run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: set[str] = set()

    def log(self, text: str) -> None:
        self._console.print(Text(f"… {plain(text)}", "dim"), soft_wrap=True)

    def once(self, text: str) -> None:
        """Log a remark of a machine once: there are many machines."""
        if text not in self._shown:
            self._shown.add(text)
            self.log(text)


class Shown(Remarks):
    """Display of a sweep; a context, because the terminal must be restored."""

    def __init__(self, console: Console, file: Path, total: int, scenario: str) -> None:
        super().__init__(console)
        self._file = file
        self._scenario = scenario
        self._total = total
        self._done = self._lined = self._unexpected = 0
        self._begun = False
        self._line_at = time.monotonic()
        texts = BarColumn(), MofNCompleteColumn(), TextColumn("runs{task.fields[unexpected]}", markup=False)
        times = TimeElapsedColumn(), TextColumn("left", style="dim"), TimeRemainingColumn(elapsed_when_finished=False)
        self._progress = Progress(*texts, *times, console=console, transient=True, disable=not terminal(console))
        self._task = self._progress.add_task("", total=total, unexpected="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if kind and self._begun:
            self.log(f"{self._done} of {self._total} runs are in {self._file}; the same command runs the rest")

    def begin(self, planned: Sequence[Point], found: Mapping[Key, Recorded]) -> None:
        """Begin the display; finished runs already count."""
        there = [found[point.key] for point in planned if point.key in found]
        self._done, self._unexpected = len(there), sum(not one.as_expected for one in there)
        self._lined, self._begun = self._done, True
        if there:
            self.log(f"{self._done} of {self._total} runs are in {self._file}")
        self._progress.reset(self._task, completed=self._done)
        self._update()

    def ended(self, point: Point, result: VariantResult) -> None:
        self._done += 1
        if not result.as_expected:
            self._unexpected += 1
            if self._unexpected == 1:
                self._console.print(result_line(result, plain(f"{point.label} seed {point.seed}")), soft_wrap=True)
                self._console.print(Text(f"  {plain(point.command(self._scenario))}"), soft_wrap=True)
        self._update()
        if self._progress.disable and self._line_is_due():
            self._lined, self._line_at = self._done, time.monotonic()
            self.log(f"{self._done} of {self._total} runs{self._found()}")

    def _line_is_due(self) -> bool:
        tenth = self._done * LINES // self._total > self._lined * LINES // self._total
        return tenth or time.monotonic() - self._line_at > PAUSE_S

    def _update(self) -> None:
        self._progress.update(self._task, completed=self._done, unexpected=self._found())

    def _found(self) -> str:
        return f", {self._unexpected} not as expected" if self._unexpected else ""
