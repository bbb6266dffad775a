"""RdmaHost in Debian's Mininet: devices from `net.start()` to `net.stop()`, and nothing after it."""

import runpy
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
from mininet.link import TCLink
from mininet.net import Mininet
from mininet.node import OVSBridge
from mininet.topo import LinearTopo, SingleSwitchTopo, Topo

from testbed.errors import TestbedError
from testbed.kernel import netns
from testbed.kernel.rdma import Rdma
from testbed.mininet import KernelBridge, RdmaHost
from testbed.topology import mininet
from testbed.workload.verbs import Endpoint, connect_pair

MODES = [pytest.param("shared", marks=pytest.mark.slow), "exclusive"]
SIZE = 5000
OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"


@contextmanager
def running(topo: Topo | None, *, mode: str = "shared", **options) -> Iterator[Mininet]:
    with Rdma() as system:
        system.set_exclusive(mode == "exclusive")
    net = Mininet(topo, host=RdmaHost, **{"switch": KernelBridge, "controller": None, **options})
    try:
        net.start()
        yield net
    finally:
        net.stop()


def devices_seen_by(host: RdmaHost) -> set[str]:
    with netns.entered(host.namespace), Rdma() as here:
        return set(here.devices())


def endpoint(host: RdmaHost, interface: str | None = None) -> Endpoint:
    intf = host.intf(interface)
    return Endpoint(host.rdma[intf.name], host.namespace, ip_address(intf.IP()))


def write_arrives(left: RdmaHost, right: RdmaHost, interface: str | None = None) -> bool:
    """An RDMA WRITE from one host to the other, checked at the other end."""
    with endpoint(left, interface) as near, endpoint(right, interface) as far:
        connect_pair(near, far)
        return near.write(SIZE, within=5).ok and far.load(0, SIZE) == near.load(0, SIZE)


@pytest.mark.parametrize("mode", MODES)
def test_hosts_have_their_devices_when_the_network_has_started(mode):
    with running(LinearTopo(k=2, n=2), mode=mode) as net:
        h1s1, h2s2 = net.get("h1s1", "h2s2")
        assert h1s1.rdma == {"h1s1-eth0": "h1s1-eth0"}
        everyone = {f"h{host}s{switch}-eth0" for host in (1, 2) for switch in (1, 2)}
        assert devices_seen_by(h1s1) == (everyone if mode == "shared" else {"h1s1-eth0"})
        assert write_arrives(h1s1, h2s2)
        assert write_arrives(h2s2, h1s1)


def test_a_host_runs_the_programs_of_rdma():
    with running(SingleSwitchTopo(2)) as net:
        h1, h2 = net.get("h1", "h2")
        options = ["-d", "{}-eth0", "-g", "1", "-n", "50"]
        server = h1.popen("ibv_rc_pingpong", *(part.format("h1") for part in options))
        for _ in range(1000):
            out, _, status = h2.pexec("ibv_rc_pingpong", *(part.format("h2") for part in options), h1.IP())
            if status == 0 or server.poll() is not None:
                break  # until then the server does not listen yet
        assert "50 iters in" in out
        assert "50 iters in" in server.communicate()[0].decode()


def test_a_second_interface_and_one_with_a_name_of_its_own_have_devices_too():
    class Rails(Topo):
        def build(self) -> None:
            for name in "a", "b":
                self.addHost(name, ip=None)
            for rail in 1, 2:
                switch = self.addSwitch(f"s{rail}")
                for number, name in enumerate("ab", 1):
                    self.addLink(name, switch, intfName1=f"rail{rail}", params1={"ip": f"10.{rail}.0.{number}/24"})

    with running(Rails()) as net:
        a, b = net.get("a", "b")
        assert a.rdma == {"rail1": "a-rail1", "rail2": "a-rail2"}
        assert write_arrives(a, b, "rail1")
        assert write_arrives(b, a, "rail2")


def test_links_that_come_and_go_while_the_network_runs_take_their_devices_along():
    with running(SingleSwitchTopo(2)) as net:
        h1, h2, s1 = net.get("h1", "h2", "s1")
        link = net.addLink(h1, h2)
        assert devices_seen_by(h1) == {"h1-eth0", "h2-eth0", "h1-eth1", "h2-eth1"}
        net.delLink(link)
        assert (h1.rdma, h2.rdma) == ({"h1-eth0": "h1-eth0"}, {"h2-eth0": "h2-eth0"})
        net.delLink(net.linksBetween(h2, s1)[0])
        assert devices_seen_by(h1) == {"h1-eth0"}
        net.delHost(h1)
        with Rdma() as system:
            assert not system.devices()
        net.hosts.remove(h2)
        h2.terminate()


