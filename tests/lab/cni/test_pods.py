"""A pod gets what its conflists say, by the real plugins, and gives it back."""

import json
from ipaddress import IPv4Address, IPv4Interface

import pytest
from networks import FLAT, ROUTED, bridge, ipam, macvlan, network

from testbed import Lab, Topology
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import InputError, TestbedError
from testbed.faults import Injection, StrictRpFilter
from testbed.kernel import rdma
from testbed.lab import Host, Pod
from testbed.lab.leaks import inventory
from testbed.topology import IPInterface
from testbed.workload.verbs import Endpoint, connect_pair

FIRST = IPv4Interface("10.0.10.100/24")


def addresses(pod: Pod) -> dict[str, IPInterface]:
    return {name: interface.address() for name, interface in pod.interfaces.items()}


def rdma_devices(pod: Pod) -> dict[str, str]:
    return {name: interface.rdma for name, interface in pod.interfaces.items() if interface.rdma}


def endpoint(host: Host, interface: str = "eth0") -> Endpoint:
    ip = host[interface].address().ip
    return Endpoint(host[interface].device, host.namespace, ip, nic=host[interface].nic)


def write_arrives(left: Pod, right: Pod, *, size: int = 5000) -> bool:
    with endpoint(left) as near, endpoint(right) as far:
        connect_pair(near, far)
        return near.write(size, within=5).ok and far.load(0, size) == near.load(0, size)


def left_of(lab: Lab, before: set[str]) -> set[str]:
    """All that there is more than before, but for the two files that host-local keeps of a network on purpose."""
    new = inventory(lab.directory / "cni") - before
    return {line for line in new if not line.endswith(("/lock", "/last_reserved_ip.0"))}


# What a pod gets


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0"])
@pytest.mark.topology(ROUTED)
def test_a_pod_has_what_its_plugins_gave_it(lab, log, version):
    pod = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10), version=version)])

    assert addresses(pod) == {"eth0": FIRST}
    assert pod["eth0"].mac.startswith("06:")
    with pod.entered(), rdma.Rdma() as here:
        assert here.links() == rdma_devices(pod)
    assert pod.ping("10.0.20.2", within=1)
    (added,) = log.find("cni", command="ADD")
    assert added["text"] == "ADD rdma on eth0 by macvlan, rxe: 10.0.10.100/24"
    assert added["data"]["result"]["cniVersion"] == version


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", None])
@pytest.mark.topology(ROUTED)
def test_before_0_3_a_result_has_no_interfaces_and_the_pod_is_the_same(lab, log, version):
    """The reference plugins answer in 0.1.0 and 0.2.0, and take a configuration without a version for 0.1.0."""
    old = network({"type": "macvlan", "master": "eth1", "ipam": ipam(10)}, {"type": "tuning"})
    old = {key: value for key, value in {**old, "cniVersion": version}.items() if value}
    pod = lab.pods.create(lab.host("node1"), "web", [old])

    assert addresses(pod) == {"eth0": FIRST}
    assert pod.ping("10.0.20.2", within=1)
    (added,) = log.find("cni", command="ADD")
    assert added["data"]["result"]["cniVersion"] == (version or "0.1.0")
    assert [one["address"] for one in added["data"]["result"]["ips"]] == [str(FIRST)]
    cached = json.loads(next((lab.directory / "cni/node1/lib/results").iterdir()).read_text())
    assert cached["result"]["ip4"]["ip"] == str(FIRST)
    with pytest.raises(TestbedError, match="does not support CHECK command"):
        pod.check()
    pod.delete()
    assert addresses(lab.pods.create(lab.host("node1"), "again", [macvlan(ipam(10, last=100))])) == {"eth0": FIRST}


@pytest.mark.parametrize("mode", [pytest.param("shared", marks=pytest.mark.slow), "exclusive"])
def test_pods_of_two_subnets_speak_rdma(tmp_path, log, request, mode):
    topology = Topology.load(request.path.parent / ROUTED)
    with Lab(topology, tmp_path, log.emit, rdma_mode=mode, networks=PodNetworks(tmp_path)) as lab:
        left = lab.pods.create(lab.host("node1"), "left", [macvlan(ipam(10))])
        right = lab.pods.create(lab.host("node2"), "right", [macvlan(ipam(20))])
        left.check()

        assert write_arrives(left, right)

        with left.entered(), rdma.Rdma() as here:
            foreign = set() if mode == "exclusive" else set(rdma_devices(right).values())
            assert set(here.devices()) == {*rdma_devices(left).values(), *foreign}


