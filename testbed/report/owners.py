"""The owners of addresses and MACs over the time of a run, from its plan and its events."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from testbed.protocol import Event, InterfaceRow
from testbed.protocol.events import Address, Cni, Link, Pod, PodRefused, read


@dataclass(frozen=True, slots=True)
class Owned:
    """The time in which an interface has an address, in nanoseconds; `until` is None to the end of the run."""

    node: str
    interface: str
    mac: str
    since: int
    until: int | None = None

    def at(self, t: int) -> bool:
        return self.since <= t and (self.until is None or t < self.until)


@dataclass(slots=True)
class _Interface:
    node: str
    name: str
    mac: str
    addresses: list[str] = field(default_factory=list)


class Owners:
    """Owners over time. `of_address` has the owners of an address in the order of time, `hosts` the hosts of pods."""

    def __init__(self, rows: Iterable[InterfaceRow], events: Iterable[Event]) -> None:
        self.of_address: dict[str, list[Owned]] = {}
        self.hosts: dict[str, str] = {}
        self.gateways = {row["node"] for row in rows if row["kind"] not in ("host", "linux")}
        """The nodes that forward packets for others."""
        self.peers = {(row["node"], row["interface"]): row["peer"] for row in rows}
        self._names: dict[str, list[tuple[str, str]]] = {}
        self._holders: dict[str, list[Owned]] = {}
        """The interfaces that have or had a MAC, with or without an address."""
        self._now: dict[tuple[str, str], _Interface] = {}
        for row in rows:
            addresses = [row[key].partition("/")[0] for key in ("address", "address6") if row[key]]
            self._add(0, row["node"], row["interface"], row["mac"], addresses)
        for event in events:
            self._follow(event)

    def owners(self, ip: str, t: int) -> list[Owned]:
        """Return the owners of an address at a time: none, one, or several where it is duplicate."""
        return [one for one in self.of_address.get(ip, []) if one.at(t)]

    def of_mac(self, mac: str) -> list[Owned]:
        """Return the addresses that interfaces with a MAC have or had."""
        return [one for owned in self.of_address.values() for one in owned if one.mac == mac]

    def holders(self, mac: str, t: int) -> list[tuple[str, str]]:
        """Return the nodes and interfaces that have a MAC at a time."""
        return [(one.node, one.interface) for one in self._holders.get(mac, []) if one.at(t)]

    def wrong_claim(self, ip: str, mac: str, t: int) -> str:
        """Return a remark on a MAC that is claimed for another's address; empty for the owner's, and for a switch's:
        proxy ARP, or an address of the switch on another interface."""
        owners = self.owners(ip, t)
        if not owners or any(one.mac == mac for one in owners) or (named := self.name(mac)) in self.gateways:
            return ""
        return f"says {ip} is at {named or 'an unknown'}'s MAC; it is {owners[0].node}'s"

    def name(self, mac: str) -> str:
        """Return the nodes that have, or had, a MAC: `pod-a`, `server, intruder`; empty for a MAC that nobody has."""
        return ", ".join(dict.fromkeys(node for node, _ in self._names.get(mac, [])))

    def port(self, node: str, interface: str, switch: str) -> str:
        """Return the switch port to which an interface leads directly, a pod's that of its host; empty if none does."""
        host = self.hosts.get(node)
        peers = {peer for (name, end), peer in self.peers.items() if (name, end) == (node, interface) or name == host}
        ports = {peer.partition(":")[2] for peer in peers if peer.partition(":")[0] == switch}
        return ports.pop() if len(ports) == 1 else ""

    def _follow(self, event: Event) -> None:
        node, t = event["node"], event["t"]
        match read(event):
            case Pod(host=str(host)) | PodRefused(host=host):
                self.hosts[node] = host
            case Cni(interface=str(interface)) as data:
                self._cni(t, node, interface, data)
            case Link(interface=interface, mac=str(mac)):
                known = self._now.get((node, interface))
                addresses = list(known.addresses) if known else []
                self._leave(t, node, interface)
                self._add(t, node, interface, mac, addresses)
            case Address(interface=interface, ip=ip, has=has):
                self._address(t, node, interface, ip, has=has)

    def _cni(self, t: int, pod: str, interface: str, data: Cni) -> None:
        if data.command == "DEL":
            self._leave(t, pod, interface)
        elif data.command == "ADD" and data.result:
            self.hosts.setdefault(pod, str(data.host))
            if data.mac is not None:
                self._add(t, pod, interface, data.mac, [ip.partition("/")[0] for ip in data.addresses or []])

    def _address(self, t: int, node: str, interface: str, ip: str, *, has: bool) -> None:
        found = self._now.get((node, interface))
        if found and has and ip not in found.addresses:
            found.addresses.append(ip)
            self.of_address.setdefault(ip, []).append(Owned(node, interface, found.mac, t))
        elif found and not has and ip in found.addresses:
            found.addresses.remove(ip)
            self._end(t, ip, found)

    def _add(self, t: int, node: str, interface: str, mac: str, addresses: list[str]) -> None:
        self._now[node, interface] = _Interface(node, interface, mac, addresses)
        self._names.setdefault(mac, [])
        if (node, interface) not in self._names[mac]:
            self._names[mac].append((node, interface))
        self._holders.setdefault(mac, []).append(Owned(node, interface, mac, t))
        for ip in addresses:
            self.of_address.setdefault(ip, []).append(Owned(node, interface, mac, t))

    def _leave(self, t: int, node: str, interface: str) -> None:
        if found := self._now.pop((node, interface), None):
            self._holders[found.mac] = _ended(self._holders[found.mac], t, found)
            for ip in found.addresses:
                self._end(t, ip, found)

    def _end(self, t: int, ip: str, of: _Interface) -> None:
        self.of_address[ip] = _ended(self.of_address[ip], t, of)


def _ended(owned: Iterable[Owned], t: int, of: _Interface) -> list[Owned]:
    return [
        replace(one, until=t) if one.until is None and (one.node, one.interface) == (of.node, of.name) else one
        for one in owned
    ]
