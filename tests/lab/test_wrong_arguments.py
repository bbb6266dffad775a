"""What the public API cannot use is refused with its name: no traceback, and nothing silent."""

from ipaddress import IPv4Interface

import pytest

from testbed.errors import InputError
from testbed.faults import ArpEntryCorrupt, LinkDown
from testbed.workload.verbs import connected, open_endpoint

TOPOLOGY = """
name: pair
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host, rdma: false}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
"""
pytestmark = pytest.mark.topology(TOPOLOGY)
WRONG = {
    "a text for an address": lambda lab: lab["a"].ping("nonsense", within=1),
    "MTU 0": lambda lab: lab["a"]["eth1"].set_mtu(0),
    "MTU of -1": lambda lab: lab["a"]["eth1"].set_mtu(-1),
    "a text for an MTU": lambda lab: lab["a"]["eth1"].set_mtu("x"),
    "an MTU that the kernel refuses": lambda lab: lab["a"]["eth1"].set_mtu(10),
    "an RDMA device that is none": lambda lab: lab["a"]["eth1"].adopt_rdma("nonsense"),
    "half a MAC": lambda lab: lab["a"]["eth1"].teach("02:00:00:00:00"),
    "a MAC of a neighbour": lambda lab: lab["a"]["eth1"].set_neighbour("10.0.10.9", "nonsense"),
    "a port": lambda lab: lab["leaf"].clear_fdb(port="e9"),
    "a MAC to be cleared": lambda lab: lab["leaf"].clear_fdb(mac="nonsense"),
    "a delay of the CPU": lambda lab: lab["leaf"].change_cpu(delay="x"),
    "a negative delay": lambda lab: lab["leaf"].change_cpu(delay=-1),
    "a value of the CPU": lambda lab: lab["leaf"].change_cpu(zz=1),
    "an unreachable next hop": lambda lab: lab["a"].add_route("10.9.0.0/24", "10.77.0.1"),
    "an interface to adopt": lambda lab: lab["a"].adopt("zz"),
    "a rate with a unit": lambda lab: lab["a"]["eth1"].sends.change(rate="10mbit"),
    "a sysctl": lambda lab: lab["a"].sysctl("net/ipv4/zz", 1),
    "a value of a sysctl": lambda lab: lab["a"].sysctl("net/ipv4/ip_forward", "x"),
    "no frame": lambda lab: lab["a"]["eth1"].send(b""),
    "a number as a frame": lambda lab: lab["a"]["eth1"].send(64),
    "a number for ports": lambda lab: lab["leaf"].uplinks("10.0.10.2", "10.0.10.3", 50000),
    "a name for an interface": lambda lab: open_endpoint("a"),
    "a name for a host": lambda lab: lab.pods.create("a", "pod"),
    "a name for a pod": lambda lab: lab.pods.delete("p1"),
    "a service to nowhere": lambda lab: lab["a"].service("10.96.0.1", 80).forward("", 80),
    "a parameter of a fault": lambda lab: LinkDown(port="leaf:e1"),
    "an interface that is not there": lambda lab: lab["a"]["eth9"],
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_an_input_error(lab, call):
    with pytest.raises(InputError) as caught:
        call(lab)
    assert caught.value.message


def test_addresses_may_be_texts_or_objects(lab):
    a = lab["a"]["eth1"]
    with open_endpoint(a, ip=str(a.address().ip)) as end:
        assert end.address
    with pytest.raises(InputError, match="has no RDMA device"), connected(a, lab["b"]["eth1"], to="10.0.10.3"):
        pass
    assert str(ArpEntryCorrupt(switch="leaf", ip=IPv4Interface("10.0.10.2/24")).ip) == "10.0.10.2"


@pytest.mark.fresh
def test_an_interface_that_is_gone_has_nothing(lab):
    a = lab["a"]["eth1"]
    mac = a.mac
    lab["a"].run("ip", "link", "del", "eth1")
    assert (a.gone, a.is_up, a.mtu, a.counters(), a.all_addresses, a.mac) == (True, False, 0, {}, [], mac)
    assert (lab["leaf"]["e1"].gone, lab["leaf"]["e2"].gone) == (True, False)


@pytest.mark.fresh
def test_an_interface_that_a_command_made_is_one_of_the_node(lab):
    lab["a"].run("ip", "link", "add", "eth1.5", "link", "eth1", "type", "vlan", "id", "5")
    lab["a"].run("ip", "address", "add", "10.5.0.1/24", "dev", "eth1.5")
    assert str(lab["a"]["eth1.5"].address()) == "10.5.0.1/24"
    assert lab["a"]["eth1.5"].rdma is None
