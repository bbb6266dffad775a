"""`testbed pytest`: a user's own tests inside a machine."""

import asyncio
import os
import sys
from pathlib import Path

import click

from testbed.cli import junit as reports
from testbed.cli import options
from testbed.cli.output import log
from testbed.cli.summary import report_line
from testbed.errors import TestbedError
from testbed.machine import layers, pytests, runs
from testbed.machine.record import Identity
from testbed.protocol import EPOCH
from testbed.protocol.requests import Pytest

SECONDS = click.FloatRange(0, min_open=True)


class Output:
    """pytest's output, which comes in pieces of lines, and the lines of our own between them."""

    def __init__(self) -> None:
        self._open = False
        """True if the last piece did not end its line."""

    def show(self, text: str) -> None:
        print(text, end="", flush=True)
        if text:
            self._open = not text.endswith("\n")

    def log(self, text: str) -> None:
        """Print a line on progress; not within a line of pytest's, where both go to the same place."""
        if self._open and os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())):
            self.show("\n")
        log(text)


@click.command(
    help="""Run your own pytest files inside a machine, with the `lab` fixture.

    Options of pytest follow a double dash: testbed pytest tests/lab -- -k aging -x

    All files beside the tests are copied along, with their execute bits, and are the working directory. Afterwards the
    run directory has pytest's output (pytest.txt), a line for each test (tests.jsonl), each test's `tmp_path` with the
    events, tables, counters and captures of its lab (tmp/), files that tests wrote to relative paths (files/), and
    pytest's reports (reports/), which are also copied to the paths of --junitxml or --log-file. README.txt lists them.

    --junit reports the tests that ended, even if the session is cut short; pytest's own --junitxml, after the double
    dash, is missing then.

    Limits are virtual seconds, so they do not depend on the speed of this machine. A test beyond its limit fails, its
    lab is taken down, and the next test runs; @pytest.mark.limit(SECONDS) overrides --test-limit for a test. At the
    limit of the session the running test is ended and no other starts.

    Exit status: 0 all passed, 1 some failed, 2 wrong usage or no tests, 3 this machine cannot run them."""
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--training", is_flag=True, help="Import torch once, for tests that start training jobs.")
@click.option("--limit", type=SECONDS, metavar="SECONDS", help="Virtual seconds for all tests. Default: 30 days.")
@click.option("--test-limit", type=SECONDS, metavar="SECONDS", help="Virtual seconds for each test. Default: none.")
@options.junit_option
@click.option("--with", "packages", metavar="PACKAGE,…", multiple=True, help="Debian packages that the tests need.")
@click.option("--image", "images", metavar="NAME", multiple=True, help="A container image that the tests use.")
@options.machine_options
def pytest(
    paths: tuple[Path, ...],
    training: bool,
    limit: float | None,
    test_limit: float | None,
    junit: Path | None,
    packages: tuple[str, ...],
    images: tuple[str, ...],
    on: options.MachineOptions,
) -> int:
    tests, arguments = pytests.split(paths)
    if junit:
        reports.require_place(junit)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        arguments = ["--color=no", *arguments]
    wanted = layers.names(packages)
    output = Output()
    machine = asyncio.run(options.equip(options.choose(on.machine, on.clock, output.log), wanted, images))
    directory = runs.run_directory(on.out, "pytest")
    asked = Pytest(arguments=arguments, limit_s=limit, test_limit_s=test_limit)
    running = pytests.run(
        tests, asked, seed=on.seed, training=training, machine=machine, out=directory, show=output.show
    )
    broken: TestbedError | None = None
    try:
        status = asyncio.run(running)
    except TestbedError as error:
        broken = error
        raise
    finally:
        if junit:
            made_from = reports.identity(on.seed, machine.clock, Identity.of(machine), directory)
            reports.write_session(pytests.ended(directory), broken, made_from, junit)
    output.log(f"text, tests and files: {directory}")
    if any(directory.glob(f"tmp/*/{EPOCH}")):
        output.log(report_line(directory))
        pytests.explain(directory)
    return status
