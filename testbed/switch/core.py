"""The state that all parts of a control plane share: its current profile, its SVIs and their addresses, the effects.

Effects are its decisions as data: the agent executes them, a test reads them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.protocol import events
from testbed.protocol.events import Data, Neighbour
from testbed.switch.frames import BROADCAST
from testbed.switch.packets import Packet, announcement, request
from testbed.switch.profile import Profile
from testbed.switch.table import Key
from testbed.switch.timers import SECOND
from testbed.topology.addressing import link_local
from testbed.topology.plan import Family, IPAddress, IPInterface, Svi


@dataclass(frozen=True, slots=True)
class Send:
    """A packet to send out of the SVI of `vlan`, from the SVI's MAC; to BROADCAST: to all that it is for."""

    vlan: int
    dst: str
    packet: Packet


@dataclass(frozen=True, slots=True)
class SetNeighbour:
    """An order to the data plane: send packets for `ip`, including waiting ones, to `mac`."""

    vlan: int
    ip: IPAddress
    mac: str


@dataclass(frozen=True, slots=True)
class DeleteNeighbour:
    """An order to the data plane: forget `ip` and drop packets that wait for it; the next packet is a miss."""

    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class BlockLossless:
    """An order to the data plane: drop routed packets of the lossless classes for `ip`, or forward them again."""

    vlan: int
    ip: IPAddress
    blocked: bool


@dataclass(frozen=True, slots=True)
class SetPort:
    """A port to disable, as by `shutdown`, or to enable again."""

    port: str
    up: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A table change, a reason why there was none, or a loss, with the switch and the fields of its kind."""

    kind: str
    fields: dict[str, str | int | list[str]]


@dataclass(frozen=True, slots=True)
class Heard:
    """A packet of its owner has made or confirmed an address here: the other switch of a pair has to know."""

    vlan: int
    ip: IPAddress
    mac: str


Effect = Send | SetNeighbour | DeleteNeighbour | BlockLossless | SetPort | Heard | Event


class Svis:
    """The SVIs that have an address, or a VXLAN network, whose hosts other switches have to know. The control plane
    does not handle other VLANs."""

    def __init__(self, svis: Sequence[Svi]) -> None:
        self._networks = {svi.vlan: svi.network for svi in svis if svi.vni}
        self._svis: dict[int, _Svi] = {}
        self._own: dict[int, frozenset[IPAddress]] = {}
        self._own_anywhere: frozenset[IPAddress] = frozenset()
        self._virtual: dict[tuple[int, str], tuple[IPAddress, ...]] = {}
        """The addresses of virtual routers for which the switch is master, by VLAN and MAC."""
        self._proxies = {svi.vlan for svi in svis if svi.proxy_arp}
        for svi in svis:
            self.follow(svi.vlan, svi.mac, svi.addresses)

    def follow(self, vlan: int, mac: str, addresses: Sequence[IPInterface]) -> None:
        """Follow an SVI that has this MAC and these addresses from now on."""
        if addresses or vlan in self._networks:
            self._svis[vlan] = _Svi(mac, tuple(addresses))
        else:
            self._svis.pop(vlan, None)
        self._find_own()

    def stand_for(self, vlan: int, mac: str, addresses: Sequence[IPAddress]) -> tuple[IPAddress, ...]:
        """Be the master of the virtual router with this MAC for these addresses from now on. Return those before."""
        before = self._virtual.pop((vlan, mac), ())
        if addresses:
            self._virtual[vlan, mac] = tuple(addresses)
        self._find_own()
        return before

    def _find_own(self) -> None:
        self._own = {vlan: _own_addresses(svi) for vlan, svi in self._svis.items()}
        for (vlan, _), addresses in self._virtual.items():
            if vlan in self._own:
                self._own[vlan] |= frozenset(addresses)
        self._own_anywhere = frozenset().union(*self._own.values())

    def mac_of(self, vlan: int, ip: IPAddress) -> str:
        """Return the MAC by which the SVI of `vlan` answers for an address: a virtual router's, or its own."""
        virtual = (mac for (at, mac), addresses in self._virtual.items() if at == vlan and ip in addresses)
        return next(virtual, self._svis[vlan].mac)

    def handles(self, vlan: int, family: Family) -> bool:
        """Return whether there may be entries of a family in a VLAN."""
        return self.speaks(vlan, family) or (family == 4 and vlan in self._networks and vlan in self._svis)

    def network(self, vlan: int) -> str | None:
        """Return the port of a VLAN's VXLAN network."""
        return self._networks.get(vlan)

    def speaks(self, vlan: int, family: Family) -> bool:
        """Return whether there is an SVI with an address of the family."""
        return any(address.version == family for address in self._own.get(vlan, ()))

    def owns(self, ip: IPAddress, vlan: int | None = None) -> bool:
        """Return whether an address belongs to an SVI: of this VLAN, or of any."""
        return ip in (self._own_anywhere if vlan is None else self._own.get(vlan, ()))

    def on_link(self, vlan: int, ip: IPAddress) -> bool:
        """Return whether an address can be a neighbour's in the VLAN: in one of its subnets, or link-local."""
        if not self.speaks(vlan, ip.version):
            return self.handles(vlan, ip.version)
        return (ip.version == 6 and ip.is_link_local) or self._in_subnet(vlan, ip)

    def replies_to(self, vlan: int, packet: Packet, arp_ignore: int) -> bool:
        """Return whether the SVI answers for the requested address as its own (see Profile.arp_ignore)."""
        # An IPv6 interface answers for its own addresses only (RFC 4861 section 7.2.3).
        strictness = arp_ignore if packet.target_ip.version == 4 else max(arp_ignore, 1)
        here = None if strictness == 0 else vlan
        local_sender = packet.probe or self.on_link(vlan, packet.sender_ip)
        return self.owns(packet.target_ip, here) and (strictness < 2 or local_sender)

    def stands_in(self, vlan: int, packet: Packet) -> bool:
        """Return whether the SVI answers as a proxy. It never does for an address that the asker claims or may use."""
        if vlan not in self._proxies or packet.probe or packet.gratuitous:
            return False
        ip = packet.target_ip
        return self._in_subnet(vlan, ip) and ip != packet.sender_ip and not self.owns(ip)

    def request(self, key: Key, dst: str) -> Send:
        """Make the request for an address, from the SVI's own."""
        vlan, ip = key
        svi = self._svis[vlan]
        # As Linux and others do when no packet determines it (RFC 4861 section 7.2.2).
        source: IPAddress = link_local(svi.mac)
        if ip.version == 4:
            own = [address for address in svi.addresses if address.version == 4]
            source = own[0].ip if own else IPv4Address(0)  # without one it is a probe (RFC 5227, section 2.1.1)
            source = next((address.ip for address in own if ip in address.network), source)
        return Send(vlan, dst, request(svi.mac, source, ip))

    def announcements(self) -> Iterator[Send]:
        for vlan, svi in self._svis.items():
            for address in svi.addresses:
                yield Send(vlan, BROADCAST, announcement(svi.mac, address.ip, router=True))

    def _in_subnet(self, vlan: int, ip: IPAddress) -> bool:
        return any(ip in address.network for address in self._svis[vlan].addresses)


