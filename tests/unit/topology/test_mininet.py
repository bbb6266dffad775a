"""Files with a Topo of Mininet become topology files, or the error names what has no counterpart."""

import sys
from pathlib import Path

import pytest
import yaml

from testbed.errors import InputError
from testbed.topology import Topology
from testbed.topology.mininet import convert, read

TUTORIAL = '''\
"""Two directly connected switches plus a host for each switch."""

from functools import partial

from mininet.cli import CLI
from mininet.link import TCLink
from mininet.log import info, setLogLevel
from mininet.net import Mininet
from mininet.node import OVSBridge
from mininet.topo import Topo

setLogLevel("info")
Slow = partial(TCLink, bw=10)


class MyTopo(Topo):
    def build(self):
        left, right = self.addHost("h1"), self.addHost("h2")
        here, there = self.addSwitch("s3"), self.addSwitch("s4")
        self.addLink(left, here)
        self.addLink(here, there)
        self.addLink(there, right)


topos = {"mytopo": (lambda: MyTopo())}

if __name__ == "__main__":
    net = Mininet(MyTopo(), switch=OVSBridge, link=Slow)
    net.start()
    CLI(net)
    net.stop()
'''


def converted(tmp_path: Path, text: str, name: str = "") -> str:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return convert(*read(file, name), source="mine.py")


def elements(tmp_path: Path, build: str, head: str = "") -> dict:
    """Of a Topo with these lines in its `build`."""
    lines = "".join(f"        {line}\n" for line in build.splitlines())
    text = f"from mininet.topo import Topo\n{head}\nclass Mine(Topo):\n    def build(self, k=2):\n{lines}"
    return yaml.safe_load(converted(tmp_path, text))["topology"]


def refused(tmp_path: Path, build: str, head: str = "") -> str:
    with pytest.raises(InputError) as said:
        elements(tmp_path, build, head)
    return str(said.value)


def test_the_topology_of_mininet_s_tutorial_keeps_its_names_addresses_and_ports(tmp_path):
    text = converted(tmp_path, TUTORIAL)
    plan = Topology.parse(text).plan()
    assert plan.name == "mytopo"
    assert {name: node.kind for name, node in plan.nodes.items()} == {
        "h1": "host",
        "h2": "host",
        "s3": "bridge",
        "s4": "bridge",
    }
    assert [str(plan.nodes[name].interface("eth0").address) for name in ("h1", "h2")] == ["10.0.0.1/8", "10.0.0.2/8"]
    assert plan.nodes["h1"].interface("eth0").rdma == "h1-eth0"
    assert [(f"{a.node}:{a.name}", f"{b.node}:{b.name}") for a, b in plan.links] == [
        ("h1:eth0", "s3:eth1"),
        ("s3:eth2", "s4:eth1"),
        ("s4:eth2", "h2:eth0"),
    ]
    assert "# Switches learn as bridges do; there is no OpenFlow controller." in text.splitlines()


def test_hosts_are_numbered_in_the_order_of_their_names_as_mininet_does(tmp_path):
    build = """
switch = self.addSwitch("s1")
for number in 10, 9, 1:
    self.addLink(switch, self.addHost(f"h{number}"))
"""
    nodes = Topology.model_validate({"name": "x", "topology": elements(tmp_path, build)}).plan().nodes
    hosts = [node for node in nodes.values() if node.kind == "host"]
    assert [(host.name, str(host.interfaces[0].address)) for host in hosts] == [
        ("h1", "10.0.0.1/8"),
        ("h9", "10.0.0.2/8"),
        ("h10", "10.0.0.3/8"),
    ]


