"""Results of commands: the option for JSON, texts that are printed or written to a file, notes on topology files."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from testbed.cli.progress import error_console
from testbed.cli.words import noted, plain
from testbed.errors import DISK_FULL, InputError
from testbed.protocol import Note


def json_option(about: str = "Print one JSON object.") -> Callable[[Any], Any]:
    return click.option("--json", "as_json", is_flag=True, help=about)


def log(text: str) -> None:
    """Print a line on progress to standard error."""
    click.echo(f"… {plain(text)}", err=True)


def give(text: str, output: Path | None, *, over: bool) -> None:
    """Print a text, or write it to a file whole or not at all. `over`: replace an existing file."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("w" if over else "x") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(
            "the file exists, and someone may have edited it", where=str(output), hint="Remove it, or name another."
        ) from None
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise InputError(f"cannot be written: {error.strerror}", where=str(output)) from None
        if output.is_file():  # not a device
            output.unlink()
        raise OSError(error.errno, error.strerror, str(output)) from None


def show_notes(notes: Iterable[Note]) -> None:
    """Print keys without effect in a topology file, each on a quiet line of standard error."""
    console = error_console()
    for note in notes:
        console.print(Text(noted(note), "dim"), soft_wrap=True)
