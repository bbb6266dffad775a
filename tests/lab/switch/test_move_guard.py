"""The MAC move guard on real ports: what is behind one that it disables has no link, until its time is over."""

import pytest
from switch_lab import LEAF, SVI_20, ethernet, only, seconds, send

from testbed.switch.frames import BROADCAST

pytestmark = pytest.mark.topology(LEAF)


def test_a_disabled_port_comes_back_at_the_first_look_after_its_time(lab, log):
    leaf, b, c = lab.switch("leaf"), lab.host("b"), lab.host("c")
    lab.switch("leaf").change_profile(mac_moves=3, mac_move_recovery=60)
    assert c.ping(SVI_20, within=1)

    for host in (b, c, b, c):
        send(host, ethernet(BROADCAST, b["eth1"].mac))
    lab.scheduler.sleep(2)
    assert (leaf["e2"].is_up, leaf["e3"].is_up) == (True, False)
    assert (b.links_work(), c.links_work()) == (True, False)
    assert leaf.fdb_table() == {}
    lab.scheduler.sleep(100)

    disabled, enabled = only(log.find("port.disabled")), only(log.find("port.enabled"))
    assert disabled["data"] == {"vlan": 20, "mac": b["eth1"].mac, "port": "e3", "moves": 3}
    assert enabled["data"] == {"port": "e3"}
    assert 60 <= seconds(disabled, enabled) <= 90
    assert c.links_work()
    assert c.ping(SVI_20, within=1)


def test_a_guard_that_is_switched_off_enables_its_ports(lab):
    leaf, b, c = lab.switch("leaf"), lab.host("b"), lab.host("c")
    lab.switch("leaf").change_profile(mac_moves=3)
    for host in (b, c, b, c):
        send(host, ethernet(BROADCAST, b["eth1"].mac))
    assert lab.scheduler.wait(lambda: not leaf["e3"].is_up, 1)

    lab.switch("leaf").change_profile(mac_moves=None)

    assert leaf["e3"].is_up
