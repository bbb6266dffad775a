"""Labs of clusters whose hosts have bonds: `testbed diagnose --topology-out`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bonded_clusters import Cluster, dots, mac

from testbed.cli.main import invoke
from testbed.records.bundle import Bundle, reproduction

SYSTEM = "44:38:39:be:ef:aa"


def written(cluster: Cluster, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Return the file of a cluster, which loads, as text and as what is in it."""
    text = reproduction.topology(Bundle.read(cluster.write()))
    file = tmp_path / "cluster.clab.yml"
    file.write_text(text)
    assert invoke(["topology", "check", str(file)]) == 0
    return text, yaml.safe_load(text)["topology"]


def uplinks(cluster: Cluster, *links: tuple[str, str, str]) -> Cluster:
    """Add cables between switches, each named at both ends."""
    for one, other, port in links:
        for name in one, other:
            for table in cluster.lldp, cluster.macs, cluster.channels:
                table.setdefault(name, [] if table is cluster.lldp else {})  # type: ignore[arg-type]
        cluster.lldp[one].append((port, other, port))
        cluster.lldp[other].append((port, one, port))
    return cluster


def pair(cluster: Cluster) -> Cluster:
    """Make the two switches a pair whose peer link has two cables."""
    uplinks(cluster, ("leaf1", "leaf2", "Et49/1"), ("leaf1", "leaf2", "Et50/1"))
    for name in "leaf1", "leaf2":
        cluster.channels[name]["Po2000"] = ["Et49/1", "Et50/1"]
        cluster.more[name] = f"{name}#show mlag\npeer-link  : Port-Channel2000\nsystem-id  : {SYSTEM}\n"
    return cluster


def test_a_bond_to_one_switch(tmp_path: Path) -> None:
    text, plan = written(Cluster(tmp_path / "bundle"), tmp_path)
    assert plan["nodes"]["gpu2"]["bonds"] == {
        "bond0": {"members": ["eth1", "eth2"], "mac": mac("gpu2"), "ipv4": "10.1.1.3/24"}
    }
    leaf = plan["nodes"]["leaf1"]
    assert leaf["vlans"] == {10: "10.1.1.1/24"}
    assert [len(one["members"]) for one in leaf["bonds"].values()] == [2, 2, 2]
    assert "svi_mac" not in leaf
    links = [one for one in plan["links"] if "gpu2:eth1" in one["endpoints"] or "gpu2:eth2" in one["endpoints"]]
    assert [(one["vlan"], one["mtu"]) for one in links] == [(10, 9000), (10, 9000)]
    assert [one["endpoints"][0].partition(":")[2] for one in links] == leaf["bonds"]["po2"]["members"]
    assert "  # leaf1 Port-Channel2\n" in text
    assert "  # gpu2 bond0\n" in text


