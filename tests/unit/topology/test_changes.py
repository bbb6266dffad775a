"""An edited file of a lab that lives: what keeps its numbers and addresses, and what is said to change."""

from typing import Any

import pytest

from testbed.errors import InputError
from testbed.topology import Plan, Topology
from testbed.topology.changes import between

BASE = """\
name: lab
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
    d: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
    - {endpoints: ["c:eth1", "d:eth1"]}
"""


def planned(text: str, lab: Plan | None = None) -> Plan:
    return Topology.parse(text).plan(lab=lab)


def edited(*pairs: tuple[str, str]) -> tuple[Plan, Plan]:
    text = BASE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    lab = planned(BASE)
    return lab, planned(text, lab)


def rows(*pairs: tuple[str, str]) -> list[tuple[Any, ...]]:
    return list(between(*edited(*pairs)).rows())


def ends(plan: Plan, *names: str) -> list[tuple[str, str]]:
    return [(end.mac, str(end.address)) for name in names for end in plan.nodes[name].interfaces]


FIRST = ("    leaf: {", "    new: {kind: host}\n    leaf: {")
ITS_LINK = (
    '    - {endpoints: ["leaf:e1"',
    '    - {endpoints: ["leaf:e0", "new:eth1"], vlan: 10}\n    - {endpoints: ["leaf:e1"',
)


def test_the_same_file_changes_nothing() -> None:
    lab, again = edited()
    assert lab == again
    assert between(lab, again).rows() == []


def test_a_node_before_all_others_takes_nothing_from_them() -> None:
    lab, now = edited(FIRST, ITS_LINK)
    assert ends(now, "a", "b", "c", "d") == ends(lab, "a", "b", "c", "d")
    assert now.nodes["leaf"].svis == lab.nodes["leaf"].svis
    assert ends(now, "new") == [("02:00:06:00:00:01", "10.0.10.4/24")]
    assert between(lab, now).rows() == [("node", "new", "new", ""), ("link", "leaf:e0 – new:eth1", "new", "")]


def test_a_new_file_without_a_lab_numbers_them_in_its_order() -> None:
    _, now = edited(FIRST, ITS_LINK)
    text = BASE.replace(*FIRST).replace(*ITS_LINK)
    assert ends(planned(text), "new") == [("02:00:01:00:00:01", "10.0.10.2/24")]
    assert now != planned(text)


def test_no_node_gets_the_number_of_one_that_has_gone() -> None:
    lab = planned(BASE)
    gone = planned(
        BASE.replace("    d: {kind: host}\n", "").replace('    - {endpoints: ["c:eth1", "d:eth1"]}\n', ""), lab
    )
    assert "d" not in gone.nodes
    back = planned(BASE, gone)
    assert ends(lab, "d")[0][0] == "02:00:05:00:00:01"
    assert ends(back, "d")[0][0] == "02:00:06:00:00:01"
    assert ends(back, "a", "b", "c") == ends(lab, "a", "b", "c")


def test_a_subnet_of_the_pool_stays_with_its_link() -> None:
    lab, now = edited(
        ("    c: {", "    x: {kind: host}\n    y: {kind: host}\n    c: {"),
        ('    - {endpoints: ["c:eth1"', '    - {endpoints: ["x:eth1", "y:eth1"]}\n    - {endpoints: ["c:eth1"'),
    )
    assert ends(lab, "c")[0][1] == "198.18.0.1/24"
    assert ends(now, "c", "d") == ends(lab, "c", "d")
    assert ends(now, "x")[0][1] == "198.18.1.1/24"


def test_an_address_of_the_file_wins_over_one_that_was_planned() -> None:
    _, now = edited(
        FIRST, (ITS_LINK[0], ITS_LINK[1].replace("vlan: 10}\n", "vlan: 10, ipv4: [null, 10.0.10.2/24]}\n", 1))
    )
    assert [address for _, address in ends(now, "new", "a", "b")] == ["10.0.10.2/24", "10.0.10.4/24", "10.0.10.3/24"]


