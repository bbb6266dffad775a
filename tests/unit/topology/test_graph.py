"""Pictures: everything is there once, nothing covers anything else, tiers and rails are to be seen."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from testbed.topology import Plan, Topology
from testbed.topology.fabrics import fat_tree, leaf_spine, rail_optimized, single, two_tier
from testbed.topology.graph import STYLES, dot, mermaid, svg

SCENARIOS = Path(__file__).parents[3] / "scenarios"
LABS = Path(__file__).parents[2] / "lab"
DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"

WIRED_ODDLY = """\
name: odd
topology:
  nodes:
    a: {kind: host}
    end: {kind: host, rdma: false}
    c: {kind: host}
    hub: {kind: bridge}
    s1: {kind: switch, profile: "<&>", vlans: {1: null, 2: null, 3: null, 4: null, 5: null, 6: 10.6.0.1/24}}
    s2: {kind: switch}
    lonely: {kind: switch}
    idle: {kind: host}
  links:
    - {endpoints: [a:eth1, end:eth1]}
    - {endpoints: [a:eth2, hub:p1]}
    - {endpoints: [hub:p2, end:eth2]}
    - {endpoints: [c:eth1, s1:x], vlan: 1}
    - {endpoints: [c:eth2, s1:y], vlan: 2}
    - {endpoints: [s1:u, s2:u], vlan: 1}
    - {endpoints: [s2:e1, end:eth3]}
