"""The links of a lab, and the times in which captures had them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from testbed.protocol import Event, InterfaceRow, events
from testbed.records.event_reader import happened_ns
from testbed.report.packet_rows import Captured

Place = tuple[str, str]
"""A node and its interface."""
Link = frozenset[Place]
"""The places at which a capture has what a link carries: its ends, the bonds of these, and the pods behind it."""
FILTERS = {"arp": {"", "arp"}, "nd": {"", "icmp6", "ip6"}}
"""The filters of captures that have all packets of a protocol; so have filters that join one of them to others."""


class Links:
    """Links by the interfaces that they lead to. `hosts` has the hosts of pods."""

    def __init__(self, rows: Iterable[InterfaceRow], hosts: Mapping[str, str]) -> None:
        self._hosts = hosts
        ports = {(row["node"], row["interface"]): row for row in rows if row["peer"]}
        self._members = {place: row["members"] for place, row in ports.items() if "members" in row}
        self._of_node: dict[str, dict[str, Link]] = {}
        for (node, interface), row in ports.items():
            if "members" not in row:
                peer, _, other = row["peer"].partition(":")
                ends = [(node, interface), (peer, other)]
                bonds = [(name, ports[name, end].get("master", "")) for name, end in ends if (name, end) in ports]
                link = frozenset((*ends, *(place for place in bonds if place[1])))
                self._of_node.setdefault(node, {})[interface] = link

    def of(self, node: str, interface: str) -> list[Link]:
        """Return the links by which packets of an interface leave: its own, those of a bond's members, of a pod those
        of its host, and of what has none, such as an SVI, all of its node."""
        if (host := self._hosts.get(node)) is not None:
            return [link | {(node, interface)} for link in self._of_node.get(host, {}).values()]
        links = self._of_node.get(node, {})
        named = self._members.get((node, interface), [interface])
        return [links[name] for name in named if name in links] or list(links.values())


def places(found: Iterable[Event]) -> dict[str, Place]:
    """Return the places of captures by file."""
    return {data.file: (event["node"], data.interface) for event in found if (data := events.CAPTURE.of(event))}


@dataclass(frozen=True, slots=True)
class Watch:
    """A time in which a capture had all packets of its filter, in virtual nanoseconds."""

    place: Place
    filter: str
    begin: int
    end: int


def watches(captured: Iterable[Captured], found: Iterable[Event]) -> list[Watch]:
    """Return the times of captures that have ended well; of one that is read in part, up to the last packet of that."""
    read = {one.file: None if one.complete else one.until for one in captured}
    begun: dict[str, int] = {}
    ended: list[Watch] = []
    for event in found:
        if (data := events.CAPTURE.of(event)) is None:
            continue
        t = happened_ns(event)
        if data.running:
            begun[data.file] = t
        elif (begin := begun.pop(data.file, None)) is not None:
            until = read.get(data.file)
            end = t if until is None else min(t, until)
            ended.append(Watch((event["node"], data.interface), data.filter, begin, end))
    return ended


def has_all(filter_: str, protocol: str) -> bool:
    """Return whether a filter of captures is sure to pass all packets of a protocol."""
    words = filter_.split()
    plain = not any(word in ("and", "not") or set("()&|!") & set(word) for word in words)
    return " ".join(words) in FILTERS[protocol] or (
        plain and any(part in FILTERS[protocol] for part in " ".join(words).split(" or "))
    )
