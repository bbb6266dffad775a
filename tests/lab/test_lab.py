"""A lab comes up as planned, carries packets, and leaves nothing."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from testbed import Lab, Topology
from testbed.errors import InputError, TestbedError
from testbed.kernel import netns, own_devices, rdma
from testbed.lab import Host
from testbed.lab.node import take_down
from testbed.workload.verbs import Endpoint, connect_pair

ROUTED = """
name: routed
topology:
  nodes:
    leaf: {kind: switch, profile: cisco-nxos, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
"""

LATE_DEVICE = """
name: late
topology:
  nodes:
    hub: {kind: bridge}
    a: {kind: host, nic: rxe}
    b: {kind: host, rdma: false}
  links:
    - {endpoints: ["hub:p1", "a:eth1"]}
    - {endpoints: ["hub:p2", "b:eth1"]}
"""

TWO_RAILS = """
name: rails
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "a:eth2"], vlan: 20}
    - {endpoints: ["leaf:e3", "b:eth1"], vlan: 10}
    - {endpoints: ["leaf:e4", "c:eth1"], vlan: 20}
"""

SEGMENT = """
name: segment
topology:
  nodes:
    hub: {kind: bridge}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["hub:p1", "a:eth1"]}
    - {endpoints: ["hub:p2", "b:eth1"]}
    - {endpoints: ["hub:p3", "c:eth1"]}
