"""Services: by kube-proxy's NAT on the nodes, and by BPF at the socket."""

import json

import pytest
from networks import FLAT

pytestmark = pytest.mark.topology(FLAT)
SERVER = """
import socket
server = socket.create_server(("0.0.0.0", 8080))
while True:
    one, peer = server.accept()
    one.sendall(peer[0].encode())
    one.close()
"""
CLIENT = """
import socket, sys
try:
    one = socket.create_connection((sys.argv[1], 80), 5)
    print(one.recv(100).decode(), one.getpeername()[0])
except OSError as error:
    print(type(error).__name__)
"""
UDP = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(5)
one.sendto(b"x", (sys.argv[1], 53))
print(one.recvfrom(100)[1])
"""
POOL = {
    "apiVersion": "spiderpool.spidernet.io/v2beta1",
    "kind": "SpiderIPPool",
    "metadata": {"name": "rail1"},
    "spec": {"subnet": "10.0.20.0/24", "ips": ["10.0.20.100-10.0.20.109"]},
}
CONFIG = {
    "cniVersion": "1.0.0",
    "plugins": [
        {"type": "macvlan", "master": "eth1", "ipam": {"type": "ippool", "default_ipv4_ippool": ["rail1"]}},
        {"type": "coordinator", "hijackCIDR": ["10.96.0.0/12"]},
    ],
}
NETWORK = {
    "apiVersion": "k8s.cni.cncf.io/v1",
    "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": "rail1", "namespace": "kube-system"},
    "spec": {"config": json.dumps(CONFIG)},
}
MULTUS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "multus-daemon-config", "namespace": "kube-system"},
    "data": {"daemon-config.json": '{"clusterNetwork": "rail1"}'},
}
EBPF = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cilium-config", "namespace": "kube-system"},
    "data": {"kube-proxy-replacement": "true"},
}


def kube_proxy(cidr):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
        "data": {"config.conf": f"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nclusterCIDR: {cidr}\nmode: nftables\n"},
    }


def pod(name, node, **labels):
    metadata = {"name": name, "labels": labels}
    containers = [{"name": "main", "image": "x", "ports": [{"name": "http", "containerPort": 8080}]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": containers},
    }


def service(name="web", target="http", selector=None, **spec):
    ports = [{"name": "http", "port": 80, "targetPort": target}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    given = {"selector": selector or {"app": "web"}, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": given}


@pytest.fixture
def pods(lab):
    """A client on node1, servers on both nodes."""
    for one in (POOL, NETWORK, MULTUS):
        lab.pods.apply(one)
    for one in (pod("client", "node1"), pod("web1", "node1", app="web"), pod("web2", "node2", app="web")):
        lab.pods.apply(one)
    there = {name: lab.nodes[name] for name in ("client", "web1", "web2")}
    for name in ("web1", "web2"):
        there[name].spawn("python3", "-c", SERVER)
    lab.scheduler.sleep(1)
    yield there
    for kind in ("Pod", "Service"):
        for one in lab.objects.list(kind):
            lab.pods.delete_object(kind, one["metadata"]["name"])
    for one in lab.objects.list("ConfigMap"):
        if one["metadata"]["name"] != "multus-daemon-config":
            lab.pods.delete_object("ConfigMap", one["metadata"]["name"], "kube-system")


def asked(node, address, times=1, program=CLIENT):
    return [node.run("python3", "-c", program, address).stdout.split() for _ in range(times)]


def test_a_service_is_reached_by_the_node_with_its_address(lab, pods):
    """By kube-proxy: a pod of the fabric is in no network of pods, so what it sends has the node's address."""
    lab.pods.apply(service())
    address = lab.objects.get("Service", "web")["spec"]["clusterIP"]
    assert address == "10.96.0.16"
    answers = asked(pods["client"], address, 8)
    assert {peer for _, peer in answers} == {address}
    assert {client for client, _ in answers} == {str(lab.host("node1")["eth1"].address().ip)}
    by_node = asked(lab.host("node2"), address, 8)
    assert {peer for _, peer in by_node} == {address}


def test_without_the_node_s_address_the_answer_goes_past_the_node(lab, pods):
    """The network of pods is that of the fabric: the server answers the client itself, which knows no such peer."""
    lab.pods.apply(kube_proxy("10.0.20.0/24"))
    lab.pods.apply(service(selector={"app": "web2"}))
    lab.pods.delete_object("Pod", "web2")
    lab.pods.apply(pod("web2", "node2", app="web2"))
    lab.nodes["web2"].spawn("python3", "-c", SERVER)
    lab.scheduler.sleep(1)
    assert asked(pods["client"], lab.objects.get("Service", "web")["spec"]["clusterIP"]) == [["TimeoutError"]]


def test_at_the_socket_no_packet_has_the_service_s_address(lab, pods):
    lab.pods.apply(EBPF)
    lab.pods.apply(service(clusterIP="10.96.0.10"))
    own = str(pods["client"]["eth0"].address().ip)
    answers = asked(pods["client"], "10.96.0.10", 4)
    assert answers == [[own, "10.96.0.10"]] * 4
    for name in ("web1", "web2"):
        pods[name].spawn("socat", "UDP4-RECVFROM:53,fork", "EXEC:cat")
    lab.scheduler.sleep(1)
    assert asked(pods["client"], "10.96.0.10", 1, UDP) == [["('10.96.0.10',", "53)"]]
    assert asked(lab.host("node1"), "10.96.0.10") == [[str(lab.host("node1")["eth1"].address().ip), "10.96.0.10"]]


@pytest.mark.parametrize("proxy", ["nftables", "ebpf"])
def test_endpoints_follow_pods_and_a_service_without_one_is_refused(lab, pods, proxy):
    if proxy == "ebpf":
        lab.pods.apply(EBPF)
    lab.pods.apply(service(target=8080, clusterIP="10.96.0.11"))
    lab.pods.delete_object("Pod", "web1")
    assert len({tuple(one) for one in asked(pods["client"], "10.96.0.11", 4)}) == 1
    lab.pods.delete_object("Pod", "web2")
    assert asked(pods["client"], "10.96.0.11") == [["ConnectionRefusedError"]]
    lab.pods.delete_object("Service", "web")
    assert asked(lab.host("node1"), "10.96.0.11") != [["ConnectionRefusedError"]]
