"""Display of a running sweep: a bar on a terminal, occasional lines in a log."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from testbed.cli.console import result_line
from testbed.cli.progress import terminal
from testbed.cli.words import plain
from testbed.machine.record import VariantResult
from testbed.machine.sweeps.points import Key, Point
from testbed.machine.sweeps.result_file import Recorded

LINES = 10
"""Maximum of lines that a log has of a whole short sweep."""
PAUSE_S = 60.0
"""Wall seconds between lines in the log of a long sweep."""


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
