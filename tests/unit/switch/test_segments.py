"""Ethernet segments as zebra shows them, and the rules for floods that follow."""

from testbed.switch.segments import Segment, filters, parse

ESI = "03:44:38:39:be:ef:aa:00:00:01"
SHOWN = [
    {
        "esi": ESI,
        "accessPort": "po1",
        "flags": ["local", "remote", "nonDF", "operUp", "nexthopGroupActive"],
        "nexthopGroup": 536870913,
        "vteps": [{"vtep": "10.255.0.3", "nexthopId": 2}, {"vtep": "10.255.0.2", "nexthopId": 1}],
    },
    {"esi": ESI, "accessPort": "po2", "flags": ["local", "df"], "nexthopGroup": 0},
    {"esi": ESI, "flags": ["remote"], "vteps": [{"vtep": "10.255.0.9"}]},
]
TO_ALL = "ether daddr & 01:00:00:00:00:00 != 0"


def test_a_segment_of_this_switch_has_a_port() -> None:
    assert [*parse(SHOWN)] == [
        Segment("po1", ESI, forwarder=False, others=("10.255.0.2", "10.255.0.3"), group=536870913),
        Segment("po2", ESI, forwarder=True, others=(), group=0),
    ]
    assert [*parse({})] == []


def test_one_switch_delivers_floods_and_none_those_of_another_one_with_the_segment() -> None:
    text = filters([*parse(SHOWN), Segment("po3", ESI, forwarder=True, others=("10.255.0.3",), group=7)])
    lines = text.splitlines()
    assert [line for line in lines if "mark set" in line] == [
        "ip saddr 10.255.0.2 udp dport 4789 meta mark set 1",
        "ip saddr 10.255.0.3 udp dport 4789 meta mark set 2",
    ]
    assert [line for line in lines if "drop" in line] == [
        f'oifname "po1" {TO_ALL} meta mark {{ 1, 2 }} drop',
        f'oifname "po1" {TO_ALL} iifname "vni*" drop',
        f'oifname "po3" {TO_ALL} meta mark {{ 2 }} drop',
    ]