"""
FABRICS = [
    single(4),
    single(200),
    two_tier(3, 2),
    leaf_spine(4, 2, 16),
    leaf_spine(4, 2, 16, 4),
    leaf_spine(20, 3, 1),
    rail_optimized(2, 4, 4),
    rail_optimized(1, 8, 9, "8:1"),
    fat_tree(4),
    leaf_spine(2, 2, 3, 2, family="dual"),
    leaf_spine(4, 2, 4, routing="evpn"),
]
PAIRS = """\
name: pairs
topology:
  groups:
    leaf:
      kind: switch
      vlans: {10: null, 30: null, 40: null, 50: null}
      bonds: {po1: {members: [e1, e2], system: "44:38:39:be:ef:aa"}}
  nodes:
    z1: {group: leaf}
    b: {kind: switch, vlans: {10: 10.0.10.2/24, 60: null}, vrrp: {10: {id: 7, address: 10.0.10.1, priority: 200}}}
    z2: {group: leaf}
    c: {kind: switch, vlans: {10: 10.0.10.3/24, 60: null}, vrrp: {10: {id: 7, address: 10.0.10.1}}}
    a: {kind: host, bonds: {bond0: {members: [eth1, eth2, eth4, eth5]}}}
    d: {kind: host, bonds: {bond0: {members: [eth1, eth2], mode: active-backup}}}
  links:
    - {endpoints: ["z1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["z1:e2", "a:eth2"], vlan: 10}
    - {endpoints: ["z1:e3", "a:eth3"], vlan: 30}
    - {endpoints: ["z2:e1", "a:eth4"], vlan: 10}
    - {endpoints: ["z2:e2", "a:eth5"], vlan: 10}
    - {endpoints: ["b:e1", "d:eth1"], vlan: 10}
    - {endpoints: ["c:e1", "d:eth2"], vlan: 10}
    - {endpoints: ["z1:p1", "z2:p1"], trunk: [40]}
    - {endpoints: ["z1:p2", "z2:p2"], trunk: [50]}
    - {endpoints: ["b:up", "c:up"], trunk: [60]}
"""
"""Pairs of switches with peer links: of one LACP system, and with one virtual router."""


def of_scenarios() -> list[Plan]:
    """The plans of scenarios, one of each shape: the links between kinds of nodes, and the networks of the hosts."""
    found: dict[object, Plan] = {}
    for file in sorted(SCENARIOS.glob("*/topology.clab.yml")):
        plan = Topology.load(file).plan()
        links = Counter(tuple((plan.nodes[end.node].kind, end.rdma is None) for end in pair) for pair in plan.links)
        hosts = Counter(len(node.interfaces) for node in plan.nodes.values())
        found.setdefault((tuple(sorted(links.items())), tuple(sorted(hosts.items()))), plan)
    return list(found.values())


PLANS = [
    *(fabric.topology().plan() for fabric in FABRICS),
    *of_scenarios(),
    *(Topology.load(file).plan() for file in sorted(LABS.glob("*.clab.yml"))),
    *(Topology.parse(text).plan() for text in (WIRED_ODDLY, PAIRS)),
]
NAMES = [fabric.command.removeprefix("testbed topology new ") for fabric in FABRICS]
every = pytest.mark.parametrize("plan", PLANS, ids=[*NAMES, *(plan.name for plan in PLANS[len(NAMES) :])])


@dataclass(frozen=True)
class Area:
    left: float
    top: float
    right: float
    bottom: float
    what: str

    def overlaps(self, other: Area) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def drawn(plan: Plan) -> Xml.Element:
    return Xml.fromstring(svg(plan))  # noqa: S314, it is our own


def labels(picture: Xml.Element) -> list[Area]:
    """The area that the texts cover in a font whose characters are 0.6 em wide, as most fixed-width fonts are."""
    areas = []
    for text in picture.iter(f"{SVG}text"):
        x, y, size = (float(text.get(key, "")) for key in ("x", "y", "font-size"))
        width = 0.6 * size * len(text.text or "")
        left = x - width / 2 if text.get("text-anchor") == "middle" else x
        areas.append(Area(left, y - 0.8 * size, left + width, y + 0.2 * size, text.text or ""))
    return areas


def boxes(picture: Xml.Element) -> list[Area]:
    rects = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("class")]
    places = [[float(rect.get(key, "")) for key in ("x", "y", "width", "height")] for rect in rects]
    return [Area(x, y, x + width, y + height, "a box") for x, y, width, height in places]


def box_of(picture: Xml.Element, node: str) -> Area:
    (text,) = [text for text in picture.iter(f"{SVG}text") if text.get("data-node") == node]
    x, y = float(text.get("x", "")), float(text.get("y", ""))
    (box,) = [box for box in boxes(picture) if box.left <= x <= box.right and box.top <= y <= box.bottom]
    return box


def links_of(text: str) -> list[frozenset[str]]:
    """Each line's two ends, `node:interface`."""
    return [frozenset(part.split()[0] for part in line.split(" – ")) for line in text.splitlines()]


def links(plan: Plan) -> list[frozenset[str]]:
    return [frozenset(f"{end.node}:{end.name}" for end in pair) for pair in plan.links]


@every
def test_each_node_is_named_once(plan: Plan) -> None:
    named = [text.text for text in drawn(plan).iter(f"{SVG}text") if text.get("data-node")]
    assert sorted(filter(None, named)) == sorted(plan.nodes)


@every
def test_each_link_belongs_to_one_cable(plan: Plan) -> None:
    titles = [title.text or "" for title in drawn(plan).findall(f"{SVG}g[@class='link']/{SVG}title")]
    told = [link for title in titles for link in links_of(title)]
    assert sorted(map(sorted, told)) == sorted(map(sorted, links(plan)))


@every
def test_no_two_labels_overlap_and_none_leaves_the_picture(plan: Plan) -> None:
    picture = drawn(plan)
    areas = labels(picture)
    found = [(one.what, other.what) for one, other in combinations(areas, 2) if one.overlaps(other)]
    assert not found
    whole = Area(0, 0, float(picture.get("width", "")), float(picture.get("height", "")), "the picture")
    assert [area for area in areas if area.left < 0 or area.right > whole.right or area.bottom > whole.bottom] == []


@every
def test_no_two_boxes_overlap_and_a_label_is_in_one_box_or_in_none(plan: Plan) -> None:
    picture = drawn(plan)
    assert not [pair for pair in combinations(boxes(picture), 2) if pair[0].overlaps(pair[1])]
    for label in labels(picture):
        for box in boxes(picture):
            inside = box.left <= label.left and label.right <= box.right
            assert inside or not box.overlaps(label), label


@every
def test_a_cable_begins_and_ends_at_a_box_and_crosses_none(plan: Plan) -> None:
    picture = drawn(plan)
    edges = boxes(picture)
    for path in picture.findall(f"{SVG}g[@class='link']/{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?[0-9.]+", path.get("d", ""))]
        start, end = (numbers[0], numbers[1]), (numbers[-2], numbers[-1])
        for x, y in (start, end):
            assert any(
                (box.left - 1 <= x <= box.right + 1 and min(abs(box.top - y), abs(box.bottom - y)) < 0.2)
                or (box.top <= y <= box.bottom and min(abs(box.left - x), abs(box.right - x)) < 0.2)
                for box in edges
            )
        low, high = sorted((start[1], end[1]))
        between = Area(min(start[0], end[0]), low + 0.2, max(start[0], end[0]), high - 0.2, "a cable")
        assert not [box for box in edges if box.overlaps(between)]


def test_the_picture_in_the_documentation_is_that_of_the_command_beside_it() -> None:
    """To bring it up to date, run the two commands at the top of docs/topologies.md with these files."""
    page = (DOCS / "topologies.md").read_text()
    fabric = leaf_spine(leaves=4, spines=2, hosts=8, rails=2)
    assert fabric.command.removesuffix(" --routed") in page
    assert (DOCS / "leaf-spine.svg").read_text() == svg(fabric.topology().plan())


def test_tiers_are_found_from_the_graph() -> None:
    picture = drawn(fat_tree(4).topology().plan())
    tops = [box_of(picture, name).top for name in ("core4", "pod1-agg2", "pod4-edge1", "host7")]
    assert tops == sorted(set(tops))
    assert box_of(picture, "core1").top == box_of(picture, "core4").top


def test_hosts_of_a_leaf_share_a_box_under_it() -> None:
    picture = drawn(leaf_spine(4, 2, 16).topology().plan())
    assert box_of(picture, "host17") == box_of(picture, "host32") != box_of(picture, "host33")
    hosts, leaf = box_of(picture, "host17"), box_of(picture, "leaf2")
    assert abs((hosts.left + hosts.right) - (leaf.left + leaf.right)) < 1
    assert len(picture.findall(f"{SVG}g[@class='link']")) == 4 * 2 + 4


def test_a_few_hosts_have_a_box_each() -> None:
    picture = drawn(single(4).topology().plan())
    assert len({box_of(picture, f"host{number}") for number in range(1, 5)}) == 4


@pytest.mark.parametrize(
    ("hosts", "said"), [(2, "10.1.1.3/24 2001:db8:1:1::3/64"), (200, "10.1.1.0/24 2001:db8:1:1::/64")]
)
def test_hosts_have_the_addresses_of_both_families(hosts: int, said: str) -> None:
    found = texts(drawn(single(hosts, family="dual").topology().plan()))
    four, six = said.split()
    assert f"eth1 {four}" in found
    assert six in found


def texts(picture: Xml.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def test_a_switch_shows_its_port_channels_tunnels_and_networks() -> None:
    found = texts(drawn(Topology.load(LABS / "segments.clab.yml").plan()))
    assert {"po1: e1, ES 1", "VTEP 10.255.0.2, L3VNI 4001", "VLAN 10 · VNI 10010 · 10.0.10.1/24"} <= {*found}
    bridged = texts(drawn(Topology.load(LABS / "evpn.clab.yml").plan()))
    assert "VLAN 30 · VNI 10030" in bridged
    assert "po2: e3–e4, balance-xor" in texts(drawn(Topology.load(LABS / "channels.clab.yml").plan()))


def test_a_switch_shows_its_virtual_router() -> None:
    found = texts(drawn(Topology.load(LABS / "vrrp.clab.yml").plan()))
    assert "VLAN 10 · 10.0.10.2/24 · VRRP 5 10.0.10.1" in found
    assert not any("VTEP" in text or "VNI" in text for text in found)


def test_a_port_channel_of_a_pair_has_its_mlag_number_and_the_peer_link_has_none() -> None:
    found = texts(drawn(Topology.load(LABS / "mlag.clab.yml").plan()))
    assert {"po1: e1, MLAG 1", "po2: e2, MLAG 2", "po99: p1–p2"} <= {*found}


def test_the_members_of_a_bond_are_one_port_at_either_end() -> None:
    picture = drawn(Topology.parse(PAIRS).plan())
    bonds = {group[0].text: group[1] for group in picture.findall(f"{SVG}g[@class='bond']")}
    assert sorted(filter(None, bonds)) == ["bond0: eth1, eth2", "bond0: eth1, eth2, eth4, eth5", "po1: e1, e2"]
    bond, host = bonds["bond0: eth1, eth2, eth4, eth5"], box_of(picture, "a")
    left, top = float(bond.get("x", "")), float(bond.get("y", ""))
    right, bottom = left + float(bond.get("width", "")), top + float(bond.get("height", ""))
    assert top < host.top < bottom
    inside = {
        name: left < x < right
        for name in ("eth1", "eth2", "eth3", "eth4", "eth5")
        for x, y in [
            (float(text.get("x", "")), float(text.get("y", "")))
            for text in picture.iter(f"{SVG}text")
            if text.text == name
        ]
        if host.left < x < host.right and host.top < y < host.bottom and y < host.top + 16
    }
    assert inside == {"eth1": True, "eth2": True, "eth3": False, "eth4": True, "eth5": True}
    assert any(text.startswith("bond0 active-backup 10.0.10.") for text in texts(picture))


def test_hosts_of_one_box_have_one_bond_and_their_switch_none() -> None:
    leaf = "{kind: switch, vlans: {10: null}, bonds: {%s}}"
    channels = ", ".join(f'po{n}: {{members: [e{n}], system: "44:38:39:be:ef:{n:02}"}}' for n in range(1, 10))
    hosts = [f"h{n}: {{kind: host, bonds: {{bond0: {{members: [eth1, eth2]}}}}}}" for n in range(1, 10)]
    links = [f'{{endpoints: ["leaf{k}:e{n}", "h{n}:eth{k}"], vlan: 10}}' for n in range(1, 10) for k in (1, 2)]
    nodes = [f"leaf{k}: {leaf % channels}" for k in (1, 2)] + hosts
    text = "name: x\ntopology:\n  nodes:\n    " + "\n    ".join(nodes) + "\n  links:\n    - "
    picture = drawn(Topology.parse(text + "\n    - ".join(links)).plan())
    assert [group[0].text for group in picture.findall(f"{SVG}g[@class='bond']")] == ["bond0: eth1, eth2"]
    assert "and 6 port channels more" in texts(picture)


def test_peers_are_beside_each_other_and_their_links_one_line_between_them() -> None:
    picture = drawn(Topology.parse(PAIRS).plan())
    peers = [group for group in picture.findall(f"{SVG}g[@class='link']") if group[1].get("class") == "peer"]
    assert len(peers) == 2
    for one, other in ("z1", "z2"), ("b", "c"):
        left, right = sorted((box_of(picture, one), box_of(picture, other)), key=lambda box: box.left)
        assert left.top == right.top
        assert 0 < right.left - left.right < 60
        lines = [[float(n) for n in re.findall(r"-?[0-9.]+", group[1].get("d", ""))] for group in peers]
        assert [left.right, right.left] in [[round(line[0], 1), round(line[2], 1)] for line in lines]
    assert "p1–p2" in texts(picture)
    assert "peer link" in texts(picture)


def test_ports_that_are_in_no_bond_are_separate() -> None:
    picture = drawn(Topology.load(LABS / "evpn.clab.yml").plan())
    assert picture.findall(f"{SVG}g[@class='bond']") == []


def test_a_peer_without_hosts_is_in_the_tier_of_the_other() -> None:
    picture = drawn(Topology.load(LABS / "vrrp-routed.clab.yml").plan())
    assert box_of(picture, "leaf1").top == box_of(picture, "leaf2").top


def test_a_switch_with_its_own_hosts_is_not_between_peers() -> None:
    leaf = "{{kind: switch, vlans: {{10: 10.0.1{0}.{1}/24}}{2}}}"
    vrrp = ", vrrp: {{10: {{id: 5, address: 10.0.10.1{0}}}}}"
    picture = drawn(
        Topology.parse(f"""\
name: between
topology:
  nodes:
    one: {leaf.format(0, 2, vrrp.format(", priority: 200"))}
    alone: {leaf.format(1, 1, "")}
    other: {leaf.format(0, 3, vrrp.format(""))}
    a: {{kind: host}}
    b: {{kind: host}}
    c: {{kind: host}}
  links:
    - {{endpoints: ["one:e1", "a:eth1"], vlan: 10}}
    - {{endpoints: ["alone:e1", "b:eth1"], vlan: 10}}
    - {{endpoints: ["other:e1", "c:eth1"], vlan: 10}}
    - {{endpoints: ["one:p", "other:p"], trunk: [10]}}
""").plan()
    )
    one, alone, other = (box_of(picture, name) for name in ("one", "alone", "other"))
    assert not min(one.left, other.left) < alone.left < max(one.left, other.left)


def test_a_link_of_switches_with_nothing_in_common_is_no_peer_link() -> None:
    apart = drawn(Topology.parse(PAIRS.replace("id: 7, address: 10.0.10.1}", "id: 8, address: 10.0.10.9}")).plan())
    assert {
        group[0].text.split(":")[0]: group[1].get("class") for group in apart.findall(f"{SVG}g[@class='link']")
    } == {"a": None, "d": None, "z1": "peer", "b": None}


def test_the_title_counts_bridges_by_themselves() -> None:
    assert "3 switches, 1 bridge, 4 hosts, 7 links" in texts(drawn(Topology.parse(WIRED_ODDLY).plan()))


def test_a_plan_without_nodes_is_drawn_as_its_title() -> None:
    """A report has it of a run without links: the rows of a plan name interfaces, and no node without one."""
    picture = drawn(Plan("apart", {}, ()))
    assert texts(picture) == ["apart", "no links"]


def test_each_rail_has_a_colour() -> None:
    picture = drawn(leaf_spine(4, 2, 16, 4).topology().plan())
    colours = defaultdict(set)
    for group in picture.findall(f"{SVG}g[@class='link']"):
        title, path = group
        interface = re.match(r"host[0-9]+:(eth[0-9])", title.text or "")
        colours[interface[1] if interface else "switches"].add(path.get("stroke"))
    assert {rail: len(found) for rail, found in colours.items()} == {
        "eth1": 1,
        "eth2": 1,
        "eth3": 1,
        "eth4": 1,
        "switches": 1,
    }
    assert len({colour for found in colours.values() for colour in found}) == 5


def test_a_link_without_rdma_is_dashed() -> None:
    picture = drawn(Topology.load(SCENARIOS / "training-smoke/topology.clab.yml").plan())
    for title, path in picture.findall(f"{SVG}g[@class='link']"):
        assert ("mgmt0" in (title.text or "")) == (path.get("stroke-dasharray") is not None)


@every
def test_mermaid_has_each_node_and_each_link_once(plan: Plan) -> None:
    text = mermaid(plan)
    named = dict(re.findall(r'^    (n[0-9]+)[\[({]+"([^"]+)"', text, re.MULTILINE))
    port = r"(\S+)(?: in \S+)?"
    found = re.findall(rf'^    (n[0-9]+) (?:---|===)\|"{port} – {port}"\| (n[0-9]+)$', text, re.MULTILINE)
    assert sorted(named.values()) == sorted(plan.nodes)
    told = [sorted([f"{named[a]}:{port}", f"{named[b]}:{other}"]) for a, port, other, b in found]
    assert sorted(told) == sorted(map(sorted, links(plan)))
    assert len(text.splitlines()) == 1 + len(named) + len(found)


@every
def test_dot_has_each_node_and_each_link_once(plan: Plan) -> None:
    text = dot(plan)
    assert sorted(re.findall(r'^ +"([^"]+)" \[shape', text, re.MULTILINE)) == sorted(plan.nodes)
    ends = r'taillabel="(\S+?)(?: in \S+)?", headlabel="(\S+?)(?: in \S+)?"'
    found = re.findall(rf'"(\S+)" -- "(\S+)" \[{ends}(?:, style=bold)?\]', text)
    told = [sorted([f"{a}:{port}", f"{b}:{other}"]) for a, b, port, other in found]
    assert sorted(told) == sorted(map(sorted, links(plan)))
    assert text.count("{") == text.count("}")


def test_texts_name_the_bonds_of_members_and_draw_peer_links_thick() -> None:
    plan = Topology.parse(PAIRS).plan()
    found = {line.strip() for line in (mermaid(plan) + dot(plan)).splitlines()}
    assert 'n1 ---|"e1 in po1 – eth1 in bond0"| n5' in found
    assert 'n1 ---|"e3 – eth3"| n5' in found
    assert 'n1 ===|"p1 – p1"| n3' in found or 'n3 ===|"p1 – p1"| n1' in found
    assert '"b" -- "d" [taillabel="e1", headlabel="eth1 in bond0"];' in found
    assert '"c" -- "b" [taillabel="up", headlabel="up", style=bold];' in found


@pytest.mark.parametrize("style", STYLES)
def test_the_same_plan_gives_the_same_picture(style: str) -> None:
    first, again = (STYLES[style](rail_optimized().topology().plan()) for _ in range(2))
    assert first == again