"""

WRITE_S = 5.0
OTHER_MAC = "02:00:00:00:00:99"
MTU = 1024
"""The path MTU of an RC connection unless told otherwise."""


def ip_of(host: Host, interface: str = "eth1") -> str:
    return str(host[interface].address().ip)


def endpoint(host: Host, interface: str = "eth1") -> Endpoint:
    return Endpoint(host[interface].device, host.namespace, host[interface].address().ip)


def write_arrives(left: Host, right: Host, interface: str = "eth1", *, size: int = 5000) -> bool:
    """An RDMA WRITE from one host to the other, checked at the other end."""
    with endpoint(left, interface) as near, endpoint(right, interface) as far:
        connect_pair(near, far)
        done = near.write(size, within=WRITE_S)
        return done.status == "SUCCESS" and far.load(0, size) == near.load(0, size)


def send_udp(host: Host, ip: str, count: int) -> None:
    with host.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for number in range(count):
            udp.sendto(bytes(100 + number % 100), (ip, 9))


def namespaces() -> set[str]:
    return {path.name for path in Path("/run/netns").iterdir()}


def children() -> set[str]:
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


def devices() -> set[str]:
    with rdma.Rdma() as system:
        return set(system.devices())


def interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """What the block makes is gone after it: also namespaces that have no name any more but live by an open socket."""
    before = namespaces(), devices(), interfaces(), children()
    files = len(os.listdir("/proc/self/fd"))
    yield
    assert (namespaces(), devices(), interfaces(), children()) == before
    assert len(os.listdir("/proc/self/fd")) == files
    if not before[0]:
        with rdma.Rdma() as system:  # the kernel changes the mode only while there is no other namespace
            for mode in not system.exclusive, system.exclusive:
                system.set_exclusive(mode)


# What it carries


@pytest.mark.topology(ROUTED)
def test_hosts_reach_each_other_within_a_vlan_and_through_the_svi(lab):
    lab["b"].run("ping", "-c1", "-W1", ip_of(lab.host("c")))
    lab["a"].run("ping", "-c1", "-W1", ip_of(lab.host("c")))
    assert lab.switch("leaf").arp_table() == {ip_of(lab.host(name)): lab.host(name)["eth1"].mac for name in ("a", "c")}


@pytest.mark.topology(TWO_RAILS)
def test_a_host_with_two_interfaces_uses_each_in_its_subnet(lab):
    a = lab.host("a")
    assert {name: interface.rdma for name, interface in a.interfaces.items()} == {"eth1": "a-eth1", "eth2": "a-eth2"}
    assert list(a.interfaces) == ["eth1", "eth2"]

    for interface, peer in ("eth1", "b"), ("eth2", "c"):
        before = {name: a[name].counters()["tx_bytes"] for name in a.interfaces}
        with endpoint(a, interface) as near, endpoint(lab.host(peer)) as far:
            connect_pair(near, far)
            assert near.write(50_000, within=WRITE_S).status == "SUCCESS"
            assert far.load(0, 50_000) == near.load(0, 50_000)
        sent = {name: a[name].counters()["tx_bytes"] - before[name] for name in a.interfaces}
        assert sent.pop(interface) > 50_000
        assert set(sent.values()) == {0}


@pytest.mark.fresh
@pytest.mark.topology(LATE_DEVICE)
def test_an_interface_gets_another_mac_before_its_rdma_device_and_not_after(lab):
    a, b = lab.host("a"), lab.host("b")
    b["eth1"].set_mac(OTHER_MAC)
    b["eth1"].add_rdma("b-eth1")
    assert write_arrives(a, b)
    assert a["eth1"].neighbour(b["eth1"].address().ip) == OTHER_MAC
    with pytest.raises(InputError, match="eth1 of b has an RDMA device"):
        b["eth1"].set_mac("02:00:00:00:00:98")


@pytest.mark.topology(LATE_DEVICE)
def test_the_state_of_a_neighbour_entry(lab):
    a, peer = lab.host("a"), lab.host("b")["eth1"].address().ip
    assert a["eth1"].neighbour_state(peer) is None
    assert a.ping(str(peer), within=1)
    assert a["eth1"].neighbour_state(peer) == "REACHABLE"
    a["eth1"].set_neighbour(peer, OTHER_MAC)
    assert a["eth1"].neighbour_state(peer) == "PERMANENT"


@pytest.mark.topology(SEGMENT)
def test_a_bridge_learns_and_then_keeps_unicast_from_the_others(lab):
    a, b, c = (lab.host(name) for name in "abc")
    assert a.ping(ip_of(b), within=1)
    wire = c["eth1"].capture()

    assert write_arrives(a, b)
    a["eth1"].announce()
    wire.stop()

    assert {frame.dst for frame in wire.frames()} == {"ff:ff:ff:ff:ff:ff"}
    with pytest.raises(InputError, match="hub is not a switch"):
        lab.switch("hub")
    assert lab.switches() == []


# Captures


@pytest.mark.topology(ROUTED)
def test_a_capture_loses_nothing(lab):
    b, c = lab.host("b"), lab.host("c")
    assert b.ping(ip_of(c), within=1)
    wire = c["eth1"].capture()
    before = c["eth1"].counters()

    send_udp(b, ip_of(c), 20000)
    wire.stop()

    after = c["eth1"].counters()
    passed = sum(after[name] - before[name] for name in ("rx_packets", "tx_packets"))
    length = sum(after[name] - before[name] for name in ("rx_bytes", "tx_bytes"))
    frames = list(wire.frames())
    assert passed >= 20000
    assert (len(frames), sum(len(frame.data) for frame in frames)) == (passed, length)
    times = [frame.t_ns for frame in frames]
    assert times == sorted(times)
    assert abs(times[-1] - time.time_ns()) < 60e9


@pytest.mark.topology(ROUTED)
def test_a_capture_tells_roce_frames_from_others(lab):
    a, c = lab.host("a"), lab.host("c")
    assert a.ping(ip_of(c), within=1)
    wire = c["eth1"].capture()

    assert write_arrives(a, c, size=64 * MTU)
    send_udp(a, ip_of(c), 7)
    wire.stop()

    gateway = lab.switch("leaf").svi_mac()
    packets = [frame for frame in wire.frames() if frame.roce and frame.dst == c["eth1"].mac]
    answers = [frame for frame in wire.frames() if frame.roce and frame.src == c["eth1"].mac]
    assert len(packets) == 64
    assert {frame.src for frame in packets} == {frame.dst for frame in answers} == {gateway}
    assert len([frame for frame in wire.frames() if not frame.roce and frame.data[36:38] == b"\x00\x09"]) == 7


@pytest.mark.topology(ROUTED)
def test_a_capture_takes_what_its_filter_lets_through(lab):
    b, c = lab.host("b"), lab.host("c")
    wire = c["eth1"].capture("arp")

    assert b.ping(ip_of(c), within=1)
    wire.stop()

    assert {frame.data[12:14] for frame in wire.frames()} == {b"\x08\x06"}


# Its end


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_lab_leaves_nothing(mode, tmp_path, log):
    with nothing_is_left():
        with Lab(Topology.parse(ROUTED), tmp_path, log.emit, rdma_mode=mode) as lab:
            assert {"routed-leaf", "routed-a", "routed-b", "routed-c"} <= namespaces()
            ping = lab["a"].spawn("ping", "-i", "0.2", "10.0.10.1")
            lab["b"]["eth1"].capture()
        assert not ping.running
    assert not namespaces()
    assert not devices()


def test_with_a_kernel_that_ends_programs_end_captures_are_whole_and_the_rest_stays(tmp_path, log):
    with nothing_is_left():
        with Lab(Topology.parse(ROUTED), tmp_path, log.emit, rdma_mode="shared", kernel_ends=True) as lab:
            nodes = list(lab.nodes.values())
            ping = lab["a"].spawn("ping", "-i", "0.2", "10.0.10.1")
            wire = lab["c"]["eth1"].capture("icmp")
            assert lab["c"].ping("10.0.20.1", within=1)
        assert not ping.running
        assert len(list(wire.frames())) == 2
        assert {"routed-leaf", "routed-a", "routed-b", "routed-c"} <= namespaces()
        assert {"a-eth1", "b-eth1", "c-eth1"} <= devices()
        take_down(nodes[::-1])
        own_devices.end()


def test_labs_in_both_rdma_modes_one_after_the_other(tmp_path, log):
    named = {"a-eth1", "b-eth1", "c-eth1"}
    with nothing_is_left():
        for mode in ["shared", "exclusive", "exclusive", "shared", "exclusive"]:
            with Lab(Topology.parse(ROUTED), tmp_path, log.emit, rdma_mode=mode) as lab:
                assert devices() == (named if mode == "shared" else set())
                with lab["a"].entered():
                    assert devices() == (named if mode == "shared" else {"a-eth1"})
                assert write_arrives(lab.host("a"), lab.host("c"))


def test_a_lab_whose_agent_was_killed_unnoticed_ends_with_an_error_and_leaves_nothing(tmp_path, log):
    with (
        nothing_is_left(),
        pytest.raises(TestbedError, match="status -9"),
        Lab(Topology.parse(ROUTED), tmp_path, log.emit) as lab,
    ):
        os.kill(lab.switch("leaf").agent.pid, signal.SIGKILL)


# A lab that cannot be built


def build_fails(tmp_path: Path, log, match: str, topology: str = ROUTED, **options) -> None:
    with pytest.raises(TestbedError, match=match), Lab(Topology.parse(topology), tmp_path, log.emit, **options):
        pass


def test_a_namespace_name_that_is_taken_leaves_nothing_else(tmp_path, log):
    with rdma.Rdma() as system:
        system.set_exclusive(False)  # before there is a namespace
    netns.create("routed-c")
    try:
        with nothing_is_left():
            build_fails(tmp_path, log, "network namespace routed-c already exists", rdma_mode="shared")
        assert namespaces() == {"routed-c"}
    finally:
        netns.delete("routed-c")
    with nothing_is_left(), Lab(Topology.parse(ROUTED), tmp_path, log.emit) as lab:
        assert write_arrives(lab.host("a"), lab.host("c"))


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_device_name_that_is_taken_leaves_nothing_else(tmp_path, log, mode):
    with rdma.Rdma() as system, IPRoute() as ip:
        system.set_exclusive(mode == "exclusive")
        ip.link("add", ifname="other0", kind="veth", peer={"ifname": "other1"})
        try:
            ip.link("set", index=socket.if_nametoindex("other0"), state="up")
            system.add("c-eth1", "other0")
            with nothing_is_left():
                build_fails(tmp_path, log, "c-eth1", rdma_mode=mode)
            assert system.devices().keys() == {"c-eth1"}
            system.delete("c-eth1")
            system.wait_gone(["c-eth1"])
        finally:
            ip.link("del", ifname="other0")
    with nothing_is_left(), Lab(Topology.parse(ROUTED), tmp_path, log.emit, rdma_mode=mode) as lab:
        assert write_arrives(lab.host("a"), lab.host("c"))


# Size


def many(hosts: int) -> Topology:
    nodes = [f"    h{number}: {{kind: host}}" for number in range(hosts)]
    links = [
        f'    - {{endpoints: ["leaf:e{number}", "h{number}:eth1"], vlan: {10 * (1 + number % 2)}}}'
        for number in range(hosts)
    ]
    switch = "    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}"
    return Topology.parse("\n".join(["name: many", "topology:", "  nodes:", switch, *nodes, "  links:", *links, ""]))


@pytest.mark.slow
def test_two_of_64_hosts_in_different_vlans_exchange_a_write(tmp_path, log):
    with nothing_is_left(), Lab(many(64), tmp_path, log.emit) as lab:
        assert lab.rdma_mode == "exclusive"
        for name in "h0", "h31", "h63":
            with lab[name].entered():
                assert devices() == {f"{name}-eth1"}
        assert write_arrives(lab.host("h0"), lab.host("h63"))


TWO_SWITCHES = """
name: two
topology:
  nodes:
    s1: {kind: switch, vlans: {10: 10.0.10.1/24}}
    s2: {kind: switch, vlans: {10: null}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["s1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["s2:e1", "b:eth1"], vlan: 10}
    - {endpoints: ["s1:up", "s2:up"], trunk: [10]}
"""


@pytest.mark.topology(TWO_SWITCHES)
def test_a_lab_that_is_up_forwards_on_every_port(lab):
    assert [node.name for node in lab.nodes.values() if not node.links_work()] == []