@pytest.mark.topology(ROUTED)
def test_a_pod_of_a_node_with_hardware_nics_has_such_a_card(lab):
    lab.host("node1").nic = "hardware"
    pod = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10))])
    peer = lab.pods.create(lab.host("node2"), "peer", [macvlan(ipam(20))])

    with endpoint(pod) as near, endpoint(peer) as far:
        connect_pair(near, far)
        assert near.connection is not None
        assert near.connection.mac == lab.switch("leaf").svi_mac()


@pytest.mark.topology(ROUTED)
def test_networks_become_eth0_and_net1_in_their_order(lab):
    pod = lab.pods.create(lab.host("node1"), "pod", [bridge(), macvlan(ipam(10))])

    assert addresses(pod) == {"eth0": IPv4Interface("10.244.1.2/24"), "net1": FIRST}
    assert list(rdma_devices(pod)) == ["net1"]
    assert pod.ping("10.244.1.1", within=1)
    assert pod.ping("10.0.10.1", within=1)


@pytest.mark.parametrize("node", ["node1", "node2"])
@pytest.mark.topology(FLAT)
def test_pods_of_one_vlan_reach_each_other(lab, node):
    near = lab.pods.create(lab.host("node1"), "near", [macvlan(ipam(20))])
    far = lab.pods.create(lab.host(node), "far", [macvlan(ipam(20, first=101))])

    assert near.ping("10.0.20.101", within=1)
    assert write_arrives(near, far)

    learned = lab.switch("leaf").fdb_table()
    assert learned[near["eth0"].mac] == "e1"
    if node == "node2":
        assert learned[far["eth0"].mac] == "e2"


@pytest.mark.fresh
@pytest.mark.topology(FLAT)
def test_an_address_can_come_back_on_another_node(lab):
    lab.pods.create(lab.host("node1"), "old", [macvlan(ipam(20))]).delete()
    new = lab.pods.create(lab.host("node2"), "new", [macvlan(ipam(20))])

    assert lab.host("node1").ping("10.0.20.100", within=1)
    assert lab.host("node1")["eth1"].neighbour(IPv4Address("10.0.20.100")) == new["eth0"].mac


@pytest.mark.topology(ROUTED)
def test_a_pod_of_the_same_name_is_another_container(lab):
    first = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10))])
    first.delete()
    second = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10))])

    assert second["eth0"].mac != first["eth0"].mac
    assert second["eth0"].address().ip == IPv4Address("10.0.10.101")  # host-local goes round


def test_a_network_may_be_a_file_beside_the_test(tmp_path, log, request):
    (tmp_path / "rdma.conflist").write_text(json.dumps(macvlan(ipam(10))))
    topology = Topology.load(request.path.parent / ROUTED)
    with Lab(topology, tmp_path / "out", log.emit, networks=PodNetworks(tmp_path)) as lab:
        assert addresses(lab.pods.create(lab.host("node1"), "pod", ["rdma.conflist"])) == {"eth0": FIRST}
        with pytest.raises(InputError, match=r"Did you mean rdma\.conflist\?"):
            lab.pods.create(lab.host("node1"), "other", ["rmda.conflist"])


# What else there is


@pytest.mark.topology(ROUTED)
def test_a_node_has_its_own_files(lab):
    for name in "node1", "node2":
        pod = lab.pods.create(lab.host(name), f"pod-{name}", [macvlan(ipam(10))])
        assert addresses(pod) == {"eth0": FIRST}
    assert (lab.directory / "cni/node1/lib/networks/rdma/10.0.10.100").exists()
    assert (lab.directory / "cni/node2/lib/networks/rdma/10.0.10.100").exists()


