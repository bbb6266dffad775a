"""Lossless classes in a topology file."""

import pytest
from refusals import assert_refused_at_caret, refused

from testbed.errors import InputError
from testbed.switch.profile import value_problems
from testbed.topology import Lossless, Plan, Reordering, Topology
from testbed.topology.plan import Qos

FILE = """\
name: lab
topology:
  lossless: %s
  nodes:
    sw: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host, nic: hardware}
    b: {kind: host}
    m: {kind: host, rdma: false}
    br: {kind: bridge}
  links:
    - {endpoints: ["sw:e1", "a:eth1"], vlan: 10, rate: 100mbit%s}
    - {endpoints: ["sw:e2", "b:eth1"], vlan: 10}
    - {endpoints: ["sw:e3", "m:eth1"], vlan: 10}
    - {endpoints: ["sw:e4", "br:p1"], vlan: 10}
"""


def plan(classes: str = "{dscp: 26, priority: 3}", link: str = "") -> Plan:
    return Topology.parse(FILE % (classes, link)).plan()


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ("{dscp: 26, priority: 3}", Lossless((3,), ((26, 3),))),
        ("{dscp: [24, 26], priority: 3}", Lossless((3,), ((24, 3), (26, 3)))),
        ("{pcp: 4, priority: 3}", Lossless((3,), (), ((4, 3),))),
        ("[{dscp: 26, priority: 3}, {dscp: 34, priority: 4}]", Lossless((3, 4), ((26, 3), (34, 4)))),
    ],
)
def test_classes_are_known_by_dscp_or_by_the_tag(classes: str, expected: Lossless) -> None:
    assert plan(classes).lossless == expected


def test_links_of_switches_and_rdma_nics_are_lossless_and_others_stay_as_they_are() -> None:
    found = {(end.node, end.name): end.lossless for pair in plan().links for end in pair}
    assert all(found[end] for end in (("sw", "e1"), ("a", "eth1"), ("sw", "e2"), ("b", "eth1")))
    assert not any(found[end] for end in (("sw", "e3"), ("m", "eth1"), ("sw", "e4"), ("br", "p1")))
    assert not plan(link=", lossless: false").links[0][0].lossless


def test_classes_that_no_link_carries_are_refused() -> None:
    text = FILE.replace("lossless: %s", "lossless: ^%s").replace("], vlan", "], lossless: false, vlan")
    assert_refused_at_caret(text % ("{dscp: 26, priority: 3}", ""), "no link carries a lossless class")


def test_without_classes_nothing_is_lossless() -> None:
    text = (FILE % ("", "")).replace("  lossless: \n", "")
    planned = Topology.parse(text).plan()
    assert planned.lossless is None
    assert not any(end.lossless for pair in planned.links for end in pair)


def test_hardware_nics_control_congestion_and_rxe_does_not() -> None:
    nodes = plan().nodes
    assert (nodes["a"].congestion_control, nodes["b"].congestion_control) == ("dcqcn", "none")


def test_pfc_can_be_off_at_one_end() -> None:
    assert [end.pfc for end in plan().links[0]] == [None, None]
    text = FILE % ("{dscp: 26, priority: 3}", "")
    text = text.replace('["sw:e1", "a:eth1"]', '["sw:e1", {node: a, interface: eth1, pfc: false}]')
    assert [end.pfc for end in Topology.parse(text).plan().links[0]] == [None, False]


def test_the_queues_of_an_end_are_those_of_its_link_but_for_what_it_says_itself() -> None:
    qos = ", qos: {weights: {3: 80, 0: 20}, ecn_max: 9000}"
    one = plan(link=qos).links[0]
    assert [end.qos for end in one] == [Qos(((0, 20), (3, 80)), (), (("ecn_max", 9000),))] * 2
    own = FILE.replace('"sw:e1"', "{node: sw, interface: e1, qos: {strict: [5], ecn_max: 0}}")
    port, nic = Topology.parse(own % ("{dscp: 26, priority: 3}", qos)).plan().links[0]
    assert port.qos == Qos(((0, 20), (3, 80)), (5,), (("ecn_max", 0),))
    assert nic.qos == one[1].qos


@pytest.mark.parametrize(
    ("qos", "message"),
    [
        ("^{weights: {3: 80}, strict: [3]}", "priority 3 is in 'strict' and in 'weights'"),
        ("^{weights: {6: 80}}", "priorities 6 and 7 are served before all"),
        ("{weights: {3: ^0}}", "greater than or equal to 1"),
        ("{^ecn_nim: 1}", "unknown key 'ecn_nim' in 'qos'; allowed: ecn_control"),
    ],
)
def test_queues_that_cannot_be_are_refused(qos: str, message: str) -> None:
    assert_refused_at_caret(FILE % ("{dscp: 26, priority: 3}", f", qos: {qos}"), message)


