"""Tests of machines from outside: they start the command as a user does. They need QEMU and the image, not root."""

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.machine import runs, scenarios
from testbed.machine.image import find
from testbed.machine.jobs import Job
from testbed.machine.qemu import Flavour
from testbed.machine.vm import VirtualMachine

COMMAND = (sys.executable, "-m", "testbed")
HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "runs"
"""Those of `make scenarios`, which `make catalogue` runs first."""
CPU, CPU_BEFORE = "cpu_s", pytest.StashKey[float]()
DEAREST = 15
LIMIT_S = 1800
"""Wall seconds for one command: it bounds a hang and is no measure of speed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", default="1", help="draws the order of the tests that run inside machines, if alone")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take minutes: one that begins last leaves a CPU idle."""
    items.sort(key=lambda item: item.path.name != "test_inside.py")


def cpu_seconds() -> float:
    """Return the CPU time of processes that this one has waited for; keepers of labs that live are not among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = cpu_seconds()
    item.stash[CPU_BEFORE] = before
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if call.when == "teardown":
        report.user_properties.append((CPU, round(cpu_seconds() - item.stash[CPU_BEFORE], 1)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests whose machines took most CPU time: one that has become dear is seen."""
    reports = [
        report for found in terminalreporter.stats.values() for report in found if isinstance(report, pytest.TestReport)
    ]
    spent = [(dict(report.user_properties).get(CPU, 0.0), report.nodeid) for report in reports]
    terminalreporter.section("CPU seconds")
    for cpu_s, test in sorted(spent, reverse=True)[:DEAREST]:
        terminalreporter.write_line(f"{cpu_s:7.1f} {test}")


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The message, as one line."""
        return " ".join(self.err.split())


@pytest.fixture
def testbed(tmp_path: Path) -> Callable[..., Done]:
    """Runs the command; `env` adds to the environment."""

    def call(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@dataclass(frozen=True)
class Shipped:
    """A run that is there for tests which only read it."""

    out: Path
    variants: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def ip_reuse(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """Two variants of ip-reuse, `as-is` and `garp`."""
    place = tmp_path_factory.mktemp("ip-reuse")
    words = ["run", "ip-reuse", "--variant", "as-is", "--variant", "garp", "--json"]
    done = subprocess.run([*COMMAND, *words], cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    run = json.loads(done.stdout)
    return Shipped(place / run["out"], {variant["variant"]: variant for variant in run["variants"]})


@pytest.fixture
def run_of_the_catalogue() -> Callable[[str], Path]:
    """Return the directory of the catalogue's last run of a scenario."""
    return lambda scenario: RUNS / scenario / "latest"


@pytest.fixture
def run_in_a_machine(tmp_path: Path) -> Callable[[str, str], list[dict[str, Any]]]:
    """Runs a variant in a machine of this process, whose watch a test can change. Returns its events."""

    def run(reference: str, variant: str) -> list[dict[str, Any]]:
        scenario = scenarios.resolve(reference)
        events: list[dict[str, Any]] = []
        machine = VirtualMachine(find(), Flavour("virtual"), lambda _: None)
        subprocess.run([*COMMAND, "describe", reference], stdout=subprocess.DEVNULL, check=True)  # it is kept
        [info] = asyncio.run(scenarios.describe([(scenario, {})]))
        [chosen] = runs.choose(info, [variant])
        request, then = runs.asked(chosen, scenario, machine)
        job = Job([request], scenario.files(), limit_s=86400, busy_s=60, seed=1, then=then, listen=events.append)
        asyncio.run(machine.run(job, tmp_path / f"run{len(list(tmp_path.iterdir()))}"))
        return events

    return run


@pytest.fixture(scope="session")
def short() -> Path:
    """A scenario that takes half the time of ip-reuse."""
    return HERE / "scenarios" / "short" / "scenario.py"


@pytest.fixture
def misbehave() -> Path:
    return HERE / "scenarios" / "misbehave.py"


@pytest.fixture
def cache(testbed: Callable[..., Done], tmp_path: Path) -> Path:
    """A cache of its own, with hard links to the image's files, without a snapshot and layers."""
    image = Path(testbed("image", "info", "--json").json["path"])
    fresh = tmp_path / "cache" / "testbed"
    shutil.copytree(
        image, fresh / "images" / image.name, copy_function=os.link, ignore=shutil.ignore_patterns("layers")
    )
    return fresh


@pytest.fixture(scope="session", autouse=True)
def image() -> None:
    """The image is there before the first test."""
    subprocess.run([*COMMAND, "image", "build"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The commands of a user with labs of their own: `real` and `virtual` have a lab each for several tests."""
    from live import Live

    made = Live(tmp_path_factory.mktemp("live"))
    yield made
    made.end()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Any]:
    """The same, of one test alone; nothing of them is left in the end."""
    from live import Live

    made = Live(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="session")
def real(live: Any) -> str:
    return live.up("real")


@pytest.fixture(scope="session")
def virtual(live: Any) -> str:
    return live.up("virtual", "--clock", "virtual")