@pytest.mark.topology(ROUTED)
def test_the_cache_is_libcni_s(lab):
    pod = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10))])
    (file,) = (lab.directory / "cni/node1/lib/results").iterdir()
    entry = json.loads(file.read_text())
    assert file.name == f"rdma-{entry['containerId']}-eth0"
    assert file.stat().st_mode & 0o777 == 0o600
    assert entry["kind"] == "cniCacheV1"
    assert entry["netns"] == f"/run/netns/{pod.namespace}"
    assert entry["result"]["ips"] == [{"interface": 0, "address": "10.0.10.100/24", "gateway": "10.0.10.1"}]
    assert ["K8S_POD_NAME", "web"] in entry["cniArgs"]


@pytest.mark.parametrize(
    ("kind", "options"), [("ipvlan", {"master": "eth1", "mode": "l2"}), ("host-device", {"device": "vf0"}), ("ptp", {})]
)
@pytest.mark.topology(ROUTED)
def test_rdma_works_on_the_interfaces_of_other_plugins_too(lab, kind, options):
    node = lab.host("node1")
    if kind == "host-device":
        node.add_vf("vf0", "eth1")
    pod = lab.pods.create(node, "pod", [network({"type": kind, **options, "ipam": ipam(10)}, {"type": "rxe"})])
    pod.check()
    assert list(rdma_devices(pod)) == ["eth0"]


@pytest.mark.topology(ROUTED)
@pytest.mark.fresh
def test_a_vf_comes_back_when_the_namespace_of_its_pod_is_lost(lab):
    """Down, with its MAC, under the name that it had there, unless that is taken: as hardware does."""
    node = lab.host("node1")
    pods = []
    for number in range(2):
        node.add_vf(f"vf{number}", "eth1")
        plugin = {"type": "host-device", "device": f"vf{number}", "ipam": ipam(10)}
        pods.append(lab.pods.create(node, f"pod{number}", [network(plugin, {"type": "rxe"})]))
    macs = [pod["eth0"].mac for pod in pods]
    macvlan = lab.pods.create(node, "other", [network({"type": "macvlan", "master": "eth1", "ipam": ipam(10)})])
    for pod in [*pods, macvlan]:
        pod.lose()

    back = {name: (mac, index) for index, (name, mac) in node.kernel.macvlans().items()}
    assert [mac for mac, _ in back.values()] == macs
    (_, index) = back.pop(next(name for name in back if name != "eth0"))
    assert list(back) == ["eth0"]
    assert f"dev{index}@" in node.run("ip", "link").stdout
    assert "eth0" not in node.run("ip", "link", "show", "up").stdout
    with pytest.raises(TestbedError, match="failed to find host device: Link not found"):
        lab.pods.create(node, "next", [network({"type": "host-device", "device": "vf0", "ipam": ipam(10)})])
    again = lab.pods.create(node, "again", [network({"type": "host-device", "device": "eth0", "ipam": ipam(10)})])
    assert again["eth0"].mac == macs[0]


@pytest.mark.topology(ROUTED)
def test_plugins_chain_behind_rxe(lab):
    tuning = {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_announce": "2"}}
    pod = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10), tuning, {"type": "sbr"})])
    assert pod.run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_announce").stdout == "2\n"
    assert "from 10.0.10.100 lookup 100" in pod.run("ip", "rule").stdout
    with pytest.raises(TestbedError, match="Failed to find Gateway"):  # sbr moved it to that table: so 1.1.1 is
        pod.check()


# Its end


@pytest.mark.parametrize("end", ["delete", "lose"])
@pytest.mark.topology(ROUTED)
def test_the_addresses_of_a_pod_that_has_gone_are_those_that_it_had(lab, end):
    node, plugged = lab.host("node1"), macvlan(ipam(10))
    pod = lab.pods.create(node, "pod", [plugged])
    pod.run("ip", "address", "add", "10.0.10.99/24", "dev", "eth0")
    had = pod["eth0"].all_addresses
    getattr(pod, end)()
    lab.pods.collect(node, [plugged])
    assert pod["eth0"].all_addresses == had == [FIRST, IPv4Interface("10.0.10.99/24")]
    assert pod["eth0"].address() == FIRST