def test_thresholds_of_a_port_go_with_those_of_its_switch() -> None:
    text = FILE.replace("{kind: switch,", "{kind: switch, profile_values: {ecn_max: 8000},")
    text %= "{dscp: 26, priority: 3}", ", qos: {ecn_min: 9000}"
    (line,) = refused(text, check_values=value_problems)
    assert line == "t.yml:11:70: ecn_min (9000 bytes) is above ecn_max (8000)"


def test_a_nic_has_no_thresholds() -> None:
    ends = FILE.replace('"a:eth1"', "{node: a, interface: eth1, qos: ^{ecn_max: 9000}}")
    assert_refused_at_caret(ends % ("{dscp: 26, priority: 3}", ""), "'ecn_max' is for ports of switches")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("{dscp: 26, priority: ^6}", "priority 6 cannot be lossless: 6 is for CNPs and routing, 7 for pause frames"),
        ("^{dscp: 26, priority: 9}", "less than or equal to 7"),
        ("^{priority: 3}", "either 'dscp' or 'pcp'"),
        ("^{dscp: 26, pcp: 3, priority: 3}", "either 'dscp' or 'pcp'"),
        ("[{dscp: 26, priority: 3}, {dscp: ^26, priority: 4}]", "dscp 26 also belongs to priority 3"),
        ("^[{dscp: 26, priority: 3}, {pcp: 4, priority: 4}]", "give all classes 'dscp', or all of them 'pcp'"),
    ],
)
def test_classes_that_cannot_be_are_refused(classes: str, message: str) -> None:
    assert_refused_at_caret(FILE % (classes, ""), message)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (", queue: ^100", "'queue' is not for a lossless link: its queues are in the profile of its switch"),
        (", ecn: ^10", "'ecn' is not for a lossless link"),
    ],
)
def test_a_lossless_link_has_no_queue_of_its_own(link: str, message: str) -> None:
    assert_refused_at_caret(FILE % ("{dscp: 26, priority: 3}", link), message)


def test_what_is_for_lossless_links_is_refused_elsewhere() -> None:
    text = FILE % ("{dscp: 26, priority: 3}", "")
    bridged = text.replace('"br:p1"], vlan: 10', '"br:p1"], vlan: 10, lossless: ^true')
    assert_refused_at_caret(bridged, "br:p1 cannot be lossless: only ports of switches and RDMA NICs")
    assert_refused_at_caret(text.replace('"br:p1"], vlan: 10', '"br:p1"], vlan: 10, pfc: ^true'), "'pfc' is for links")
    none = text.replace("  lossless: {dscp: 26, priority: 3}\n", "").replace("rate: 100mbit", "lossless: ^true")
    assert_refused_at_caret(none, "the topology has no lossless classes")


BALANCED = """\
name: lab
topology:
%s  nodes:
    sw: {kind: switch, %s}
    a: {kind: host, nic: hardware, %s}
  links:
    - {endpoints: ["sw:e1", "a:eth1"], rate: 100mbit}
"""
CLASSES = "  lossless: {dscp: 26, priority: 3}\n"


def test_load_balancing_is_a_value_of_a_switchs_profile() -> None:
    for given, expected in ("spray", "spray"), ("{3: adaptive, 0: random}", {3: "adaptive", 0: "random"}):
        text = BALANCED % (CLASSES, f"load_balancing: {given}", "reorder: 64")
        found = Topology.parse(text).plan(check_values=value_problems)
        assert dict(found.nodes["sw"].profile_values) == {"load_balancing": expected}


@pytest.mark.parametrize(
    ("classes", "given", "wrong"),
    [
        ("", "^load_balancing: spray", "'load_balancing' is for lossless links, whose ports know their queues"),
        (CLASSES, "load_balancing: ^sprya", "load_balancing: Input should be 'ecmp', 'spray', 'random'"),
        (CLASSES, "load_balancing: ^{7: spray}", "load_balancing: Input should be less than or equal to 5"),
    ],
)
def test_load_balancing_that_cannot_be_is_refused(classes: str, given: str, wrong: str) -> None:
    text = (BALANCED % (classes, given, "X")).replace(", X", "")
    assert wrong in str(refused(text.replace("^", ""), check_values=value_problems))


@pytest.mark.parametrize(
    ("given", "expected"), [("64", Reordering(64)), ("{bytes: 100000, timeout: 20ms}", Reordering(None, 100_000, 0.02))]
)
def test_a_nic_may_put_packets_in_order(given: str, expected: Reordering) -> None:
    text = BALANCED % (CLASSES, "stp: false", f"reorder: {given}")
    assert Topology.parse(text).plan().nodes["a"].reorder == expected


@pytest.mark.parametrize("given", ["0", "true", "{packets: 5, frames: 3}", "{timeout: 5}"])
def test_a_nic_that_cannot_is_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"reorder|packets|frames|timeout|number with a unit"):
        Topology.parse(BALANCED % (CLASSES, "stp: false", f"reorder: {given}")).plan()
