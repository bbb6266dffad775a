"""Services: their endpoints, their addresses, and what a ConfigMap says of the way to them."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from testbed.cni.objects import manifests, services
from testbed.cni.objects.services import ReadyPod
from testbed.errors import InputError
from testbed.kernel import nftables


def service(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


def pod(name: str, last: int, **labels: str) -> ReadyPod:
    return ReadyPod("default", name, "node1", labels, IPv4Address(f"10.0.0.{last}"), {"http": 8000 + last})


PODS = [pod("a", 1, app="web", tier="x"), pod("b", 2, app="web"), pod("c", 3, app="db")]


def ends(**spec: Any) -> list[list[str]]:
    given = {"clusterIP": "10.96.0.20", "selector": {"app": "web"}, **spec}
    found = services.served([("default", "web", given)], PODS)
    return [[f"{end.pod} {end.address}:{end.port}" for end in port.endpoints] for port in found]


def test_endpoints_are_the_ports_of_the_pods_that_the_selector_chooses():
    assert ends(ports=[{"port": 80}]) == [["a 10.0.0.1:80", "b 10.0.0.2:80"]]
    assert ends(ports=[{"port": 80, "targetPort": 9000}], selector={"app": "web", "tier": "x"}) == [["a 10.0.0.1:9000"]]
    assert ends(ports=[{"port": 80, "targetPort": "http"}]) == [["a 10.0.0.1:8001", "b 10.0.0.2:8002"]]
    assert ends(ports=[{"port": 80, "targetPort": "no"}]) == [[]]
    assert ends(ports=[{"port": 80}], clusterIP="None") == [["a 10.0.0.1:80", "b 10.0.0.2:80"]]  # a name only
    assert ends(ports=[{"port": 80}], selector=None) == []
    assert services.served([("other", "web", {"clusterIP": "10.96.0.1", "selector": {"app": "web"}})], PODS) == []


def test_a_service_gets_the_next_address():
    assert services.free_address([]) == "10.96.0.16"
    assert services.free_address(["10.96.0.16", "10.96.0.18"]) == "10.96.0.17"


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, "spec.ports: Required value"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port: Input should be greater"),
        ({"ports": [{"port": 80}, {"port": 81}]}, "spec.ports: each of several ports needs a name"),
        ({"ports": [{"port": 80}], "clusterIP": "10.96.0"}, "spec.clusterIP: Invalid value: '10.96.0': must"),
        ({"ports": [{"port": 80}], "clusterIP": "fd00::1"}, "spec.clusterIP: services of a lab are of IPv4"),
        ({"ports": [{"port": 80, "protocol": "SCTP"}]}, "spec.ports[0].protocol must be 'TCP' or 'UDP'"),
    ],
)
def test_a_wrong_service_is_refused(spec, wrong):
    with pytest.raises(InputError) as said:
        manifests.make(service(**spec))
    assert said.value.message.startswith(wrong)
    assert manifests.make(service(type="ExternalName", externalName="x.example"))


def test_the_way_to_services_is_what_the_cluster_s_config_maps_say():
    assert services.proxy([]) == services.Proxy("nftables", IPv4Network("10.244.0.0/16"))
    conf = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nclusterCIDR: fd00::/64,10.10.0.0/16\nmode: ipvs\n"
    kube_proxy = ("kube-system", "kube-proxy", {"config.conf": conf})
    assert services.proxy([kube_proxy]).local == IPv4Network("10.10.0.0/16")
    assert services.proxy([("kube-system", "kube-proxy", {"config.conf": "clusterCIDR: ''"})]).local is None
    cilium = ("kube-system", "cilium-config", {"kube-proxy-replacement": "true"})
    assert services.proxy([kube_proxy, cilium]).kind == "ebpf"


def test_a_node_s_table_sends_to_endpoints_and_rejects_without_one():
    to = [(IPv4Address("10.0.0.1"), 80), (IPv4Address("10.0.0.2"), 80)]
    of, none = (IPv4Address("10.96.0.1"), "TCP", 80), (IPv4Address("10.96.0.2"), "UDP", 53)
    text = nftables.kube_proxy({of: to, none: []}, IPv4Network("10.244.0.0/16"))
    assert "10.96.0.1 . tcp . 80 : goto service-0" in text
    assert "numgen random mod 2 vmap { 0 : goto endpoint-0-0, 1 : goto endpoint-0-1 }" in text
    assert "10.96.0.2 . udp . 53 : goto reject-it" in text
    assert "ip saddr != 10.244.0.0/16 meta mark set" in text
    assert "saddr !=" not in nftables.kube_proxy({of: to}, None)
