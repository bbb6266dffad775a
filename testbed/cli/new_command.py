"""`testbed new`: a scenario of one's own, to begin with."""

import re
from importlib import resources
from pathlib import Path

import click

from testbed.cli.live.live_options import then
from testbed.errors import InputError

FILES = "topology.clab.yml", "scenario.py"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")


@click.command(
    help="""Write a scenario that runs, for you to edit: DIR/topology.clab.yml and DIR/scenario.py.

    Its name is that of the directory. Name the directory above it in pyproject.toml, `[tool.testbed] scenarios =
    ["DIR-ABOVE"]`, or in the variable TESTBED_SCENARIOS: `testbed list`, `describe` and `run` know your scenarios by
    name then."""
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def new(directory: Path) -> None:
    name = directory.resolve().name
    if not NAME.fullmatch(name):
        hint = "A letter, then letters, digits and `-`: my-scenario."
        raise InputError(f"{name!r} cannot be the name of a scenario", where=str(directory), hint=hint)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError("exists, and someone may have edited it", where=str(directory), hint="Name another directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            (directory / file).write_text(text_of(file, name))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(directory)) from None
    click.echo(f"{directory}: {' and '.join(FILES)}")
    then(f"testbed describe {directory}", f"testbed run {directory}")


def text_of(file: str, name: str) -> str:
    """Return a file of a scenario of this name."""
    text = resources.files(__package__).joinpath("template", file).read_text()
    title = "".join(part.capitalize() for part in name.split("-") if part)
    return text.replace("name: flap", f"name: {name}").replace("class Flap(", f"class {title}(")
