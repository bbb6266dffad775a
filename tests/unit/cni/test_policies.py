"""What policies allow a pod, by interface."""

from typing import Any

import pytest

from testbed.cni.objects import manifests, policies
from testbed.cni.objects.policies import Allowed, Filter, PolicyPod
from testbed.errors import InputError
from testbed.kernel import nftables

FABRIC = {"net1": "default/rail1"}


def pod(name: str, last: int, namespace: str = "default", **labels: str) -> PolicyPod:
    addresses = {"eth0": [f"10.0.0.{last}"], "net1": [f"10.1.0.{last}", f"fd00::{last}"]}
    return PolicyPod(namespace, name, labels, addresses, FABRIC, {"http": 8080})


WEB, DB, OTHER = pod("web", 1, app="web"), pod("db", 2, app="db"), pod("x", 3, "other", app="web")
NAMESPACES = {"other": {"team": "b"}}


def filters(
    spec: dict[str, Any], kind: str = "NetworkPolicy", of: PolicyPod = WEB, **annotations: str
) -> dict[str, Filter]:
    notes = {policies.POLICY_FOR: annotations["policy_for"]} if annotations else {}
    return policies.filters(of, [(kind, "default", "p", notes, spec)], [WEB, DB, OTHER], NAMESPACES)


def test_a_policy_isolates_what_it_chooses_in_its_directions():
    all_pods: dict[str, Any] = {"podSelector": {}}
    assert filters(all_pods) == {"eth0": Filter([], None, ["default/p"])}
    assert filters({**all_pods, "policyTypes": ["Egress"]}) == {"eth0": Filter(None, [], ["default/p"])}
    assert filters({**all_pods, "egress": [{}]})["eth0"].egress == [Allowed(None, (), None)]
    assert filters({"podSelector": {"matchLabels": {"app": "db"}}}) == {}
    assert filters(all_pods, of=OTHER) == {}, "it is of its namespace"


def test_peers_are_pods_of_namespaces_and_blocks():
    def peers(*given: dict[str, Any]) -> tuple[str, ...] | None:
        (found,) = filters({"podSelector": {}, "ingress": [{"from": list(given)}]})["eth0"].ingress or ()
        return found.peers

    assert peers({"podSelector": {"matchLabels": {"app": "db"}}}) == ("10.0.0.2", "10.1.0.2", "fd00::2")
    assert peers({"namespaceSelector": {"matchLabels": {"team": "b"}}}) == ("10.0.0.3", "10.1.0.3", "fd00::3")
    by_name = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}
    assert peers({**by_name, "podSelector": {"matchLabels": {"app": "db"}}}) == ()
    assert peers({"ipBlock": {"cidr": "10.9.0.0/16"}}, {"podSelector": {}}) == (
        "10.9.0.0/16", "10.0.0.1", "10.1.0.1", "fd00::1", "10.0.0.2", "10.1.0.2", "fd00::2",
    )  # fmt: skip


def test_ports_have_names_ends_and_protocols():
    ports = [{"port": "http"}, {"port": 53, "protocol": "UDP"}, {"port": 100, "endPort": 200}, {"port": "no"}, {}]
    (found,) = filters({"podSelector": {}, "ingress": [{"ports": ports}]})["eth0"].ingress or ()
    assert found == Allowed(None, (), (("TCP", 8080, 8080), ("UDP", 53, 53), ("TCP", 100, 200), ("TCP", 0, 65535)))


def test_a_multi_network_policy_is_for_the_networks_that_it_names():
    assert list(filters({"podSelector": {}}, "MultiNetworkPolicy", policy_for="rail1, rail2")) == ["net1"]
    assert filters({"podSelector": {}}, "MultiNetworkPolicy", policy_for="other/rail1") == {}


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, "spec.podSelector is missing"),
        ({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "x"}}]}]}, "spec.ingress[0]: ipBlock: 'x'"),
        (
            {"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]},
            "spec.egress[0]: may not specify both ipBlock and another peer",
        ),
    ],
)
def test_a_wrong_policy_is_refused(spec, wrong):
    data = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": spec}
    with pytest.raises(InputError) as said:
        manifests.make(data)
    assert said.value.message.startswith(wrong)


def test_roce_of_a_hardware_nic_passes_before_all_rules():
    text = nftables.network_policy({"eth0": [(("10.0.0.2",), ("10.0.0.7",), (("TCP", 80, 90),))]}, {}, rdma_passes=True)
    assert "ip saddr { 10.0.0.2 } ip saddr != { 10.0.0.7 } tcp dport 80-90 accept; counter drop" in text
    assert text.index("udp dport 4791 counter accept") < text.index('iifname "eth0" goto input-0')
    assert "4791" not in nftables.network_policy({"eth0": []}, {}, rdma_passes=False)
