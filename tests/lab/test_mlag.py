"""Two switches that are one LACP system (MLAG): hosts on both, orphan ports on one, and what is lost between them."""

import re
from pathlib import Path

import pytest

from testbed.faults import LinkDown, LinkLoss, MlagSyncLate, MlagSyncLost, injected
from testbed.switch.mlag.messages import ETHERTYPE, HELLO, SYNC
from testbed.switch.packets import gratuitous
from testbed.switch.profile import profile
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

FILE = "mlag.clab.yml"
TEXT = (Path(__file__).parent / FILE).read_text()
pytestmark = [pytest.mark.topology(FILE), pytest.mark.fresh]
TORS = ("tor1", "tor2")
SYSTEM = "44:38:39:be:ef:aa"
TIMEOUT_S = 15
AGE_S = 300
"""MAC ageing of linux-default, the profile of both."""
NXOS = pytest.mark.topology(FILE, profiles=dict.fromkeys(TORS, profile("cisco-nxos")))


def nic(lab, name):
    return lab.host(name)["bond0" if name in "ab" else "eth1"]


def pings(lab, name, to):
    return nic(lab, name).node.ping(nic(lab, to).address().ip, within=4)


def copies(lab, name, to):
    """The answers to three pings: one more than three is a copy."""
    done = lab[name].run("ping", "-c", "3", "-i", "0.2", "-W", "1", str(nic(lab, to).address().ip), within=30)
    return done.stdout.count("bytes from")


def ports(lab, name):
    """Where each switch has a host's MAC."""
    return [lab.switch(tor).fdb_table().get(nic(lab, name).mac) for tor in TORS]


def states(lab, name):
    """What each switch says of the entry for a host's MAC."""
    rows = [[row for row in lab.switch(tor).tables()["fdb"] if row["mac"] == nic(lab, name).mac] for tor in TORS]
    return [row.get("state", "learned") for of in rows for row in of]


def hears(lab):
    return [lab.switch(tor).mlag()["session"] for tor in TORS]


def up(lab, tor):
    """Whether a switch's port channel to a is up."""
    return lab.switch(tor).mlag()["channels"][0]["up"]


def addresses(lab):
    return [lab.switch(tor).arp_table() for tor in TORS]


def everybody_speaks(lab):
    for name in "a", "b", "one", "two":
        assert nic(lab, name).ping_gateway()


def soon(lab, condition, within=3.0):
    return lab.scheduler.wait(condition, within, pause=0.05)


def partner(lab, name, member):
    """The LACP system at the other end of a member, as the host has it."""
    shown = lab[name].run("cat", "/proc/net/bonding/bond0").stdout
    of_member = shown.partition(f"Slave Interface: {member}\n")[2].partition("Slave Interface")[0]
    return re.findall(r"system mac address: (\S+)", of_member)[1]


def kinds(capture):
    """First bytes of the frames of the pair, as they are on the wire."""
    return {frame.data[14] for frame in capture.frames() if frame.data[12:14] == ETHERTYPE.to_bytes(2, "big")}


def test_a_lab_is_one_system_to_its_hosts_and_both_switches_hear_each_other(lab, log):
    assert hears(lab) == ["up", "up"]
    assert [lab.switch(tor).mlag()["role"] for tor in TORS] == ["active", "standby"]
    assert {partner(lab, name, member) for name in "ab" for member in ("eth1", "eth2")} == {SYSTEM}
    assert [event["node"] for event in log.find("mlag.up")] == [*TORS]


def test_tables_are_equal_on_both_and_say_who_has_heard(lab):
    everybody_speaks(lab)
    assert soon(lab, lambda: addresses(lab)[0] == addresses(lab)[1] and len(addresses(lab)[0]) == 4)
    assert [ports(lab, name) for name in "ab"] == [["po1", "po1"], ["po2", "po2"]]
    assert [ports(lab, name) for name in ("one", "two")] == [["e3", "po99"], ["po99", "e3"]]
    assert [states(lab, name) for name in ("one", "two")] == [["learned", "synced"], ["synced", "learned"]]


@pytest.mark.parametrize("way", [("a", "b"), ("one", "a"), ("two", "b"), ("one", "two")])
def test_each_packet_arrives_once(lab, way):
    assert copies(lab, *way) == 3


def test_a_flood_reaches_a_host_of_both_once(lab):
    everybody_speaks(lab)
    a = nic(lab, "a")
    capture = a.capture("arp")
    lab["one"].run("arping", "-c", "3", "-w", "4", "-I", "eth1", str(a.address().ip), within=10, check=False)
    lab.scheduler.sleep(1)
    capture.stop()
    requests = [frame for frame in capture.frames() if frame.data[:6] == b"\xff" * 6]
    assert 1 <= len(requests) <= 3


