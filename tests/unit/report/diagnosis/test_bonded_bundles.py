"""Diagnosis of clusters whose hosts have bonds."""

import json
from pathlib import Path

import pytest
from bonded_clusters import Cluster, dots, mac

from testbed.records.bundle import Bundle
from testbed.report.diagnosis import diagnose_bundle
from testbed.report.diagnosis.rules import Diagnosis

both = pytest.mark.parametrize("dual", [False, True], ids=["one switch", "two switches"])


@pytest.fixture
def one(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "bundle")


@pytest.fixture
def two(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "bundle", dual=True)


def diagnosis(cluster: Cluster, *, ok: bool = False) -> Diagnosis:
    [job] = diagnose_bundle(Bundle.read(cluster.write(ok=ok)))
    assert job.case.seen.remarks == [
        "when train ran is not known: no log or flight record of it has a time",
        *(
            f"the clock of {name} is not known: its times are its own"
            for name in sorted({*cluster.rows, *cluster.lldp})
        ),
    ]
    return job


@both
def test_a_rank_on_a_bond_has_its_address_and_links(tmp_path: Path, dual: bool) -> None:
    job = diagnosis(Cluster(tmp_path / "bundle", dual))
    assert job.finding.cause == "unknown"
    assert job.case.nics == {(f"gpu{n}", "bond0"): [n - 1] for n in (1, 2, 3)}
    assert sorted(job.case.addresses) == ["10.1.1.2", "10.1.1.3", "10.1.1.4"]
    assert job.case.seen.peers["gpu1", "eth1"] == (("leaf2", "Ethernet1") if dual else ("leaf1", "Ethernet11"))
    assert job.case.seen.peers.get(("gpu1", "bond0")) == (None if dual else ("leaf1", "Port-Channel1"))


@both
def test_one_member_that_is_down_is_no_cause(tmp_path: Path, dual: bool) -> None:
    job = diagnosis(Cluster(tmp_path / "bundle", dual).down("gpu2", "eth1"))
    assert job.finding.cause == "unknown"
    link = "leaf2:Ethernet2" if dual else "leaf1:Ethernet12"
    whose = f"the link {link} - gpu2:eth1, that of rank 1 on gpu2,"
    words = f"{whose} was down to the end; gpu2:bond0 goes on by its other links"
    assert words in [text for _, text in job.finding.evidence]
    healthy = diagnosis(Cluster(tmp_path / "ok", dual).down("gpu2", "eth1"), ok=True)
    assert healthy.healthy
    assert words in [text for _, text in healthy.remarks]


@both
@pytest.mark.parametrize("bond", [True, False], ids=["the bond, too", "its members"])
def test_all_members_that_are_down_are_the_cause(tmp_path: Path, dual: bool, bond: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual).down("gpu2", "eth0", "eth1", *(["bond0"] if bond else []))
    cluster.rows["gpu2"].reverse()
    job = diagnosis(cluster)
    assert (job.finding.cause, job.finding.ranks) == ("link-down", [1])
    other = "leaf2:Ethernet2" if dual else "leaf1:Ethernet12"
    assert job.finding.link == f"{other} - gpu2:eth1"
    assert job.finding.text.endswith("is down, and with it all links of gpu2:bond0")


def test_a_nic_whose_ports_are_set_down(two: Cluster) -> None:
    for name in "eth0", "eth1":
        two.row("gpu3", name)["flags"][:] = ["SLAVE"]
    job = diagnosis(two)
    assert (job.finding.cause, job.finding.ranks) == ("nic-down", [2])


def test_a_bond_without_a_carrier_whose_members_have_one(two: Cluster) -> None:
    job = diagnosis(two.down("gpu2", "bond0"))
    assert (job.finding.cause, job.finding.ranks, job.finding.link) == ("link-down", [1], "gpu2:bond0")


def test_a_device_of_a_member_itself_is_lost_with_it(one: Cluster) -> None:
    for host in one.rows:
        one.more[host] = "$ rdma link\nlink mlx5_1/1 state ACTIVE physical_state LINK_UP netdev eth1\n"
    directory = one.down("gpu2", "eth0").write()
    (directory / "jobs/train/hosts").write_text("gpu1 mlx5_bond_0\ngpu2 mlx5_bond_0\ngpu3 mlx5_bond_0\n")
    [job] = diagnose_bundle(Bundle.read(directory))
    assert (job.finding.cause, job.finding.ranks) == ("link-down", [1])


def test_a_switch_of_a_pair_that_is_down_is_no_cause(two: Cluster) -> None:
    for host in two.rows:
        two.down(host, "eth1")
    assert diagnosis(two).finding.cause == "unknown"


