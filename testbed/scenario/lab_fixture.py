"""pytest inside a machine: the `lab` fixture for the tests of a user and for ours.

@pytest.mark.topology("pair.clab.yml")          # a file beside the test, or the YAML itself
def test_ping(lab):
    lab["a"].run("ping", "-c1", "198.18.0.2")
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.faults import break_from_the_start, unfinished
from testbed.lab import Lab
from testbed.protocol import EPOCH, TOPOLOGY
from testbed.protocol.events import EVIDENCE
from testbed.scenario.event_log import EventLog
from testbed.scenario.evidence import Evidence
from testbed.scenario.rows import as_built, plan_rows
from testbed.topology import Topology


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "topology(file_or_yaml): the topology of the test's `lab`")
    config.addinivalue_line("markers", "limit(seconds): virtual seconds for set-up and call of the test")


@pytest.fixture
def log() -> EventLog:
    """Return the events of the test's lab."""
    return EventLog(lambda _: None)


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path, log: EventLog) -> Iterator[Lab]:
    """Yield a running lab with the topology of the test's `topology` mark; keywords of the mark go to `Lab`. Its plan,
    events, tables and counters are in `tmp_path` afterwards."""
    with lab_of(request.node, tmp_path, log) as running:
        yield running


@contextmanager
def lab_of(test: pytest.Item, directory: Path, log: EventLog) -> Iterator[Lab]:
    """Run the lab of a test's `topology` mark; its files are in `directory` afterwards."""
    mark = test.get_closest_marker("topology")
    if mark is None:
        raise pytest.UsageError(f"{test.nodeid} uses `lab` but has no @pytest.mark.topology(file or YAML)")
    options = {"networks": PodNetworks(test.path.parent), "zero_ns": log.zero_ns, **mark.kwargs}
    try:
        with Lab(_topology(mark.args[0], test.path), directory, log.emit, **options) as running:
            rows = as_built(plan_rows(running.plan, running.profiles), running)
            (directory / TOPOLOGY).write_text(json.dumps(rows, indent=1) + "\n")
            (directory / EPOCH).write_text(json.dumps(log.epoch()) + "\n")
            break_from_the_start(running)
            try:
                yield running
            finally:
                missing = Evidence(running, log).save("the end of the test")  # a test may leave what cannot be read
                for failure in missing:
                    log.emit(EVIDENCE(), "", failure)
    finally:
        log.write(directory / "events.jsonl")
    if failures := [*unfinished(running), *log.losses()]:
        pytest.fail("\n".join(failures))


def _topology(source: Any, test: Path) -> Topology:
    if isinstance(source, Topology):
        return source
    if not isinstance(source, str):
        raise pytest.UsageError(
            f"{test.name}: @pytest.mark.topology takes the name of a file or YAML, not a {type(source).__name__}"
        )
    if "\n" in source:
        return Topology.parse(source, source=f"{test.name} (topology mark)")
    return Topology.load(test.parent / source)
