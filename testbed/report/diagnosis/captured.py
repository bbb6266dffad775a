"""What captures of a real cluster tell about its hosts and switches, by the owners of addresses and MACs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address, ip_interface

from testbed.protocol import InterfaceRow
from testbed.records.bundle import Bundle
from testbed.records.bundle.captures import NOT_READY, Capture
from testbed.records.bundle.model import Interface
from testbed.report.diagnosis.observations import Refusal, Sent

End = tuple[str, str]
BITS = 512
"""Bit times of a quantum (IEEE 802.1Q, PFC)."""
NOBODY = "an unknown host"
MISSED = "PSN sequence error"
COUNTED = {MISSED: ("out_of_seq_request", "rcvd_seq_err"), NOT_READY: ("send_rnr_err", "rcvd_rnr_err")}
"""Counters of who sends a NAK and who gets it, by its reason."""


@dataclass(frozen=True)
class Paused:
    """An end of a link that was paused: when its longest pause began and how long that was, and how long all of them
    were, in nanoseconds; pause frames, and those of them that ended a pause."""

    end: End
    priority: int
    read: int
    """The end of the capture."""
    began: int
    longest: int
    total: int
    frames: int
    resumed: int


class Wire:
    """The captures of a bundle, with times of its common clock."""

    def __init__(self, bundle: Bundle, peers: Mapping[End, End]) -> None:
        self._bundle = bundle
        self._peers = peers
        self.remarks: list[str] = []
        self.pauses = [one for capture in bundle.captures for one in self._paused(capture)]

    @property
    def began(self) -> list[int]:
        return [self._at(capture, capture.began) for capture in self._bundle.captures]

    @property
    def longest(self) -> int:
        """Return the nanoseconds of the longest capture."""
        return max((capture.ended - capture.began for capture in self._bundle.captures), default=0)

    def disputed(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield who claims an address of another host at the same time: since when, its name, the address, its MAC."""
        for capture in self._bundle.captures:
            for (vlan, ip), macs in capture.disputed.items():
                owner = self._owners.get(ip)
                if owner is None or owner[1].mac not in macs:
                    continue
                for mac in sorted(macs - self._own_macs(owner[0]) - self._gateways - self._proxies):
                    t = self._at(capture, capture.claims[vlan, ip, mac].first)
                    yield t, self._of_mac.get(mac, (NOBODY, ""))[0], ip, mac

    def sent(self) -> Iterator[Sent]:
        """Yield the RoCE packets that were sent to a MAC which the owner of their address has not."""
        found: dict[tuple[str, str, str], Sent] = {}
        for capture in self._bundle.captures:
            for (_, source_mac, mac, source, target), times in capture.flows.items():
                if (sender := self._strays(source_mac, mac, source, target)) is None:
                    continue
                one = Sent(self._at(capture, times.first), sender, target, mac, times.packets, capture.name)
                known = found.setdefault((sender, target, mac), one)
                if one.packets > known.packets:
                    found[sender, target, mac] = one
        yield from found.values()

    def refusals(self) -> Iterator[Refusal]:
        for capture in self._bundle.captures:
            for (router, ip, reason, mtu), times in capture.refusals.items():
                name = self._of_address.get(router, f"router {router}")
                yield Refusal(self._at(capture, times.first), name, ip, reason, mtu, times.packets, capture.name)

    def counted(self) -> Iterator[tuple[int, dict[tuple[str, str, str], int]]]:
        """Yield what devices of hosts would have counted, as far as each capture and those before it tell."""
        most: Counter[tuple[str, str, str]] = Counter()
        for capture in sorted(self._bundle.captures, key=lambda one: self._at(one, one.ended)):
            most |= self._counts(capture)
            yield self._at(capture, capture.ended), dict(most)
        for one in self.pauses:
            yield one.read, self._of_pause(one)

    def _counts(self, capture: Capture) -> Counter[tuple[str, str, str]]:
        found: Counter[tuple[str, str, str]] = Counter()

        def add(ip: str, name: str, count: int) -> None:
            node, interface = self._owners.get(ip, ("", Interface("")))
            place = interface.name if name.startswith("np_") else interface.rdma
            if place:
                found[node, place, name] += count

        for ip, count in capture.again.items():
            add(ip, "completer_retry_err", count)
        for (source, target, reason), count in capture.naks.items():
            for ip, name in zip((source, target), COUNTED.get(reason, ()), strict=False):
                add(ip, name, count)
        for ip, count in capture.marked.items():
            # Where no packet of the host is in a capture, its CNPs would not be either.
            if ip in capture.senders and not any(one.notified[ip] for one in self._bundle.captures):
                add(ip, "np_ecn_marked_roce_packets", count)
        return found

    def _of_pause(self, one: Paused) -> dict[tuple[str, str, str], int]:
        microseconds = one.total // 1000
        if not self._bundle.nodes[one.end[0]].switch:
            named = {"": one.frames, "_duration": microseconds}
            return {(*one.end, f"rx_prio{one.priority}_pause{suffix}"): count for suffix, count in named.items()}
        counts = {"RX_PKTS": one.frames, "RX_PAUSE_DURATION_US": microseconds, "ON2OFF_RX_PKTS": one.resumed}
        return {(*one.end, f"SAI_PORT_STAT_PFC_{one.priority}_{name}"): n for name, n in counts.items() if n}

    def _at(self, capture: Capture, t: int) -> int:
        return self._bundle.common(capture.node, t)

    @cached_property
    def _owners(self) -> Mapping[str, tuple[str, Interface]]:
        """The host and interface of each address that one host alone has."""
        found: dict[str, list[tuple[str, Interface]]] = {}
        for node in self._bundle.nodes.values():
            for one in node.interfaces.values() if not node.switch else ():
                for address in one.addresses:
                    found.setdefault(str(ip_interface(address).ip), []).append((node.name, one))
        return {ip: owners[0] for ip, owners in found.items() if len(owners) == 1}

    @cached_property
    def _of_address(self) -> Mapping[str, str]:
        return {
            str(ip_interface(address).ip): node.name
            for node in self._bundle.nodes.values()
            for one in node.interfaces.values()
            for address in one.addresses
        }

    @cached_property
    def _of_mac(self) -> Mapping[str, End]:
        """The interface of each MAC; members of a bond use that of the bond."""
        ends = [(node.name, one) for node in self._bundle.nodes.values() for one in node.interfaces.values()]
        own = {one.permanent: (name, one.name) for name, one in ends if one.permanent}
        return own | {one.mac: (name, one.name) for name, one in ends if one.mac and not one.master}

    def _own_macs(self, name: str) -> frozenset[str]:
        own = self._bundle.nodes[name].interfaces.values()
        return frozenset(mac for one in own for mac in (one.mac, one.permanent) if mac)

    @cached_property
    def _of_gateway(self) -> Mapping[str, frozenset[str]]:
        """The MACs of each gateway of hosts, by their tables and by claims."""
        gateways = {gateway for node in self._bundle.nodes.values() for gateway in node.gateways}
        found: dict[str, set[str]] = {gateway: set() for gateway in gateways}
        for node in self._bundle.nodes.values():
            for (_, ip), entry in node.neighbours.items():
                if ip in found and entry.mac:
                    found[ip].add(entry.mac)
        for capture in self._bundle.captures:
            for _, ip, mac in capture.claims:
                if ip in found:
                    found[ip].add(mac)
        return {ip: frozenset(macs) for ip, macs in found.items()}

    @cached_property
    def _gateways(self) -> frozenset[str]:
        """The MACs of switches, and of the gateways of hosts."""
        own = {mac for mac, (name, _) in self._of_mac.items() if self._bundle.nodes[name].switch}
        return frozenset(own.union(*self._of_gateway.values()))

    @cached_property
    def _proxies(self) -> frozenset[str]:
        """The MACs that claim addresses of several others: proxy ARP."""
        claims = {(ip, mac) for capture in self._bundle.captures for _, ip, mac in capture.claims}
        others = Counter(
            mac for ip, mac in claims if ip in self._owners and mac not in self._own_macs(self._owners[ip][0])
        )
        return frozenset(mac for mac, count in others.items() if count > 1)

    def strange(self, ip: str, mac: str) -> bool:
        """Return whether a MAC is no one of the host that has an address, and no router's or proxy's."""
        owner = self._owners.get(ip)
        if owner is None or not owner[1].mac or int(mac[:2], 16) & 1:
            return False
        return not any(mac in known for known in (self._own_macs(owner[0]), self._gateways, self._proxies))

    def near(self, name: str, ip: str) -> bool:
        """Return whether a host has an interface in the network of an address."""
        own = self._bundle.nodes[name].interfaces.values()
        return any(ip_address(ip) in ip_interface(address).network for one in own for address in one.addresses)

    def _strays(self, source_mac: str, mac: str, source: str, target: str) -> str | None:
        """Return who sent packets to a MAC that is not the owner's; None where it is, or may be a router's."""
        owner = self._owners.get(target)
        if owner is None or not self.strange(target, mac):
            return None
        known = mac in self._of_mac or all(self._of_gateway.values())
        if source_mac in self._of_mac and self._of_mac[source_mac] == self._end_of(source):
            [sender, _] = self._of_mac[source_mac]
            return sender if known and self._near(source, target) else None
        for gateway in self._bundle.nodes[owner[0]].gateways:
            if known and source_mac in self._of_gateway[gateway] and self._within(gateway, target):
                return self._of_address.get(gateway) or self._of_mac.get(source_mac, (f"the gateway {gateway}",))[0]
        return None

    def _end_of(self, ip: str) -> End | None:
        owner = self._owners.get(ip)
        return (owner[0], owner[1].name) if owner else None

    def _near(self, source: str, target: str) -> bool:
        """Return whether an address is in the network of a host's other one."""
        return self._within(target, source)

    def _within(self, ip: str, owned: str) -> bool:
        """Return whether an address is in the network of an owned one."""
        networks = [ip_interface(address) for address in self._owners[owned][1].addresses]
        return any(str(one.ip) == owned and ip_address(ip) in one.network for one in networks)

    def _paused_end(self, sender: End, here: End) -> End | None:
        """Return the end that an interface pauses; a bond does by the member where the capture was made."""
        members = [(sender[0], one.name) for one in self._bundle.nodes[sender[0]].bonds().get(sender[1], ())]
        for member in members:
            if here in (member, self._peers.get(member)):
                return self._peers.get(member)
        return None if members else self._peers.get(sender)

    def _paused(self, capture: Capture) -> Iterator[Paused]:
        for (mac, priority), frames in capture.pauses.items():
            sender = self._of_mac.get(mac)
            here = (capture.node, capture.interface)
            if sender:
                end = self._paused_end(sender, here)
            else:
                end = here if here in self._peers and not self._bundle.nodes[capture.node].switch else None
            who = f"{capture.name}: {mac} sends pause frames of priority {priority}"
            if end is None or end[0] not in self._bundle.nodes:
                self.remarks.append(f"{who}, and the port that it pauses is not known")
                continue
            ends = (end, self._peers.get(end, end))
            speed = max(self._bundle.nodes[node].interface(name).speed or 0 for node, name in ends if node)
            if not speed:
                self.remarks.append(f"{who} for a time that is not known: the speed of the link is not")
                continue
            began, longest, total = _lasted(frames, speed)
            resumed = sum(not quanta for _, quanta in frames)
            yield Paused(
                end,
                priority,
                self._at(capture, capture.ended),
                self._at(capture, began),
                longest,
                total,
                len(frames),
                resumed,
            )


def _lasted(frames: Sequence[tuple[int, int]], speed: int) -> tuple[int, int, int]:
    """Return the begin and length of the longest pause, and the nanoseconds of all."""
    found: list[tuple[int, int]] = []
    began = until = 0
    for t, quanta in frames:
        if began and t > until:
            found.append((until - began, began))
            began = 0
        if quanta:
            began = began or t
            until = t + quanta * BITS * 10**9 // speed
        elif began:
            found.append((t - began, began))
            began = 0
    if began:
        found.append((until - began, began))
    longest, since = max(found, default=(0, frames[0][0]))
    return since, longest, sum(length for length, _ in found)


def claimed_row(name: str, ip: str, mac: str) -> InterfaceRow:
    """Return the interface of a host that claims an address. It has the name of its MAC: which one it is may not be
    known."""
    four, six = (ip, "") if ":" not in ip else ("", ip)
    return InterfaceRow(
        node=name, kind="host", interface=mac, peer="", mac=mac, address=four, address6=six, gateway="",
        gateway6="", vlan=None, trunk=[], routed=False, rdma=None,
    )  # fmt: skip
