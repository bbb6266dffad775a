"""Live display of a run for people.

On a terminal each running variant has a few live lines; when only one variant runs, its events stay on the screen. A
log has the steps, the observations of users, unexpected results and the verdicts, one plain line each.
"""

import math
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.cli.progress import terminal
from testbed.cli.words import clock, duration, plain
from testbed.machine.record import VariantResult
from testbed.machine.runs import LONGEST_S, Listener, VariantRun
from testbed.protocol import Event, events
from testbed.protocol.events import KINDS

STYLES: dict[events.AnyKind, str] = {
    events.STEP: "bold",
    events.OBSERVED: "bold",
    events.EVIDENCE: "cyan",
    events.SLEEP: "magenta",
    **dict.fromkeys((events.LOST, events.FAULT_LOST), "bold red"),
    **dict.fromkeys((events.GARP, events.LINK, events.POD, events.POD_REFUSED), "yellow"),
    **dict.fromkeys((events.CNI, events.LAB, events.VERDICT, events.QP, events.CONFIRMED, events.REFRESH), "dim"),
    **dict.fromkeys((events.FDB_LEARNED, events.FDB_MOVED, events.FDB_AGED, events.FDB_FLUSHED), "dim"),
}
"""Styles of events by kind; others are plain."""
LOGGED = (events.STEP, events.OBSERVED, events.FAULT_LOST)
"""Kinds that a log shows, beside expectations that did not hold and faults without effect."""
OUTCOME = {"fault": "yellow", "healthy": "green"}
TAIL = 6
"""Maximum of live lines of a variant."""
NODE_WIDTH = 9


def style_of(event: Event) -> str:
    if without_effect(event):
        return "bold yellow"
    match events.read(event):
        case events.Expectation(met=met):
            return "green" if met else "bold red"
        case events.Observation(observed=observed):
            return f"bold {OUTCOME[observed]}"
    kind = KINDS.get(event["kind"])
    return STYLES.get(kind, "") if kind else ""


def words_of(event: Event) -> str:
    text = plain(event["text"])
    match data := events.read(event):
        case events.Expectation(met=met):
            return f"✓ {text}" if met else f"✗ {text}"
        case events.Observation(observed=observed):
            return f"users see: {observed}. {text}"
        case events.Sleep():
            return f"… {text}"
        case _ if data and data.kind is events.EVIDENCE:
            return evidence_text(vars(data)).plain
    return text


def event_head(event: Event) -> Text:
    """Return virtual time and node; a step belongs to no node."""
    if event["kind"] == events.STEP.name:
        return Text(f"{clock(event['t']):>12}  ", "bold")
    return Text.assemble((f"{clock(event['t']):>12}  ", "dim"), (f"{plain(event['node']):<{NODE_WIDTH}} ", "blue"))


def event_line(event: Event) -> Text:
    """Return an event as one line, cut at the edge of the screen."""
    return Text.assemble(event_head(event), (words_of(event), style_of(event)), no_wrap=True, overflow="ellipsis")


