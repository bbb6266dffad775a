"""A lab of hundreds of hosts is one of a few, only larger: nothing runs out, and a host costs what it always costs."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from testbed import Lab
from testbed.scenario.event_log import EventLog
from testbed.topology.fabrics import leaf_spine
from testbed.workload.verbs import connect_pair, open_endpoint

HOSTS_A_LEAF, SPINES = 16, 4
HOST_MB = 4


@dataclass(frozen=True)
class Cost:
    """Of a host."""

    seconds: float
    memory_mb: float


def memory_mb() -> float:
    """What of the machine's memory is in use."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) / 1024


def bring_up(leaves: int, directory: Path, log: EventLog) -> Cost:
    """A fabric in which the two hosts that are furthest from each other have talked."""
    topology = leaf_spine(leaves=leaves, spines=SPINES, hosts=HOSTS_A_LEAF).topology()
    hosts = leaves * HOSTS_A_LEAF
    before, began = memory_mb(), time.monotonic()
    with Lab(topology, directory, log.emit, rdma_mode="exclusive") as lab:
        cost = Cost((time.monotonic() - began) / hosts, (memory_mb() - before) / hosts)
        near, far = (open_endpoint(lab.host(name)["eth1"]) for name in ("host1", f"host{hosts}"))
        connect_pair(near, far)
        assert near.write(4096, within=5).ok
        assert far.load(0, 4096) == near.load(0, 4096)
    return cost


def test_a_host_costs_the_same_among_256_as_among_16(tmp_path: Path, log: EventLog) -> None:
    few, many = (bring_up(leaves, tmp_path, log) for leaves in (1, 16))
    assert many.seconds < 1.3 * few.seconds
    assert many.memory_mb < HOST_MB
