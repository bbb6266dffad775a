"""Runs inside a machine: what it costs to bring up a lab, and Mininet beside it. Figures go to figures.json."""

import json
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from testbed import Lab, Topology

SIZES = (2, 8, 32, 64)
BESIDE = 32
"""Hosts of the comparison with Mininet."""


def single_switch(hosts: int, *, rdma: bool = True) -> Topology:
    nodes = {f"h{number}": {"kind": "host", "rdma": rdma} for number in range(1, hosts + 1)}
    links = [{"endpoints": [f"s1:e{n}", f"h{n}:eth1"], "vlan": 10} for n in range(1, hosts + 1)]
    switch = {"kind": "switch", "profile": "cisco-nxos", "vlans": {10: "10.0.0.1/16"}}
    return Topology.parse(
        yaml.safe_dump({"name": "bench", "topology": {"nodes": {"s1": switch, **nodes}, "links": links}})
    )


@pytest.fixture(scope="module")
def figures():
    found = {"lab": [], "lab_without_rdma": {}, "mininet": {}}
    yield found
    Path("/run/testbed/out/figures.json").write_text(json.dumps(found))


@pytest.mark.parametrize("hosts", SIZES)
def test_bring_up_with_rxe(hosts, tmp_path, log, figures):
    figures["lab"].append(measured(single_switch(hosts), hosts, tmp_path, log))


def test_bring_up_without_rdma(tmp_path, log, figures):
    """What is left when the kernel makes no devices, which is most of the time."""
    figures["lab_without_rdma"] = measured(single_switch(BESIDE, rdma=False), BESIDE, tmp_path, log)


def measured(topology, hosts, directory, log):
    started = time.monotonic()
    with Lab(topology, directory, log.emit, rdma_mode="exclusive"):
        up = time.monotonic()
    down = time.monotonic()
    entry = {"hosts": hosts, "up_s": up - started, "down_s": down - up, "up_per_host_s": (up - started) / hosts}
    return {name: round(value, 4) for name, value in entry.items()}


def test_mininet_without_rdma(figures):
    subprocess.run(["modprobe", "openvswitch"], check=True)
    subprocess.run(["/usr/share/openvswitch/scripts/ovs-ctl", "start", "--system-id=random"], check=True)
    from mininet.net import Mininet
    from mininet.node import OVSBridge
    from mininet.topo import SingleSwitchTopo

    started = time.monotonic()
    net = Mininet(SingleSwitchTopo(BESIDE), switch=OVSBridge, controller=None)
    net.start()
    up = time.monotonic()
    try:
        assert net.ping(net.hosts[:2]) == 0
    finally:
        stopping = time.monotonic()
        net.stop()
    down = time.monotonic()
    figures["mininet"] = {"hosts": BESIDE, "up_s": round(up - started, 4), "down_s": round(down - stopping, 4)}
