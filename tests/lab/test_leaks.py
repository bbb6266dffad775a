"""The leak check finds what a test may leave: else that nothing is left would mean nothing."""

import os
import socket
import subprocess
from ipaddress import ip_interface

import pytest
from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.ifaddrmsg import IFA_F_NODAD

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


@pytest.mark.parametrize("net", ["10.0.0.{}/24", "fd00::{}/64"])
def test_a_connection_whose_peer_is_away_does_not_keep_a_deleted_namespace(net):
    """The kernel counts namespaces where it is asked for another RDMA mode: see `Rdma.set_exclusive`."""
    for name in "near", "far":
        netns.create(name)
    with netns.entered("near"), IPRoute() as ip:
        ip.link("add", ifname="eth0", kind="veth", peer={"ifname": "eth0", "net_ns_fd": "far"})
    near, far = (ip_interface(net.format(number)) for number in (1, 2))
    for name, own in ("near", near), ("far", far):
        with netns.entered(name), IPRoute() as ip:
            (index,) = ip.link_lookup(ifname="eth0")
            ip.addr("add", index=index, address=str(own.ip), prefixlen=own.network.prefixlen, flags=IFA_F_NODAD)
            ip.link("set", index=index, state="up")
    with netns.entered("far"):
        server = socket.create_server(
            (str(far.ip), 179), family=socket.AF_INET6 if far.version == 6 else socket.AF_INET
        )
    with netns.entered("near"):
        client = socket.create_connection((str(far.ip), 179), timeout=10)
    peer, _ = server.accept()
    with netns.entered("far"), IPRoute() as ip:
        ip.link("set", index=ip.link_lookup(ifname="eth0")[0], state="down")
    client.send(b"never arrives")
    for one in client, peer, server:
        one.close()

    for name in "near", "far":
        netns.delete(name)
    with rdma.Rdma() as system:
        before = system.exclusive
        system.set_exclusive(not before)
        system.set_exclusive(before)


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
