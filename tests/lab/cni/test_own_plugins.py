"""A plugin of the user's own in `cni-plugins` beside the test, and the version of CNI that a chain speaks."""

import json
from pathlib import Path
from typing import Any

import pytest
from networks import FLAT, ROUTED, ipam, macvlan, network, write_plugin

from testbed import Lab
from testbed.errors import TestbedError
from testbed.workload.verbs import connect_pair, open_endpoint

SPECIFICATION = Path(__file__).with_name("specification.conflist")
"""The example of the CNI specification 1.1.0, section 1, without its comments."""
BESIDE = {"type": "beside", "capabilities": {"mac": True, "ips": True}, "own": [1]}


def given(lab: Lab, node: str) -> list[dict[str, Any]]:
    """The input of the plugin `beside`, from the log of the node's plugins."""
    return [json.loads(line) for line in (lab.directory / f"{node}-cni.log").read_text().splitlines() if line[0] == "{"]


@pytest.mark.topology(ROUTED)
def test_a_plugin_beside_the_test_is_called_with_its_modules(lab):
    pod = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10), BESIDE)])
    assert str(pod["eth0"].address().ip) == "10.0.10.100"
    (told,) = given(lab, "node1")
    assert told == {
        "type": "beside",
        "own": [1],
        "name": "rdma",
        "cniVersion": "1.0.0",
        "runtimeConfig": {"mac": pod["eth0"].mac},
    }


@pytest.mark.fresh
@pytest.mark.topology(ROUTED)
def test_the_highest_version_that_all_plugins_speak_is_taken(lab, log, tmp_path, monkeypatch):
    write_plugin(tmp_path / "plugins", "first", 'echo \'{"cniVersion": "1.0.0"}\'')  # 1.0.0 only
    monkeypatch.setenv("CNI_PATH", str(tmp_path / "plugins"))
    versions = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]
    alone = {**network({"type": "beside"}, version="1.1.0"), "cniVersions": versions}
    chain = {**alone, "plugins": [{"type": "first"}, {"type": "beside"}]}

    lab.pods.create(lab.host("node1"), "one", [chain])

    assert [told["cniVersion"] for told in given(lab, "node1")] == ["1.0.0"]
    (event,) = log.find("cni", command="ADD")
    assert event["data"]["result"]["cniVersion"] == "1.0.0"


@pytest.mark.topology(ROUTED)
def test_the_example_of_the_specification_is_added_checked_and_deleted(lab, log):
    pod = lab.pods.create(lab.host("node1"), "db", [str(SPECIFICATION)])
    assert str(pod["eth0"].address()) == "10.1.0.2/16"
    pod.check()
    pod.delete()
    (added,) = log.find("cni", command="ADD")
    assert added["data"]["result"]["cniVersion"] == "1.0.0"
    assert added["data"]["result"]["dns"] == {"nameservers": ["10.1.0.1"]}
    lab.host("node1").run("ip", "link", "del", "cni0")


OMITS_MAC = r"""
ip link add tmp0 link eth1 type macvlan mode bridge
ip link set tmp0 netns "$CNI_NETNS"
enter="nsenter --net=$CNI_NETNS"
$enter ip link set tmp0 name "$CNI_IFNAME"
$enter ip addr add ADDRESS dev "$CNI_IFNAME"
$enter ip link set "$CNI_IFNAME" up
echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}],
       "ips": [{"address": "ADDRESS", "interface": 0}]}'
"""