@dataclass(frozen=True, slots=True)
class _Svi:
    """An SVI as the kernel has it."""

    mac: str
    addresses: tuple[IPInterface, ...]


def _own_addresses(svi: _Svi) -> frozenset[IPAddress]:
    """Return the addresses that an SVI owns: with IPv6 also its link-local one."""
    own: list[IPAddress] = [address.ip for address in svi.addresses]
    if any(address.version == 6 for address in svi.addresses):
        own.append(link_local(svi.mac))
    return frozenset(own)


class Core:
    def __init__(
        self, switch: str, svis: Sequence[Svi], profile: Profile, draw: Callable[[], float], *, paired: bool = False
    ) -> None:
        """`draw` returns a random number of 0 to 1; `paired` is one of two switches that are one to hosts (MLAG)."""
        self.profile = profile
        self.paired = paired
        self.draw = draw
        self.svis = Svis(svis)
        self._switch = switch
        self._effects: list[Effect] = []

    def do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def done(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def emit(self, data: Data, family: Family = 4, about: Mapping[str, int | str] = {}) -> None:
        """Report an event; omit fields that are None."""
        given = {"switch": self._switch, **about, **vars(data)}
        name = data.kind_name if family == 4 else data.kind.nd
        self.do(Event(name, {key: value for key, value in given.items() if value is not None}))

    def emit_of(self, key: Key, data: Neighbour) -> None:
        """Report an event about an address."""
        vlan, ip = key
        self.emit(data, ip.version, {"vlan": vlan, "ip": str(ip)})


class CpuLimit:
    """A limit on packets of a kind, ARP or without a neighbour entry: `per_second` with a burst of as many; None: no
    limit. The first lost packet is an event, and so is the number of lost packets at the end."""

    def __init__(self, core: Core, reason: str, per_second: int | None) -> None:
        self._core = core
        self._reason = reason
        self._lost: dict[Family, int] = {4: 0, 6: 0}
        self._per_second: int | None = None
        self.change(per_second)

    def change(self, per_second: int | None) -> None:
        """Set another rate; the same rate changes nothing."""
        if per_second != self._per_second:
            self._per_second, self._at = per_second, 0
            self._level = (per_second or 0) * SECOND  # one packet is SECOND units: a nanosecond adds per_second of them

    def admits(self, now: int, vlan: int, family: Family) -> bool:
        """Return whether a packet reaches the CPU."""
        admitted, lost = self._admit(now), self._lost[family]
        self._lost[family] = 0 if admitted else lost + 1
        if (admitted and lost > 1) or not (admitted or lost):
            self._core.emit(events.LIMITED(vlan=vlan, reason=self._reason, packets=lost or 1), family)
        return admitted

    def _admit(self, now: int) -> bool:
        if self._per_second is None:
            return True
        self._level = min(self._per_second * SECOND, self._level + (now - self._at) * self._per_second)
        self._at = now
        if self._level < SECOND:
            return False
        self._level -= SECOND
        return True
