"""One lab, of a module's topology mark, for all its tests, which each leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.lab import Lab
from testbed.lab.leaks import inventory
from testbed.scenario.events import EventLog
from testbed.topology import Topology


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """As in the other tests, but when the lab has gone."""
    before = inventory()
    yield
    assert inventory() - before == set()


@pytest.fixture(scope="module")
def log() -> EventLog:
    return EventLog(lambda _: None)


@pytest.fixture(scope="module")
def lab(
    _nothing_is_left: None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    log: EventLog,
) -> Iterator[Lab]:
    (source,) = request.node.get_closest_marker("topology").args
    topology = source if isinstance(source, Topology) else Topology.parse(source, source=request.module.__file__)
    with Lab(topology, tmp_path_factory.mktemp("lab"), log.emit) as running:
        yield running
