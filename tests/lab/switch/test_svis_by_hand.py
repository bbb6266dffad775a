"""SVIs are those that the kernel has: what a command does to one, the control plane follows."""

import pytest
from switch_lab import LEAF, SVI_20, A, B, C

pytestmark = [pytest.mark.topology(LEAF), pytest.mark.fresh]
MAC = "02:00:00:00:99:99"


def resolved(lab, family="arp"):
    return sorted(row["ip"] for row in lab.switch("leaf").tables()[family] if row["state"] == "resolved")


@pytest.fixture
def known(lab):
    """The leaf, which knows b and c."""
    for name in "bc":
        assert lab.host(name).ping(A, within=1)
    assert resolved(lab) == [A, B, C]
    return lab.switch("leaf")


def ip(switch, *words):
    switch.run("ip", *words)


def test_its_mac_is_that_of_its_interface_in_answers_too(lab):
    ip(lab.switch("leaf"), "link", "set", "vlan20", "address", MAC)
    b = lab.host("b")
    wire = b["eth1"].capture("arp")
    assert b.ping(A, within=1)
    assert b["eth1"].neighbour(SVI_20) == MAC == lab.switch("leaf").svi_mac(20)
    wire.stop()
    assert MAC in "".join(frame.data.hex(":") for frame in wire.frames())
    assert lab.switch("leaf").planned.svis[1].mac not in "".join(frame.data[14:].hex(":") for frame in wire.frames())


def test_a_second_address_is_answered_for_and_a_deleted_one_is_not(lab):
    leaf, b = lab.switch("leaf"), lab.host("b")
    ip(leaf, "address", "add", "10.0.20.200/24", "dev", "vlan20")
    assert b.ping("10.0.20.200", within=1)
    ip(leaf, "address", "add", "10.9.0.1/24", "dev", "vlan20")
    ip(b, "address", "add", "10.9.0.2/24", "dev", "eth1")
    assert b.ping("10.9.0.1", within=1)
    assert leaf.run("ping", "-c1", "-W1", "10.9.0.2", check=False).returncode == 0
    ip(leaf, "address", "del", SVI_20 + "/24", "dev", "vlan20")
    b.kernel.delete_neighbour(b["eth1"].index, b["eth1"].gateway())
    assert not b.ping(SVI_20, within=1)


@pytest.mark.parametrize("words", [("link", "set", "vlan20", "down"), ("address", "flush", "dev", "vlan20")])
def test_what_the_kernel_flushes_is_flushed(lab, known, log, words):
    ip(known, *words)
    assert resolved(lab) == [A]
    assert {event["data"]["reason"] for event in log.find("arp.cleared")} <= {"flushed", "no-address"}


def test_one_that_is_set_up_again_works(lab, known):
    ip(known, "link", "set", "vlan20", "down")
    ip(known, "link", "set", "vlan20", "up")
    assert lab.host("b").ping(A, within=1)
    assert B in resolved(lab)


def test_one_that_is_deleted_and_made_again_works(lab, known):
    ip(known, "link", "del", "vlan20")
    assert resolved(lab) == [A]
    assert not lab.host("b").ping(A, within=1)
    ip(known, "link", "add", "link", "br0", "name", "gateway", "type", "vlan", "id", "20")
    ip(known, "address", "add", SVI_20 + "/24", "dev", "gateway")
    ip(known, "link", "set", "gateway", "up")
    assert lab.host("b").ping(A, within=2)
    assert resolved(lab) == [A, B]


def test_one_of_a_new_vlan_is_the_gateway_of_its_hosts(lab):
    leaf, d = lab.switch("leaf"), lab.host("d")
    leaf.run("bridge", "vlan", "add", "dev", "br0", "vid", "30", "self")
    leaf.run("bridge", "vlan", "add", "dev", "e4", "vid", "30", "pvid", "untagged")
    ip(leaf, "link", "add", "link", "br0", "name", "vlan30", "type", "vlan", "id", "30")
    ip(leaf, "address", "add", "10.0.30.1/24", "dev", "vlan30")
    ip(leaf, "link", "set", "vlan30", "up")
    ip(d, "address", "flush", "dev", "eth1")
    ip(d, "address", "add", "10.0.30.2/24", "dev", "eth1")
    ip(d, "route", "add", "default", "via", "10.0.30.1")
    assert lab.host("a").ping("10.0.30.2", within=1)
    assert "10.0.30.2" in resolved(lab)


def test_the_port_to_a_host_is_the_one_where_its_mac_is(lab, known):
    ports = [known.uplinks(A, ip, [50000])[0] for ip in (B, C)]
    assert ports == ["e2", "e3"]
    known.clear_fdb()
    assert known.uplinks(A, B, [50000]) == ["vlan20"]


def test_a_static_entry_is_shown_as_one(lab, known):
    known.run("bridge", "fdb", "add", MAC, "dev", "e2", "vlan", "20", "master", "static")
    states = {row["mac"]: row.get("state") for row in known.tables()["fdb"]}
    assert states[MAC] == "static"
    assert set(states.values()) == {"static", None}


def test_a_neighbour_that_a_command_set_is_in_the_table_until_it_goes(lab, known):
    ip(known, "neigh", "replace", "10.0.20.77", "lladdr", MAC, "dev", "vlan20", "nud", "permanent")
    (row,) = [row for row in known.tables()["arp"] if row["state"] == "static"]
    assert (row["vlan"], row["ip"], row["mac"], row["port"]) == (20, "10.0.20.77", MAC, None)
    assert known.neighbour("10.0.20.77") == MAC
    ip(known, "neigh", "del", "10.0.20.77", "dev", "vlan20")
    assert resolved(lab) == [A, B, C]
    assert known.neighbour("10.0.20.77") is None


def test_a_neighbour_that_a_command_changed_is_shown_beside_the_control_planes(lab, known):
    of_b = known.neighbour(B)
    ip(known, "neigh", "replace", B, "lladdr", MAC, "dev", "vlan20", "nud", "permanent")
    (row,) = [row for row in known.tables()["arp"] if row["ip"] == B]
    assert (row["mac"], row["state"], row["data_plane"]) == (of_b, "resolved", MAC)
    assert known.neighbour(B) == of_b
    ip(known, "neigh", "replace", B, "lladdr", of_b, "dev", "vlan20", "nud", "permanent")
    assert not any("data_plane" in row for row in known.tables()["arp"])


def test_a_neighbour_that_a_command_deleted_is_missing_in_the_kernel_until_it_is_needed(lab, known):
    ip(known, "neigh", "del", B, "dev", "vlan20")
    (row,) = [row for row in known.tables()["arp"] if row["ip"] == B]
    assert (row["state"], row["data_plane"]) == ("resolved", "none")
    assert known.run("ping", "-c", "1", "-W", "1", B)
    assert not any("data_plane" in row for row in known.tables()["arp"])