def test_the_messages_are_frames_on_the_keepalive_link(lab):
    capture = lab["tor2"]["k"].capture()
    beside = lab["tor2"]["po99"].capture()
    everybody_speaks(lab)
    lab.scheduler.sleep(1.5)
    capture.stop()
    beside.stop()
    assert (kinds(capture), kinds(beside)) == ({HELLO, SYNC}, set())


def write(near, within=5):
    return near.write(4096, within=within).status


@pytest.mark.parametrize("end", ["tor1:e1", "tor2:e1", "tor1:e2", "tor2:e2"])
def test_a_queue_pair_lives_on_when_a_host_loses_a_link(lab, end):
    ends = [nic(lab, name) for name in "ab"]
    for one in ends:
        assert one.ping_gateway()
    points = [Endpoint(one.device, one.node.namespace, one.address().ip, ready=lab.scheduler.ready) for one in ends]
    with points[0] as near, points[1] as far:
        connect_pair(near, far, Attributes(retry_cnt=6))
        assert write(near) == "SUCCESS"
        with injected(lab, LinkDown(end=end)):
            assert write(near, 20) == "SUCCESS"
        assert write(near, 20) == "SUCCESS"


def test_a_host_with_one_link_is_reached_by_the_peer_link(lab, log):
    everybody_speaks(lab)
    with injected(lab, LinkDown(end="tor1:e1")):
        assert soon(lab, lambda: ports(lab, "a") == ["po99", "po1"])
        assert soon(lab, lambda: log.find("link", interface="eth1", active=False))  # a looks each 0.1 s
        assert copies(lab, "one", "a") == 3
        assert copies(lab, "a", "one") == 3
    assert soon(lab, lambda: ports(lab, "a") == ["po1", "po1"])
    assert soon(lab, lambda: log.find("link", interface="eth1", active=True), 10)  # LACP takes some 2.5 s
    assert soon(lab, lambda: not lab["tor1"].members_out(), 10)
    assert copies(lab, "one", "a") == 3


def test_orphan_ports_are_apart_without_the_peer_link_and_hosts_of_both_are_not(lab):
    """By SONiC's design the session, on a link of its own, goes on (doc/mclag/Sonic-mclag-hld.md, 7.4)."""
    everybody_speaks(lab)
    with injected(lab, LinkDown(end="tor1:p1")), injected(lab, LinkDown(end="tor1:p2")):
        assert soon(lab, lambda: ports(lab, "one") == ["e3", None])
        lab.scheduler.sleep(TIMEOUT_S + 2)
        assert hears(lab) == ["up", "up"]
        assert pings(lab, "a", "b")
        assert not pings(lab, "one", "two")
    assert soon(lab, lambda: ports(lab, "one") == ["e3", "po99"])
    assert pings(lab, "one", "two")


@NXOS
def test_on_nxos_the_standby_gives_its_hosts_up_without_the_peer_link(lab, log):
    everybody_speaks(lab)
    with injected(lab, LinkDown(end="tor1:p1")), injected(lab, LinkDown(end="tor1:p2")):
        assert soon(lab, lambda: log.find("mlag.disabled"))
        assert [event["node"] for event in log.find("mlag.disabled")] == ["tor2"]
        assert soon(lab, lambda: [up(lab, tor) for tor in TORS] == [True, False])
        assert pings(lab, "a", "b")
        assert pings(lab, "one", "a")
        assert not pings(lab, "two", "a")
    assert soon(lab, lambda: up(lab, "tor2"), 10)
    assert soon(lab, lambda: pings(lab, "two", "a"), 10)


def test_the_standby_leaves_the_system_when_nobody_is_heard_and_comes_back(lab, log):
    everybody_speaks(lab)
    with injected(lab, LinkDown(end="tor1:k")):
        assert soon(lab, lambda: hears(lab) == ["down", "down"], TIMEOUT_S + 2)
        assert soon(lab, lambda: [event["node"] for event in log.find("mlag.left")] == ["tor2"])
        assert soon(lab, lambda: partner(lab, "a", "eth2") != SYSTEM, 5)
        assert partner(lab, "a", "eth1") == SYSTEM
        assert pings(lab, "a", "b")
    assert soon(lab, lambda: hears(lab) == ["up", "up"])
    assert soon(lab, lambda: partner(lab, "a", "eth2") == SYSTEM, 40)
    assert pings(lab, "a", "b")


@NXOS
def test_on_nxos_both_stay_one_system_when_nobody_is_heard(lab, log):
    """The split: an owner of an address that has another MAC is known to the switch only that has heard it."""
    everybody_speaks(lab)
    ends = [LinkDown(end=f"tor1:{port}") for port in ("k", "p1", "p2")]  # the session first
    with injected(lab, ends[0]), injected(lab, ends[1]), injected(lab, ends[2]):
        assert soon(lab, lambda: hears(lab) == ["down", "down"], TIMEOUT_S + 2)
        lab.scheduler.sleep(5)
        assert log.find("mlag.left") == []
        assert {partner(lab, "a", member) for member in ("eth1", "eth2")} == {SYSTEM}
        assert ports(lab, "a") == ["po1", "po1"]
    assert soon(lab, lambda: hears(lab) == ["up", "up"])


