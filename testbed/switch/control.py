"""
The control plane of one switch: ARP and neighbour discovery according to its profile, and the bridge's learned MACs.

Pure: inputs are times (nanoseconds of any monotonic clock) and random numbers, outputs are effects; no sockets, no
clock.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testbed.protocol import events
from testbed.switch.core import Core, CpuLimit, DeleteNeighbour, Effect, Heard, Send, SetNeighbour
from testbed.switch.fdb import Fdb, Lost
from testbed.switch.frames import NO_MAC, REQUEST
from testbed.switch.learning import Learning
from testbed.switch.neighbours import Neighbours, RefreshDaemon
from testbed.switch.packets import Packet, answer
from testbed.switch.profile import Profile
from testbed.topology.plan import FAMILIES, Family, IPAddress, IPInterface, Svi


class ControlPlane:
    """While its CPU is out (`pause`) it handles no packet and no timer, but still commands and FDB changes."""

    def __init__(
        self, switch: str, svis: Sequence[Svi], profile: Profile, draw: Callable[[], float], *, paired: bool = False
    ) -> None:
        """`draw` returns a random number of 0 to 1; `paired` is one of two switches that are one to hosts (MLAG)."""
        self.fdb = Fdb(core := Core(switch, svis, profile, draw, paired=paired))
        self._core = core
        self._neighbours = Neighbours(core, self.fdb)
        self._learning = Learning(core, self.fdb, self._neighbours)
        self._daemon = RefreshDaemon(core, self._neighbours)
        self._arp_limit = CpuLimit(core, "arp-rate", profile.arp_pps)
        self._out_since: int | None = None

    @property
    def profile(self) -> Profile:
        return self._core.profile

    @property
    def out(self) -> bool:
        return self._out_since is not None

    # Inputs of a switch

    def start(self, now: int) -> list[Effect]:
        self.fdb.start(now)
        self._daemon.start(now)
        if self.profile.announce:
            for announcement in self._core.svis.announcements():
                self._core.do(announcement)
        return self._core.done()

    def on_packet(self, now: int, vlan: int, packet: Packet) -> list[Effect]:
        """Handle a packet that reached the SVI of `vlan`: broadcast, to a group of the SVI, or to its MAC."""
        family = packet.sender_ip.version
        listens = not self.out and self._core.svis.handles(vlan, family)
        if listens and self._arp_limit.admits(now, vlan, family):
            discarded = self._learning.learn(now, vlan, packet)
            if self._core.paired:
                self._neighbours.report(now, (vlan, packet.sender_ip))
            if packet.op == REQUEST and not discarded:
                self._answer(vlan, packet)
        return self._core.done()

    def on_miss(self, now: int, vlan: int, ip: IPAddress) -> list[Effect]:
        """Handle a miss: the data plane holds packets for `ip` and has no MAC."""
        if not self._core.svis.on_link(vlan, ip):
            return [DeleteNeighbour(vlan, ip)]
        if self.out:  # without a response the kernel would hold the packets and not ask again
            entry = self._neighbours.table.entries.get((vlan, ip))
            return [SetNeighbour(vlan, ip, entry.mac) if entry else DeleteNeighbour(vlan, ip)]
        self._neighbours.resolve(now, (vlan, ip))
        return self._core.done()

    def on_fdb(
        self,
        now: int,
        vlan: int,
        mac: str,
        port: str | None,
        lost: Lost = "aged",
        vteps: tuple[str, ...] = (),
        *,
        synced: bool = False,
    ) -> list[Effect]:
        """Record that the bridge learned `mac` on `port`, or lost it (None); see `Fdb.change`."""
        self.fdb.change(now, vlan, mac, port, lost, vteps, synced=synced)
        self._neighbours.follow_fdb(vlan, mac)
        return self._core.done()

    def on_port_down(self, now: int, port: str) -> list[Effect]:
        """Handle a port that has no link any more."""
        if not self.out:
            self._neighbours.port_down(now, port)
        return self._core.done()

    def on_fabric(self, vlan: int, ip: IPAddress, mac: str | None) -> list[Effect]:
        """Handle that EVPN has put another switch's address into the kernel's table, or has withdrawn it (None)."""
        self._neighbours.follow_fabric((vlan, ip), mac)
        return self._core.done()

    def on_told(self, now: int, vlan: int, ip: IPAddress, mac: str) -> list[Effect]:
        """Handle that the other switch of a pair has heard an address at a MAC."""
        svis = self._core.svis
        if not self.out and svis.on_link(vlan, ip) and not svis.owns(ip):
            self._neighbours.take(now, (vlan, ip), mac)
        return self._core.done()

    def heard(self) -> Iterator[Heard]:
        """Yield the addresses that packets have made here."""
        for (vlan, ip), entry in self._neighbours.table.entries.items():
            if not entry.synced:
                yield Heard(vlan, ip, entry.mac)

    def on_carrier_lost(self, now: int, vlan: int) -> list[Effect]:
        """Handle an SVI that has lost its carrier: the profile says whether its entries go."""
        if self.profile.svi_carrier == "purge":
            for family in FAMILIES:
                self._neighbours.clear(family, vlan, None, "no-carrier")
        return self._core.done()

    def on_svi(self, now: int, vlan: int, mac: str, addresses: Sequence[IPInterface]) -> list[Effect]:
        """Follow an SVI that a command has changed; without addresses it is gone."""
        self._core.svis.follow(vlan, mac, addresses)
        for family in FAMILIES:
            if not self._core.svis.handles(vlan, family):
                self._neighbours.clear(family, vlan, None, "no-address")
        return self._core.done()

    def on_router(self, now: int, vlan: int, mac: str, addresses: Sequence[IPAddress]) -> list[Effect]:
        """Follow a virtual router, by its MAC: the switch is its master for these addresses, for none as a backup."""
        before = self._core.svis.stand_for(vlan, mac, addresses)
        for ip in [ip for ip in addresses if ip not in before]:
            if (vlan, ip) in self._neighbours.table.entries:  # learned from the last master
                self._neighbours.clear(ip.version, vlan, ip, "own-address")
            self._core.emit(events.VRRP_MASTER(vlan=vlan, ip=str(ip), mac=mac))
        for ip in [ip for ip in before if ip not in addresses]:
            self._core.emit(events.VRRP_BACKUP(vlan=vlan, ip=str(ip), mac=mac))
        return self._core.done()

    def on_flushed(self, now: int, vlan: int, ip: IPAddress) -> list[Effect]:
        """Handle that the kernel has removed an entry by itself, as with an SVI that was set down."""
        if (vlan, ip) in self._neighbours.table.entries:
            self._neighbours.clear(ip.version, vlan, ip, "flushed")
        return self._core.done()

    def on_timer(self, now: int) -> list[Effect]:
        """Handle all expired timers."""
        while (at := self.next_deadline) is not None and at <= now:
            next(part for part in self._parts if part.deadline == at).act(at)
        return self._core.done()

    @property
    def next_deadline(self) -> int | None:
        due = [part.deadline for part in self._parts]
        return None if self.out else min((at for at in due if at is not None), default=None)

    @property
    def _parts(self) -> tuple[RefreshDaemon | Fdb | Neighbours, ...]:
        return self._daemon, self.fdb, self._neighbours

    def set_profile(self, now: int, profile: Profile) -> list[Effect]:
        """Follow another profile from now on. Entries stay; those too old under it go at the next `on_timer`."""
        old, self._core.profile = self.profile, profile
        self._arp_limit.change(profile.arp_pps)
        if (profile.arp_refresh, profile.refresh_period) != (old.arp_refresh, old.refresh_period):
            self._daemon.start(now)
        self.fdb.profile_changed()
        self._neighbours.profile_changed()
        return self._core.done()

    def pause(self, now: int) -> None:
        """Put the CPU out from now on."""
        if self._out_since is None:
            self._out_since = now

    def resume(self, now: int) -> list[Effect]:
        """Bring the CPU back: it handles overdue timers now; later ones take their time."""
        since, self._out_since = self._out_since, None
        if since is not None:
            self._daemon.resume(now)
            self._neighbours.resume(now, since)
        return self.on_timer(now)

    def restart(self, now: int) -> list[Effect]:
        """Return from a warm reboot, which the data plane has not noticed.

        As in SONiC (sonic-swss, neighsyncd/restore_neighbors.py), entries are restored as stale and each is requested
        by broadcast; one whose owner is silent ages out. Pending resolutions are lost.
        """
        self._neighbours.restart(now)
        self._daemon.start(now)
        return self._core.done()

    def clear(self, family: Family, vlan: int | None = None, ip: IPAddress | None = None) -> list[Effect]:
        """Clear entries of a family: all, or those of a VLAN, of an address."""
        self._neighbours.clear(family, vlan, ip)
        return self._core.done()

    def neighbours(self, now: int, family: Family) -> list[dict[str, Any]]:
        """Return the ARP or ND table; see `NeighbourTable.rows`."""
        return self._neighbours.table.rows(now, family, self._neighbours.where)

    def _answer(self, vlan: int, packet: Packet) -> None:
        svis = self._core.svis
        own = svis.replies_to(vlan, packet, self.profile.arp_ignore)
        proxied = not own and svis.stands_in(vlan, packet)
        asker = packet.asker
        if asker == NO_MAC:  # a unicast solicitation may omit it (RFC 4861 section 4.3)
            entry = self._neighbours.table.entries.get((vlan, packet.sender_ip))
            asker = entry.mac if entry else NO_MAC
        if asker == NO_MAC or not (own or proxied):
            return
        self._core.do(Send(vlan, asker, answer(packet, svis.mac_of(vlan, packet.target_ip), proxied=proxied)))
        if proxied:
            self._core.emit_of((vlan, packet.target_ip), events.PROXIED(mac=asker))
