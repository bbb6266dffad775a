"""When an SVI is up, by the profile's autostate, and what follows when it is not."""

import pytest

from testbed.switch.dataplane import ALWAYS_UP

pytestmark = pytest.mark.topology("autostate.clab.yml")

SOON = 2.0
AGGREGATED = 15.0
"""A port channel is up when LACP has found its partner."""


@pytest.fixture
def leaf(lab):
    return lab.switch("leaf")


@pytest.fixture
def by_vlan(leaf):
    undo = leaf.change_profile(autostate="vlan", svi_carrier="purge")
    yield
    undo()


def up(switch):
    """The VLANs whose SVI has a carrier."""
    return {int(link.name[4:]) for link in switch.now().links.values() if link.name.startswith("vlan") and link.carrier}


def becomes(lab, vlans, within=SOON):
    assert lab.scheduler.wait(lambda: up(lab.switch("leaf")) == vlans, within), up(lab.switch("leaf"))


@pytest.mark.usefixtures("by_vlan")
def test_an_svi_is_up_while_a_port_of_its_vlan_is(lab, leaf, log):
    becomes(lab, {10, 20, 30, 40})

    leaf["e1"].down()
    becomes(lab, {20, 30, 40})
    leaf["e1"].up()
    becomes(lab, {10, 20, 30, 40})

    for gateway in "10.0.10.1", "2001:db8:10::1":
        assert lab.host("a").ping(gateway, within=SOON)
    changes = [event["data"]["carrier"] for event in log.find("link", interface="vlan10") if "carrier" in event["data"]]
    assert changes == [False, True]


@pytest.mark.usefixtures("by_vlan")
def test_a_port_channel_is_one_port_and_a_trunk_a_port_of_each_vlan(lab, leaf):
    becomes(lab, {10, 20, 30, 40})
    leaf["e2"].down()
    lab.scheduler.sleep(SOON)
    assert up(leaf) == {10, 20, 30, 40}

    leaf["e3"].down()
    becomes(lab, {10, 30, 40})
    lab["c"]["up"].down()
    becomes(lab, {10})

    for interface in leaf["e2"], leaf["e3"], lab["c"]["up"]:
        interface.up()
    becomes(lab, {10, 20, 30, 40})


@pytest.mark.parametrize(("svi_carrier", "stays"), [("purge", False), ("keep", True)])
def test_the_entries_of_an_svi_that_goes_down(lab, leaf, log, svi_carrier, stays):
    undo = leaf.change_profile(autostate="vlan", svi_carrier=svi_carrier)
    a = lab.host("a")["eth1"]
    assert a.ping_gateway()
    ip = str(a.address().ip)
    assert leaf.arp_table()[ip] == a.mac

    leaf["e1"].down()
    becomes(lab, {20, 30, 40})
    lab.scheduler.catch_up()

    assert (ip in leaf.arp_table()) == stays
    assert bool(log.find("arp.cleared", ip=ip, reason="no-carrier")) != stays
    leaf["e1"].up()
    becomes(lab, {10, 20, 30, 40})
    undo()


@pytest.mark.usefixtures("by_vlan")
def test_the_subnet_of_an_svi_that_is_down_is_unreachable(lab, leaf):
    becomes(lab, {10, 20, 30, 40})
    to_d = str(lab.host("d")["eth1"].address().ip)
    assert lab.host("a").run("ping", "-c1", "-W2", to_d).returncode == 0

    lab["c"]["up"].down()
    becomes(lab, {10, 20})

    answer = lab.host("a").run("ping", "-c1", "-W2", to_d, check=False).stdout
    assert "Destination Net Unreachable" in answer
    lab["c"]["up"].up()
    becomes(lab, {10, 20, 30, 40})


def test_without_autostate_all_svis_share_the_bridges_carrier_or_are_always_up(lab, leaf):
    becomes(lab, {10, 20, 30, 40, 50})
    ports = [leaf[name] for name in ("e1", "e2", "e3", "e4")]
    for port in ports:
        port.down()
    becomes(lab, set())

    undo = leaf.change_profile(autostate="none")
    becomes(lab, {10, 20, 30, 40, 50})
    undo()
    becomes(lab, set())

    assert ALWAYS_UP not in {link.name for link in leaf.now().links.values()}
    for port in ports:
        port.up()
    becomes(lab, {10, 20, 30, 40, 50})


@pytest.mark.usefixtures("by_vlan")
def test_an_svi_that_a_command_makes_follows_its_vlan_too(lab, leaf):
    becomes(lab, {10, 20, 30, 40}, AGGREGATED)
    leaf.run("ip", "link", "add", "link", "br0", "name", "vlan60", "type", "vlan", "id", "60")
    leaf.run("ip", "link", "set", "vlan60", "up")
    lab.scheduler.sleep(SOON)
    assert up(leaf) == {10, 20, 30, 40}

    leaf.run("bridge", "vlan", "add", "dev", "e1", "vid", "60")
    becomes(lab, {10, 20, 30, 40, 60})

    leaf.run("bridge", "vlan", "del", "dev", "e1", "vid", "60")
    leaf.run("ip", "link", "del", "vlan60")