@both
def test_a_mac_on_the_port_channel_of_its_host_is_right(tmp_path: Path, dual: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    tables = diagnosis(cluster).case.seen.tables_at(0)
    assert tables["leaf1", "fdb", 10, mac("gpu2")] == "on Port-Channel2"


@both
@pytest.mark.parametrize("place", ["Po3", "Et3"])
def test_a_mac_on_the_port_of_another_host_is_wrong(tmp_path: Path, dual: bool, place: str) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    cluster.macs["leaf1"]["gpu2"] = place
    job = diagnosis(cluster)
    assert (job.finding.cause, job.finding.ranks, job.finding.address) == ("wrong-port", [1], "10.1.1.3")
    where = {"Po3": "Port-Channel3", "Et3": "Ethernet3"}[place]
    assert f"leaf1 has its MAC {mac('gpu2')} on {where}; it is at Port-Channel2" in job.finding.text


@pytest.mark.parametrize(("dual", "cause"), [(True, "unknown"), (False, "wrong-port")])
def test_a_mac_behind_another_switch_is_right_where_a_bond_has_a_link_to_it(
    tmp_path: Path, dual: bool, cause: str
) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    cluster.macs["leaf1"]["gpu2"] = "Po20"
    cluster.channels["leaf1"]["Po20"] = ["Et49/1"]
    cluster.lldp["leaf1"].append(("Et49/1", "leaf2", "Ethernet49/1"))
    assert diagnosis(cluster).finding.cause == cause


@both
def test_a_mac_on_a_port_channel_of_unknown_members_is_no_cause(tmp_path: Path, dual: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    cluster.macs["leaf1"]["gpu2"] = "Po77"
    assert diagnosis(cluster).finding.cause == "unknown"


def test_a_mac_in_another_vlan_elsewhere_is_no_cause(one: Cluster) -> None:
    one.lldp["leaf1"] = [row for row in one.lldp["leaf1"] if row[0] != "Et12"]
    directory = one.write()
    path = directory / "switches/leaf1.txt"
    line = f"  20    {dots(mac('gpu2'))}    DYNAMIC     Po3        1       0:03:12 ago\n"
    path.write_text(path.read_text().replace("Total Mac", f"{line}Total Mac"))
    [job] = diagnose_bundle(Bundle.read(directory))
    assert job.finding.cause == "unknown"


def test_members_that_only_their_mac_names(two: Cluster) -> None:
    for row in two.rows["gpu2"]:
        row["flags"] = [flag for flag in row["flags"] if flag not in ("SLAVE", "MASTER")]
        row.pop("linkinfo")
        row.pop("master", None)
    two.more["gpu2"] = "$ rdma link\nlink mlx5_bond_0/1 state ACTIVE physical_state LINK_UP netdev bond0\n"
    assert diagnosis(two).finding.cause == "unknown"


def test_a_stale_entry_for_a_rank_on_a_bond(two: Cluster) -> None:
    directory = two.write()
    path = directory / "switches/leaf2.txt"
    old, new = "0:03:12    0c42.a100.0201", "0:03:12    0c42.a100.0701"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    [job] = diagnose_bundle(Bundle.read(directory))
    assert (job.finding.cause, job.finding.ranks) == ("stale-neighbour", [1])


@both
@pytest.mark.parametrize(("mtu", "cause"), [(9000, "unknown"), (9214, "unknown"), (1500, "mtu-mismatch")])
@pytest.mark.parametrize("port", ["Port-Channel2", "Ethernet2"])
def test_the_mtu_of_a_bond_s_ends(tmp_path: Path, dual: bool, mtu: int, cause: str, port: str) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    row = f'{{"ifname": "{port}", "flags": ["UP", "LOWER_UP"], "mtu": {mtu}, "address": "02:00:11:00:00:01"}}'
    cluster.more["leaf1"] = f"### ip -j -d address\n[{row}]\n"
    job = diagnosis(cluster)
    assert job.finding.cause == cause
    assert job.finding.link == ("leaf1:Ethernet2 - gpu2:eth0" if cause == "mtu-mismatch" else "")


def counted(**damaged: int) -> str:
    """Two readings of a host: of its links, and of its device, which sends again."""
    text = ""
    for number in (0, 1):
        links = [
            {"ifname": name, "stats64": {"rx": {"packets": 10**6, "crc_errors": number * count}, "tx": {}}}
            for name, count in damaged.items()
        ]
        text += f"### date +%s.%N\n{1796008455 + 10 * number}.0\n\n### ip -j -s -s link\n{json.dumps(links)}\n\n"
        text += f"$ rdma statistic\nlink mlx5_bond_0/1 local_ack_timeout_err {number * 9}\n"
    return text


@both
def test_what_arrives_damaged_at_a_member_is_lost_for_the_rank_of_its_bond(tmp_path: Path, dual: bool) -> None:
    cluster = Cluster(tmp_path / "bundle", dual)
    cluster.more["gpu2"] = counted(bond0=41, eth0=40, eth1=1)
    [job] = diagnose_bundle(Bundle.read(cluster.write()))
    assert (job.finding.cause, job.finding.ranks) == ("lossy-link", [1])
    assert job.finding.link == "leaf1:Ethernet2 - gpu2:eth0"


def test_ports_of_a_bond_by_their_macs_alone(two: Cluster) -> None:
    two.lldp = {name: [] for name in two.lldp}
    two.macs["leaf1"]["gpu2"] = "Po3"
    peers = Bundle.read(two.write()).peers
    assert peers["leaf1", "Port-Channel1"] == peers["leaf2", "Port-Channel1"] == ("gpu1", "bond0")
    assert ("gpu1", "eth0") not in peers


def test_lldp_names_members_by_their_own_macs_or_by_that_of_the_bond(two: Cluster) -> None:
    first = dots(mac("gpu1"))
    two.lldp["leaf1"][0] = ("Et1", "gpu1", first)
    two.lldp["leaf2"][0] = ("Et1", "gpu1", "0c42.a100.0102")
    peers = Bundle.read(two.write()).peers
    assert (peers["leaf1", "Ethernet1"], peers["leaf2", "Ethernet1"]) == (("gpu1", "eth0"), ("gpu1", "eth1"))
    for row in two.rows["gpu1"][:2]:
        row["linkinfo"]["info_slave_data"] = {}
    two.lldp["leaf2"][0] = ("Et1", "gpu1", first)
    peers = Bundle.read(two.write()).peers
    assert peers["leaf1", "Ethernet1"] == peers["leaf2", "Ethernet1"] == ("gpu1", "bond0")