def test_one_direction_of_the_keepalive_link_lost_ends_the_session_for_both(lab, log):
    with injected(lab, LinkLoss(end="tor1:k", loss=100)):
        assert soon(lab, lambda: hears(lab) == ["down", "down"], TIMEOUT_S + 2)
        assert soon(lab, lambda: len(log.find("mlag.lost")) >= 2)
    reasons = {event["node"]: event["data"]["reason"] for event in log.find("mlag.lost")}
    assert reasons["tor2"] == "timeout"
    assert reasons["tor1"] in ("unheard", "restarted")
    assert soon(lab, lambda: hears(lab) == ["up", "up"])


def test_a_mac_that_moves_is_known_to_one_switch_only_while_messages_are_lost(lab):
    """The peer link teaches nothing: only the other switch's word moves a MAC."""
    everybody_speaks(lab)
    a, one = nic(lab, "a"), nic(lab, "one")
    assert soon(lab, lambda: ports(lab, "a") == ["po1", "po1"])
    loss = MlagSyncLost(switch="tor1")
    with injected(lab, loss):
        one.send(gratuitous(a.mac, one.address().ip))
        assert soon(lab, lambda: ports(lab, "a") == ["e3", "po1"])
        lab.scheduler.sleep(TIMEOUT_S + 2)
        assert hears(lab) == ["up", "up"]
        assert ports(lab, "a") == ["e3", "po1"]
        assert loss.hits(lab) > 0
    assert soon(lab, lambda: ports(lab, "a") == ["e3", "po99"])


def test_what_is_told_late_comes_late(lab, log):
    with injected(lab, MlagSyncLate(switch="tor1", delay=20)):
        began = log.now
        assert nic(lab, "one").ping_gateway()
        assert soon(lab, lambda: ports(lab, "one") == ["e3", "po99"], 25)
        lab.scheduler.sleep(0.1)
        told = [event for event in log.find("fdb.learned", mac=nic(lab, "one").mac) if event["node"] == "tor2"]
        assert 20 <= (told[0]["t"] - began) / 1e9 < 20.1


def test_a_mac_lives_while_either_switch_sees_it(lab, log):
    everybody_speaks(lab)
    mac = nic(lab, "one").mac
    for _ in range(3):
        lab.scheduler.sleep(AGE_S / 2)
        assert nic(lab, "one").ping_gateway()
    assert ports(lab, "one") == ["e3", "po99"]
    assert log.find("fdb.aged", mac=mac) == []
    lab["one"].use("ip", "link", "set", "eth1", "down")
    assert soon(lab, lambda: ports(lab, "one") == [None, None])


def test_a_mac_that_neither_switch_sees_ages_out_on_both(lab):
    everybody_speaks(lab)
    nic(lab, "a").node.sysctl("net/ipv4/conf/all/arp_ignore", 8)
    lab.scheduler.sleep(2.5 * AGE_S)
    assert ports(lab, "a") == [None, None]


def test_a_flush_on_one_switch_brings_the_macs_back_from_the_other(lab):
    everybody_speaks(lab)
    assert soon(lab, lambda: ports(lab, "two") == ["po99", "e3"])
    lab.switch("tor1").clear_fdb()
    lab.scheduler.sleep(1)
    assert (ports(lab, "two"), ports(lab, "one")) == (["po99", "e3"], [None, None])


def test_a_switch_whose_cpu_is_out_is_lost_and_its_tables_stay(lab):
    everybody_speaks(lab)
    before = lab.switch("tor1").fdb_table()
    back = lab.switch("tor1").change_cpu(out=True)
    assert soon(lab, lambda: hears(lab)[1] == "down", TIMEOUT_S + 2)
    assert lab.switch("tor1").fdb_table() == before
    back()
    assert soon(lab, lambda: hears(lab) == ["up", "up"])


@pytest.mark.topology(TEXT.replace(", keepalive: k", ""))
def test_without_a_keepalive_link_they_talk_by_the_peer_link_a_port_channel(lab):
    capture = lab["tor2"]["po99"].capture()
    lab.scheduler.sleep(1.5)
    capture.stop()
    assert HELLO in kinds(capture)
    everybody_speaks(lab)
    assert soon(lab, lambda: ports(lab, "one") == ["e3", "po99"])
    with injected(lab, LinkDown(end="tor1:p1")):
        assert pings(lab, "one", "two")
        assert hears(lab) == ["up", "up"]
