"""A warm reboot: the data plane goes on by the tables it has, the control plane comes back and asks who is still there.
SONiC's own way is in sonic-swss, neighsyncd/restore_neighbors.py."""

import pytest
from switch_lab import LEAF, SVI_20, A, B, C, arp_row, captured, know_the_gateways, only

from testbed.errors import InputError
from testbed.faults import SwitchReboot, injected
from testbed.switch.frames import REQUEST, parse

pytestmark = pytest.mark.topology(LEAF)


def test_it_forwards_by_its_tables_and_handles_no_arp(lab, log):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    assert a.ping(B, within=1)
    before = lab.switch("leaf").arp_table()
    with injected(lab, SwitchReboot(switch="leaf", warm=True)):
        assert only(log.find("fault.injected"))["data"]["verified"]["cpu"] == "out"
        assert a.ping(B, within=1)
        assert lab.switch("leaf").arp_table() == before
        assert all(lab.switch("leaf")[port].is_up for port in lab.switch("leaf").interfaces)
        assert not a.ping(C, within=1)  # it has no entry, and the CPU that would ask is out
        b.run("ip", "neigh", "flush", "dev", "eth1")
        b.run("ip", "neigh", "del", SVI_20, "dev", "eth1")
        assert not b.ping(SVI_20, within=1)  # nor does it answer for its own address
    assert a.ping(C, within=2)
    assert b.ping(SVI_20, within=2)


def test_entries_are_restored_and_asked_for(lab, log):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    assert a.ping(B, within=1)
    lab.scheduler.sleep(20)
    wire = b["eth1"].capture("arp")
    with injected(lab, SwitchReboot(switch="leaf", warm=True)):
        lab.scheduler.sleep(2000)  # longer than an entry of this profile lives
        assert arp_row(lab, B) is not None
    lab.scheduler.wait(lambda: (arp_row(lab, B) or {"age": 99})["age"] < 1, 2)
    assert only(log.find("arp.restored"))["data"]["entries"] == 2
    found = [parse(frame.data) for frame in captured(wire)]
    assert any(arp and arp.op == REQUEST and str(arp.target_ip) == B for arp in found)
    assert arp_row(lab, B)["state"] == "resolved"
    assert arp_row(lab, A)["age"] < 60


@pytest.mark.fresh
def test_who_left_meanwhile_ages_out(lab, log):
    know_the_gateways(lab)
    assert lab.host("a").ping(B, within=1)
    with injected(lab, SwitchReboot(switch="leaf", warm=True)):
        lab.host("b")["eth1"].down()
    assert arp_row(lab, B) is not None
    assert lab.scheduler.wait(lambda: bool(log.find("arp.aged", ip=B)), 1600)


def test_a_switch_forgets_what_it_is_told_to(lab):
    know_the_gateways(lab)
    leaf = lab.switch("leaf")
    assert lab.host("a").ping(B, within=1)
    assert {A, B} <= leaf.arp_table().keys()
    leaf.clear_arp(vlan=10)
    assert A not in leaf.arp_table()
    assert B in leaf.arp_table()
    leaf.clear_arp()
    leaf.clear_nd()
    assert leaf.arp_table() == {}
    mac = lab.host("a")["eth1"].mac
    leaf.clear_fdb(mac=mac)
    assert mac not in leaf.fdb_table()
    assert leaf.profile()["arp_age"] == 1500
    with pytest.raises(InputError, match="no value"):
        leaf.change_profile(arp_agee=1)
