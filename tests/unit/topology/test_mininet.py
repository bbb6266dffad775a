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


def converted(tmp_path: Path, text: str, name: str = "", **ways: bool) -> str:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return convert(*read(file, name), source="mine.py", **ways)


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
        ('self.addLink(self.addHost("a"), self.addHost("b"), enable_ecn=True)', "link a-b: enable_ecn=True has no"),
        ('self.addLink(self.addHost("a"), self.addHost("b"), bw=[1])', "link a-b: bw=[1] has no"),
        (
            'self.addLink(self.addHost("a"), self.addHost("b"), params1={"up": False})',
            "link a-b: params1['up']=False has",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_name(tmp_path, build, message):
    assert f"mine.py: {message}" in refused(tmp_path, build)


def test_all_that_is_wrong_is_told_at_once_up_to_five(tmp_path):
    build = 'a, b = self.addHost("a"), self.addHost("b")\nfor n in range(7):\n    self.addLink(a, b, enable_red=n + 1)'
    said = refused(tmp_path, build).splitlines()
    assert (len(said), said[-1]) == (6, "… and 2 more")


@pytest.mark.parametrize(
    ("build", "note"),
    [
        ('self.addHost("h1", cpu=0.5)', "# host h1: cpu=0.5 has no effect."),
        ('self.addHost("h1", inNamespace=False)', "# host h1 has a namespace of its own."),
        ('self.addHost("h1", cls=CPULimitedHost)', "# h1: a lab does not limit the CPU of a host."),
        ('self.addHost("h1", cls=Own)', "# h1 is of the class Own: its commands are in 'exec'."),
        ('self.addSwitch("s1", cls=Big)', "# s1 is of the class Big, and a bridge here."),
        ('self.addSwitch("s1", colour="red")', "# s1: colour='red' has no effect."),
        (
            'self.addLink(self.addHost("a"), self.addHost("b"), jitter="1ms", max_queue_size=9)',
            "# link a-b: queue: 9 has no effect without rate.",
        ),
    ],
)
def test_what_has_no_effect_is_a_comment(tmp_path, build, note):
    head = "from mininet.node import CPULimitedHost, Node, OVSSwitch\n\n\nclass Own(Node):\n    pass\n\n\n"
    elements(tmp_path, build, f"{head}class Big(OVSSwitch):\n    pass\n\n")
    text = converted(tmp_path, (tmp_path / "mine.py").read_text())
    assert note in text.splitlines()
    Topology.parse(text).plan()


def test_an_end_has_the_quality_of_its_parameters(tmp_path):
    build = 'self.addLink(self.addHost("a"), self.addHost("b"), params2={"bw": 10, "delay": "1.4018238197ms"})'
    (link,) = elements(tmp_path, build)["links"]
    assert link["endpoints"][1] == {
        "node": "b",
        "interface": "eth0",
        "ipv4": "10.0.0.2/8",
        "rate": "10mbit",
        "delay": "1.401824ms",
    }


ROUTER = """
from mininet.cli import CLI
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo


class Router(Node):
    def config(self, **params):
        super().config(**params)
        self.cmd("sysctl net.ipv4.ip_forward=1")
        self.cmd(f"echo {self.defaultIntf()} > /tmp/first")


class Net(Topo):
    def build(self, **_opts):
        r0, s1, s2 = self.addNode("r0", cls=Router, ip="192.168.1.1/24"), self.addSwitch("s1"), self.addSwitch("s2")
        self.addLink(s1, r0, intfName2="r0-eth1", params2={"ip": "192.168.1.1/24"})
        self.addLink(s2, r0, intfName2="r0-eth2", params2={"ip": "172.16.0.1/12"})
        self.addLink(self.addHost("h1", ip="192.168.1.100/24", defaultRoute="via 192.168.1.1"), s1)
        self.addLink(self.addHost("h2", ip="172.16.0.9/12", defaultRoute="via 172.16.0.1"), s2)


def run():
    net = Mininet(topo=Net())
    net.start()
    net["r0"].cmd("ip route add 10.9.0.0/16 via 172.16.0.9 dev r0-eth2")
    print(net["r0"].cmd("route").splitlines()[0] if False else "")
    net["h1"].cmd("iperf -s &")
    CLI(net)
    net["h1"].cmd("ip link set h1-eth0 down")


if __name__ == "__main__":
    run()
"""


def test_classes_of_its_own_and_commands_become_exec(tmp_path):
    text = converted(tmp_path, ROUTER)
    plan = Topology.parse(text).plan()
    assert plan.nodes["r0"].exec == (("sysctl", "net.ipv4.ip_forward=1"), ("bash", "-c", "echo eth1 > /tmp/first"))
    assert [str(one.address) for one in plan.nodes["r0"].interfaces] == ["192.168.1.1/24", "172.16.0.1/12"]
    assert [str(route.via[0]) for route in plan.nodes["h2"].routes] == ["172.16.0.1"]


def test_a_script_is_followed_to_its_prompt(tmp_path):
    text = converted(tmp_path, ROUTER.replace("class Net(Topo)", "class Other(Topo):\n    pass\n\n\nclass Net(Topo)"))
    plan = Topology.parse(text).plan()
    assert plan.name == "mine"
    assert plan.nodes["r0"].exec[-1] == ("ip", "route", "add", "10.9.0.0/16", "via", "172.16.0.9", "dev", "eth2")
    assert plan.nodes["h1"].exec == ()
    assert "# h1: not run: iperf -s &" in text.splitlines()


IMPERATIVE = """
from functools import partial
from mininet.net import Mininet
from mininet.node import RemoteController, OVSSwitch
from mininet.link import Intf, Link, TCLink
from mininet.log import lg, setLogLevel
from mininet.cli import CLI
import beside

setLogLevel("info")
lg.setLogLevel("debug")
net = Mininet(switch=partial(OVSSwitch, failMode="standalone"), link=partial(TCLink, bw=10), autoSetMacs=True,
              ipBase="192.168.0.0/24", controller=RemoteController)
c0 = net.addController("c0", ip="127.0.0.1")
s1 = net.addSwitch("s1", stp=True)
hosts = [net.addHost(name) for name in ("hb", "ha")]
for host in hosts:
    net.addLink(host, s1, delay=beside.DELAY)
third = net.addHost("third", ip=None)
Link(third, s1, intfName1="up0")
third.setIP("192.168.0.99", 24)
Intf("eth9", node=s1)
net.addNAT()
net.build()
c0.start()
s1.start([c0])
for host in hosts:
    host.setDefaultRoute("via 192.168.0.254")
CLI(net)
"""


def test_a_script_that_makes_its_network_by_itself(tmp_path):
    (tmp_path / "beside.py").write_text("DELAY = '2ms'\n")
    text = converted(tmp_path, IMPERATIVE)
    plan = Topology.parse(text).plan()
    first = {name: node.interfaces[0] for name, node in plan.nodes.items()}
    assert (plan.name, plan.nodes["s1"].kind, plan.nodes["s1"].stp) == ("mine", "bridge", True)
    assert [(str(first[name].address), first[name].mac) for name in ("hb", "ha")] == [
        ("192.168.0.1/24", "00:00:00:00:00:01"),
        ("192.168.0.2/24", "00:00:00:00:00:02"),
    ]
    assert (first["third"].name, str(first["third"].address)) == ("up0", "192.168.0.99/24")
    assert (first["ha"].sends.rate, first["ha"].sends.delay) == (10_000_000, 0.002)
    assert plan.nodes["ha"].exec == (("ip", "route", "replace", "default", "via", "192.168.0.254"),)
    assert first["nat0"].peer[0] == "s1"
    assert "# nat0 is a host without the Internet: a lab ends at its own links." in text.splitlines()


def test_what_follows_an_error_after_the_start_is_not_in_the_file_and_a_comment_says_so(tmp_path):
    text = converted(
        tmp_path,
        IMPERATIVE.replace("import beside", "beside = lg")
        .replace("beside.DELAY", "None")
        .replace("CLI(net)", "net.start()\nint(hosts[0].cmd('ifconfig'))\nhosts[0].cmd('ip link set hb-eth0 down')"),
    )
    assert "# The script was followed up to line 30: ValueError(" in text
    assert "down" not in text


def test_hosts_with_addresses_of_any_subnets_are_of_the_kind_linux(tmp_path):
    build = """
s1 = self.addSwitch("s1")
for name, ip in ("a", "10.0.0.1/24"), ("b", "10.1.0.1/16"), ("c", "10.0.0.1/24"):
    self.addLink(self.addHost(name, ip=ip), s1)
"""
    found = elements(tmp_path, build)
    assert {node["kind"] for name, node in found["nodes"].items() if name != "s1"} == {"linux"}
    Topology.model_validate({"name": "x", "topology": found}).plan()


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


def test_a_network_with_loops_is_refused_with_two_ways_on(tmp_path):
    with pytest.raises(InputError) as said:
        converted(tmp_path, LOOP)
    assert str(said.value).splitlines() == [
        "mine.py: the network has a loop of switches, at s1x3-s1x1",
        "  Say what breaks it: `--stp` makes bridges with spanning tree, `--routing frr` switches that route.",
    ]


def test_bridges_of_a_loop_run_spanning_tree(tmp_path):
    plan = Topology.parse(converted(tmp_path, LOOP, stp=True)).plan()
    assert {node.stp for node in plan.nodes.values() if node.kind == "bridge"} == {True}


def test_switches_of_a_loop_route(tmp_path):
    text = converted(tmp_path, LOOP, routed=True)
    plan = Topology.parse(text).plan()
    assert {node.kind for name, node in plan.nodes.items() if name.startswith("s")} == {"switch"}
    assert len({node.interfaces[0].address.network for node in plan.nodes.values() if node.kind == "host"}) == 9
    assert (str(plan.nodes["s1x1"].svis[0].address), str(plan.nodes["h1x1"].routes[0].via[0])) == (
        "10.0.1.254/24",
        "10.0.1.254",
    )
    assert all(end.routed for link in plan.links for end in link if link[0].node[0] == link[1].node[0] == "s")
    assert "# The hosts of s1x1 have addresses of 10.0.1.0/24, their own subnet." in text.splitlines()


def test_routed_switches_keep_the_subnets_and_gateways_of_the_script(tmp_path):
    build = """
switches = [self.addSwitch(f"s{n}") for n in (1, 2, 3)]
for n in range(3):
    self.addLink(switches[n], switches[n - 1])
for n, switch in enumerate(switches[:2]):
    for host in (1, 2):
        name, ip = f"h{n}{host}", f"192.168.{n}.{host}/24"
        self.addLink(self.addHost(name, ip=ip, defaultRoute=f"via 192.168.{n}.9"), switch)
"""
    text = "from mininet.topo import Topo\n\n\nclass Mine(Topo):\n    def build(self):\n"
    text += "".join(f"        {line}\n" for line in build.splitlines())
    plan = Topology.parse(converted(tmp_path, text, routed=True)).plan()
    assert [str(plan.nodes[name].svis[0].address) for name in ("s1", "s2")] == ["192.168.0.9/24", "192.168.1.9/24"]
    assert str(plan.nodes["h12"].interfaces[0].address) == "192.168.1.2/24"
    assert plan.nodes["s3"].svis[0].address is None


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (TUTORIAL, "mytop", "mine.py: the file has no topology mytop\n  Did you mean mytopo? It has: MyTopo, mytopo."),
        ("x = 1\n", "", "mine.py: the file has no `topos`, no subclass of Topo, and makes no network"),
        (
            "from mininet.topo import Topo\nclass A(Topo):\n    def build(self, k, delay='1ms'): pass\n",
            "",
            "mine.py: the file has a topology A that needs arguments (k), and makes no network\n  Give them: mine.py:A",
        ),
        ("print 'two'\n", "", "mine.py:1:1: not valid Python: Missing parentheses in call to 'print'. Did you mean"),
        (
            "from mininet.topo import Topo\nclass A(Topo): pass\nclass B(Topo): pass\n",
            "",
            "mine.py: the file has more than one topology\n  Name one of them: mine.py:A, mine.py:B.",
        ),
        ("topos = {'a': lambda: 7}\n", "", "mine.py: a creates 7, which is not a Topo"),
        ("topos = {'a': lambda: 1 / 0}\n", "", "mine.py:1: ZeroDivisionError: division by zero"),
        ("import os\nimport nowhere\n", "", "mine.py:2: ModuleNotFoundError: No module named 'nowhere'\n  The file is"),
        ("raise SystemExit(3)\n", "", "mine.py:1: SystemExit: 3\n  The script has ended before it made a network"),
        ("def f(:\n", "", "mine.py:1:7: not valid Python"),
    ],
)
def test_a_file_without_the_topology_is_refused_with_a_place(tmp_path, text, name, message):
    with pytest.raises(InputError) as said:
        converted(tmp_path, text, name)
    assert str(said.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_the_stand_in_is_gone_when_the_file_is_read(tmp_path):
    converted(tmp_path, TUTORIAL)
    assert not [name for name in sys.modules if name.partition(".")[0] == "mininet"]
