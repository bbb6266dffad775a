"""
The control plane of one switch: ARP as its profile does it, and what the bridge learned.

Pure: times come in (nanoseconds of any monotonic clock), effects go out; no sockets, no clock, no randomness. Entries
age from the last ARP packet that confirmed them: unlike in Linux's NUD, data traffic neither renews nor probes them.

RFC 826 has a host merge the sender of every ARP packet into an entry it already holds, and add one only when it is the
target. The profile says where a switch departs from that.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Literal

from testbed.switch.effects import BlockLossless, DeleteNeighbour, Effect, Event, SendArp, SetNeighbour
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp, unicast
from testbed.switch.profile import Profile
from testbed.switch.table import ArpTable, Claim, Entry, Key, Unresolved
from testbed.switch.timers import Deadlines, TokenBucket, nanoseconds
from testbed.topology.plan import Svi

_DAEMON: Key = (0, IPv4Address(0))
"""Key of the refresh daemon's deadline; VLAN 0 does not exist."""


class ControlPlane:
    def __init__(self, switch: str, svis: Iterable[Svi], profile: Profile) -> None:
        self.switch = switch
        self.profile = profile
        self._svis = {svi.vlan: svi for svi in svis if svi.address is not None}
        self._own = {svi.address.ip for svi in self._svis.values() if svi.address is not None}
        self._table = ArpTable()
        self.fdb: dict[tuple[int, str], str] = {}
        """Port by VLAN and MAC, as the bridge tells it."""
        self._arp_limit = TokenBucket(profile.arp_pps)
        self._miss_limit = TokenBucket(profile.miss_pps)
        self._limited = {"arp": 0, "miss": 0}
        self._daemon_at: int | None = None
        self._deadlines: Deadlines[Key] = Deadlines(self._deadline)
        self._effects: list[Effect] = []

    # What happens to a switch

    def start(self, now: int) -> list[Effect]:
        self._schedule_daemon(now)
        if self.profile.announce:
            for vlan, svi in self._svis.items():
                assert svi.address is not None
                arp = Arp(REQUEST, svi.mac, svi.address.ip, NO_MAC, svi.address.ip)
                self._effects.append(SendArp(vlan, BROADCAST, arp))
        return self._done()

    def on_arp(self, now: int, vlan: int, arp: Arp) -> list[Effect]:
        """A packet that reached the SVI of `vlan`: broadcast, or addressed to its MAC."""
        svi = self._svis.get(vlan)
        if svi is None or svi.address is None:
            return []
        if not self._admit("arp", self._arp_limit, now, vlan):
            return self._done()
        discarded = False
        on_link = arp.sender_ip in svi.address.network
        if not arp.probe:
            if reason := self._untrustworthy(arp, on_link):
                self._event("arp.ignored", vlan, arp.sender_ip, mac=arp.sender_mac, reason=reason)
            else:
                discarded = self._learn(now, vlan, arp)
        if arp.op == REQUEST and not discarded:
            self._answer(vlan, arp, on_link or arp.probe)
        return self._done()

    def on_miss(self, now: int, vlan: int, ip: IPv4Address) -> list[Effect]:
        """The data plane holds packets for `ip` and knows no MAC. It may say so again while it waits."""
        svi = self._svis.get(vlan)
        if svi is None or svi.address is None or ip not in svi.address.network:
            return [DeleteNeighbour(vlan, ip)]
        key = (vlan, ip)
        entry, waiting = self._table.entries.get(key), self._table.unresolved.get(key)
        if entry is not None:
            self._effects.append(SetNeighbour(vlan, ip, entry.mac))
        elif waiting is None or waiting.state != "asking":
            self._resolve(now, key, waiting)
        return self._done()

    def on_fdb(self, vlan: int, mac: str, port: str | None, lost: Literal["aged", "flushed"] = "aged") -> list[Effect]:
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
        self.profile = profile
        if profile.arp_pps != self._arp_limit.per_second:
            self._arp_limit = TokenBucket(profile.arp_pps)
        if profile.miss_pps != self._miss_limit.per_second:
            self._miss_limit = TokenBucket(profile.miss_pps)
        self._daemon_at = None
        self._schedule_daemon(now)
        self._deadlines.rearm_all([_DAEMON, *self._table.addresses()])
        for key, entry in self._table.entries.items():
            self._block_lossless(key, entry)
        return self._done()

    def clear(self, vlan: int | None = None, ip: IPv4Address | None = None) -> list[Effect]:
        """Forget entries: all, or those of a VLAN, of an address."""
        for key in self._table.addresses():
            if vlan in (None, key[0]) and ip in (None, key[1]):
                entry = self._forget(key)
                self._event("arp.cleared", *key, mac=entry.mac if entry else None)
        return self._done()

    # What a switch shows

    def arp_table(self, now: int) -> list[dict[str, str | int | float | None]]:
        """By VLAN and address; `age` in seconds since the entry was confirmed."""
        table: list[dict[str, str | int | float | None]] = []
        for vlan, ip in sorted(self._table.addresses()):
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

    def _untrustworthy(self, arp: Arp, on_link: bool) -> str | None:
        if not on_link:
            return "out-of-subnet"
        if arp.sender_ip in self._own:
            return "own-address"
        return None if unicast(arp.sender_mac) else "invalid-mac"

    def _learn(self, now: int, vlan: int, arp: Arp) -> bool:
        """Merge the sender into the table; True if the profile discards the packet."""
        key = (vlan, arp.sender_ip)
        entry, waiting = self._table.entries.get(key), self._table.unresolved.get(key)
        via = "garp" if arp.gratuitous else "request" if arp.op == REQUEST else "reply"
        to_us = arp.target_ip == self._address(vlan) or (self.profile.arp_ignore == 0 and arp.target_ip in self._own)
        answer = via == "reply" and to_us and (waiting is not None or (entry is not None and entry.asked))
        merges = answer or (self.profile.garp_update if via == "garp" else self.profile.request_update)
        if entry is None:
            adds = self.profile.garp_new if via == "garp" else via == "request" and to_us
            if adds or (waiting is not None and merges):
                self._create(now, key, arp.sender_mac, via)
            elif via != "request":
                self._ignored(key, arp, f"{via}-creates-nothing")
            return False
        if arp.sender_mac == entry.mac:
            return self._same_owner(now, key, entry, arp) if merges else False
        if not merges:
            self._ignored(key, arp, f"{via}-changes-nothing")
        elif entry.claim is not None and entry.claim.mac == arp.sender_mac:
            if entry.claim.asked == "claimant" and via == "reply":
                self._update(now, key, entry, arp.sender_mac, "verified")
        elif self.profile.on_mac_change == "update":
            self._update(now, key, entry, arp.sender_mac, via)
        elif self.profile.on_mac_change == "drop":
            self._ignored(key, arp, "mac-changed")
            return True
        elif entry.claim is None:
            entry.claim = Claim(arp.sender_mac, "owner", now + nanoseconds(self.profile.verify_timeout))
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
        self._event("arp.learned", vlan, ip, mac=mac, port=entry.port, reason=via)
        self._block_lossless(key, entry)
        self._deadlines.arm(key)

    def _same_owner(self, now: int, key: Key, entry: Entry, arp: Arp) -> bool:
        port = self.fdb.get((key[0], entry.mac))
        if entry.port is not None and port is not None and port != entry.port:
            if self.profile.on_port_change == "drop":
                self._ignored(key, arp, "port-changed", port=port)
                return True
            self._event("arp.updated", *key, mac=entry.mac, port=port, old_port=entry.port, reason="port-changed")
        if entry.claim is not None:
            self._event("arp.ignored", *key, mac=entry.claim.mac, old_mac=entry.mac, reason="old-owner-answered")
        elif entry.probes:
            self._event("arp.confirmed", *key, mac=entry.mac)
        self._confirm(now, key, entry, port)
        return False

    def _update(self, now: int, key: Key, entry: Entry, mac: str, reason: str) -> None:
        vlan, ip = key
        port = self.fdb.get((vlan, mac))
        self._effects.append(SetNeighbour(vlan, ip, mac))
        self._event("arp.updated", vlan, ip, mac=mac, old_mac=entry.mac, port=port, old_port=entry.port, reason=reason)
        entry.mac, entry.port = mac, None
        self._confirm(now, key, entry, port)
        self._block_lossless(key, entry)

    def _confirm(self, now: int, key: Key, entry: Entry, port: str | None) -> None:
        entry.confirmed, entry.port = now, port or entry.port
        entry.probes, entry.asked, entry.claim = 0, False, None
        self._table.most_recent(key)

    def _make_room(self, key: Key) -> bool:
        """Whether the table may hold one more address; for it, an old entry may have to go."""
        obstacle = self._table.obstacle(key, self.profile)
        if obstacle == "full":
            self._event("arp.refused", *key, reason="table-full")
            return False
        if obstacle is not None:
            self._event("arp.evicted", *obstacle, mac=self._table.entries[obstacle].mac)
            self._forget(obstacle)
        return True

    # Answering and asking

    def _answer(self, vlan: int, arp: Arp, local_sender: bool) -> None:
        target_is_here = arp.target_ip == self._address(vlan)
        wanted = {
            0: arp.target_ip in self._own,
            1: target_is_here,
            2: target_is_here and local_sender,
        }[self.profile.arp_ignore]
        if wanted:
            reply = Arp(REPLY, self._svis[vlan].mac, arp.target_ip, arp.sender_mac, arp.sender_ip)
            self._effects.append(SendArp(vlan, arp.sender_mac, reply))

    def _request(self, key: Key, dst: str, entry: Entry | None = None) -> None:
        vlan, ip = key
        if entry is not None:
            entry.asked = True
        arp = Arp(REQUEST, self._svis[vlan].mac, self._address(vlan), NO_MAC, ip)
        self._effects.append(SendArp(vlan, dst, arp))

    def _resolve(self, now: int, key: Key, waiting: Unresolved | None) -> None:
        held = waiting is not None and waiting.state == "held"
        if held or not self._admit("miss", self._miss_limit, now, key[0]) or not self._make_room(key):
            self._effects.append(DeleteNeighbour(*key))
            return
        self._event("arp.miss", *key)
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
            self._event("arp.failed", *key, reason="no-answer")
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
            self._event("arp.refresh", *key, mac=entry.mac, probe=entry.probes)
            self._request(key, BROADCAST if to_all else entry.mac, entry)
        else:
            self._event("arp.aged", *key, mac=entry.mac)
            self._forget(key)

    def _claim_due(self, key: Key, entry: Entry, claim: Claim, at: int) -> None:
        if claim.asked == "owner":
            claim.asked, claim.deadline = "claimant", at + nanoseconds(self.profile.verify_timeout)
            self._request(key, claim.mac, entry)
        else:
            entry.claim = None
            self._event("arp.ignored", *key, mac=claim.mac, old_mac=entry.mac, reason="claimant-silent")

    def _schedule_daemon(self, now: int) -> None:
        if self.profile.arp_refresh == "daemon":
            self._daemon_at = now + nanoseconds(self.profile.refresh_period)
            self._deadlines.arm(_DAEMON)

    def _run_daemon(self, at: int) -> None:
        cast_to_all = self.profile.refresh_cast == "broadcast"
        for key, entry in self._table.entries.items():
            self._request(key, BROADCAST if cast_to_all else entry.mac, entry)
        failed = [key for key, waiting in self._table.unresolved.items() if waiting.state == "failed"]
        for key in failed:
            self._request(key, BROADCAST)
        if self._table.entries or failed:
            self._event("arp.refresh", entries=len(self._table.entries) + len(failed), reason="daemon")
        self._schedule_daemon(at)

    # Bookkeeping

    def _address(self, vlan: int) -> IPv4Address:
        address = self._svis[vlan].address
        assert address is not None  # `_svis` holds no others
        return address.ip

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

    def _admit(self, what: Literal["arp", "miss"], bucket: TokenBucket, now: int, vlan: int) -> bool:
        """Whether the CPU gets a packet. The first one lost is an event, and their number when it is over."""
        if not bucket.take(now):
            self._limited[what] += 1
            if self._limited[what] == 1:
                self._event("arp.limited", vlan, reason=f"{what}-rate", packets=1)
            return False
        if self._limited[what] > 1:
            self._event("arp.limited", vlan, reason=f"{what}-rate", packets=self._limited[what])
        self._limited[what] = 0
        return True

    def _ignored(self, key: Key, arp: Arp, reason: str, port: str | None = None) -> None:
        entry = self._table.entries.get(key)
        old = entry.mac if entry is not None and entry.mac != arp.sender_mac else None
        self._event("arp.ignored", *key, mac=arp.sender_mac, old_mac=old, reason=reason, port=port)

    def _event(
        self, kind: str, vlan: int | None = None, ip: IPv4Address | None = None, **fields: str | int | None
    ) -> None:
        given = {"switch": self.switch, "vlan": vlan, "ip": None if ip is None else str(ip), **fields}
        self._effects.append(Event(kind, {name: value for name, value in given.items() if value is not None}))

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
