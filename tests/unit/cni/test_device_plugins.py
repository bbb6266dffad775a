"""What device plugins offer on a node, and what pods ask for."""

import json
from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.device_plugins import (
    NodePolicy,
    Offer,
    SharedDevice,
    offers,
    resources,
    selects_by_ids,
    shared_devices,
)
from testbed.cni.objects.manifests import Object
from testbed.cni.runtime.scheduling import asked
from testbed.errors import InputError

GPU1 = {"resourcePrefix": "spidernet.io", "resourceName": "gpu1", "rdmaHcaMax": 100, "selectors": {"ifNames": ["eth1"]}}
VFS = {"resourceName": "vfs", "numVfs": 3, "nicSelector": {"pfNames": ["eth1"]}}


def config_map(*devices: dict[str, Any], text: str = "") -> dict[str, Any]:
    data = {"config.json": text or json.dumps({"periodicUpdateInterval": 300, "configList": devices})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plugin"}, "data": data}


def policy(**spec: Any) -> dict[str, Any]:
    version = "sriovnetwork.openshift.io/v1"
    return {"apiVersion": version, "kind": "SriovNetworkNodePolicy", "metadata": {"name": "p"}, "spec": VFS | spec}


def of_node(
    *policies: dict[str, Any],
    labels: dict[str, str] | None = None,
    shared: tuple[dict[str, Any], ...] = (),
    status: dict[str, Any] | None = None,
    exclusive: bool = False,
) -> dict[str, Offer]:
    read = [NodePolicy.model_validate(VFS | one) for one in policies]
    devices = map(SharedDevice.model_validate, shared)
    return offers(["eth0", "eth1"], labels or {}, status or {}, devices, read, exclusive=exclusive)


def test_a_shared_device_is_on_the_nodes_that_have_its_interface():
    elsewhere = {**GPU1, "resourceName": "gpu2", "selectors": {"ifNames": ["eth2"]}}
    assert of_node(shared=(GPU1, elsewhere)) == {
        "spidernet.io/gpu1": Offer(100, shared=["eth1"]),
        "spidernet.io/gpu2": Offer(0, shared=[]),
    }


def test_the_plugin_of_shared_devices_does_not_start_in_exclusive_mode():
    """As ValidateRdmaSystemMode of k8s-rdma-shared-dev-plugin has it; VFs have another plugin."""
    found = of_node({}, shared=(GPU1,), status={"allocatable": {"spidernet.io/gpu1": "63"}}, exclusive=True)
    assert found["spidernet.io/gpu1"].amount == 0
    assert "incorrect RDMA subsystem network namespace" in found["spidernet.io/gpu1"].why_none
    assert found["spidernet.io/vfs"].amount == 3


def test_a_resource_without_a_prefix_is_rdma_s():
    (found,) = shared_devices(config_map({k: v for k, v in GPU1.items() if k != "resourcePrefix"})["data"])
    assert found.resource == "rdma/gpu1"


def test_a_policy_offers_vfs_of_its_nics():
    assert of_node({}) == {"spidernet.io/vfs": Offer(3, {"eth1v0": "eth1", "eth1v1": "eth1", "eth1v2": "eth1"})}
    some = {"nicSelector": {"pfNames": ["eth1#1-2", "eth2"]}}
    assert of_node(some) == {"spidernet.io/vfs": Offer(2, {"eth1v1": "eth1", "eth1v2": "eth1"})}
    both = of_node({"nicSelector": {"pfNames": ["eth1#0-0"]}}, {"nicSelector": {"pfNames": ["eth1#2-2"]}})
    assert list(both["spidernet.io/vfs"].vfs) == ["eth1v0", "eth1v2"]


def test_a_policy_is_for_nodes_with_its_labels():
    chosen = {"nodeSelector": {"rack": "1"}}
    assert of_node(chosen) == {}
    assert of_node(chosen, labels={"rack": "1", "more": "2"})["spidernet.io/vfs"].amount == 3


def test_a_node_may_say_itself_what_it_has():
    status = {"allocatable": {"cpu": "40", "nvidia.com/gpu": "8", "spidernet.io/vfs": 64}}
    assert of_node({}, status=status)["nvidia.com/gpu"] == Offer(8)
    assert of_node({}, status=status)["spidernet.io/vfs"].amount == 3, "the plugin's word counts"
    assert of_node(status=status)["spidernet.io/vfs"] == Offer(64)


def test_ids_alone_select_all_nics_of_a_node_and_beside_names_nothing():
    """A lab's NICs have none: a selection by them is told in a remark."""
    by_ids = {**GPU1, "selectors": {"vendors": ["15b3"], "deviceIDs": ["1017"]}}
    both = {**GPU1, "resourceName": "both", "selectors": {"vendors": ["15b3"], "ifNames": ["eth0"]}}
    shared = map(SharedDevice.model_validate, (by_ids, both))
    policies = [NodePolicy.model_validate(VFS | {"nicSelector": {"vendor": "15b3"}, "numVfs": 1})]
    found = offers(["eth0", "eth1", "dummy0"], {}, {}, shared, policies, nics=["eth0", "eth1"])
    assert found["spidernet.io/gpu1"].shared == ["eth0", "eth1"]
    assert found["spidernet.io/both"].shared == ["eth0"]
    assert found["spidernet.io/vfs"].vfs == {"eth0v0": "eth0", "eth1v0": "eth1"}
    assert selects_by_ids("ConfigMap", config_map(by_ids)["data"])
    assert not selects_by_ids("ConfigMap", config_map(both)["data"])


def test_resources_of_sriov_network_device_plugin():
    given = {"resourceName": "rail1", "selectors": {"vendors": ["15b3"], "pfNames": ["eth1#0-1"], "isRdma": True}}
    data = {"config.json": json.dumps({"resourceList": [given]})}
    found = offers(["eth1"], {}, {}, [], [], resources(data))
    assert found == {"intel.com/rail1": Offer(2, {"eth1v0": "eth1", "eth1v1": "eth1"}, rdma=True)}
    for selectors, wrong in (
        ({"pfNames": ["eth1"]}, "eth1 has no VFs in a lab unless it says which: eth1#0-3"),
        ({"pciAddresses": ["0000:03:02.0"]}, "pciAddresses is not supported"),
    ):
        text = json.dumps({"resourceList": [{"resourceName": "r", "selectors": selectors}]})
        with pytest.raises(InputError, match=wrong):
            manifests.make(config_map(text=text))


def test_resources_by_ids_alone_are_vfs_of_all_nics():
    """As NVIDIA's NicClusterPolicy has them for HostDeviceNetworks."""
    given = {"resourcePrefix": "nvidia.com", "resourceName": "hostdev", "selectors": {"vendors": ["15b3"]}}
    data = {"config.json": json.dumps({"resourceList": [given]})}
    found = offers(["eth1", "eth2"], {}, {}, [], [], resources(data), nics=["eth1", "eth2"])
    assert found["nvidia.com/hostdev"].amount == 16
    assert selects_by_ids("ConfigMap", data)


def test_other_config_maps_are_left_alone():
    for text in ("{", '{"resourceList": []}', "anything"):
        assert manifests.make(config_map(text=text)).kind == "ConfigMap"
    assert manifests.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "empty"}}).spec == {}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (config_map(text='{"configList": ['), "data.config.json:1:17: not valid JSON"),
        (config_map({**GPU1, "rdmaHcaMax": -1}), "data.config.json:1:121: configList[0].rdmaHcaMax: Input sh"),
        (config_map({**GPU1, "rdmaHcaMax": "100"}), "data.config.json:1:121: configList[0].rdmaHcaMax must be an"),
        (
            config_map({**GPU1, "selectors": {"ifNames": []}}),
            "data.config.json:1:151: too few entries in configList[0].sel",
        ),
        (
            policy(nicSelector={"rootDevices": ["0000:86:00.0"]}),
            "rootDevices is not supported: the lab's NICs have no PCI addresses and IDs; select them by pfNames",
        ),
        (policy(nicSelector={}), "spec.nicSelector.pfNames is missing"),
        (policy(nicSelector={"pfNames": ["eth1#0-3"]}), "spec.nicSelector.pfNames: eth1#0-3 is not a NIC"),
        (policy(nicSelector={"pfNames": ["eth1#2-1"]}), "spec.nicSelector.pfNames: eth1#2-1 is not a NIC"),
        (policy(deviceType="vfio-pci"), "spec.deviceType must be 'netdevice'"),
        (policy(linkType="ib"), "spec.linkType must be 'eth' or 'ETH'"),
        (policy(numVfs=0), "spec.numVfs: Input should be greater than or equal to 1"),
        (
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"x/y": "1k"}}},
            "x/y: '1k' is not a number of devices",
        ),
    ],
)
def test_what_is_wrong_is_named(value, wrong):
    with pytest.raises(InputError) as said:
        manifests.make(value)
    assert said.value.message.startswith(wrong)


def pod(*containers: dict[str, Any]) -> Object:
    metadata = {"name": "web"}
    spec = {"containers": [{"resources": one} for one in containers]}
    return manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def test_a_pod_asks_for_the_devices_of_all_its_containers():
    first = {"limits": {"cpu": "4", "x/a": "2"}, "requests": {"x/a": "2", "x/b": 1}}
    assert asked(pod(first, {"limits": {"x/a": 1, "x/c": 0}}, {})) == {"x/a": 3, "x/b": 1}
    with pytest.raises(InputError, match="x/a: 'two' is not a number of devices"):
        asked(pod({"limits": {"x/a": "two"}}))
