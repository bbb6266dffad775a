"""Progress of slow steps on standard error: a live line on a terminal, a line for each phase in a log."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from testbed.cli.words import duration, plain, size
from testbed.machine import image, image_build
from testbed.machine.image import Image
from testbed.machine.image_build import Progress

UNCUT = 1000
"""Columns, more than any table has."""


def terminal(console: Console) -> bool:
    """Return whether lines may be redrawn. A forced colour (FORCE_COLOR) makes no terminal of a log file."""
    return console.file.isatty() and not console.is_dumb_terminal


class PlainConsole(Console):
    """Console that prints text without markup and without terminal control characters: names come from files. In a log
    no line ends in spaces; rich fills its lines up with them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            lines = segment.text.split("\n")
            yield segment if segment.control else Segment("\n".join(map(plain, lines)), segment.style)

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
    """Return a console. With `uncut` a table has its full width: a terminal wraps lines, a log has them whole."""
    return PlainConsole(width=UNCUT if uncut else None)


def table_console() -> Console:
    """Return a console for tables: a terminal's width there, and whole lines in a pipe or a file, with whole names."""
    return PlainConsole(width=None if sys.stdout.isatty() else UNCUT)


def ensure_image() -> Image:
    """Return the image; build it with a display where it is missing."""
    if found := image.find():
        return found
    with build_display(error_console()) as progress:
        return image_build.ensure(progress)


@contextmanager
def build_display(console: Console) -> Iterator[Progress]:
    """Show an image build: phase, bytes fetched, time since the start."""
    console.print("testbed builds the image its machines boot from. This is done once and takes a few minutes.")
    started = time.monotonic()
    if terminal(console):
        spinner = SpinnerColumn("dots" if sys.stderr.encoding.lower().startswith("utf") else "line", "cyan")
        texts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[fetched]"))
        with LiveProgress(spinner, *texts, TimeElapsedColumn(), console=console, transient=True) as shown:
            task = shown.add_task("begin", total=None, fetched="")
            yield lambda phase, fetched: shown.update(
                task, description=plain(phase), fetched=f"{size(fetched)} fetched" if fetched else ""
            )
    else:
        yield phase_lines(console, started)
    console.print(f"The image was built in {duration(time.monotonic() - started)}.")


def phase_lines(console: Console, started: float) -> Progress:
    last = ""

    def update(phase: str, fetched: int) -> None:
        nonlocal last
        if phase != last:
            last = phase
            so_far = [f"{size(fetched)} fetched"] if fetched else []
            so_far.append(duration(time.monotonic() - started))
            console.print(f"image: {plain(phase)} ({', '.join(so_far)})", soft_wrap=True)

    return update
