"""The leak check finds what a test may leave: else that nothing is left would mean nothing."""

import os
import subprocess

import pytest
from pyroute2 import IPRoute

from testbed.kernel import netns, rdma
from testbed.lab.leaks import inventory


def test_it_sees_all_there_is_of_a_pod(tmp_path):
    before = inventory(tmp_path)
    netns.create("pod")
    try:
        with netns.entered("pod"), IPRoute() as ip, rdma.Rdma() as here:
            ip.link("add", ifname="eth0", kind="dummy")
            (index,) = ip.link_lookup(ifname="eth0")
            ip.addr("add", index=index, address="10.0.0.2", prefixlen=24)
            shared = not here.exclusive
            if shared:
                here.add("pod-eth0", "eth0")
        (tmp_path / "results").mkdir()
        (tmp_path / "results/net-pod-eth0").touch()
        new = inventory(tmp_path) - before
        assert new >= {
            "namespace pod",
            "pod: interface eth0",
            "pod: address 10.0.0.2/24 on eth0",
            "file results/net-pod-eth0",
        }
        assert ("RDMA device pod-eth0" in new) == shared
    finally:
        netns.delete("pod")
        with rdma.Rdma() as system:
            system.wait_gone(["pod-eth0"])


@pytest.mark.parametrize("environment", [{}, {"CNI_COMMAND": "ADD"}], ids=["our-child", "a-plugin-s-orphan"])
def test_it_sees_processes(environment):
    before = inventory()
    script = "sleep 60 & echo $!" if environment else "exec sleep 60"
    with subprocess.Popen(["sh", "-c", script], env={**os.environ, **environment}, stdout=subprocess.PIPE) as process:
        child = int(process.stdout.readline()) if environment else process.pid
        if environment:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        try:
            assert f"process sleep ({child})" in inventory() - before
        finally:
            os.kill(child, 9)