def test_addresses_macs_routes_and_names_that_are_given_stay(tmp_path):
    build = """
a = self.addHost("a", ip="10.1.0.5/24", mac="00:00:00:00:00:0a", defaultRoute="via 10.1.0.1")
b = self.addHost("b", ip="10.1.0.1/24", inNamespace=True)
self.addLink(a, b, port1=3, intfName2="uplink", addr2="00:00:00:00:00:0b")
self.addLink(b, self.addHost("c", ip=None), params1={"ip": "10.2.0.1/24"}, params2={"ip": "10.2.0.2/24"})
"""
    found = elements(tmp_path, build)
    assert found["nodes"]["a"] == {"kind": "host", "routes": [{"to": "default", "via": "10.1.0.1"}]}
    assert [link["endpoints"] for link in found["links"]] == [
        [
            {"node": "a", "interface": "eth3", "mac": "00:00:00:00:00:0a", "ipv4": "10.1.0.5/24"},
            {"node": "b", "interface": "uplink", "mac": "00:00:00:00:00:0b", "ipv4": "10.1.0.1/24"},
        ],
        [
            {"node": "b", "interface": "eth1", "ipv4": "10.2.0.1/24"},
            {"node": "c", "interface": "eth0", "ipv4": "10.2.0.2/24"},
        ],
    ]


def test_an_interface_named_as_mininet_does_loses_its_node_s_name(tmp_path):
    build = """
self.addLink(self.addHost("r0"), self.addSwitch("s1"), intfName1="r0-eth1", intfName2="s1-eth7")
"""
    plan = Topology.model_validate({"name": "x", "topology": elements(tmp_path, build)}).plan()
    assert plan.nodes["r0"].interface("eth1").rdma == "r0-eth1"
    assert plan.nodes["r0"].interface("eth1").peer == ("s1", "eth7")


