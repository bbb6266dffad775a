"""
The control plane of one switch: ARP and neighbour discovery as its profile does them, and what the bridge learned.

Pure: times come in (nanoseconds of any monotonic clock), effects go out; no sockets, no clock, no randomness. Entries
age from the last packet that confirmed them: unlike in Linux's NUD, data traffic neither renews nor probes them.

RFC 826 has a host merge the sender of every ARP packet into an entry it already holds, and add one only when it is the
target. The profile says where a switch departs from that. IPv6 goes the same ways: a solicitation is a request, a
solicited advertisement a reply, an unsolicited one a gratuitous ARP.

An SVI with proxy ARP answers for all other addresses of its subnets, whether they are there or not, as Linux does with
proxy_arp_pvlan, which SONiC sets (sonic-swss, cfgmgr/intfmgr.cpp); for IPv6 ndppd does it there. What hosts then send
each other goes through the SVI.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Literal

from testbed.switch.effects import BlockLossless, DeleteNeighbour, Effect, Event, Send, SetNeighbour, SetPort
from testbed.switch.frames import BROADCAST, NO_MAC, REQUEST, unicast
from testbed.switch.moves import MoveGuard
from testbed.switch.nd import Nd
from testbed.switch.packets import PROTOCOLS, Packet, announcement, answer, request
from testbed.switch.profile import Profile
from testbed.switch.table import Claim, Entry, Key, NeighbourTable, Unresolved
from testbed.switch.timers import Deadlines, TokenBucket, nanoseconds
from testbed.topology.addressing import link_local
from testbed.topology.plan import Family, IPAddress, Svi

_DAEMON: Key = (0, IPv4Address(0))
"""Key of the refresh daemon's deadline; VLAN 0 does not exist."""
_GUARD: Key = (0, IPv4Address(1))
"""The same of the MAC move guard."""


