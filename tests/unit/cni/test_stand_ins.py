"""Configurations of plugins that are not there become those of others."""

import json
from typing import Any

import pytest

from testbed.cni.spec import conflist, stand_ins
from testbed.errors import InputError


def replaced(*plugins: dict[str, Any], there: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    network = conflist.make({"cniVersion": "1.0.0", "name": "n", "plugins": list(plugins)})
    found = stand_ins.replaced(network, lambda kind: kind not in there)
    return [dict(one) for one in found.plugins]


def ipam(**keys: Any) -> dict[str, Any]:
    return {"type": "macvlan", "ipam": {"type": "whereabouts", **keys}}


def pool(**keys: Any) -> dict[str, Any]:
    (found,) = replaced(ipam(**keys))
    assert found["ipam"]["type"] == "ippool"
    (only,) = found["ipam"]["pools"]
    return dict(only)


@pytest.mark.parametrize(
    ("given", "ips", "without"),
    [
        ({"range": "192.168.2.225/28"}, "192.168.2.225-192.168.2.238", None),
        ({"range": "192.168.2.225/28", "exclude": ["192.168.2.229/30", "192.168.2.236/32"]},
         "192.168.2.225-192.168.2.238", ["192.168.2.228-192.168.2.231", "192.168.2.236-192.168.2.236"]),
        ({"range": "192.168.5.0-192.168.5.90/24"}, "192.168.5.1-192.168.5.90", None),
        ({"range": "10.0.0.0/24", "range_start": "10.0.0.10", "range_end": "10.0.0.20", "exclude": ["10.0.1.0/24"]},
         "10.0.0.10-10.0.0.20", None),
        ({"range": "fd00::/120"}, "fd00::1-fd00::fe", None),
        ({"range": "10.0.0.0/8"}, "10.0.0.1-10.1.0.0", None),
        ({"ipRanges": [{"range": "10.1.0.0/30"}]}, "10.1.0.1-10.1.0.2", None),
        ({"range": "10.1.0.0/30", "range_start": "10.2.0.1"}, "10.1.0.1-10.1.0.2", None),
    ],
)  # fmt: skip
def test_a_range_of_whereabouts_is_a_pool(given, ips, without):
    """The documents' examples; the first and the last address of a subnet are not given (GetIPRange)."""
    found = pool(**given)
    assert found["ips"] == [ips]
    assert found.get("excludeIPs") == without


def test_networks_with_one_range_share_its_pool_and_those_of_another_name_do_not():
    names = [pool(range="10.0.0.5/24")["name"], pool(range="10.0.0.0/24", gateway="10.0.0.1")["name"]]
    assert names == ["whereabouts-10.0.0.0-24"] * 2
    assert pool(range="10.0.0.0/24", network_name="rail1")["name"] == "whereabouts-rail1-10.0.0.0-24"


def test_both_families_and_routes_of_whereabouts():
    ranges = [{"range": "192.168.10.1/24"}, {"range": "abcd::1/64"}]
    routes = [{"dst": "10.0.0.0/8"}, {"dst": "0.0.0.0/0", "gw": "192.168.10.254"}]
    (found,) = replaced(ipam(ipRanges=ranges, routes=routes, gateway="192.168.10.1", log_level="debug"))
    assert [one["subnet"] for one in found["ipam"]["pools"]] == ["192.168.10.0/24", "abcd::/64"]
    assert [one["gw"] for one in found["ipam"]["routes"]] == ["192.168.10.1", "192.168.10.254"]
    assert "gateway" not in json.dumps(found["ipam"]["pools"]), "it would become a default route"


def test_a_vf_is_moved_by_host_device_and_rdma_comes_last():
    sriov = {"type": "sriov", "deviceID": "eth1v0", "vlan": 100, "spoofchk": "on", "ipam": {"type": "static"}}
    tuning = {"type": "tuning", "sysctl": {"a": "1"}}
    assert replaced(sriov, {"type": "rdma"}, tuning) == [
        {"type": "host-device", "device": "eth1v0", "ipam": {"type": "static"}},
        tuning,
        {"type": "rxe", "exclusive": True},
    ]
    assert replaced({**sriov, "capabilities": {"mac": True}, "mtu": 1400})[1] == {
        "type": "tuning",
        "mtu": 1400,
        "capabilities": {"mac": True},
    }


def test_a_plugin_that_is_there_is_the_user_s():
    given = [{"type": "sriov", "vlan": 0}, {"type": "rdma"}, ipam(range="10.0.0.0/24")]
    assert replaced(*given, there=("sriov", "rdma", "whereabouts")) == given


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"type": "sriov"}, "VF pci addr is required"),
        ({"type": "sriov", "deviceID": "v", "max_tx_rate": 100}, "max_tx_rate is not supported"),
        ({"type": "sriov", "deviceID": "v", "vlanQoS": 3}, "non-zero vlan id must be configured"),
        ({"type": "sriov", "deviceID": "v", "vlan": 5000}, "vlan id 5000 invalid: value must be in the range 0-4094"),
        ({"type": "sriov", "deviceID": "v", "vlan": "5"}, "vlan id 5 invalid"),
        (ipam(ipRanges=["x"]), "its configuration is malformed"),
        (ipam(ipRanges=5), "its configuration is malformed"),
        (ipam(range="10.0.0.0/24", exclude=5), "its configuration is malformed"),
        (ipam(range="10.0.0.0/24", routes=[{}]), "its configuration is malformed"),
        (ipam(), "do you have the 'range' parameter set"),
        (ipam(range="10.0.0.0/33"), "invalid CIDR 10.0.0.0/33"),
        (ipam(range="10.0.0.0/24", exclude=["x"]), "invalid CIDR 10.0.0.0/24: 'x' does not"),
        (ipam(range="10.0.0.0/24", node_slice_size="/26"), "ipam.node_slice_size of whereabouts is not supported"),
        (ipam(range="10.0.0.0/24", routes=[{"dst": "10.1.0.0/16"}]), "a route without `gw` needs `gateway`"),
    ],
)
def test_what_cannot_be_had(given, wrong):
    with pytest.raises(InputError) as said:
        replaced(given)
    assert wrong in said.value.message
    assert said.value.where == given["type"]


def test_spiderpool_s_ipam_plugin_is_ippool():
    given = {"type": "spiderpool", "log_level": "DEBUG", "default_ipv4_ippool": ["rail1-*"], "clean_gateway": True}
    (found,) = replaced({"type": "macvlan", "ipam": given})
    assert found["ipam"] == {"type": "ippool", "default_ipv4_ippool": ["rail1-*"], "clean_gateway": True}
