"""Networks that are defined by objects and selected by a pod's annotations, as with Multus."""

import json

import pytest
from networks import ROUTED, bridge, calls, ipam, macvlan, network, recorder

from testbed import PodMetadata, PodRequest
from testbed.errors import InputError
from testbed.workload import connected

pytestmark = pytest.mark.topology(ROUTED)
NETWORKS = "k8s.v1.cni.cncf.io/networks"


def test_a_pod_asks_for_an_address_and_a_mac_and_speaks_rdma_with_them(lab):
    lab.objects.apply("rails.yaml")
    wanted = [{"name": "rail1", "ips": ["10.0.10.77/24"], "mac": "02:00:5e:00:00:77", "interface": "rdma0"}]
    pod = lab.pods.create(
        lab.host("node1"), "a", [bridge()], namespace="ai", annotations={NETWORKS: json.dumps(wanted)}
    )
    assert list(pod.interfaces) == ["eth0", "rdma0"]
    assert str(pod["rdma0"].address()) == "10.0.10.77/24"
    assert pod["rdma0"].mac == "02:00:5e:00:00:77"
    peer = lab.pods.create(lab.host("node2"), "b", [macvlan(ipam(20))])
    with connected(pod["rdma0"], peer["eth0"]) as (here, _):
        assert here.write(4096, within=2).ok
    peer.delete()
    pod.delete()


def test_the_owner_s_template_and_the_pod_s_own_annotations_are_the_pod_s(lab):
    lab.objects.apply("rails.yaml")
    node = lab.host("node1")
    pod = lab.pods.create(node, "t", [], namespace="ai", labels={"rank": "0"}, owner="Deployment/trainer")
    there = lab.objects.get("Pod", "t", "ai")
    assert there["metadata"]["labels"] == {"app": "trainer", "rank": "0"}
    assert there["metadata"]["ownerReferences"][0]["name"] == "trainer"
    assert there["spec"] == {"nodeName": "node1"}
    assert list(pod.interfaces) == ["rdma0"]
    pod.delete()
    assert lab.objects.list("Pod") == []


def test_a_definition_without_a_config_is_the_file_of_its_name(lab):
    """specification.conflist defines `dbnet`."""
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    lab.objects.apply({**kind, "metadata": {"name": "dbnet"}})
    lab.objects.apply({**kind, "metadata": {"name": "other"}, "spec": {}})
    node = lab.host("node1")
    with pytest.raises(InputError, match="no file has a network of the name 'other'"):
        lab.pods.create(node, "web", [], annotations={NETWORKS: "other"})
    pod = lab.pods.create(node, "web", [], annotations={NETWORKS: "dbnet"})
    assert str(pod["net1"].address()) == "10.1.0.2/16"


def test_what_plugins_are_given(lab):
    """The pod's namespace in CNI_ARGS, and of what is asked only what a plugin takes."""
    answer = {"cniVersion": "1.0.0", "ips": [], "interfaces": []}
    config = network({**recorder(1, answer), "capabilities": {"mac": True}}, name="seen")
    metadata = {"name": "seen", "namespace": "ai"}
    definition = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata}
    lab.objects.apply({**definition, "spec": {"config": json.dumps(config)}})
    asked = json.dumps([{"name": "seen", "mac": "02:00:5e:00:00:01", "ips": ["10.0.10.9/24"]}])
    metadata = PodMetadata("ai", annotations={NETWORKS: asked})
    (pod,) = lab.pods.create_all([PodRequest(lab.host("node1"), "p", metadata=metadata)])
    add = next(call for call in calls(lab, "node1") if call.command == "ADD")
    assert add.environment["CNI_IFNAME"] == "net1"
    assert "K8S_POD_NAMESPACE=ai;K8S_POD_NAME=p" in add.environment["CNI_ARGS"]
    assert add.stdin["runtimeConfig"] == {"mac": "02:00:5e:00:00:01"}
    pod.delete()


def test_one_network_has_the_default_route_and_the_others_have_none(lab):
    """Multus' `default-route`: it deletes the others' and those of their results, so CHECK holds."""
    for name, number in (("one", 1), ("two", 2)):
        routes = [{"dst": "0.0.0.0/0", "gw": f"10.5{number}.0.1"}]
        addresses = {"type": "host-local", "ranges": [[{"subnet": f"10.5{number}.0.0/24"}]], "routes": routes}
        config = network({"type": "macvlan", "master": "eth1", "ipam": addresses}, name=name)
        metadata = {"name": name}
        definition = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata}
        lab.objects.apply({**definition, "spec": {"config": json.dumps(config)}})
    asked = [{"name": "one"}, {"name": "two", "default-route": ["10.52.0.254"]}]
    pod = lab.pods.create(lab.host("node1"), "p", [bridge()], annotations={NETWORKS: json.dumps(asked)})
    routes = json.loads(pod.use("ip", "-j", "route", "show", "default").stdout)
    assert [(route["dev"], route["gateway"]) for route in routes] == [("net2", "10.52.0.254")]
    pod.check()
    pod.delete()
    twice = json.dumps([{"name": name, "default-route": ["10.50.0.1"]} for name in ("one", "two")])
    with pytest.raises(InputError, match="multus does not support ECMP for default-route"):
        lab.pods.create(lab.host("node1"), "p", [], annotations={NETWORKS: twice})


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"annotations": {NETWORKS: "rail9"}}, "there is no NetworkAttachmentDefinition/default/rail9"),
        ({"annotations": {NETWORKS: "ai/rail1@eth0"}}, "two of its networks have the interface eth0"),
        ({"annotations": {NETWORKS: "rail 1"}}, "'rail 1' is not a network"),
        ({"owner": "Deployment/trainer"}, "there is no Deployment/default/trainer"),
        ({"owner": "trainer"}, "owner 'trainer' is not of the form Kind/name"),
        ({"namespace": "AI"}, "'AI' is not a name"),
    ],
)
def test_a_pod_that_names_what_is_not_there_is_refused_before_anything_is_made(lab, keys, wrong):
    lab.objects.apply("rails.yaml")
    before = lab.resources()
    with pytest.raises(InputError) as said:
        lab.pods.create(lab.host("node1"), "web", [bridge()], **keys)
    assert said.value.message.startswith("pod web: ")
    assert wrong in said.value.message
    assert "web" not in lab.nodes
    assert lab.resources() == before
    assert lab.objects.list("Pod") == []
