"""Tests with the same topology that follow each other have one lab, and each leaves it and the kernel as it found them.

A test that breaks its lab, or needs one in which nothing has happened, is marked `fresh`.
"""

import random
from collections.abc import Generator, Iterator

import pytest
from shared_lab import SharedLab, key_of

from testbed.lab import Lab
from testbed.lab import lab as lab_module
from testbed.lab.leaks import inventory
from testbed.scenario.event_log import EventLog

SHARED = SharedLab()
FAILED, FOLLOWING = pytest.StashKey[bool](), pytest.StashKey[pytest.Item | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-labs", metavar="SEED", help="each test in a lab of its own, in an order drawn by the seed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A device that all namespaces share has some 3000 files in the sysfs of each: labs are exclusive unless they say
    otherwise."""
    lab_module.SHARED_AT_MOST = 0
    config.addinivalue_line("markers", "fresh: the test has a lab of its own")
    config.addinivalue_line("markers", "slow: left out by `make test`, run by `make catalogue`")
    config.addinivalue_line("markers", "keeps_tables: hosts and switches know what they learned in the test before")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the tests of a module that share a lab follow each other."""
    if seed := config.getoption("--fresh-labs"):
        random.Random(seed).shuffle(items)  # noqa: S311
        for item in items:
            item.add_marker("fresh")
    places: dict[object, int] = {}
    for item in items:
        places.setdefault((item.path, key_of(item)), len(places))
    modules = {item.path: number for number, item in reversed(list(enumerate(items)))}
    items.sort(key=lambda item: (modules[item.path], places[item.path, key_of(item)]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    item.stash[FOLLOWING] = nextitem


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    yield
    SHARED.leave(item, nextitem, failed=item.stash[FAILED])


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before all other fixtures of a test and so looked at after them."""
    if key_of(request.node):
        yield
        return
    before = inventory()
    yield
    assert inventory() - before == set()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> EventLog:
    return SHARED.prepare(request.node)


@pytest.fixture
def lab(request: pytest.FixtureRequest, log: EventLog, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return SHARED.enter(request.node, request.node.stash[FOLLOWING], tmp_path_factory)