class ControlPlane:
    def __init__(self, switch: str, svis: Iterable[Svi], profile: Profile) -> None:
        self.switch = switch
        self.profile = profile
        self._svis = {svi.vlan: svi for svi in svis if svi.addresses}
        self._own = {vlan: _own_addresses(svi) for vlan, svi in self._svis.items()}
        self._own_anywhere: frozenset[IPAddress] = frozenset().union(*self._own.values())
        self._table = NeighbourTable()
        self.fdb: dict[tuple[int, str], str] = {}
        """Port by VLAN and MAC, as the bridge tells it."""
        self._arp_limit = TokenBucket(profile.arp_pps)
        self._miss_limit = TokenBucket(profile.miss_pps)
        self._limited: dict[tuple[str, Family], int] = {}
        self._guard = MoveGuard()
        self._daemon_at: int | None = None
        self._deadlines: Deadlines[Key] = Deadlines(self._deadline)
        self._effects: list[Effect] = []

    # What happens to a switch

    def start(self, now: int) -> list[Effect]:
        self._guard.began = now
        self._schedule_daemon(now)
        if self.profile.announce:
            for vlan, svi in self._svis.items():
                for address in svi.addresses:
                    self._effects.append(Send(vlan, BROADCAST, announcement(svi.mac, address.ip)))
        return self._done()

    def on_packet(self, now: int, vlan: int, packet: Packet) -> list[Effect]:
        """A packet that reached the SVI of `vlan`: for all, for a group of the SVI's, or addressed to its MAC."""
        family = packet.sender_ip.version
        if not self._speaks(vlan, family):
            return []
        if not self._admit("arp", self._arp_limit, now, vlan, family):
            return self._done()
        discarded = False
        on_link = self._on_link(vlan, packet.sender_ip)
        packet = self._with_mac(vlan, packet)
        if not packet.probe:
            if reason := self._untrustworthy(packet, on_link):
                self._tell("ignored", (vlan, packet.sender_ip), mac=packet.sender_mac, reason=reason)
            else:
                discarded = self._learn(now, vlan, packet)
        if packet.op == REQUEST and not discarded:
            self._answer(vlan, packet, on_link or packet.probe)
        return self._done()

    def on_miss(self, now: int, vlan: int, ip: IPAddress) -> list[Effect]:
        """The data plane holds packets for `ip` and knows no MAC. It may say so again while it waits."""
        if not self._on_link(vlan, ip):
            return [DeleteNeighbour(vlan, ip)]
        key = (vlan, ip)
        entry, waiting = self._table.entries.get(key), self._table.unresolved.get(key)
        if entry is not None:
            self._effects.append(SetNeighbour(vlan, ip, entry.mac))
        elif waiting is None or waiting.state != "asking":
            self._resolve(now, key, waiting)
        return self._done()

    def on_fdb(
        self, now: int, vlan: int, mac: str, port: str | None, lost: Literal["aged", "flushed"] = "aged"
    ) -> list[Effect]:
        """The bridge learned `mac` on `port`, or lost it (None)."""
        old = self.fdb.get((vlan, mac))
        if port is None:
            if old is not None:
                del self.fdb[vlan, mac]
                self._event(f"fdb.{lost}", vlan, mac=mac, port=old)
        elif old is None:
            self.fdb[vlan, mac] = port
            self._event("fdb.learned", vlan, mac=mac, port=port)
        elif port != old:
            self.fdb[vlan, mac] = port
            self._event("fdb.moved", vlan, mac=mac, port=port, old_port=old)
            if self.profile.mac_moves is not None:
                self._guard_against(now, vlan, mac, port)
        if self.profile.lossless_unknown_unicast == "drop":
            for key, entry in self._table.entries.items():
                if key[0] == vlan and entry.mac == mac:
                    self._block_lossless(key, entry)
        return self._done()

    def on_timer(self, now: int) -> list[Effect]:
        """Does all that is due. Each act counts from its own deadline, so a late call does not shift later ones."""
        while (due := self._deadlines.next()) is not None and due[0] <= now:
            at, key = due
            if key == _DAEMON:
                self._run_daemon(at)
            elif key == _GUARD:
                self._enable(self._guard.recover(at, self.profile))
            elif (entry := self._table.entries.get(key)) is not None:
                self._entry_due(key, entry, at)
            else:
                self._ask_again(key, self._table.unresolved[key], at)
        return self._done()

    @property
    def next_deadline(self) -> int | None:
        due = self._deadlines.next()
        return None if due is None else due[0]

    def set_profile(self, now: int, profile: Profile) -> list[Effect]:
        """Another profile from now on. Entries stay; those that are too old under it go at the next `on_timer`."""
        old, self.profile = self.profile, profile
        if profile.arp_pps != self._arp_limit.per_second:
            self._arp_limit = TokenBucket(profile.arp_pps)
        if profile.miss_pps != self._miss_limit.per_second:
            self._miss_limit = TokenBucket(profile.miss_pps)
        if (profile.arp_refresh, profile.refresh_period) != (old.arp_refresh, old.refresh_period):
            self._daemon_at = None
            self._schedule_daemon(now)
        if profile.mac_moves is None:
            self._enable(self._guard.stop())
        self._rearm()
        for key, entry in self._table.entries.items():
            self._block_lossless(key, entry)
        return self._done()

    def resume(self, now: int) -> list[Effect]:
        """After a time in which the CPU did nothing: what is overdue is done now, and what follows takes its time."""
        if self._daemon_at is not None:
            self._daemon_at = max(self._daemon_at, now)
        for waiting in self._table.unresolved.values():
            waiting.until = max(waiting.until, now)
        for entry in self._table.entries.values():
            if (probe := entry.next_probe(self.profile)) is not None:
                entry.late += max(0, now - probe)
            if entry.claim is not None:
                entry.claim.deadline = max(entry.claim.deadline, now)
        self._rearm()
        return self.on_timer(now)

    def restart(self, now: int) -> list[Effect]:
        """
        Comes back from a warm reboot, which the data plane has not noticed.

        As SONiC does it (sonic-swss, neighsyncd/restore_neighbors.py): the entries are put back as stale, and each is
        asked for by broadcast; one whose owner is silent ages out. What was being resolved is not known any more.
        """
        for key in list(self._table.unresolved):
            self._forget(key)
        for key, entry in self._table.entries.items():
            entry.confirmed, entry.probes, entry.claim, entry.late = now, 0, None, 0
            self._request(key, BROADCAST, entry)
        self._daemon_at = None
        self._schedule_daemon(now)
        self._rearm()
        for family, protocol in PROTOCOLS.items():
            restored = sum(key[1].version == family for key in self._table.entries)
            if restored:
                self._event(f"{protocol}.restored", entries=restored)
        return self._done()

    def clear(self, family: Family, vlan: int | None = None, ip: IPAddress | None = None) -> list[Effect]:
        """Forget entries of a family: all, or those of a VLAN, of an address."""
        for key in self._addresses(family):
            if vlan in (None, key[0]) and ip in (None, key[1]):
                entry = self._forget(key)
                self._tell("cleared", key, mac=entry.mac if entry else None)
        return self._done()

    # What a switch shows

    def neighbours(self, now: int, family: Family) -> list[dict[str, str | int | float | None]]:
        """The ARP or the ND table by VLAN and address; `age` in seconds since the entry was confirmed."""
        table: list[dict[str, str | int | float | None]] = []
        for vlan, ip in sorted(self._addresses(family), key=lambda key: (key[0], int(key[1]))):
            row: dict[str, str | int | float | None] = {"vlan": vlan, "ip": str(ip)}
            if (entry := self._table.entries.get((vlan, ip))) is not None:
                age = (now - entry.confirmed) / nanoseconds(1)
                row |= {"state": "resolved", "mac": entry.mac, "port": entry.port, "age": age}
            else:
                row |= {"state": self._table.unresolved[vlan, ip].state, "mac": None, "port": None, "age": None}
            table.append(row)
        return table

    def fdb_table(self) -> list[dict[str, str | int]]:
        return [{"vlan": vlan, "mac": mac, "port": port} for (vlan, mac), port in sorted(self.fdb.items())]

    # Learning

    def _with_mac(self, vlan: int, packet: Packet) -> Packet:
        """A solicited advertisement may leave out its MAC when one machine was asked: that one has answered (RFC 4861
        section 4.4). Linux does so."""
        entry = self._table.entries.get((vlan, packet.sender_ip))
        if not isinstance(packet, Nd) or not packet.solicited or packet.sender_mac != NO_MAC or entry is None:
            return packet
        claim = entry.claim
        asked = claim.mac if claim is not None and claim.asked == "claimant" else entry.mac
        return replace(packet, sender_mac=asked, override=True)

    def _untrustworthy(self, packet: Packet, on_link: bool) -> str | None:
        if not on_link:
            return "out-of-subnet"
        if packet.sender_ip in self._own_anywhere:
            return "own-address"
        return None if unicast(packet.sender_mac) else "invalid-mac"

    def _learn(self, now: int, vlan: int, packet: Packet) -> bool:
        """Merge the sender into the table; True if the profile discards the packet."""
        key = (vlan, packet.sender_ip)
        entry, waiting = self._table.entries.get(key), self._table.unresolved.get(key)
        via = "garp" if packet.gratuitous else "request" if packet.op == REQUEST else "reply"
        to_us = packet.target_ip in self._own[vlan] or (
            self.profile.arp_ignore == 0 and packet.target_ip in self._own_anywhere
        )
        answers = via == "reply" and to_us and (waiting is not None or (entry is not None and entry.asked))
        merges = answers or (self.profile.garp_update if via == "garp" else self.profile.request_update)
        if entry is None:
            adds = self.profile.garp_new if via == "garp" else via == "request" and to_us
            if adds or (waiting is not None and merges):
                self._create(now, key, packet.sender_mac, via)
            elif via != "request":
                self._ignored(key, packet, f"{via}-creates-nothing")
            return False
        if packet.sender_mac == entry.mac:
            return self._same_owner(now, key, entry, packet) if merges else False
        if not merges:
            self._ignored(key, packet, f"{via}-changes-nothing")
        elif not packet.override:
            self._ignored(key, packet, "no-override")
        elif entry.claim is not None and entry.claim.mac == packet.sender_mac:
            if entry.claim.asked == "claimant" and via == "reply":
                self._update(now, key, entry, packet.sender_mac, "verified")
        elif self.profile.on_mac_change == "update":
            self._update(now, key, entry, packet.sender_mac, via)
        elif self.profile.on_mac_change == "drop":
            self._ignored(key, packet, "mac-changed")
            return True
        elif entry.claim is None:
            entry.claim = Claim(packet.sender_mac, "owner", now + nanoseconds(self.profile.verify_timeout))
            self._request(key, entry.mac, entry)
            self._deadlines.arm(key)
        return False

    def _create(self, now: int, key: Key, mac: str, via: str) -> None:
        vlan, ip = key
        if not self._make_room(key):
            return
        entry = Entry(mac, self.fdb.get((vlan, mac)), now)
        self._table.learn(key, entry)
        self._effects.append(SetNeighbour(vlan, ip, mac))
        self._tell("learned", key, mac=mac, port=entry.port, reason=via)
        self._block_lossless(key, entry)
        self._deadlines.arm(key)

    def _same_owner(self, now: int, key: Key, entry: Entry, packet: Packet) -> bool:
        port = self.fdb.get((key[0], entry.mac))
        if entry.port is not None and port is not None and port != entry.port:
            if self.profile.on_port_change == "drop":
                self._ignored(key, packet, "port-changed", port=port)
                return True
            self._tell("updated", key, mac=entry.mac, port=port, old_port=entry.port, reason="port-changed")
        if entry.claim is not None:
            self._tell("ignored", key, mac=entry.claim.mac, old_mac=entry.mac, reason="old-owner-answered")
        elif entry.probes:
            self._tell("confirmed", key, mac=entry.mac)
        self._confirm(now, key, entry, port)
        return False

    def _update(self, now: int, key: Key, entry: Entry, mac: str, reason: str) -> None:
        vlan, ip = key
        port = self.fdb.get((vlan, mac))
        self._effects.append(SetNeighbour(vlan, ip, mac))
        self._tell("updated", key, mac=mac, old_mac=entry.mac, port=port, old_port=entry.port, reason=reason)
        entry.mac, entry.port = mac, None
        self._confirm(now, key, entry, port)
        self._block_lossless(key, entry)

    def _confirm(self, now: int, key: Key, entry: Entry, port: str | None) -> None:
        entry.confirmed, entry.port = now, port or entry.port
        entry.probes, entry.asked, entry.claim, entry.late = 0, False, None, 0
        self._table.most_recent(key)

    def _make_room(self, key: Key) -> bool:
        """Whether the table may hold one more address; for it, old ones may have to go: several when the bound was
        lowered."""
        while (obstacle := self._table.obstacle(key, self.profile)) is not None:
            if obstacle == "full":
                self._tell("refused", key, reason="table-full")
                return False
            entry = self._forget(obstacle)
            self._tell("evicted", obstacle, **({"mac": entry.mac} if entry else {"reason": "not-found"}))
        return True

    # Answering and asking

    def _answer(self, vlan: int, packet: Packet, local_sender: bool) -> None:
        # An interface of IPv6 speaks for its own addresses only (RFC 4861 section 7.2.3).
        strictness = self.profile.arp_ignore if packet.target_ip.version == 4 else max(self.profile.arp_ignore, 1)
        target_is_here = packet.target_ip in self._own[vlan]
        own = {
            0: packet.target_ip in self._own_anywhere,
            1: target_is_here,
            2: target_is_here and local_sender,
        }[strictness]
        proxied = not own and self._answers_for(vlan, packet)
        asker = packet.asker
        if asker == NO_MAC:  # a solicitation may leave it out when it goes to one machine (section 4.3)
            entry = self._table.entries.get((vlan, packet.sender_ip))
            asker = entry.mac if entry else NO_MAC
        if asker == NO_MAC or not (own or proxied):
            return
        self._effects.append(Send(vlan, asker, answer(packet, self._svis[vlan].mac, proxied=proxied)))
        if proxied:
            self._tell("proxied", (vlan, packet.target_ip), mac=asker)

    def _answers_for(self, vlan: int, packet: Packet) -> bool:
        """Whether the SVI stands in for the address asked for. Never for one that the asker claims or may take."""
        if not self._svis[vlan].proxy_arp or packet.probe or packet.gratuitous:
            return False
        ip = packet.target_ip
        on_link = any(ip in address.network for address in self._svis[vlan].addresses)
        return on_link and ip != packet.sender_ip and ip not in self._own_anywhere

    def _request(self, key: Key, dst: str, entry: Entry | None = None) -> None:
        vlan, ip = key
        if entry is not None:
            entry.asked = True
        svi = self._svis[vlan]
        if ip.version == 4:
            assert svi.address is not None  # or the VLAN would not speak ARP
            source: IPAddress = svi.address.ip
        else:
            source = link_local(svi.mac)  # as Linux and others do when no packet says otherwise (section 7.2.2)
        self._effects.append(Send(vlan, dst, request(svi.mac, source, ip)))

    def _resolve(self, now: int, key: Key, waiting: Unresolved | None) -> None:
        vlan, ip = key
        held = waiting is not None and waiting.state == "held"
        if held or not self._admit("miss", self._miss_limit, now, vlan, ip.version) or not self._make_room(key):
            self._effects.append(DeleteNeighbour(*key))
            return
        self._tell("miss", key)
        asking = Unresolved("asking", 0, now)
        self._table.wait(key, asking)
        self._ask_again(key, asking, now)

    def _ask_again(self, key: Key, waiting: Unresolved, at: int) -> None:
        """The next request for an unresolved address, or the next state when there are no more."""
        if waiting.state != "asking":
            self._forget(key)
        elif waiting.requests < self.profile.resolve_attempts:
            waiting.requests += 1
            waiting.until = at + nanoseconds(self.profile.resolve_interval)
            self._request(key, BROADCAST)
        else:
            self._tell("failed", key, reason="no-answer")
            self._effects.append(DeleteNeighbour(*key))
            if self.profile.hold_down:
                waiting.state, waiting.until = "held", at + nanoseconds(self.profile.hold_down)
            elif self.profile.arp_refresh == "daemon" and self.profile.refresh_incomplete:
                waiting.state, waiting.until = "failed", at + nanoseconds(self.profile.arp_age)
            else:
                self._table.remove(key)
        self._deadlines.arm(key)

    # Ageing and refreshing

    def _deadline(self, key: Key) -> int | None:
        if key == _DAEMON:
            return self._daemon_at
        if key == _GUARD:
            return self._guard.due(self.profile)
        if (waiting := self._table.unresolved.get(key)) is not None:
            return waiting.until
        entry = self._table.entries.get(key)
        return None if entry is None else entry.deadline(self.profile)

    def _entry_due(self, key: Key, entry: Entry, at: int) -> None:
        if entry.claim is not None and entry.claim.deadline <= at:
            self._claim_due(key, entry, entry.claim, at)
        elif entry.next_probe(self.profile) == at:
            entry.probes += 1
            last = entry.probes == self.profile.refresh_probes
            cast = self.profile.refresh_cast
            to_all = cast == "broadcast" or (cast == "last-broadcast" and last)
            self._tell("refresh", key, mac=entry.mac, probe=entry.probes)
            self._request(key, BROADCAST if to_all else entry.mac, entry)
        else:
            self._tell("aged", key, mac=entry.mac)
            self._forget(key)

    def _claim_due(self, key: Key, entry: Entry, claim: Claim, at: int) -> None:
        if claim.asked == "owner":
            claim.asked, claim.deadline = "claimant", at + nanoseconds(self.profile.verify_timeout)
            self._request(key, claim.mac, entry)
        else:
            entry.claim = None
            self._tell("ignored", key, mac=claim.mac, old_mac=entry.mac, reason="claimant-silent")

    def _rearm(self) -> None:
        self._deadlines.rearm_all([_DAEMON, _GUARD, *self._table.addresses()])

    def _schedule_daemon(self, now: int) -> None:
        if self.profile.arp_refresh == "daemon":
            self._daemon_at = now + nanoseconds(self.profile.refresh_period)
            self._deadlines.arm(_DAEMON)

    def _run_daemon(self, at: int) -> None:
        cast_to_all = self.profile.refresh_cast == "broadcast"
        for family, protocol in PROTOCOLS.items():
            entries = [(key, entry) for key, entry in self._table.entries.items() if key[1].version == family]
            for key, entry in entries:
                self._request(key, BROADCAST if cast_to_all else entry.mac, entry)
            waiting = self._table.unresolved.items()
            failed = [key for key, wait in waiting if wait.state == "failed" and key[1].version == family]
            for key in failed:
                self._request(key, BROADCAST)
            if entries or failed:
                self._event(f"{protocol}.refresh", entries=len(entries) + len(failed), reason="daemon")
        self._schedule_daemon(at)

    # MAC addresses that move

    def _guard_against(self, now: int, vlan: int, mac: str, port: str) -> None:
        for disabled in self._guard.moved(now, (vlan, mac), port, self.profile):
            self._effects.append(SetPort(disabled, up=False))
            self._event("port.disabled", vlan, mac=mac, port=disabled, moves=self.profile.mac_moves)
        self._deadlines.arm(_GUARD)

    def _enable(self, ports: list[str]) -> None:
        for port in ports:
            self._effects.append(SetPort(port, up=True))
            self._event("port.enabled", port=port)

    # Bookkeeping

    def _speaks(self, vlan: int, family: Family) -> bool:
        return any(address.version == family for address in self._own.get(vlan, ()))

    def _on_link(self, vlan: int, ip: IPAddress) -> bool:
        """Whether `ip` is a neighbour's in the VLAN: one of its subnet, or link-local."""
        if not self._speaks(vlan, ip.version):
            return False
        if ip.version == 6 and ip.is_link_local:
            return True
        return any(ip in address.network for address in self._svis[vlan].addresses)

    def _addresses(self, family: Family) -> list[Key]:
        return [key for key in self._table.addresses() if key[1].version == family]

    def _forget(self, key: Key) -> Entry | None:
        entry = self._table.remove(key)
        if entry is not None and entry.blocked:
            self._effects.append(BlockLossless(*key, blocked=False))
        self._effects.append(DeleteNeighbour(*key))
        return entry

    def _block_lossless(self, key: Key, entry: Entry) -> None:
        """Lossless packets must not be flooded: the profile drops them while the FDB does not know the entry's MAC."""
        blocked = self.profile.lossless_unknown_unicast == "drop" and (key[0], entry.mac) not in self.fdb
        if blocked != entry.blocked:
            entry.blocked = blocked
            self._effects.append(BlockLossless(*key, blocked))
            self._event("lossless.blocked" if blocked else "lossless.unblocked", *key, mac=entry.mac)

    def _admit(self, what: Literal["arp", "miss"], bucket: TokenBucket, now: int, vlan: int, family: Family) -> bool:
        """Whether the CPU gets a packet. The first one lost is an event, and their number when it is over."""
        kind, lost = f"{PROTOCOLS[family]}.limited", self._limited.get((what, family), 0)
        if not bucket.take(now):
            self._limited[what, family] = lost + 1
            if not lost:
                self._event(kind, vlan, reason=f"{what}-rate", packets=1)
            return False
        if lost > 1:
            self._event(kind, vlan, reason=f"{what}-rate", packets=lost)
        self._limited[what, family] = 0
        return True

    def _ignored(self, key: Key, packet: Packet, reason: str, port: str | None = None) -> None:
        entry = self._table.entries.get(key)
        old = entry.mac if entry is not None and entry.mac != packet.sender_mac else None
        self._tell("ignored", key, mac=packet.sender_mac, old_mac=old, reason=reason, port=port)

    def _tell(self, what: str, key: Key, **fields: str | int | None) -> None:
        """Something about an address, in the words of its protocol: arp.learned, nd.learned."""
        vlan, ip = key
        self._event(f"{PROTOCOLS[ip.version]}.{what}", vlan, ip, **fields)

    def _event(
        self, kind: str, vlan: int | None = None, ip: IPAddress | None = None, **fields: str | int | None
    ) -> None:
        given = {"switch": self.switch, "vlan": vlan, "ip": None if ip is None else str(ip), **fields}
        self._effects.append(Event(kind, {name: value for name, value in given.items() if value is not None}))

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _own_addresses(svi: Svi) -> frozenset[IPAddress]:
    """What an SVI speaks for: with an IPv6 address for its link-local one too."""
    own: list[IPAddress] = [address.ip for address in svi.addresses]
    if svi.address6 is not None:
        own.append(link_local(svi.mac))
    return frozenset(own)