def event_rows(event: Event) -> RenderableType:
    """Return an event to stay on the screen: text that does not fit goes on below the text."""
    head = event_head(event)
    grid = Table.grid(expand=True)
    grid.add_column(width=head.cell_len, no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(head, Text(words_of(event), style_of(event)))
    return grid


def without_effect(event: Event) -> bool:
    recovered = events.FAULT_RECOVERED.of(event)
    return recovered is not None and recovered.hits == 0


def logged(event: Event) -> bool:
    expectation = events.EXPECT.of(event)
    failed = expectation is not None and not expectation.met
    return KINDS.get(event["kind"]) in LOGGED or failed or without_effect(event)


class Running:
    """A variant that runs. A thread draws it, so drawn values are replaced as a whole and never changed. `pending` are
    events that earlier ones may still precede."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()
        self.tail: tuple[Event, ...] = ()
        self.pending: list[Event] = []
        self.now = 0

    def add(self, event: Event) -> None:
        self.now = max(self.now, event["t"])
        self.pending.append(event)
        self.tail = tuple(sorted((*self.tail, event), key=itemgetter("t")))[-TAIL:]

    def settle(self, until_ns: float) -> list[Event]:
        """Remove the events up to a time from the pending ones. Return them in the order of events.jsonl."""
        ordered = sorted(self.pending, key=itemgetter("t"))
        self.pending = [event for event in ordered if event["t"] > until_ns]
        return ordered[: len(ordered) - len(self.pending)]

    def render(self, lines: int) -> Group:
        wall = duration(round(time.monotonic() - self.started))
        head = Text.assemble(
            ("▸ ", "cyan"),
            (self.name, "bold cyan"),
            (f"   virtual {clock(self.now)}   wall {wall}", "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )
        return Group(head, *(map(event_line, self.tail[-lines:]) if lines else ()))


class RunConsole(Listener):
    """Display of the variants of a run on `console`; a context, because the terminal must be restored."""

    def __init__(self, console: Console, variant_runs: Sequence[VariantRun]) -> None:
        self._console = console
        self._alone = len(variant_runs) == 1
        self._several = len({variant_run.scenario for variant_run in variant_runs}) > 1
        self._running: dict[int, Running] = {}
        self._live: Live | None = None
        if terminal(console):
            self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        for running in self._running.values():
            self._keep(running, math.inf)
        if self._live:
            self._live.stop()

    def log(self, text: str) -> None:
        """Print a line that is no event of a run."""
        self._console.print(Text(f"… {text}", "dim"), soft_wrap=True)

    def started(self, variant_run: VariantRun) -> None:
        running = Running(self._name(variant_run))
        self._running = {**self._running, id(variant_run): running}
        if not self._live:
            self._console.print(f"{running.name}: starts, expected: {variant_run.variant['expected']}", soft_wrap=True)

    def resumed(self, variant_run: VariantRun) -> None:
        """Show a run again that was stopped and goes on."""
        self._running = {**self._running, id(variant_run): Running(self._name(variant_run))}

    def event(self, variant_run: VariantRun, event: Event) -> None:
        if event["kind"] != events.VERDICT.name:  # it repeats the line at the variant's end
            self._running[id(variant_run)].add(event)

    def settled(self, variant_run: VariantRun, until_ns: int) -> None:
        self._keep(self._running[id(variant_run)], until_ns)

    def _keep(self, running: Running, until_ns: float) -> None:
        """Print the settled events, whose order is final."""
        for event in running.settle(until_ns):
            if not self._live:
                if logged(event):
                    text = f"{running.name}: {clock(event['t'])} {words_of(event)}"
                    self._console.print(text, soft_wrap=True, style=style_of(event))
            elif self._alone:
                self._console.print(event_rows(event))

    def finished(self, variant_run: VariantRun, result: VariantResult) -> None:
        self._keep(self._running[id(variant_run)], math.inf)
        self._running = {key: running for key, running in self._running.items() if key != id(variant_run)}
        self._console.print(result_line(result, self._name(variant_run)), soft_wrap=True)

    def _name(self, variant_run: VariantRun) -> str:
        return plain(f"{variant_run.scenario} {variant_run.label}" if self._several else variant_run.label)

    def _render(self) -> RenderableType:
        running = list(self._running.values())
        if self._alone:
            return Group(*(one.render(min(len(one.pending), TAIL)) for one in running))
        lines = max(1, min(TAIL, (self._console.height - 2) // max(1, len(running)) - 2))
        return Group(*(part for one in running for part in (Text(), one.render(lines))))


def mark(result: VariantResult) -> tuple[str, str]:
    return ("✓", "bold green") if result.as_expected else ("✗", "bold red")


def result_line(result: VariantResult, name: str) -> Text:
    if result.as_expected:
        text = f"{result.observed}, as expected"
    elif result.observed is None:
        text = f"no observation, expected: {result.expected}"
    elif result.observed != result.expected:
        text = f"{result.observed}, expected: {result.expected}"
    else:
        text = f"{result.observed}, and an expectation did not hold"
    times = f"   {duration(result.virtual_s)} virtual, {duration(result.wall_s)} wall"
    return Text.assemble(mark(result), f" {name}: ", (text, "" if result.as_expected else "red"), (times, "dim"))


def evidence_text(evidence: Mapping[str, Any]) -> Text:
    """Return `completion RETRY_EXC_ERR, aged after 25 min 00 s`; a number whose name ends in `_s` is in seconds."""
    text = Text()
    for label, value in (evidence_item(*item) for item in evidence.items()):
        text.append(", " if text else "")
        text.append(label, "dim")
        text.append(f" {value}")
    return text


def evidence_item(name: str, value: Any) -> tuple[str, str]:
    """Return the name and the value for people."""
    timed = name.endswith("_s") and not name.endswith("_per_s")
    if timed and isinstance(value, (int, float)) and abs(value) < LONGEST_S:
        return plain(name.removesuffix("_s")).replace("_", " "), duration(value)
    return plain(name).replace("_", " "), plain(value)
