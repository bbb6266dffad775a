"""`testbed top`: a screen of a running lab, drawn again after each change."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.live.live_options import connect, duration, lab_options, print_json
from testbed.cli.words import clock, plain
from testbed.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from testbed.machine.live.connection import Connection
    from testbed.machine.live.labs import Lab
    from testbed.protocol.live import Counted, Overview

QUIT = b"qQ\x03"
MORE = "…"
LEAST_INTERVAL_S = 0.1
EVENTS = 100
"""Latest events kept, as many as the largest screen has lines for."""


@click.command(
    help="""Watch a lab: ports with rates and drops, sizes of tables, queue pairs, faults, the latest events.

    On the real clock it is redrawn each second. On the virtual clock it costs no time: it is redrawn when the lab comes
    to rest after a command, and rates are averages since the last redraw. (The first picture takes 10 ms of the lab's
    time, as every request does.) `q` or Ctrl-C ends it."""
)
@click.option("--once", is_flag=True, help="Print one picture and exit: the default without a terminal.")
@click.option(
    "--interval",
    metavar="TIME",
    default="1s",
    show_default=True,
    callback=duration,
    help="Time between two pictures on the real clock; at least 0.1s.",
)
@lab_options
def top(once: bool, interval: float, name: str, form: str) -> int:
    from testbed.cli.progress import output_console, terminal
    from testbed.protocol.live import Top

    if interval < LEAST_INTERVAL_S:
        raise InputError("--interval must be at least 0.1s")
    with connect(name) as connection:
        console = output_console()
        if not once and form == "table" and terminal(console) and sys.stdin.isatty():
            watch(connection, console, interval)
            return 0
        now = connection.answer(Top())
        if form == "json":
            print_json({"name": connection.lab.name, "clock": connection.lab.clock, **now})
        else:
            sections = pictures(now, None)
            console.print(head(connection.lab, now), *(table(*one, len(one[1])) for one in sections if one[1]))
    return 0


class Screen:
    """The current picture and the previous one, on the terminal."""

    def __init__(self, lab: Lab, console: Console) -> None:
        from rich.live import Live

        self._lab = lab
        self._console = console
        self._before: Overview | None = None
        self._now: Overview | None = None
        self.live = Live(console=console, screen=True, auto_refresh=False)

    def show(self, now: Overview) -> None:
        self._before, self._now = self._now, now
        self.draw()

    def draw(self) -> None:
        if self._now:
            size = self._console.size
            self.live.update(screen(self._lab, self._now, self._before, size.width, size.height), refresh=True)


def watch(connection: Connection, console: Console, interval: float) -> None:
    from testbed.cli.live.program_commands import raw, resized
    from testbed.protocol.live import Top

    shown = Screen(connection.lab, console)
    virtual = connection.lab.clock == "virtual"
    number = connection.ask(Top(events=EVENTS, follow=virtual), lambda report: shown.show(report["overview"]))
    due = time.monotonic() + interval
    with raw(by_key), resized() as sizes, shown.live:
        while True:
            waiting = not virtual and not number
            within = max(0.0, due - time.monotonic()) if waiting else None
            ready, _, _ = select.select([sys.stdin, connection, sizes], [], [], within)
            if sys.stdin in ready and set(os.read(sys.stdin.fileno(), 100)) & set(QUIT):
                return
            if sizes in ready:
                os.read(sizes, 100)
                shown.draw()
            if connection in ready:
                connection.receive()
                if number and connection.done(number):
                    shown.show(connection.ended(number))
                    number = 0
            if waiting and time.monotonic() >= due:
                due = time.monotonic() + interval
                number = connection.ask(Top(events=EVENTS))


def by_key(terminal: Any) -> None:
    """Read each key at once and without echo, Ctrl-C too; output is unchanged."""
    tty.setcbreak(terminal)
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ISIG
    termios.tcsetattr(terminal, termios.TCSADRAIN, modes)


Section = tuple[Sequence[str], list[list[str]]]
"""Heads of a table, and its rows."""


def screen(lab: Lab, now: Overview, before: Overview | None, width: int, height: int) -> RenderableType:
    """Make a picture of `height` lines: sections that are too long are cut, events show their end."""
    from rich.console import Group
    from rich.text import Text

    sections = [one for one in pictures(now, before) if one[1]]
    rooms = shares([len(rows) + 1 for _, rows in sections], height - 2)
    tables = [table(heads, rows, room - 1) for (heads, rows), room in zip(sections, rooms, strict=True) if room > 1]
    return Group(head(lab, now), *tables, Text("q quits", "dim"), fit=False)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Divide so many lines between sections: each gets its own, or an equal part if that is too much for all."""
    given = [0] * len(wanted)
    while room > 0 and (hungry := [number for number, want in enumerate(wanted) if given[number] < want]):
        part = max(1, room // len(hungry))
        for number in hungry[:room]:
            more = min(part, wanted[number] - given[number])
            given[number] += more
            room -= more
    return given


def head(lab: Lab, now: Overview) -> RenderableType:
    from rich.text import Text

    end = Text(f"{plain(lab.name)} ", "bold", no_wrap=True, overflow="ellipsis")
    return end.append(f"{clock(int(now['now_s'] * 1e9))} · {lab.clock} clock · {plain(lab.topology)}", "dim")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> Table:
    """Make a table of at most so many rows; the last line counts those left out. Events show their end."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 1, 0, 0), header_style="bold cyan", expand=False)
    for number, name in enumerate(heads):
        cells = [row[number] for row in rows if number < len(row)]
        free = number == len(heads) - 1 or name == "parameters"  # the column that a narrow screen cuts
        made.add_column(
            name,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if name in NUMBERS else "left",
            min_width=None if free else min(WIDEST, max(map(len, [name, *cells]))),
        )
    latest = heads == EVENT_HEADS
    if len(rows) > room:
        left_out = len(rows) - room + (0 if latest else 1)
        rows = rows[-room:] if latest else [*rows[: room - 1], [f"{MORE} {left_out} more"]]
    for row in rows:
        made.add_row(*row)
    return made


PORT_HEADS = "port", "", "rx bit/s", "tx bit/s", "rx packets", "tx packets", "drops", "new"
TABLE_HEADS = "switch", "arp", "nd", "fdb"
PAIR_HEADS = "queue pair", "state", "type", "remote", "program"
FAULT_HEADS = "fault", "", "parameters", "since"
EVENT_HEADS = "time", "event", "node", ""
WIDEST = 40
NUMBERS = {*PORT_HEADS[2:], *TABLE_HEADS[1:]}


def pictures(now: Overview, before: Overview | None) -> list[Section]:
    return [
        (FAULT_HEADS, [fault_row(row) for row in now["faults"]]),
        (PORT_HEADS, port_rows(now, before)),
        (
            TABLE_HEADS,
            [[plain(name), *(str(sizes[key]) for key in TABLE_HEADS[1:])] for name, sizes in now["tables"].items()],
        ),
        (PAIR_HEADS, [pair_row(row) for row in now["queue_pairs"]]),
        (EVENT_HEADS, [event_row(row) for row in now["events"]]),
    ]


def port_rows(now: Overview, before: Overview | None) -> list[list[str]]:
    """Return rows of ports: those with drops since the last picture first, then the busiest."""
    old = {row["end"]: row for row in before["ports"]} if before else {}
    passed = now["now_s"] - before["now_s"] if before else 0.0
    found = []
    for row in now["ports"]:
        was = old.get(row["end"])
        rates = [rate(row, was, key, passed) for key in ("rx_bytes", "tx_bytes")]
        fresh = row["dropped"] - was["dropped"] if was else 0
        cells = [plain(row["end"]), "" if row["up"] else "down", *(bits(one) for one in rates)]
        counts = [str(row["rx_packets"]), str(row["tx_packets"]), str(row["dropped"]), f"+{fresh}" if fresh else ""]
        found.append(((-fresh, -sum(one or 0 for one in rates)), [*cells, *counts]))
    return [cells for _, cells in sorted(found, key=lambda one: one[0])]


def rate(row: Counted, was: Counted | None, key: Any, passed: float) -> float | None:
    """Return bits a second; None when there is no earlier picture of the port."""
    if was is None or passed <= 0:
        return None
    return 8 * (row[key] - was[key]) / passed  # type: ignore[literal-required,no-any-return]


def bits(rate: float | None) -> str:
    """Return `0`, `950`, `1.2k`, `98M`, `1.0G`; `-` where the rate is not known."""
    if rate is None:
        return "-"
    for unit, factor in ("G", 1e9), ("M", 1e6), ("k", 1e3):
        if rate >= 0.9995 * factor:
            return f"{rate / factor:.{1 if rate < 9.95 * factor else 0}f}{unit}"
    return f"{rate:.0f}"


def fault_row(row: Any) -> list[str]:
    given = " ".join(f"{key}={value}" for key, value in row["parameters"].items())
    return [plain(row["fault"]), str(row["number"]), plain(given), clock(int(row["since_s"] * 1e9))]


def pair_row(row: Any) -> list[str]:
    name = f"{row['node']} {row['device']} {row['number']}"
    return [plain(name), row["state"], row["kind"], str(row["remote"] or ""), plain(row["program"])]


def event_row(event: Any) -> list[str]:
    return [clock(event["t"]), plain(event["kind"]), plain(event["node"]), plain(event["text"])]