@pytest.mark.parametrize(
    ("old", "new", "row"),
    [
        (
            '"a:eth1"], vlan: 10',
            '"a:eth1"], vlan: 10, rate: 1gbit',
            ("link", "a:eth1 – leaf:e1", "rate none → 1000000000"),
        ),
        ('"a:eth1"], vlan: 10', '"a:eth1"], vlan: 10, mtu: 4200', ("link", "a:eth1 – leaf:e1", "mtu 1500 → 4200")),
        (
            "leaf: {kind: switch",
            "leaf: {kind: switch, profile: cisco-nxos",
            ("node", "leaf", "profile none → cisco-nxos"),
        ),
        ("a: {kind: host", "a: {kind: host, env: {X: 1}", ("node", "a", "env")),
    ],
)
def test_what_changes_in_place_has_its_values(old: str, new: str, row: tuple[str, str, str]) -> None:
    assert (row[0], row[1], "changed", row[2]) in rows((old, new))


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("{kind: host, nic: hardware", "'nic' changed"),
        ("{kind: linux, image: x", "it has another kind"),
        ("{kind: switch", "it has another kind"),
    ],
)
def test_what_a_node_has_from_its_begin_makes_it_anew_with_its_links(new: str, why: str) -> None:
    found = rows(("    c: {kind: host", f"    c: {new}"))
    assert found[0] == ("node", "c", "anew", why)
    assert ("link", "c:eth1 – d:eth1", "anew") in [row[:3] for row in found]
    assert [row for row in found if row[1] in ("a", "b", "leaf")] == []


def test_a_sysctl_that_is_not_given_any_more_has_no_value_to_go_back_to() -> None:
    lab = planned(BASE.replace("a: {kind: host", "a: {kind: host, sysctls: {net.ipv4.ip_forward: 1}"))
    (first, *_) = between(lab, planned(BASE, lab)).rows()
    assert first == ("node", "a", "anew", "sysctl net.ipv4.ip_forward is not given any more")


def test_a_container_in_the_network_of_one_that_is_made_anew_goes_with_it() -> None:
    text = """\
name: lab
topology:
  nodes:
    one: {kind: linux, image: x}
    two: {kind: linux, image: x, network-mode: "container:one"}
"""
    lab = planned(text)
    found = between(lab, planned(text.replace("one: {kind: linux, image: x", "one: {kind: linux, image: y"), lab))
    assert found.anew == {"one": "its container changed", "two": "it is in the network of one"}


def test_an_edited_file_of_a_container_makes_it_anew() -> None:
    lab, now = edited()
    assert between(lab, now, ["a"]).anew == {"a": "a file that it mounts was edited"}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("name: lab", "name: other", "the file is of the lab other, not of lab"),
        ("topology:\n", "topology:\n  rdma_mode: exclusive\n", "'rdma_mode' of a lab cannot change while it lives"),
        (
            "topology:\n",
            "topology:\n  lossless: {dscp: 26, priority: 3}\n",
            "'lossless' of a lab cannot change while it lives",
        ),
    ],
)
def test_what_is_the_whole_lab_s_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        rows((old, new))
    assert error.value.message == why


def test_ports_of_a_lossless_buffer_neither_come_nor_go() -> None:
    lossless = BASE.replace("topology:\n", "topology:\n  lossless: {dscp: 26, priority: 3}\n", 1)
    lab = planned(lossless)
    text = lossless.replace(*FIRST).replace(*ITS_LINK)
    with pytest.raises(InputError, match="its ports share a lossless buffer"):
        between(lab, planned(text, lab))
    rate = planned(lossless.replace('"a:eth1"], vlan: 10', '"a:eth1"], vlan: 10, rate: 1gbit'), lab)
    assert [row[2] for row in between(lab, rate).rows()] == ["changed"]


def test_faults_come_and_go() -> None:
    lab = planned(
        BASE + '  faults: [{fault: link-loss, end: "leaf:e1", loss: 5}, {fault: link-down, end: "leaf:e2"}]\n'
    )
    now = planned(
        BASE + '  faults: [{fault: link-loss, end: "leaf:e1", loss: 7}, {fault: link-down, end: "leaf:e2"}]\n', lab
    )
    assert between(lab, now).rows() == [
        ("fault", "link-loss", "gone", "end=leaf:e1 loss=5"),
        ("fault", "link-loss", "new", "end=leaf:e1 loss=7"),
    ]


def test_the_management_network_keeps_its_addresses() -> None:
    text = """\
name: lab
mgmt: {ipv4-subnet: 172.20.20.0/24}
topology:
  nodes:
    one: {kind: linux, image: x}
    two: {kind: linux, image: x}
"""
    lab = planned(text)
    now = planned(text.replace("    one:", "    zero: {kind: linux, image: x}\n    one:"), lab)
    assert ends(now, "one", "two") == ends(lab, "one", "two")
    assert [row[:3] for row in between(lab, now).rows()] == [
        ("node", "zero", "new"),
        ("link", "mgmt-net:veth3 – zero:eth0", "new"),
    ]
