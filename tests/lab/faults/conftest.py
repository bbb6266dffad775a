"""One lab for all tests of a module, which each leaves as it was: a module has it by a fixture `lab` of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.lab import Lab
from testbed.lab.census import census
from testbed.scenario.events import EventLog
from testbed.topology import Topology


@pytest.fixture(scope="module")
def log_of_module() -> EventLog:
    return EventLog(lambda _: None)


@pytest.fixture(scope="module")
def lab_of_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, log_of_module: EventLog
) -> Iterator[Lab]:
    """Of the module's TOPOLOGY. When it has gone nothing is left."""
    before = census()
    topology = Topology.parse(request.module.TOPOLOGY, source=request.module.__file__)
    with Lab(topology, tmp_path_factory.mktemp("lab"), log_of_module.emit) as running:
        yield running
    assert census() - before == set()
