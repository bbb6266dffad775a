"""Progress of what takes minutes, on standard error: a live line on a terminal, a line a phase in a log."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from testbed.cli.words import duration, plain, size
from testbed.machine import build, image
from testbed.machine.build import Progress
from testbed.machine.image import Image

UNCUT = 1000
"""Columns, more than any table has."""


def terminal(console: Console) -> bool:
    """Whether lines may be drawn anew. A forced colour (FORCE_COLOR) makes no terminal of a log file."""
    return console.file.isatty() and not console.is_dumb_terminal


class PlainConsole(Console):
    """Shows text as it is, without markup, and without what a terminal would obey: names come from files. In a log no
    line ends in spaces; rich fills its lines up with them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = segment.text.split("\n")
                yield Segment("\n".join(map(plain, lines)), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        if terminal(self):
            super().print(*objects, **options)
            return
        with self.capture() as printed:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", printed.get(), flags=re.MULTILINE))


def error_console() -> Console:
    return PlainConsole(stderr=True)


def output_console(*, uncut: bool = False) -> Console:
    """With `uncut` a table is as wide as it must be: a terminal wraps its lines, and a log has them whole."""
    return PlainConsole(width=UNCUT if uncut else None)


def ensure_image() -> Image:
    """The image, built before the user's eyes where it is not there."""
    if found := image.find():
        return found
    with build_display(error_console()) as progress:
        return build.ensure(progress)


@contextmanager
def build_display(console: Console) -> Iterator[Progress]:
    """Shows an image build: phase, bytes fetched, time since the start."""
    console.print("testbed builds the image its machines boot from. This happens once, and takes a few minutes.")
    started = time.monotonic()
    if terminal(console):
        view = BuildView(started)
        with Live(console=console, get_renderable=view.render, refresh_per_second=8, transient=True):
            yield view.update
    else:
        yield phase_lines(console, started)
    console.print(f"The image is built, in {duration(time.monotonic() - started)}.")


def phase_lines(console: Console, started: float) -> Progress:
    last = ""

    def update(phase: str, fetched: int) -> None:
        nonlocal last
        if phase != last:
            last = phase
            elapsed = duration(time.monotonic() - started)
            console.print(f"image: {plain(phase)} ({size(fetched)} fetched, {elapsed})", soft_wrap=True)

    return update


class BuildView:
    def __init__(self, started: float) -> None:
        self._started = started
        self._spinner = Spinner("dots" if sys.stderr.encoding.lower().startswith("utf") else "line", style="cyan")
        self._phase = "begin"
        self._fetched = 0

    def update(self, phase: str, fetched: int) -> None:
        self._phase, self._fetched = plain(phase), fetched

    def render(self) -> Group:
        elapsed = duration(round(time.monotonic() - self._started))
        fetched = f"{size(self._fetched)} fetched"
        words = Text.assemble(self._phase, (f"   {fetched}   {elapsed}", "dim"), no_wrap=True, overflow="ellipsis")
        self._spinner.update(text=words)
        return Group(self._spinner)
