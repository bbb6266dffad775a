"""SpiderMultusConfigs, and the NetworkAttachmentDefinitions that are made of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.multus import MultusConfig
from testbed.errors import InputError

SPIDERPOOL = "spiderpool.spidernet.io/v2beta1"
NIC = {"master": ["eth1"]}
POOLS = {"ippools": {"ipv4": ["rail1"]}}
MACVLAN = {"type": "macvlan", "master": "eth1", "mode": "bridge", "capabilities": {"mac": True}}


def config(name: str = "rail1", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ai", "annotations": annotations or {}}
    return {"apiVersion": SPIDERPOOL, "kind": "SpiderMultusConfig", "metadata": metadata, "spec": spec}


def coordinator(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": SPIDERPOOL, "kind": "SpiderCoordinator", "metadata": {"name": "default"}, "spec": spec}


def plugins(**spec: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(MultusConfig(**spec).config("rail1", {}))["plugins"]
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *_, **__: None)


def definition(cluster: Cluster, name: str = "rail1") -> dict[str, Any]:
    return cluster.get("NetworkAttachmentDefinition", name, "ai")


def of_coordinator(cluster: Cluster, name: str = "rail1") -> dict[str, Any]:
    found = json.loads(definition(cluster, name)["spec"]["config"])["plugins"]
    return next(plugin for plugin in found if plugin["type"] == "coordinator")


def test_macvlan_is_a_child_of_its_master_with_addresses_of_pools():
    ipam = {"type": "ippool", "default_ipv4_ippool": ["a"], "default_ipv6_ippool": ["b", "c"]}
    pools = {"ipv4": ["a"], "ipv6": ["b", "c"]}
    found = plugins(cniType="macvlan", macvlan={**NIC, "ippools": pools, "mtu": 1400})
    assert found == [{**MACVLAN, "mtu": 1400, "ipam": ipam}, {"type": "coordinator"}]


def test_what_is_switched_off_is_not_there():
    assert plugins(cniType="macvlan", macvlan=NIC, enableCoordinator=False, disableIPAM=True) == [MACVLAN]


@pytest.mark.parametrize(
    ("nic", "ifacer", "master"),
    [
        ({"vlanID": 20}, {"interfaces": ["eth1"], "vlanID": 20}, "eth1.20"),
        (
            {"master": ["eth1", "eth2"], "bond": {"name": "bond0", "mode": 1}, "vlanID": 20},
            {"interfaces": ["eth1", "eth2"], "bond": {"name": "bond0", "mode": 1, "options": ""}, "vlanID": 20},
            "bond0.20",
        ),
    ],
)
def test_vlans_and_bonds_are_made_before_the_child(nic, ifacer, master):
    made, child, _ = plugins(cniType="ipvlan", ipvlan={**NIC, **nic})
    assert made == {"type": "ifacer", **ifacer}
    assert child == {"type": "ipvlan", "master": master, "ipam": {"type": "ippool"}}


def test_rdma_comes_behind_all_that_changes_the_interface():
    tuning = json.dumps({"type": "tuning", "sysctl": {"net.core.somaxconn": "4096"}})
    for nic in ({"rdmaResourceName": "x/y"}, {"rdmaResourceName": "x/y", "enableRdma": True}):
        found = plugins(cniType="macvlan", macvlan={**NIC, **nic}, chainCNIJsonData=[tuning])
        assert [plugin["type"] for plugin in found] == ["macvlan", "coordinator", "tuning", "rxe"]
    for vf in ({"enableRdma": True}, {"rdmaIsolation": True}):
        found = plugins(cniType="sriov", sriov={"resourceName": "x/y", "mtu": 1400, **vf})
        assert [plugin["type"] for plugin in found] == ["sriov", "tuning", "coordinator", "rxe"]
    assert "rxe" not in str(plugins(cniType="sriov", sriov={"resourceName": "x/y"}))


def test_a_vf_has_its_vlan_and_pools_of_its_nic_s_subnet():
    vf = {"resourceName": "x/y", "vlanID": 100, "ippools": {"ipv4": ["rail1-*"], "matchMasterSubnet": True}}
    sriov, _ = plugins(cniType="sriov", sriov=vf)
    ipam = {"type": "ippool", "match_master_subnet": True, "default_ipv4_ippool": ["rail1-*"]}
    assert sriov == {"type": "sriov", "vlan": 100, "ipam": ipam}


def test_a_definition_is_made_follows_its_config_and_ends_with_it(cluster):
    cluster.apply(config(cniType="macvlan", macvlan={**NIC, **POOLS}))
    made = definition(cluster)
    assert json.loads(made["spec"]["config"])["cniVersion"] == "0.3.1"
    assert made["metadata"]["ownerReferences"][0]["name"] == "rail1"
    cluster.apply(config(cniType="macvlan", macvlan={"master": ["eth2"]}))
    assert '"master": "eth2"' in definition(cluster)["spec"]["config"]
    cluster.delete("NetworkAttachmentDefinition", "rail1", "ai")
    assert '"master": "eth2"' in definition(cluster)["spec"]["config"], "its controller makes it again"
    cluster.delete("SpiderMultusConfig", "rail1", "ai")
    assert cluster.list("NetworkAttachmentDefinition") == []


def test_annotations_choose_name_and_version_and_are_the_definition_s(cluster):
    chosen = {"multus.spidernet.io/cr-name": "rail-one", "multus.spidernet.io/cni-version": "1.0.0", "note": "mine"}
    cluster.apply(config(annotations=chosen, cniType="sriov", sriov={"resourceName": "x/y"}))
    made = definition(cluster, "rail-one")
    assert json.loads(made["spec"]["config"])["cniVersion"] == "1.0.0"
    assert made["metadata"]["annotations"] == {**chosen, "k8s.v1.cni.cncf.io/resourceName": "x/y"}


def test_two_configs_cannot_make_one_definition(cluster):
    cluster.apply(config(cniType="macvlan", macvlan=NIC))
    same = {"multus.spidernet.io/cr-name": "rail1"}
    managed = "the net-attach-def ai/rail1 already exists and is managed by SpiderMultusConfig ai/rail1"
    with pytest.raises(InputError, match=managed):
        cluster.apply(config("rail2", same, cniType="macvlan", macvlan=NIC))
    assert len(cluster.list("SpiderMultusConfig")) == 1


def test_a_definition_of_the_user_s_own_is_left_alone(cluster):
    metadata = {"name": "own", "namespace": "ai"}
    text = json.dumps({"cniVersion": "1.0.0", "type": "macvlan"})
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    cluster.apply({**kind, "metadata": metadata, "spec": {"config": text}})
    cluster.apply(config(cniType="macvlan", macvlan=NIC))
    cluster.delete("SpiderMultusConfig", "rail1", "ai")
    assert [one["metadata"]["name"] for one in cluster.list("NetworkAttachmentDefinition")] == ["own"]


def test_the_cluster_s_coordinator_has_the_defaults_of_all(cluster):
    cluster.apply(config(cniType="macvlan", macvlan=NIC))
    cluster.apply(
        config("rail2", cniType="macvlan", macvlan=NIC, coordinator={"detectGateway": False, "mode": "overlay"})
    )
    assert of_coordinator(cluster) == {"type": "coordinator"}
    cluster.apply(coordinator(mode="underlay", detectGateway=True, hijackCIDR=["10.96.0.0/12"], podCIDRType="auto"))
    own = {"type": "coordinator", "mode": "underlay", "detectGateway": True, "hijackCIDR": ["10.96.0.0/12"]}
    assert of_coordinator(cluster) == own
    assert of_coordinator(cluster, "rail2") == {**own, "mode": "overlay", "detectGateway": False}
    cluster.delete("SpiderCoordinator", "default")
    assert of_coordinator(cluster) == {"type": "coordinator"}


VF = {"resourceName": "x/y"}


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({"cniType": "mcvlan"}, "cniType 'mcvlan' is not supported; supported: macvlan, ipvlan, sriov, custom"),
        ({"cniType": "ib-sriov", "ibsriov": {}}, "cniType ib-sriov is not supported: the lab's NICs are Ethernet"),
        ({"cniType": "ipoib", "ipoib": {}}, "cniType ipoib is not supported: the lab's NICs are Ethernet"),
        ({"cniType": "ovs", "ovs": {}}, "cniType ovs is not supported: the lab has no Open vSwitch"),
        ({"cniType": "vlan"}, "cniType vlan is not supported: soft-RoCE does not run on a VLAN device"),
        ({"cniType": "macvlan", "macvlan": {}}, "spec.macvlan.master is missing"),
        ({"cniType": "macvlan", "macvlan": {**NIC, "vlanID": 4095}}, "spec.macvlan.vlanID: Input should be less than"),
        ({"cniType": "macvlan", "macvlan": {**NIC, "enableRdma": True}}, "enableRdma: rdmaResourceName is missing"),
        ({"cniType": "macvlan", "macvlan": {**NIC, "master": "eth1"}}, "spec.macvlan.master must be a list"),
        ({"cniType": "sriov", "sriov": {**VF, "maxTxRateMbps": 1}}, "sriov.maxTxRateMbps is not supported"),
        ({"cniType": "macvlan", "macvlan": NIC, "ippools": {}}, "spec.ippools is not supported"),
        ({"cniType": "macvlan", "macvlan": NIC, "coordinator": {"mode": "x"}}, "spec.coordinator.mode must be 'auto'"),
        ({"cniType": "macvlan", "macvlan": NIC, "coordinator": {"mode": "disable"}}, "spec.coordinator.mode must be"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(spec, wrong):
    with pytest.raises(InputError) as said:
        manifests.make(config(**spec))
    assert said.value.message.startswith(wrong)