def test_parameters_of_a_tclink_become_those_of_the_link(tmp_path):
    build = """
host, switch = self.addHost("h1"), self.addSwitch("s1")
self.addLink(host, switch, cls=TCLink, bw=10, delay="5ms", jitter=200, loss=2, max_queue_size=1000, use_htb=True)
"""
    (link,) = elements(tmp_path, build, "from mininet.link import TCLink")["links"]
    del link["endpoints"]
    assert link == {"rate": "10mbit", "delay": "5ms", "jitter": "200us", "loss": 2, "queue": 1000}
    text = converted(tmp_path, (tmp_path / "mine.py").read_text())
    sends = Topology.parse(text).plan().nodes["h1"].interface("eth0").sends
    assert (sends.rate, sends.delay, sends.loss, sends.queue) == (10_000_000, 0.005, 2, 1000)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ('self.addHost("h1", cpu=0.5)', "host h1: cpu=0.5 has no counterpart"),
        ('self.addHost("h1", inNamespace=False)', "host h1: inNamespace=False has no"),
        ('self.addHost("h1", defaultRoute="dev h1-eth0")', "host h1: defaultRoute='dev h1-eth0' has no"),
        ('self.addHost("h1", cls=CPULimitedHost)', "host h1: cls='mininet.node.CPULimitedHost' has no"),
        ('self.addHost("h1", cls=Host)', "host h1: cls='mine.Host' has no"),
        ('self.addSwitch("s1", stp=True)', "switch s1: stp=True has no"),
        ('self.addLink(self.addHost("a"), self.addHost("b"), enable_ecn=True)', "link a-b: enable_ecn=True has no"),
        (
            'self.addLink(self.addHost("a"), self.addHost("b"), params1={"up": False})',
            "link a-b: params1['up']=False has",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_name(tmp_path, build, message):
    head = "from mininet.node import CPULimitedHost, Node\n\n\nclass Host(Node):\n    pass\n\n"
    assert f"mine.py: {message}" in refused(tmp_path, build, head)


def test_all_that_is_wrong_is_told_at_once_up_to_five(tmp_path):
    said = refused(tmp_path, 'for n in range(7):\n    self.addHost(f"h{n}", cores=n)').splitlines()
    assert (len(said), said[-1]) == (6, "… and 2 more")


def test_options_for_a_controller_are_said_to_have_no_effect(tmp_path):
    text = converted(
        tmp_path,
        "from mininet.topo import Topo\nclass Mine(Topo):\n  def build(self):\n    self.addSwitch('s1', dpid='1')\n",
    )
    assert "# s1: dpid='1' is for a controller and has no effect." in text.splitlines()


def test_interfaces_that_mininet_leaves_without_an_address_are_told(tmp_path):
    build = """
a, b = self.addHost("a"), self.addHost("b")
self.addLink(a, b)
self.addLink(a, b)
"""
    elements(tmp_path, build)
    text = converted(tmp_path, (tmp_path / "mine.py").read_text())
    assert [line for line in text.splitlines() if "no address" in line] == [
        f"# {host}:eth1 has no address in Mininet; testbed plans one." for host in "ab"
    ]
    Topology.parse(text).plan()


@pytest.mark.parametrize(
    ("name", "hosts"), [("tree", 4), ("tree,3", 8), ("tree,fanout=3,depth=1", 3), ("Row,3,2", 6), ("single", 2)]
)
def test_a_topology_is_chosen_by_name_with_arguments_as_mn_takes_them(tmp_path, name, hosts):
    text = """
from mininet.topo import LinearTopo, MinimalTopo
from mininet.topolib import TreeTopo
class Row(LinearTopo):
    pass
topos = {"tree": lambda depth=2, fanout=2: TreeTopo(depth, fanout), "single": MinimalTopo}
"""
    plan = Topology.parse(converted(tmp_path, text, name)).plan()
    assert sum(node.kind == "host" for node in plan.nodes.values()) == hosts


def test_a_class_does_not_compete_with_the_one_entry_of_topos(tmp_path):
    text = "from mininet.topo import MinimalTopo\nclass Mine(MinimalTopo):\n    pass\ntopos = {'mine': Mine}\n"
    assert converted(tmp_path, text) == converted(tmp_path, text, "mine")


LOOP = "from mininet.topolib import TorusTopo\ntopos = {'torus': lambda: TorusTopo(3, 3)}\n"


def test_a_torus_is_refused_for_its_loops(tmp_path):
    with pytest.raises(InputError, match="loop"):
        Topology.parse(converted(tmp_path, LOOP)).plan()


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (TUTORIAL, "mytop", "mine.py: the file has no topology mytop\n  Did you mean mytopo? It has: MyTopo, mytopo."),
        ("x = 1\n", "", "mine.py: the file has no `topos` and no subclass of Topo"),
        (
            "from mininet.topo import Topo\nclass A(Topo): pass\nclass B(Topo): pass\n",
            "",
            "mine.py: the file has more than one topology\n  Name one of them: mine.py:A, mine.py:B.",
        ),
        ("topos = {'a': lambda: 7}\n", "", "mine.py: a creates 7, which is not a Topo"),
        ("topos = {'a': lambda: 1 / 0}\n", "", "mine.py:1: ZeroDivisionError: division by zero"),
        ("import os\nimport nowhere\n", "", "mine.py:2: ModuleNotFoundError: No module named 'nowhere'\n  The file is"),
        ("raise SystemExit(3)\n", "", "mine.py:1: SystemExit: 3"),
        ("def f(:\n", "", "mine.py:1:7: not valid Python"),
        (
            "from mininet.net import Mininet\nnet = Mininet()\n",
            "",
            "mine.py:2: Mininet(…) is called while the file is read, when no network exists\n  Put the code",
        ),
    ],
)
def test_a_file_without_the_topology_is_refused_with_a_place(tmp_path, text, name, message):
    with pytest.raises(InputError) as said:
        converted(tmp_path, text, name)
    assert str(said.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_the_stand_in_is_gone_when_the_file_is_read(tmp_path):
    converted(tmp_path, TUTORIAL)
    assert not [name for name in sys.modules if name.partition(".")[0] == "mininet"]
