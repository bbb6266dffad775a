"""A pod gets what its conflists say by the real plugins, and gives it back."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Interface

import pytest
from networks import TOPOLOGY, ipam, macvlan, network

from testbed import Lab, Topology
from testbed.cni.pods import PodNetworks
from testbed.errors import InputError, TestbedError
from testbed.lab import Pod, rdma
from testbed.lab.census import census
from testbed.workload.verbs import Endpoint, connect_pair

METADATA = network(
    {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]},
    },
    name="metadata",
)
VLAN = network({"type": "vlan", "master": "eth1", "vlanId": 7, "ipam": ipam(10)}, {"type": "rxe"})


def endpoint(pod: Pod, interface: str = "eth0") -> Endpoint:
    return Endpoint(
        pod.rdma[interface], pod.namespace, pod.addresses[interface].ip, nic=pod.cards.get(interface)
    )


def write_arrives(left: Pod, right: Pod, interface: str = "eth0", *, size: int = 5000) -> bool:
    with endpoint(left, interface) as near, endpoint(right, interface) as far:
        connect_pair(near, far)
        return near.write(size, within=5).ok and far.load(0, size) == near.load(0, size)


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
@pytest.mark.topology(TOPOLOGY)
def test_a_pod_has_what_its_plugins_gave_it(lab, log, version):
    pod = lab.host("node1").pod("web", [macvlan(10, version=version)])

    assert pod.addresses == {"eth0": IPv4Interface("10.0.10.100/24")}
    assert pod.macs["eth0"].startswith("06:")
    with pod.entered(), rdma.Rdma() as here:
        assert here.links() == pod.rdma == {"eth0": pod.rdma["eth0"]}
    assert pod.ping("10.0.20.2", within=1)
    (added,) = log.find("cni", command="ADD")
    assert added["data"]["result"]["cniVersion"] == version
    assert added["text"] == "ADD rdma on eth0 by macvlan, rxe: 10.0.10.100/24"


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_pods_of_two_subnets_speak_rdma(tmp_path, log, request, mode):
    topology = Topology.load(request.path.parent / TOPOLOGY)
    with Lab(topology, tmp_path, log.emit, rdma_mode=mode, networks=PodNetworks(tmp_path)) as lab:
        left = lab.host("node1").pod("left", [macvlan(10)])
        right = lab.host("node2").pod("right", [macvlan(20)])
        left.check()

        assert write_arrives(left, right)

        with left.entered(), rdma.Rdma() as here:
            seen = set(here.devices())
        assert seen == {*left.rdma.values(), *([] if mode == "exclusive" else right.rdma.values())}


@pytest.mark.topology(TOPOLOGY)
def test_a_pod_on_a_node_with_hardware_nics_has_a_card(lab):
    node = lab.host("node1")
    node.nic = "hardware"
    pod, peer = node.pod("pod", [macvlan(10)]), lab.host("node2").pod("peer", [macvlan(20)])
    with endpoint(pod) as near, endpoint(peer) as far:
        connect_pair(near, far)
        assert near.connection is not None
        assert near.connection.mac == lab.plan.nodes["leaf"].svis[0].mac
    pod.delete()
    assert not pod.cards


@pytest.mark.topology(TOPOLOGY)
def test_networks_become_eth0_and_net1_in_their_order(lab):
    pod = lab.host("node1").pod("pod", [METADATA, macvlan(10)])

    assert pod.addresses == {"eth0": IPv4Interface("10.244.1.2/24"), "net1": IPv4Interface("10.0.10.100/24")}
    assert list(pod.rdma) == ["net1"]
    assert pod.ping("10.244.1.1", within=1)


@pytest.mark.parametrize("node", ["node1", "node2"], ids=["same-node", "another-node"])
@pytest.mark.topology("flat.clab.yml")
def test_pods_of_one_vlan_reach_each_other(lab, node):
    near = lab.host("node1").pod("near", [macvlan(20)])
    far = lab.host(node).pod("far", [macvlan(20, last=100) if node == "node2" else macvlan(20)])
    if node == "node2":  # each node has its own host-local: both got the first address
        assert far.addresses == near.addresses
        return
    assert near.ping(str(far.addresses["eth0"].ip), within=1)
    assert write_arrives(near, far)
