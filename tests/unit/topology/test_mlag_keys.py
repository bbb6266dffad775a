"""Two switches as one LACP system (MLAG): keys of switches and of port channels, and what is wrong in a file."""

import pytest
from refusals import assert_refused_at_caret

from testbed.topology import Plan, Topology
from testbed.topology.changes import between

TWO = """\
name: lab
topology:
  nodes:
    s1: {kind: switch, vlans: {10: null, 20: null, 4000: null}, ONE}
    s2: {kind: switch, vlans: {10: null, 20: null, 4000: null}, OTHER}
    s3: {kind: switch, vlans: {10: null}}
    a: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}
    b: {kind: host, bonds: {bond0: {members: [eth1, eth2], mode: active-backup}}}
  links:
    - {endpoints: ["s1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["s2:e1", "a:eth2"], vlan: 10}
    - {endpoints: ["s1:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["s2:e2", "b:eth2"], vlan: 20}
    - {endpoints: ["s1:p", "s2:p"], trunk: [10]}
    - {endpoints: ["s1:k", "s2:k"], vlan: 4000}
    - {endpoints: ["s1:x", "s3:x"], vlan: 10}
"""
PAIR = "mlag: {peer_link: p, keepalive: k, system: 44:38:39:be:ef:aa}"
PORTS = "bonds: {po1: {members: [e1], mlag: 1}}"
BOTH = f"{PAIR}, {PORTS}"


def text(one: str = BOTH, other: str = BOTH) -> str:
    return TWO.replace("ONE", one).replace("OTHER", other)


def planned(one: str = BOTH, other: str = BOTH) -> Plan:
    return Topology.parse(text(one, other)).plan()


def test_a_switch_knows_the_other_one_and_by_what_they_talk() -> None:
    mlag = planned().nodes["s1"].mlag
    assert mlag is not None
    assert (mlag.peer, mlag.peer_link, mlag.talks_by, mlag.timeout_s) == ("s2", "p", "k", 15)
    alone = "mlag: {peer_link: p, system: 44:38:39:be:ef:aa, session_timeout: 30}, " + PORTS
    mlag = planned(alone, alone).nodes["s2"].mlag
    assert mlag is not None
    assert (mlag.peer, mlag.talks_by, mlag.timeout_s) == ("s1", "p", 30)


def test_port_channels_with_a_number_have_the_system_of_the_pair() -> None:
    (channel,) = planned().nodes["s1"].bonds
    assert channel.bond is not None
    assert (channel.bond.mlag, channel.bond.system) == (1, "44:38:39:be:ef:aa")


def test_the_other_switch_need_not_have_the_port_channel() -> None:
    orphan = f"{PAIR}, bonds: {{po1: {{members: [e1], mlag: 1}}, po2: {{members: [x], mlag: 2}}}}"
    assert [bond.name for bond in planned(orphan).nodes["s1"].bonds] == ["po1", "po2"]


def test_another_value_makes_the_switch_anew() -> None:
    other = BOTH.replace("be:ef:aa", "be:ef:bb")
    assert between(planned(), planned(other, other)).anew == {"s1": "its bonds changed", "s2": "its bonds changed"}
    late = BOTH.replace("system:", "session_timeout: 20, system:")
    assert between(planned(), planned(late)).anew == {"s1": "'mlag' changed"}


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ("mlag: ^{keepalive: k, system: 44:38:39:be:ef:aa}", "'peer_link': Field required"),
        (BOTH.replace("peer_link: p", "peer_link: ^q"), "'q' is no port of 's1'; there are: po1, e2, p, k, x"),
        (BOTH.replace("peer_link: p", "peer_link: ^e1"), "'e1' is a member of po1 of 's1'"),
        (BOTH.replace("peer_link: p", "peer_link: ^x"), "the peer link leads to s3:x, and 's3' has no 'mlag'"),
        (BOTH.replace("peer_link: p", "peer_link: ^k"), "the peer link leads to s2:k, but that of 's2' is p"),
        (BOTH.replace("44:38:39:be:ef:aa", "^44:38:39:be:ef:bb"), "'s2' has 44:38:39:be:ef:aa, not 44:38:39:be:ef:bb"),
        (BOTH.replace("keepalive: k", "keepalive: ^p"), "s1:p is the peer link: without 'keepalive'"),
        (BOTH.replace("keepalive: k", "keepalive: ^x"), "the keepalive link leads to s3:x, and the peer link to 's2'"),
        (BOTH.replace("keepalive: k", "keepalive: ^e2"), "the keepalive link leads to b:bond0, and the peer link to"),
        (f"^stp: true, {BOTH}".replace("^stp: true, mlag", "stp: true, ^mlag"), "MLAG is without spanning tree"),
        (f"{PAIR}, {PORTS[:-2]}, ^system: 44:38:39:be:ef:aa}}}}", "'system' follows from the switch's 'mlag'"),
        (f"{PAIR}, {PORTS[:-2]}, ^es_id: 1}}}}", "'es_id' is EVPN's way to share a host"),
        (
            f"{PAIR}, bonds: {{po1: {{members: [e1], mlag: 1}}, po2: {{members: [x], mlag: ^1}}}}",
            "1 is also the number of s1:po1, in line 4",
        ),
        (
            f"{PAIR}, bonds: {{po1: {{members: [e1]}}, po2: {{members: [x], mlag: ^1}}}}",
            "port channels with one number lead to one node: s1:po2 to 's3', s2:po1 to 'a'",
        ),
        (
            f"{PAIR}, bonds: {{po1: {{members: [e1], mlag: 1}}, po2: {{members: [e2], ^mlag: 2}}}}",
            "the peer link s1:p does not carry 20 of s1:po2",
        ),
        (
            f"{PAIR}, bonds: {{po1: {{members: [e1], mlag: 1}}, po2: {{members: [x], mode: balance-xor, ^mlag: 2}}}}",
            "'mlag' is for bonds of mode 802.3ad",
        ),
    ],
)
def test_what_is_wrong_has_its_place(one: str, message: str) -> None:
    assert_refused_at_caret(text(one), message)


def test_port_channels_need_the_pair() -> None:
    assert_refused_at_caret(text(PORTS.replace("mlag", "^mlag"), PORTS), "'s1' has no 'mlag' with its 'peer_link'")
    assert_refused_at_caret(
        text(PORTS).replace("peer_link: p", "peer_link: ^p"), "the peer link leads to s1:p, and 's1' has no 'mlag'"
    )


def test_the_number_is_for_port_channels_of_switches() -> None:
    host = "a: {kind: host, bonds: {bond0: {members: [eth1, eth2], ^mlag: 1}}}"
    given = text().replace("a: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}", host)
    assert_refused_at_caret(given, "'mlag' is for port channels of switches: a:bond0 is a host's bond")


def test_the_members_of_a_hosts_bond_end_at_one_system() -> None:
    host = text(other=PAIR).replace("members: [eth1, eth2]}", "members: ^[eth1, eth2]}", 1)
    assert_refused_at_caret(host, "not one system to it: give their port channels the same 'system', or 'mlag'")
