"""The end of a run for people: the table of its variants, failures and warnings, the verdict, and the report page."""

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from testbed.cli.console import OUTCOME, evidence_text, mark
from testbed.cli.words import duration, plain, plain_lines
from testbed.errors import InputError
from testbed.machine import questions
from testbed.machine.record import RunResult, VariantResult
from testbed.protocol import INDEX, REPORT

HEADER = ("variant", "expected", "observed", "virtual time", "wall time")
WIDE = 100
"""Minimum width in columns for a column of evidence."""


def result_table(results: Sequence[RunResult], width: int) -> RenderableType:
    """Make a table of the variants, below names of several scenarios. If narrow, evidence of one has its own lines."""
    wide = width >= WIDE
    if len(results) > 1:
        every = [variant for result in results for variant in result.variants]
        widths = [max(map(len, column)) for column in zip(*map(_cells, every), HEADER, strict=True)]
        parts: list[RenderableType] = [_table([], widths, evidence=wide)]
        for result in results:
            parts += [Text(plain(result.scenario), "bold"), _table(result.variants, widths, evidence=wide, head=False)]
        return Group(*parts)
    [result] = results
    if wide:
        return _table(result.variants, evidence=True)
    below = evidence_below((variant.name, variant) for variant in result.variants)
    return Group(_table(result.variants, evidence=False), Text(), below)


def evidence_below(named: Iterable[tuple[str, VariantResult]]) -> Table:
    """Make the part below the table of a narrow screen: the evidence of each variant, behind its name."""
    below = Table.grid(padding=(0, 1, 0, 0))
    for name, variant in named:
        if variant.evidence:
            below.add_row(plain(f"{name}:"), evidence_text(variant.evidence))
    return below


def _cells(variant: VariantResult) -> tuple[str, ...]:
    times = duration(variant.virtual_s), duration(variant.wall_s)
    return f"{mark(variant)[0]} {variant.name}", variant.expected, variant.observed or "nothing", *times


def _table(
    variants: Sequence[VariantResult],
    widths: Sequence[int | None] = (None,) * len(HEADER),
    *,
    evidence: bool,
    head: bool = True,
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=head)
    for number, (name, width) in enumerate(zip(HEADER, widths, strict=True)):
        if evidence and number == 3:
            table.add_column("evidence", ratio=1)
        table.add_column(name, no_wrap=True, justify="right" if number >= 3 else "left", width=width)
    for variant in variants:
        *_, virtual, wall = _cells(variant)
        table.add_row(
            Text.assemble(mark(variant), f" {variant.name}"),
            _outcome(variant.expected, expected=True),
            _outcome(variant.observed, expected=variant.observed == variant.expected),
            *([evidence_text(variant.evidence)] if evidence else []),
            virtual,
            wall,
        )
    return table


def _outcome(outcome: str | None, *, expected: bool) -> Text:
    return Text(outcome or "nothing", OUTCOME[outcome] if outcome and expected else "bold red")


def report(console: Console, results: Sequence[RunResult], wall_s: float) -> None:
    """Print the end of a run: table, failures, directories, and the verdict."""
    console.print()
    console.print(result_table(results, console.width))
    for result in results:
        for variant in result.variants:
            name = variant.name if len(results) == 1 else plain(f"{result.scenario} {variant.name}")
            if not variant.as_expected:
                show_failures(console, f"{name} is not as expected:", variant)
            if variant.warnings:
                show_texts(console, Text(f"{name}: to be looked at", "bold yellow"), variant.warnings)
    console.print()
    as_expected = all(result.as_expected for result in results)
    verdict = ("as expected", "bold green") if as_expected else ("unexpected", "bold red")
    count = number(sum(len(result.variants) for result in results), "variant")
    facts = f" · {count} · {duration(wall_s)} · seed {results[0].seed}"
    if len(results) == 1:
        facts += f" · trace {results[0].trace[:12]}"
    name = plain(results[0].scenario) if len(results) == 1 else number(len(results), "scenario")
    console.print(Text.assemble((name, "bold"), ": ", verdict, (facts, "dim")))
    for result in results:
        if len(results) == 1 or not result.as_expected:
            console.print(Text(plain(result.out / REPORT), "dim"), soft_wrap=True)
    if len(results) > 1:
        console.print(Text(plain(results[0].out.parents[1] / INDEX), "dim"), soft_wrap=True)


def end(console: Console, name: str, words: Iterable[str | tuple[str, str]], facts: str, place: Path) -> None:
    """Print the last two lines: the name of the run, its end and facts, and its place."""
    console.print(Text.assemble((plain(name), "bold"), *words, (facts, "dim")), soft_wrap=True)
    console.print(Text(plain(place), "dim"), soft_wrap=True)


def show_failures(console: Console, heading: str, variant: VariantResult) -> None:
    show_texts(console, Text(heading, "bold red"), variant.failures)


def show_texts(console: Console, heading: Text, texts: Iterable[str]) -> None:
    console.print()
    console.print(heading)
    for text in texts:
        console.print(Padding(Text(plain_lines(text)), (0, 0, 0, 2)))


def number(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def load_reports() -> None:
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
