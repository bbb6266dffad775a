"""A program on a node sees the RDMA devices of that node and no others, and so its traffic is on the wire."""

from pathlib import Path
from typing import Any

import pytest

from testbed import Lab, Topology
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.kernel import own_devices, rdma
from testbed.lab import Host
from testbed.lab.lab import RdmaMode
from testbed.scenario.event_log import EventLog

PAIR = """
name: pair
topology:
  nodes: {leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}, a: {kind: host}, b: {kind: host}}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
"""
POD: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "rdma",
    "plugins": [
        {
            "type": "macvlan",
            "master": "eth1",
            "mode": "bridge",
            "ipam": {"type": "static", "addresses": [{"address": "10.0.10.100/24"}]},
        },
        {"type": "rxe"},
    ],
}
PINGS = 10
MAC = "02:00:00:00:00:77"


@pytest.fixture(params=["shared", "exclusive"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, log: EventLog):
    mode: RdmaMode = request.param
    topology = Topology.parse(PAIR)
    with Lab(topology, tmp_path, log.emit, rdma_mode=mode, networks=PodNetworks(tmp_path)) as running:
        yield running


def network(name: str) -> dict[str, Any]:
    """That of a pod p1, p2, …, with an address of its own."""
    macvlan, rxe = POD["plugins"]
    address = {"type": "static", "addresses": [{"address": f"10.0.10.10{name[1:]}/24"}]}
    return {**POD, "plugins": [{**macvlan, "ipam": address}, rxe]}


def device_files(node: Host) -> set[str]:
    return {name for name in node.run("ls", "/dev/infiniband").stdout.split() if name.startswith("uverbs")}


def wrong_device(node: Host, device: str) -> str:
    done = node.run("ibv_rc_pingpong", "-d", device, "-g", "1", check=False)
    return done.stdout + done.stderr


def listed(node: Host) -> list[str]:
    """What libibverbs lists, which asks the kernel over netlink first."""
    return [line.split()[0] for line in node.run("ibv_devices").stdout.splitlines()[2:]]


def in_sysfs(node: Host) -> list[str]:
    return node.run("ls", "/sys/class/infiniband").stdout.split()


def test_pingpong_that_takes_the_first_device_is_on_the_wire(pair):
    a, b, leaf = pair.host("a"), pair.host("b"), pair["leaf"]
    wire = leaf["e1"].capture("udp port 4791")
    server = a.spawn("ibv_rc_pingpong", "-g", "1", "-n", str(PINGS), "-e")
    pair.scheduler.wait(lambda: ":18515" in a.run("ss", "-ltn").stdout, 5)
    b.run("ibv_rc_pingpong", "-g", "1", "-n", str(PINGS), "-e", str(a["eth1"].address().ip))
    assert server.wait(5) == 0
    wire.stop()
    assert sum(frame.roce for frame in wire.frames()) >= 2 * PINGS  # both directions, several packets a message


def test_each_node_lists_its_own_devices(pair):
    a, b = pair.host("a"), pair.host("b")
    assert (listed(a), in_sysfs(a)) == (["a-eth1"], ["a-eth1"])
    assert (listed(b), in_sysfs(b)) == (["b-eth1"], ["b-eth1"])
    assert listed(pair["leaf"]) == []
    assert a.run("cat", "/sys/class/infiniband/a-eth1/ports/1/hw_counters/sent_pkts").stdout.strip().isdigit()


def test_a_device_that_comes_later_is_seen_by_a_program_that_runs(pair):
    a = pair.host("a")
    shell = a.spawn("sh", "-c", "while [ $(ls /dev/infiniband | grep -c uverbs) != 2 ]; do sleep 0.01; done")
    a.ip.link("add", ifname="v1", kind="macvlan", link=a["eth1"].index, macvlan_mode="bridge", address=MAC)
    a.adopt("v1", MAC).add_rdma("a-v1")
    assert listed(a) == ["a-eth1", "a-v1"]
    assert shell.wait(1) == 0


def test_a_pod_and_its_host_see_each_their_own(pair):
    a = pair.host("a")
    pod = pair.pods.create(a, "p1", [POD])
    assert listed(pod) == [pod["eth0"].rdma]
    assert listed(a) == ["a-eth1"]
    pod.delete()
    assert not (own_devices.ROOT / pod.namespace).exists()


def test_a_pod_finds_the_machine_s_devices_in_sysfs_and_its_own_files_only(pair):
    a, b = pair.host("a"), pair.host("b")
    pod, other, far = (
        pair.pods.create(host, name, [network(name)]) for name, host in (("p1", a), ("p2", a), ("p3", b))
    )
    with rdma.Rdma() as system:
        exclusive = system.exclusive
    own, foreign = pod["eth0"].device, other["eth0"].device
    assert listed(pod) == [own]
    assert set(in_sysfs(pod)) == ({own} if exclusive else {own, foreign, "a-eth1"})
    assert in_sysfs(a) == ["a-eth1"]
    assert len(device_files(pod)) == 1
    assert not device_files(pod) & device_files(other)
    assert "not found" in wrong_device(pod, foreign)

    other.delete()
    assert set(in_sysfs(pod)) == ({own} if exclusive else {own, "a-eth1"})
    assert set(in_sysfs(far)) == ({far["eth0"].device} if exclusive else {far["eth0"].device, "b-eth1"})


def test_a_privileged_pod_has_the_files_of_its_machine_and_exclusive_mode_stops_it(pair):
    a, b = pair.host("a"), pair.host("b")
    before = pair.pods.create(a, "p1", [network("p1")])
    pod = pair.pods.create(a, "p2", [network("p2")], privileged=True)
    with rdma.Rdma() as system:
        exclusive = system.exclusive
    own, foreign = pod["eth0"].device, before["eth0"].device
    assert set(listed(pod)) == ({own} if exclusive else {own, foreign, "a-eth1"})
    assert device_files(pod) == device_files(a) | device_files(before) | device_files(pod)
    assert not device_files(pod) & device_files(b)
    (file,) = device_files(before)
    said = pod.run("sh", "-c", f"exec 3</dev/infiniband/{file}", check=False)
    assert ("Operation not permitted" in said.stderr) is exclusive
    assert (said.returncode != 0) is exclusive

    later = pair.pods.create(a, "p3", [network("p3")])
    assert device_files(later) < device_files(pod)
    later.delete()
    before.delete()
    assert len(device_files(pod)) == 2


def test_what_a_program_mounts_stays_and_pins_no_namespace(pair):
    a = pair.host("a")
    a.run("ip", "netns", "add", "inner")
    a.run("ip", "netns", "exec", "inner", "true")
    long_lived = a.spawn("sleep", "100")
    a.run("ip", "netns", "del", "inner")
    mounted = Path(f"/proc/{long_lived.pid}/mountinfo").read_text()
    assert "inner" not in mounted
    pod = pair.pods.create(a, "p1", [network("p1")])
    pod.run("true")
    other = pair.host("b").spawn("sleep", "100")
    pod.delete()
    assert pod.namespace not in Path(f"/proc/{other.pid}/mountinfo").read_text()


def test_nodes_do_not_share_run(pair):
    """Pid files, sockets and names of network namespaces are a node's own; the lab's files are there."""
    a, b = pair.host("a"), pair.host("b")
    for node in a, b:
        node.run("sh", "-c", f"echo {node.name} > /run/daemon.pid; mkdir /var/run/daemon /run/lock/daemon")
        node.run("ip", "netns", "add", "inner")
        node.run("ip", "-n", "inner", "link", "set", "lo", "alias", node.name)
    for node in a, b:
        assert node.run("cat", "/run/daemon.pid").stdout == f"{node.name}\n"
        assert f"alias {node.name}" in node.run("ip", "-n", "inner", "link").stdout
        assert node.run("ip", "netns", "list").stdout.split() == ["inner"]
        node.run("test", "-d", "/run/testbed")
    pod = pair.pods.create(a, "p1", [network("p1")])
    assert "daemon.pid" not in pod.run("ls", "/run").stdout
    assert not Path("/run/daemon.pid").exists()


def test_a_lab_leaves_no_mount(tmp_path, log):
    with Lab(Topology.parse(PAIR), tmp_path, log.emit) as running:
        running["a"].run("true")
    assert str(own_devices.ROOT) not in Path("/proc/self/mountinfo").read_text()