@pytest.mark.fresh
@pytest.mark.topology(FLAT)
def test_a_pod_s_mac_is_the_kernel_s_if_the_plugin_s_result_has_none(lab, log, tmp_path, monkeypatch):
    """Its event has that MAC, by which a report names the owner of the stale entry, and shows it in red."""
    add = OMITS_MAC.replace("ADDRESS", "10.0.20.100/24")
    write_plugin(tmp_path / "plugins", "omits", add, 'nsenter --net=$CNI_NETNS ip link del "$CNI_IFNAME"')
    monkeypatch.setenv("CNI_PATH", str(tmp_path / "plugins"))
    one = lab.pods.create(lab.host("node1"), "one", [network({"type": "omits"})])
    mac = one.run("cat", "/sys/class/net/eth0/address").stdout.strip()
    assert one["eth0"].mac == mac
    assert one.ping("10.0.20.1", within=2)
    one.delete()
    two = lab.pods.create(lab.host("node2"), "two", [network({"type": "omits"})])
    lab.scheduler.sleep(1)
    assert lab.switch("leaf").neighbour("10.0.20.100") == mac
    added = {event["node"]: event["data"] for event in log.find("cni", command="ADD")}
    assert {name: (data["mac"], data["addresses"]) for name, data in added.items()} == {
        "one": (mac, ["10.0.20.100/24"]),
        "two": (two["eth0"].mac, ["10.0.20.100/24"]),
    }
    assert two["eth0"].mac not in ("", mac)


@pytest.mark.fresh
@pytest.mark.topology(FLAT)
def test_what_a_result_leaves_out_is_seen_in_the_kernel(lab, tmp_path, monkeypatch):
    six = '$enter sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf."$CNI_IFNAME".disable_ipv6=0\n'
    made, _, _ = (
        OMITS_MAC.replace("ADDRESS", "$ADDRESS").replace("$enter ip addr", f"{six}$enter ip addr").partition("echo ")
    )
    add = 'ADDRESS=$(sed -n \'s/.*"give": *"\\([^"]*\\)".*/\\1/p\')\n' + made + """echo '{"cniVersion": "1.0.0"}'"""
    write_plugin(tmp_path / "plugins", "silent", add, 'nsenter --net=$CNI_NETNS ip link del "$CNI_IFNAME"')
    monkeypatch.setenv("CNI_PATH", str(tmp_path / "plugins"))
    pod = lab.pods.create(lab.host("node1"), "pod", [network({"type": "silent", "give": "10.0.20.100/24"})])
    assert str(pod["eth0"].address()) == "10.0.20.100/24"
    assert pod["eth0"].mac == pod.run("cat", "/sys/class/net/eth0/address").stdout.strip()

    six = network({"type": "silent", "give": "fd00::9/64"})
    lab.pods.create(lab.host("node1"), "first", [six]).check()
    with pytest.raises(TestbedError, match="the pod has fd00::9/64 which another node has"):
        lab.pods.create(lab.host("node2"), "second", [six])


TRUNK = """\
name: trunk
topology:
  nodes:
    leaf: {kind: switch, vlans: {7: 10.0.10.1/24, 20: 10.0.20.1/24}}
    node1: {kind: host, rdma: false}
    node2: {kind: host, rdma: false}
  links:
    - {endpoints: ["leaf:e1", "node1:eth1"], vlan: 20, trunk: [7]}
    - {endpoints: ["leaf:e2", "node2:eth1"], vlan: 20, trunk: [7]}
"""


@pytest.mark.fresh
@pytest.mark.topology(TRUNK)
def test_rdma_on_a_vlan_of_the_node_is_a_macvlan_on_its_vlan_device(lab):
    """The advice in the refusal of a VLAN device."""
    pods = []
    for number in 1, 2:
        node = lab.host(f"node{number}")
        node.run("ip", "link", "add", "link", "eth1", "name", "eth1.7", "type", "vlan", "id", "7")
        node.run("ip", "link", "set", "eth1.7", "up")
        addresses = ipam(10, first=100 + number)
        master = {"type": "macvlan", "master": "eth1.7", "capabilities": {"mac": True}, "ipam": addresses}
        pods.append(lab.pods.create(node, f"web{number}", [network(master, {"type": "rxe"})]))
    with open_endpoint(pods[0]["eth0"]) as near, open_endpoint(pods[1]["eth0"]) as far:
        connect_pair(near, far)
        assert near.write(4096, within=10).ok
