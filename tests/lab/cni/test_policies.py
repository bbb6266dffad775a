"""NetworkPolicies: what stops TCP in a pod, and lets through the RDMA of a NIC that does it itself."""

import json

import pytest

from testbed.workload import connected

HARDWARE = """\
name: policies
topology:
  kinds: {host: {rdma: false, nic: %s}}
  rdma_mode: shared
  nodes:
    leaf: {kind: switch, profile: sonic, vlans: {20: 10.0.20.1/24}}
    node1: {kind: host}
    node2: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "node1:eth1"], vlan: 20}
    - {endpoints: ["leaf:e2", "node2:eth1"], vlan: 20}
"""
SERVER = "import socket\nserver = socket.create_server(('', 8080))\nwhile True: server.accept()"
CLIENT = "import socket, sys; socket.create_connection((sys.argv[1], 8080), 2)"
CONFIG = {
    "cniVersion": "1.0.0",
    "plugins": [
        {"type": "macvlan", "master": "eth1", "ipam": {"type": "ippool", "default_ipv4_ippool": ["fabric"]}},
        {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_ignore": "1"}},
        {"type": "rxe"},
    ],
}


def apply(lab, kind, name, spec, version="v1", **metadata):
    lab.pods.apply({"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec})


def setup(lab):
    """A server of tenant a; clients of a and b. Each interface answers ARP for its own address alone."""
    pool = {"subnet": "10.0.20.0/24", "ips": ["10.0.20.100-10.0.20.109"]}
    apply(lab, "SpiderIPPool", "fabric", pool, "spiderpool.spidernet.io/v2beta1")
    definition = "k8s.cni.cncf.io/v1"
    apply(lab, "NetworkAttachmentDefinition", "fabric", {"config": json.dumps(CONFIG)}, definition)
    annotations = {"v1.multus-cni.io/default-network": "default/fabric", "k8s.v1.cni.cncf.io/networks": "fabric"}
    for name, node, tenant in (("server", "node1", "a"), ("same", "node2", "a"), ("other", "node2", "b")):
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "x"}]}
        apply(lab, "Pod", name, spec, labels={"tenant": tenant, "name": name}, annotations=annotations)
    lab.nodes["server"].spawn("python3", "-c", SERVER)
    lab.scheduler.sleep(1)


def tcp(lab, name, interface="eth0"):
    address = str(lab.nodes["server"][interface].address().ip)
    return lab.nodes[name].run("python3", "-c", CLIENT, address, check=False).returncode == 0


def rdma(lab, name):
    with connected(lab.nodes[name]["eth0"], lab.nodes["server"]["eth0"]) as (here, _):
        return here.write(4096, within=3).ok


SAME_TENANT = {
    "podSelector": {"matchLabels": {"tenant": "a"}},
    "ingress": [{"from": [{"podSelector": {"matchLabels": {"tenant": "a"}}}], "ports": [{"port": 8080}]}],
}


@pytest.mark.topology(HARDWARE % "hardware")
def test_a_policy_stops_tcp_and_not_the_rdma_of_a_hardware_nic(lab):
    setup(lab)
    assert [tcp(lab, name) for name in ("same", "other")] == [True, True]
    apply(lab, "NetworkPolicy", "tenants", SAME_TENANT, "networking.k8s.io/v1")
    assert [tcp(lab, name) for name in ("same", "other")] == [True, False]
    assert tcp(lab, "other", "net1"), "a NetworkPolicy is for eth0 alone"
    assert rdma(lab, "other")
    multi = {"k8s.v1.cni.cncf.io/policy-for": "fabric"}
    apply(lab, "MultiNetworkPolicy", "tenants", SAME_TENANT, "k8s.cni.cncf.io/v1beta1", annotations=multi)
    assert not tcp(lab, "other", "net1")
    lab.pods.delete_object("NetworkPolicy", "tenants")
    lab.pods.delete_object("MultiNetworkPolicy", "tenants")
    assert [tcp(lab, "other", name) for name in ("eth0", "net1")] == [True, True]


@pytest.mark.topology(HARDWARE % "rxe")
def test_soft_roce_meets_netfilter(lab):
    setup(lab)
    apply(lab, "NetworkPolicy", "tenants", SAME_TENANT, "networking.k8s.io/v1")
    assert not rdma(lab, "other")
    only = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "10.0.20.0/30"}}]}]}
    apply(lab, "NetworkPolicy", "nowhere", only, "networking.k8s.io/v1")
    assert not tcp(lab, "same")
