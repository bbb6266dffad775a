"""The text in a box. A label's width follows from a font of fixed width, without measuring."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from testbed.topology.graph.picture import Box, Picture
from testbed.topology.kinds import KINDS
from testbed.topology.plan import Bond, Node, Svi

FONT, SMALL = 12, 10
CHARACTER = 0.62
"""The advance of a character of common fixed-width fonts, in ems, rounded up."""
LINE = 16
PAD = 10
ROWS = 16
"""The maximum of names in a column of a box with many hosts."""
MAX_VLANS = 4
MAX_VALUES = 4
MAX_CHANNELS = 4
LONGEST = 20
"""The maximum of characters of a value."""


@dataclass(frozen=True, slots=True)
class Label:
    """A text. `x` is its left edge, or its middle; `y` its base line."""

    x: float
    y: float
    text: str
    size: int = FONT
    middle: bool = False
    style: str = ""
    rail: int | None = None
    node: str = ""
    """The node that it names."""


def text_width(text: str, size: int = FONT) -> float:
    return len(text) * size * CHARACTER


def written(picture: Picture, box: Box) -> list[Label]:
    """Return the labels of a box, relative to its upper left corner."""
    return _host_lines(picture, box) if box.kind.is_host else _switch_lines(picture, box.nodes[0])


def _switch_lines(picture: Picture, node: Node) -> list[Label]:
    kind = node.profile or node.kind
    lines = [Label(PAD, 0, node.name, node=node.name, style="name")]
    values = [f"{name} {_short(value)}" for name, value in sorted(node.profile_values)]
    channels = [_channel(bond.name, bond.bond) for bond in node.bonds if bond.bond]
    quiet = [kind, *_at_most(MAX_VALUES, values, "values"), *_at_most(MAX_CHANNELS, channels, "port channels")]
    if node.vtep:
        quiet.append(f"VTEP {node.vtep}" + (f", L3VNI {node.l3vni}" if node.l3vni else ""))
    hosted = {port.vlan for port in node.ports if not KINDS[picture.plan.nodes[port.peer[0]].kind].has_vlans}
    vlans = [
        _vlan(svi)
        for svi in node.svis
        if svi.vlan in hosted or svi.vni or any(ip.network.prefixlen < ip.max_prefixlen - 1 for ip in svi.addresses)
    ]
    lines += [Label(PAD, number * LINE, text, SMALL, style="quiet") for number, text in enumerate(quiet, start=1)]
    vlans = _at_most(MAX_VLANS, vlans, "VLANs")
    return lines + [Label(PAD, number * LINE, text, SMALL) for number, text in enumerate(vlans, start=1 + len(quiet))]


def _channel(name: str, bond: Bond) -> str:
    """Return a port channel, its links, and the number that it shares with another switch."""
    shared = [f"{what} {number}" for what, number in (("ES", bond.es_id), ("MLAG", bond.mlag)) if number]
    return ", ".join((f"{name}: {ports(bond.members)}", *_mode(bond), *shared))


def _mode(bond: Bond) -> list[str]:
    return [] if bond.mode == "802.3ad" else [bond.mode]


def _vlan(svi: Svi) -> str:
    """Return `VLAN 10 · VNI 10010 · 10.0.10.2/24 · VRRP 5 10.0.10.1`, as far as it is so."""
    addresses, router = " ".join(map(str, svi.addresses)), svi.vrrp
    virtual = " ".join((f"VRRP {router.id}", *map(str, router.addresses))) if router else ""
    network = f"VNI {svi.vni}" if svi.vni else ""
    return " · ".join(filter(None, (f"VLAN {svi.vlan}", network, addresses, virtual)))


def _at_most(number: int, texts: list[str], what: str) -> list[str]:
    rest = len(texts) - number + 1
    return texts if rest <= 1 else [*texts[: number - 1], f"and {rest} {what} more"]


def _short(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _host_lines(picture: Picture, box: Box) -> list[Label]:
    first, several = box.nodes[0], len(box.nodes) > 1
    heading = f"{len(box.nodes)} hosts" if several else first.name
    lines = [Label(PAD, 0, heading, style="name", node="" if several else first.name)]
    rails = {
        end.name: cable.rail
        for cable in picture.cables_of(box)
        for ends in cable.links
        for end in ends
        if end.node == first.name
    }
    for end in first.ports:
        rail = rails[end.bond.members[0] if end.bond else end.name]
        style = "" if rail else "quiet"
        addresses = [str(given.network if several else given) for given in end.addresses]
        name = " ".join((end.name, *(_mode(end.bond) if end.bond else [])))
        lines.append(Label(PAD, len(lines) * LINE, " ".join((name, *addresses[:1])), SMALL, style=style, rail=rail))
        beside = PAD + text_width(f"{name} ", SMALL)
        for address in addresses[1:]:
            lines.append(Label(beside, len(lines) * LINE, address, SMALL, style=style, rail=rail))
    if several:
        lines += _names(box.nodes, len(lines) * LINE + 4)
    return lines


def _names(nodes: Sequence[Node], top: float) -> Iterator[Label]:
    columns = max(-(-len(nodes) // ROWS), 2 if len(nodes) > ROWS // 2 else 1)
    rows = -(-len(nodes) // columns)
    across = max(text_width(node.name, SMALL) for node in nodes) + 10
    for number, node in enumerate(nodes):
        column, row = divmod(number, rows)
        yield Label(PAD + column * across, top + row * 13, node.name, SMALL, node=node.name)


def ports(given: Iterable[str]) -> str:
    """Return `e1`, `e1–e16`, or `16 ports` if they are not consecutive."""
    names = list(dict.fromkeys(given))
    if len(names) == 1:
        return names[0]
    split = [re.fullmatch(r"(.*?)([0-9]+)", name) for name in names]
    numbers = [int(match[2]) for match in split if match]
    same = len({match[1] for match in split if match}) == 1
    if same and len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[0] + len(names))):
        return f"{names[0]}–{names[-1]}"
    return f"{len(names)} ports"
