"""The plugin of pytest on the user's machine: a test with the `lab` fixture runs inside a machine, all others as usual.

It is loaded in every run of pytest where testbed is installed, so nothing else of testbed is imported before a test
needs a machine. Inside a machine it is kept out (scenario/session.py): `testbed.scenario.lab_fixture` has the fixtures.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from testbed.cli.lab_tests import LabTests

FIXTURES = "lab", "log"
DIRECTORIES = "testbed_directories"
"""Key of the run directories that a worker of pytest-xdist hands over."""
SESSION: pytest.StashKey[LabTests] = pytest.StashKey()
LEFT: pytest.StashKey[list[tuple[str, str]]] = pytest.StashKey()
"""Run directories of the session, each with a line on its report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("testbed", "tests with the fixture `lab` (testbed)")
    group.addoption("--testbed-seed", type=int, default=1, metavar="N", help="seed of all randomness in a machine")
    group.addoption("--testbed-clock", choices=("virtual", "real"), help="default: virtual; real on the local machine")
    group.addoption(
        "--testbed-machine",
        choices=("auto", "vm", "local"),
        default="auto",
        help="vm: a micro-VM; local: this very kernel; auto: vm",
    )
    group.addoption("--testbed-out", default="runs", metavar="DIR", help="directory for run directories")
    parser.addini("testbed_files", "files and directories that tests with `lab` need, below rootdir", "linelist", [])
    parser.addini("testbed_packages", "Debian packages that tests with `lab` need", "args", [])
    parser.addini("testbed_images", "container images that tests with `lab` use", "args", [])
    parser.addini("testbed_training", "import torch once, for tests that start training jobs", "bool", False)
    parser.addini("testbed_test_limit", "virtual seconds for each test with `lab`; default: no limit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "topology(file_or_yaml): the topology of the test's `lab`")
    config.addinivalue_line("markers", "limit(seconds): virtual seconds for set-up and call of a test with `lab`")
    config.stash[LEFT] = []


@pytest.fixture
def log(request: pytest.FixtureRequest) -> NoReturn:
    """The events of the test's lab."""
    _refuse(request)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> NoReturn:
    """A running lab with the topology of the test's `topology` mark; the test runs inside a machine."""
    _refuse(request)


def _refuse(request: pytest.FixtureRequest) -> NoReturn:
    pytest.fail(
        f"{request.node.nodeid}: `{request.fixturename}` exists only inside a machine. Name it among the arguments of "
        "the test or of its fixtures, not in getfixturevalue: testbed finds the tests that need a machine this way.",
        pytrace=False,
    )


def uses_lab(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture of testbed, also through one of the same name in the user's files."""
    found: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    for name in FIXTURES:
        for definition in reversed(found.get(name, ())):
            if definition.func.__module__ == __name__:
                return True
            if name not in definition.argnames:
                break
    return False


def needs_machine(item: pytest.Item) -> bool:
    return uses_lab(item) and not item.get_closest_marker("skip")


def together(item: pytest.Item) -> list[pytest.Item]:
    """Return the tests for the machine that a test needs: consecutive ones. A worker of pytest-xdist gets its tests one
    by one."""
    if hasattr(item.config, "workerinput"):
        return [item]
    items = item.session.items
    return [one for one in itertools.takewhile(uses_lab, items[items.index(item) :]) if needs_machine(one)]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    option = session.config.option
    asked = "--trace" if option.trace else "--pdb" if option.usepdb else ""
    if not asked or option.collectonly:
        return
    if found := [item.nodeid for item in session.items if needs_machine(item)]:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise pytest.UsageError(
            f"{asked} waits for a keyboard, and the machine of {found[0]}{more} has none. Leave these tests out "
            f'(-m "not topology"), or leave out {asked}. `testbed up TOPOLOGY` starts the same lab for your commands.'
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.config.option.setupplan or not needs_machine(item):
        return None
    from testbed.cli.lab_tests import LabTests

    stash = item.config.stash
    if SESSION not in stash:
        stash[SESSION] = LabTests(item.session, together, stash[LEFT])
    stash[SESSION].run(item, nextitem)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config: Any = session.config
    if tests := config.stash.get(SESSION, None):
        tests.close()
    if hasattr(config, "workerinput"):
        config.workeroutput[DIRECTORIES] = config.stash[LEFT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the run directories of a worker of pytest-xdist that has ended, or died."""
    node.config.stash[LEFT].extend(getattr(node, "workeroutput", {}).get(DIRECTORIES, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash[LEFT]
    left.sort()
    if len(left) == 1:
        [(directory, report)] = left
        terminalreporter.write_line(f"testbed: text, tests and files: {directory}")
        if report:
            terminalreporter.write_line(f"testbed: {report}")
    elif left:
        places = f"{left[0][0]} to {left[-1][0]}"
        terminalreporter.write_line(f"testbed: text, tests, files and reports of {len(left)} machines: {places}")