def test_a_bond_to_two_switches_of_which_nothing_else_is_known(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle", dual=True)
    uplinks(cluster, ("leaf1", "spine1", "Et49/1"), ("leaf2", "spine1", "Et50/1"))
    text, plan = written(cluster, tmp_path)
    assert plan["nodes"]["gpu1"]["bonds"]["bond0"]["broadcast_neighbor"] is True
    assert [one["mtu"] for one in plan["links"] if "mtu" in one] == [9000] * 8
    leaves = [plan["nodes"][name] for name in ("leaf1", "leaf2")]
    assert leaves[0]["bonds"]["po1"]["system"] == leaves[1]["bonds"]["po1"]["system"]
    assert [(one["svi_mac"], one["vlans"], one["host_routes"]) for one in leaves] == [
        ("02:00:00:00:00:fe", {10: "10.1.1.1/24"}, True)
    ] * 2
    assert "how these switches share hosts is not known (MLAG, EVPN): here they tell each other nothing" in text


def test_two_switches_without_a_cable_to_another_one(tmp_path: Path) -> None:
    _, plan = written(Cluster(tmp_path / "bundle", dual=True), tmp_path)
    assert "host_routes" not in plan["nodes"]["leaf1"]


def test_the_partner_and_the_gateway_s_mac_are_those_of_the_cluster(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle", dual=True)
    for host in cluster.rows:
        cluster.row(host, "bond0")["linkinfo"]["info_data"]["ad_info"] = {"partner_mac": SYSTEM}
        cluster.more[host] = "$ ip neigh\n10.1.1.1 dev bond0 lladdr 00:1c:73:00:00:99 REACHABLE\n"
    _, plan = written(cluster, tmp_path)
    assert plan["nodes"]["leaf2"]["bonds"]["po3"]["system"] == SYSTEM
    assert plan["nodes"]["leaf2"]["svi_mac"] == "00:1c:73:00:00:99"


@pytest.mark.parametrize(("macs", "gateway"), [("11", "00:1c:73:00:00:11"), ("12", "02:00:00:00:00:fe")])
def test_the_gateway_of_hosts_comes_before_the_addresses_of_each_switch(
    tmp_path: Path, macs: str, gateway: str
) -> None:
    cluster = Cluster(tmp_path / "bundle", dual=True)
    for number, name in enumerate(("leaf1", "leaf2")):
        address = {"local": f"10.1.1.25{number}", "prefixlen": 24, "scope": "global"}
        svi = {"ifname": "Vlan10", "mtu": 9000, "address": f"00:1c:73:00:00:1{macs[number]}", "addr_info": [address]}
        cluster.more[name] = f"### ip -j -d address\n{json.dumps([svi])}\n"
    _, plan = written(cluster, tmp_path)
    leaves = [plan["nodes"][name] for name in ("leaf1", "leaf2")]
    assert [(one["vlans"], one["svi_mac"]) for one in leaves] == [({10: "10.1.1.1/24"}, gateway)] * 2


def test_two_switches_that_are_a_pair(tmp_path: Path) -> None:
    text, plan = written(pair(Cluster(tmp_path / "bundle", dual=True)), tmp_path)
    leaf = plan["nodes"]["leaf1"]
    assert leaf["mlag"] == {"peer_link": "po4", "system": SYSTEM}
    assert [one.get("mlag") for one in leaf["bonds"].values()] == [1, 2, 3, None]
    assert "system" not in leaf["bonds"]["po1"]
    assert "broadcast_neighbor" not in text
    assert [one["trunk"] for one in plan["links"] if "trunk" in one] == [[10], [10]]


def test_a_pair_whose_peer_link_is_one_cable(tmp_path: Path) -> None:
    cluster = pair(Cluster(tmp_path / "bundle", dual=True))
    for name in "leaf1", "leaf2":
        cluster.lldp[name] = [row for row in cluster.lldp[name] if row[0] != "Et50/1"]
    _, plan = written(cluster, tmp_path)
    port = plan["nodes"]["leaf1"]["mlag"]["peer_link"]
    assert any(f"leaf1:{port}" in one["endpoints"] and one.get("trunk") == [10] for one in plan["links"])


def test_a_pair_whose_peer_link_is_not_known(tmp_path: Path) -> None:
    cluster = pair(Cluster(tmp_path / "bundle", dual=True))
    cluster.more["leaf2"] = ""
    text, plan = written(cluster, tmp_path)
    assert "mlag" not in plan["nodes"]["leaf1"]
    assert "it is of a pair (MLAG, vPC), and its peer link is not known" in text


@pytest.mark.parametrize("dual", [False, True])
def test_a_bond_of_which_one_cable_is_known_is_a_plain_link(tmp_path: Path, dual: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    name, port = ("leaf2", "Et1") if dual else ("leaf1", "Et11")
    cluster.lldp[name] = [row for row in cluster.lldp[name] if row[0] != port]
    text, plan = written(cluster, tmp_path)
    assert plan["nodes"]["gpu1"] is None
    assert f'node: gpu1, interface: eth1, mac: "{mac("gpu1")}", ipv4: 10.1.1.2/24' in text
    assert "# leaf1 Ethernet1, gpu1 eth0; of bond0 only this cable is known" in text


@pytest.mark.parametrize(
    ("dual", "given", "mode", "channels"),
    [
        (False, "active-backup", "active-backup", False), (True, "active-backup", "active-backup", False),
        (False, "balance-xor", "balance-xor", True), (True, "balance-xor", None, True),
        (False, "balance-rr", "balance-xor", True), (True, "balance-alb", "active-backup", False),
        (False, "", None, True), (True, "802.3ad", None, True), (True, "fast: [x}", None, True),
    ],
)  # fmt: skip
def test_modes(tmp_path: Path, dual: bool, given: str, mode: str | None, channels: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    for host in cluster.rows:
        cluster.row(host, "bond0")["linkinfo"]["info_data"]["mode"] = given
    text, plan = written(cluster, tmp_path)
    assert plan["nodes"]["gpu1"]["bonds"]["bond0"].get("mode") == mode
    assert ("bonds" in plan["nodes"]["leaf1"]) == channels
    if not given:
        assert "  # gpu1 bond0; its mode is not known\n" in text
    elif given not in (mode, "802.3ad"):
        assert f"  # gpu1 bond0; its mode is {given}\n" in text


def test_port_channels_that_only_hosts_know(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle")
    cluster.channels["leaf1"] = {}
    cluster.macs["leaf1"] = {}
    text, plan = written(cluster, tmp_path)
    assert len(plan["nodes"]["leaf1"]["bonds"]["po1"]["members"]) == 2
    assert "  # that these ports are a port channel is not known\n" in text


@pytest.mark.parametrize("dual", [False, True])
def test_cables_by_macs_alone(tmp_path: Path, dual: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    cluster.lldp = {name: [] for name in cluster.lldp}
    text, plan = written(cluster, tmp_path)
    assert plan["nodes"]["gpu3"]["bonds"]["bond0"]["members"] == ["eth1", "eth2"]
    assert "  # gpu3 bond0; which member ends where is not known\n" in text


def test_lldp_that_names_the_mac_of_a_bond(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle", dual=True)
    for row in cluster.rows["gpu1"][:2]:
        row["linkinfo"]["info_slave_data"] = {}
    for name in "leaf1", "leaf2":
        cluster.lldp[name][0] = ("Et1", "gpu1", dots(mac("gpu1")))
    text, plan = written(cluster, tmp_path)
    assert plan["nodes"]["gpu1"]["bonds"]["bond0"]["members"] == ["eth1", "eth2"]
    assert "which member ends where is not known" in text


def test_a_port_channel_between_switches_that_are_no_pair(tmp_path: Path) -> None:
    cluster = uplinks(Cluster(tmp_path / "bundle"), ("leaf1", "spine1", "Et49/1"), ("leaf1", "spine1", "Et50/1"))
    for name in "leaf1", "spine1":
        cluster.channels[name]["Po20"] = ["Et49/1", "Et50/1"]
    _, plan = written(cluster, tmp_path)
    channels = plan["nodes"]["leaf1"]["bonds"]["po4"], plan["nodes"]["spine1"]["bonds"]["po1"]
    assert [len(one["members"]) for one in channels] == [2, 2]


def test_a_member_that_was_down_is_down_in_the_lab(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle", dual=True).down("gpu1", "eth1")
    _, plan = written(cluster, tmp_path)
    [fault] = plan["faults"]
    assert fault["fault"] == "link-down"
    assert any({fault["end"], "gpu1:eth2"} == {*one["endpoints"]} for one in plan["links"])


def test_a_vlan_on_a_bond_is_that_of_its_ports(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle")
    for host, rows in cluster.rows.items():
        bond = cluster.row(host, "bond0")
        vlan = {
            "ifname": "bond0.100", "link": "bond0", "flags": ["UP", "LOWER_UP"], "mtu": 9000, "address": mac(host),
            "addr_info": bond["addr_info"], "linkinfo": {"info_kind": "vlan", "info_data": {"id": 100}},
        }  # fmt: skip
        bond["addr_info"] = []
        rows.append(vlan)
    directory = cluster.write()
    path = directory / "switches/leaf1.txt"
    text = path.read_text().replace("\n  10   ", "\n 100   ")
    cluster.more["leaf1"] = ""
    path.write_text(text)
    plan = yaml.safe_load(reproduction.topology(Bundle.read(directory)))["topology"]
    assert plan["nodes"]["gpu1"]["bonds"]["bond0"]["ipv4"] == "10.1.1.2/24"
    assert {one["vlan"] for one in plan["links"] if "vlan" in one} == {100}


def test_names_of_hosts_with_bonds_leave_room_for_the_bond_s(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "bundle")
    long = "gpu1-rack9"
    cluster.rows[long] = cluster.rows.pop("gpu1")
    cluster.lldp["leaf1"] = [(port, long if name == "gpu1" else name, nic) for port, name, nic in cluster.lldp["leaf1"]]
    _, plan = written(cluster, tmp_path)
    assert long not in plan["nodes"]
    assert "host1" in plan["nodes"]