@pytest.mark.parametrize("mode", MODES)
def test_a_program_on_a_host_lists_the_devices_of_that_host(mode):
    with running(SingleSwitchTopo(2), mode=mode) as net:
        h1, h2 = net.get("h1", "h2")
        listed = {host.name: host.cmd("ibv_devices").split()[5::2] for host in (h1, h2)}
        assert listed == {"h1": ["h1-eth0"], "h2": ["h2-eth0"]}
        assert h2.cmd("ls /sys/class/infiniband").split() == ["h2-eth0"]
        net.addLink(h1, h2)
        assert h1.cmd("ibv_devices").split()[5::2] == ["h1-eth0", "h1-eth1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_network_stopped_under_open_queue_pairs_leaves_nothing_and_starts_again(mode):
    for _ in range(2):
        with running(SingleSwitchTopo(3), mode=mode) as net:
            h1, h2 = net.get("h1", "h2")
            busy, peer = endpoint(h1), endpoint(h2)
            connect_pair(busy, peer)
            for _ in range(100):
                busy.post_write(SIZE)
        with Rdma() as system:
            assert not system.devices()
        busy.close()
        peer.close()


def test_links_with_traffic_control_are_as_mininet_s():
    class Slow(Topo):
        def build(self) -> None:
            for name in "h1", "h2":
                self.addLink(self.addHost(name), "s1" if name == "h2" else self.addSwitch("s1"), delay="5ms", bw=100)

    with running(Slow(), link=TCLink) as net:
        assert "delay 5ms" in net["h1"].cmd("tc qdisc show dev h1-eth0")
        assert write_arrives(*net.hosts)


def test_a_device_that_cannot_be_made_is_an_error_that_names_it():
    with running(SingleSwitchTopo(1)) as net:
        (host,) = net.hosts
        host.rdma.clear()
        with pytest.raises(TestbedError, match="RDMA device h1-eth0 on h1-eth0: the interface already has one"):
            host.config()
        host.rdma["h1-eth0"] = "h1-eth0"


@pytest.fixture(scope="module")
def open_vswitch() -> Iterator[None]:
    subprocess.run(["modprobe", "openvswitch"], check=True)
    subprocess.run([OVS_CTL, "start", "--system-id=testbed"], check=True, stdout=subprocess.DEVNULL)
    yield
    subprocess.run([OVS_CTL, "stop"], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.usefixtures("open_vswitch")
@pytest.mark.slow
def test_hosts_on_open_vswitch_speak_rdma():
    with running(SingleSwitchTopo(2), switch=OVSBridge) as net:
        assert write_arrives(*net.hosts)


CUSTOM = """
from mininet.link import TCLink
from mininet.topo import {names}
from mininet.topolib import TorusTopo, TreeTopo

class Custom(Topo):
    def build(self, spines=2):
        leaves = [self.addSwitch(f"s{{number}}", dpid=f"{{number}}") for number in (10, 9, 1)]
        for leaf in leaves:
            host = self.addHost(f"h{{leaf}}", ip=f"10.9.0.{{len(leaf)}}/16")
            self.addLink(leaf, host, bw=10, delay="5ms", cls=TCLink)
            self.addLink(host, leaves[0], port1=7)
        self.addLink(leaves[0], leaves[1], intfName1="up", key="main")
        self.linkInfo("s10", "s9")["loss"] = 1
        self.setNodeInfo("hs9", {{"mac": "00:00:00:00:00:09"}})
        assert self.port("s9", "hs9") == (1, 0), self.isSwitch("s9")
        assert [key for *_, key in self.links(withKeys=True) if key == "main"], self.nodes()

class Defaults(SingleSwitchTopo):
    def __init__(self):
        super().__init__(k=3, hopts={{"mac": None}}, lopts={{"bw": 5}})

topos = {{
    "linear": lambda: LinearTopo(11), "rows": lambda: LinearTopo(k=3, n=2), "single": lambda: SingleSwitchTopo(12),
    "reversed": lambda: SingleSwitchReversedTopo(4), "minimal": MinimalTopo, "tree": lambda: TreeTopo(3, 2),
    "torus": lambda: TorusTopo(3, 4, 2), "custom": Custom, "defaults": Defaults,
}}
"""
NAMES = "LinearTopo, MinimalTopo, SingleSwitchReversedTopo, SingleSwitchTopo, Topo"


@pytest.mark.parametrize(
    "name", ["linear", "rows", "single", "reversed", "minimal", "tree", "torus", "custom", "defaults"]
)
def test_the_stand_in_that_files_are_converted_with_records_what_mininet_does(tmp_path, name):
    file = tmp_path / "custom.py"
    file.write_text(CUSTOM.format(names=NAMES))
    real = runpy.run_path(str(file))["topos"][name]()
    assert isinstance(real, Topo)
    recorded = mininet.read(file, name)[1]
    assert not isinstance(recorded.topo, Topo)
    network = type(recorded)(real)
    texts = [mininet.convert(name, one, "custom.py", stp=True) for one in (recorded, network)]
    assert texts[0] == texts[1]
