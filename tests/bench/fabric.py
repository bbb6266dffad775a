"""Runs inside a machine: what a host costs in fabrics of growing size. Figures go to figures.json.

On the virtual clock, where a second is a billion instructions: nothing beside the machine changes the figures.
"""

import json
import re
import time
from pathlib import Path

import pytest
from without_view import follow_nothing

from testbed import Lab
from testbed.lab.kernel_view import KernelView
from testbed.topology.fabrics import leaf_spine
from testbed.workload.verbs import connect_pair, open_endpoint

LEAVES = (1, 4, 8, 16)
HOSTS_A_LEAF, SPINES = 16, 4


def memory_mb():
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) / 1024


@pytest.fixture(scope="module")
def figures():
    found = []
    yield found
    Path("/run/testbed/out/figures.json").write_text(json.dumps(found))


@pytest.mark.parametrize(("leaves", "followed"), [*((leaves, True) for leaves in LEAVES), (LEAVES[-1], False)])
def test_fabric_with_rxe(leaves, followed, tmp_path, log, figures, monkeypatch):
    """The last one without the view of the kernel."""
    if not followed:
        follow_nothing(KernelView, monkeypatch.setattr)
    hosts = leaves * HOSTS_A_LEAF
    topology = leaf_spine(leaves=leaves, spines=SPINES, hosts=HOSTS_A_LEAF).topology()
    before, started = memory_mb(), time.monotonic()
    with Lab(topology, tmp_path, log.emit, rdma_mode="exclusive") as lab:
        up, used = time.monotonic(), memory_mb()
        near, far = (open_endpoint(lab.host(name)["eth1"]) for name in ("host1", f"host{hosts}"))
        connect_pair(near, far)
        assert near.write(4096, within=5).ok
        stopping = time.monotonic()
    entry = {
        "hosts": hosts,
        "up_s": up - started,
        "down_s": time.monotonic() - stopping,
        "up_per_host_s": (up - started) / hosts,
        "mb_per_host": (used - before) / hosts,
        "machine_mb": used,
    }
    figures.append({name: round(value, 4) for name, value in entry.items()})
