"""A program finds the interfaces of its own node in /sys, as it does on a machine."""

import pytest

from testbed.topology.fabrics import single


def found(node):
    """Its interfaces, without the file that the module of bonds has there once it is loaded."""
    return sorted(set(node.run("ls", "/sys/class/net").stdout.split()) - {"bonding_masters"})


@pytest.mark.topology(single(hosts=2).topology())
def test_sysfs_has_the_interfaces_of_the_node(lab):
    host, switch = lab.host("host1"), next(iter(lab.switches()))
    assert found(host) == ["eth1", "lo"]
    assert set(switch.interfaces) < set(found(switch))
    assert host.run("cat", "/sys/class/net/eth1/address").stdout.strip() == host["eth1"].mac
    assert host.run("cat", "/sys/class/net/eth1/operstate").stdout.strip() == "up"
    host.run("ip", "link", "add", "own0", "type", "dummy")
    assert found(host) == ["eth1", "lo", "own0"]
    host.run("ip", "link", "del", "own0")
    assert host.run("ls", "/sys/class/infiniband").stdout.split() == [host["eth1"].device]