@pytest.mark.topology(ROUTED)
def test_a_deleted_pod_leaves_nothing(lab):
    lab.pods.create(lab.host("node1"), "first", [bridge(), macvlan(ipam(10))]).delete()
    before = inventory(lab.directory / "cni")

    lab.pods.create(lab.host("node1"), "second", [bridge(), macvlan(ipam(10))]).delete()

    assert not left_of(lab, before)


@pytest.mark.parametrize("mode", [pytest.param("shared", marks=pytest.mark.slow), "exclusive"])
def test_the_end_of_a_lab_deletes_its_pods_the_last_one_first(tmp_path, log, request, mode):
    topology = Topology.load(request.path.parent / ROUTED)
    with Lab(topology, tmp_path, log.emit, rdma_mode=mode, networks=PodNetworks(tmp_path)) as lab:
        for name in "one", "two":
            pod = lab.pods.create(lab.host("node1"), name, [bridge(), macvlan(ipam(10))])
            pod.spawn("ping", "-i", "0.2", "10.0.10.1")
    deleted = [(event["node"], event["data"]["interface"]) for event in log.find("cni", command="DEL")]
    assert deleted == [("two", "net1"), ("two", "eth0"), ("one", "net1"), ("one", "eth0")]


@pytest.mark.topology(ROUTED)
def test_check_finds_what_was_taken_from_a_pod(lab):
    pod = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10))])
    pod.run("ip", "address", "flush", "dev", "eth0")
    with pytest.raises(TestbedError, match=r'^pod pod: plugin type="macvlan" name="rdma" failed \(check\): '):
        pod.check()


@pytest.mark.topology(ROUTED)
def test_check_finds_a_missing_rdma_device(lab):
    pod = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10))])
    with pod.entered(), rdma.Rdma() as here:
        here.delete(pod["eth0"].device)
        here.wait_gone([pod["eth0"].device])
    with pytest.raises(TestbedError, match=r'type="rxe" .* failed \(check\): eth0 has no RDMA device'):
        pod.check()


@pytest.mark.topology(ROUTED)
def test_a_second_delete_does_nothing(lab, log):
    pod = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10))])
    pod.delete()
    pod.delete()
    again = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10))])
    pod.delete()  # nor does it touch the next pod of that name
    assert again.ping("10.0.10.1", within=1)
    assert len([event for event in log.find("pod") if "deleted" in event["text"]]) == 1


# Pods that cannot be


@pytest.mark.topology(ROUTED)
def test_a_pod_name_that_is_taken_leaves_the_lab_as_it_was(lab):
    pod = lab.pods.create(lab.host("node1"), "pod", [macvlan(ipam(10))])
    with pytest.raises(InputError, match="pod already exists: a pod on node1") as refused:
        lab.pods.create(lab.host("node2"), "pod", [macvlan(ipam(20))])
    assert "Delete it first" in refused.value.hint
    assert "netns" not in str(refused.value)
    with pytest.raises(InputError, match="node2 already exists: a host of the topology"):
        lab.pods.create(lab.host("node1"), "node2", [])
    assert pod.ping("10.0.10.1", within=1)
    with pytest.raises(InputError, match="pods run on hosts"):
        lab.pods.create(pod, "inner", [])
    with pytest.raises(InputError, match="a pod cannot have this name"):
        lab.pods.create(lab.host("node1"), "a/b", [])


def test_a_lab_without_networks_says_so(tmp_path, log, request):
    with (
        Lab(Topology.load(request.path.parent / ROUTED), tmp_path, log.emit) as lab,
        pytest.raises(InputError, match="this lab has no pods"),
    ):
        lab.pods.create(lab.host("node1"), "pod", [])


@pytest.mark.topology(ROUTED)
def test_a_fault_on_a_pod_is_recovered_when_the_pod_is_deleted(lab, log):
    pod = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10))])
    injection = Injection(lab, StrictRpFilter(host="web", interface="eth0"))
    injection.inject()
    pod.delete()
    assert not injection.active
    assert [event["data"]["fault"] for event in log.find("fault.recovered")] == ["strict-rp-filter"]
