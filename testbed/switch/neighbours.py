"""
The ARP and ND entries of one switch: created, confirmed, requested, aged and removed according to its profile.

Entries age from the last packet that confirmed them: unlike in Linux's NUD, data traffic neither renews nor probes
them. Each action counts from its own deadline, so a late call does not shift later ones.
"""

from testbed.protocol import events
from testbed.switch.core import BlockLossless, Core, CpuLimit, DeleteNeighbour, Heard, SetNeighbour
from testbed.switch.fdb import Fdb
from testbed.switch.frames import BROADCAST
from testbed.switch.table import Claim, Entry, Key, NeighbourTable, Probing, Unresolved
from testbed.switch.timers import Deadlines, nanoseconds
from testbed.topology.plan import FAMILIES, Family, IPAddress

PROBE_DELAY_S, PROBES, PROBE_INTERVAL_S = 5, 3, 1
"""Linux's delay_first_probe_time, ucast_solicit and retrans_time_ms."""


class Neighbours:
    def __init__(self, core: Core, fdb: Fdb) -> None:
        self.table = NeighbourTable()
        self.miss_limit = CpuLimit(core, "miss-rate", core.profile.miss_pps)
        self._core = core
        self._fdb = fdb
        self._deadlines: Deadlines[Key] = Deadlines(self._deadline)
        self._not_asked: set[Key] = set()
        """Addresses that are not asked for (`Profile.miss`), each reported once."""

    # Entries

    def create(self, now: int, key: Key, mac: str, via: str, *, answered: bool) -> None:
        """Add an address that is unknown, unresolved or another switch's, if the table may hold it."""
        if not self._make_room(key):
            return
        most = self._core.profile.arp_jitter
        jitter = nanoseconds(most * self._core.draw()) if most else 0
        entry = Entry(mac, self._fdb.port(key[0], mac), now, jitter=jitter, reachable=answered)
        remote = self.table.remote.pop(key, None)
        self.table.learn(key, entry)
        self._not_asked.discard(key)
        self._core.do(SetNeighbour(*key, mac))
        if remote is None:
            self._core.emit_of(key, events.LEARNED(mac=mac, port=entry.port, reason=via))
        else:
            old_port = self._core.svis.network(key[0])
            updated = events.UPDATED(mac=mac, old_mac=remote, port=entry.port, old_port=old_port, reason=via)
            self._core.emit_of(key, updated)
        self._block_lossless(key, entry)
        self._deadlines.arm(key)

    def update(self, now: int, key: Key, entry: Entry, mac: str, reason: str, *, answered: bool) -> None:
        """Give an entry another MAC."""
        port = self._fdb.port(key[0], mac)
        self._core.do(SetNeighbour(*key, mac))
        updated = events.UPDATED(mac=mac, old_mac=entry.mac, port=port, old_port=entry.port, reason=reason)
        self._core.emit_of(key, updated)
        entry.mac, entry.port, entry.reachable, entry.probing = mac, None, False, None
        self.confirm(now, key, entry, port, answered=answered)
        self._block_lossless(key, entry)

    def confirm(self, now: int, key: Key, entry: Entry, port: str | None, *, answered: bool) -> None:
        """Restart an entry's age; `answered` by its owner on request, or by something else from it."""
        if answered:
            entry.reachable, entry.probing = True, None
        entry.confirmed, entry.port = now, port or entry.port
        entry.probes, entry.asked, entry.claim, entry.late = 0, False, None, 0
        entry.synced = False
        self.table.most_recent(key)
        self._deadlines.arm(key)

    def report(self, now: int, key: Key) -> None:
        """Report an address that a packet has just made or confirmed."""
        entry = self.table.entries.get(key)
        if entry is not None and entry.confirmed == now:
            self._core.do(Heard(*key, entry.mac))

    def take(self, now: int, key: Key, mac: str) -> None:
        """Take over what the other switch of a pair has heard of an address; it lives while either hears it."""
        entry = self.table.entries.get(key)
        synced = entry is None or entry.synced or entry.mac != mac
        if entry is None:
            self.create(now, key, mac, "mlag", answered=False)
        elif entry.mac != mac:
            self.update(now, key, entry, mac, "mlag", answered=False)
        else:
            self.confirm(now, key, entry, self._fdb.port(key[0], mac), answered=False)
        if (entry := self.table.entries.get(key)) is not None:
            entry.synced = synced

    def verify(self, now: int, key: Key, entry: Entry, mac: str) -> None:
        """Verify a changed MAC: ask the old owner first."""
        entry.claim = Claim(mac, "owner", now + nanoseconds(self._core.profile.verify_timeout))
        self.request(key, entry.mac, entry)
        self._deadlines.arm(key)

    def clear(self, family: Family, vlan: int | None, ip: IPAddress | None, reason: str | None = None) -> None:
        for key in self.table.addresses(family):
            if vlan in (None, key[0]) and ip in (None, key[1]):
                entry = self._forget(key)
                self._core.emit_of(key, events.CLEARED(mac=entry.mac if entry else None, reason=reason))

    def follow_fdb(self, vlan: int, mac: str) -> None:
        """Follow a MAC that the FDB learned or lost."""
        if self._core.profile.lossless_unknown_unicast == "drop":
            for key, entry in self.table.entries.items():
                if (key[0], entry.mac) == (vlan, mac):
                    self._block_lossless(key, entry)

    def follow_fabric(self, key: Key, mac: str | None) -> None:
        """Follow an address of another switch, which EVPN has put into the kernel's table or withdrawn (None). The
        kernel has it instead of an entry of this switch."""
        remote, own = self.table.remote, self.table.entries.get(key)
        if mac is None:
            if old := remote.pop(key, None):
                self._core.emit_of(key, events.CLEARED(mac=old, reason="evpn"))
            return
        before, port = own.mac if own else remote.get(key), self._core.svis.network(key[0])
        self.table.remove(key)
        remote[key] = mac
        if before is None:
            self._core.emit_of(key, events.LEARNED(mac=mac, port=port, reason="evpn"))
        elif own or before != mac:
            old_port = own.port if own else port
            updated = events.UPDATED(mac=mac, old_mac=before, port=port, old_port=old_port, reason="evpn")
            self._core.emit_of(key, updated)

    def where(self, key: Key, mac: str) -> tuple[str, str | None]:
        """Return the state and the port of an address that EVPN owns: that of a host here which another switch of its
        Ethernet segment has heard is `synced`."""
        if self._fdb.is_local(key[0], mac):
            return "synced", self._fdb.port(key[0], mac)
        return "remote", self._core.svis.network(key[0])

    def port_down(self, now: int, port: str) -> None:
        """Handle a port that has no link any more: the profile says what becomes of the entries behind it."""
        action = self._core.profile.port_down
        behind = [(key, entry) for key, entry in self.table.entries.items() if entry.port == port]
        for key, entry in behind if action != "keep" else ():
            if action == "purge":
                self._forget(key)
                self._core.emit_of(key, events.CLEARED(mac=entry.mac, reason="port-down"))
            elif not entry.reachable and entry.probing is None:
                entry.probing = Probing(0, now + nanoseconds(PROBE_DELAY_S))
                self._deadlines.arm(key)

    def _forget(self, key: Key) -> Entry | None:
        entry = self.table.remove(key)
        if entry is not None and entry.blocked:
            self._core.do(BlockLossless(*key, blocked=False))
        self._core.do(DeleteNeighbour(*key))
        return entry

    def _make_room(self, key: Key) -> bool:
        """Return whether the table may hold one more address; remove old ones first, several after a lowered bound."""
        while (obstacle := self.table.obstacle(key, self._core.profile)) is not None:
            if obstacle == "full":
                self._core.emit_of(key, events.REFUSED(reason="table-full"))
                return False
            entry = self._forget(obstacle)
            evicted = events.EVICTED(mac=entry.mac) if entry else events.EVICTED(reason="not-found")
            self._core.emit_of(obstacle, evicted)
        return True

    def _block_lossless(self, key: Key, entry: Entry) -> None:
        """Block lossless packets, never to be flooded, while the FDB lacks the entry's MAC, if the profile says so."""
        unknown = self._fdb.port(key[0], entry.mac) is None
        blocked = self._core.profile.lossless_unknown_unicast == "drop" and unknown
        if blocked != entry.blocked:
            entry.blocked = blocked
            self._core.do(BlockLossless(*key, blocked))
            kind = events.BLOCKED if blocked else events.UNBLOCKED
            self._core.emit(kind(vlan=key[0], ip=str(key[1]), mac=entry.mac))

    # Requests

    def request(self, key: Key, dst: str, entry: Entry | None = None) -> None:
        """Send a request for an address; `entry` is the table's entry for it."""
        if entry is not None:
            entry.asked = True
        self._core.do(self._core.svis.request(key, dst))

    def resolve(self, now: int, key: Key) -> None:
        """Handle that the data plane holds packets for an address without a MAC. It may repeat that meanwhile."""
        waiting = self.table.unresolved.get(key)
        if key in self.table.remote:
            return
        if (entry := self.table.entries.get(key)) is not None:
            self._core.do(SetNeighbour(*key, entry.mac))
        elif waiting is not None and waiting.state == "asking":
            return
        elif self._core.profile.miss == "drop":
            self._core.do(DeleteNeighbour(*key))
            if key not in self._not_asked:
                self._not_asked.add(key)
                self._core.emit_of(key, events.UNASKED())
        elif (
            (waiting is not None and waiting.state == "held")
            or not self.miss_limit.admits(now, key[0], key[1].version)
            or not self._make_room(key)
        ):
            self._core.do(DeleteNeighbour(*key))
        else:
            self._core.emit_of(key, events.MISS())
            asking = Unresolved("asking", 0, now)
            self.table.wait(key, asking)
            self._ask_again(key, asking, now)

    def _ask_again(self, key: Key, waiting: Unresolved, at: int) -> None:
        """Send the next request for an unresolved address, or change to the next state when there are no more."""
        profile = self._core.profile
        if waiting.state != "asking":
            self._forget(key)
        elif waiting.requests < profile.resolve_attempts:
            waiting.requests += 1
            waiting.until = at + nanoseconds(profile.resolve_interval)
            self.request(key, BROADCAST)
        else:
            self._give_up(key, at)
        self._deadlines.arm(key)

    def _give_up(self, key: Key, at: int) -> None:
        """Handle that the last request for an address has no answer."""
        profile = self._core.profile
        self._core.emit_of(key, events.FAILED(reason="no-answer"))
        self._forget(key)
        if profile.hold_down:
            self.table.wait(key, Unresolved("held", 0, at + nanoseconds(profile.hold_down)))
        elif profile.arp_refresh == "daemon" and profile.refresh_incomplete:
            self.table.wait(key, Unresolved("failed", 0, at + nanoseconds(profile.arp_age)))

    # Time

    @property
    def deadline(self) -> int | None:
        due = self._deadlines.next()
        return None if due is None else due[0]

    def act(self, at: int) -> None:
        """Handle the expired deadline of an address."""
        due = self._deadlines.next()
        assert due is not None
        key = due[1]
        if (entry := self.table.entries.get(key)) is not None:
            self._entry_due(key, entry, at)
        else:
            self._ask_again(key, self.table.unresolved[key], at)

    def profile_changed(self) -> None:
        self.miss_limit.change(self._core.profile.miss_pps)
        if self._core.profile.miss != "drop":
            self._not_asked.clear()
        self._rearm()
        for key, entry in self.table.entries.items():
            self._block_lossless(key, entry)

    def resume(self, now: int, since: int) -> None:
        """Postpone deadlines that passed while the CPU was out."""
        for waiting in self.table.unresolved.values():
            waiting.until = max(waiting.until, now)
        for entry in self.table.entries.values():
            if (probe := entry.next_probe(self._core.profile)) is not None:
                entry.late += max(0, now - max(probe, since))
            for part in (entry.claim, entry.probing):
                if part is not None:
                    part.deadline = max(part.deadline, now)
        self._rearm()

    def restart(self, now: int) -> None:
        """Restart with the entries from before a warm reboot; see `ControlPlane.restart`."""
        for key in list(self.table.unresolved):
            self._forget(key)
        for key, entry in self.table.entries.items():
            entry.confirmed, entry.probes, entry.claim, entry.late = now, 0, None, 0
            entry.reachable, entry.probing = False, None
            self.request(key, BROADCAST, entry)
        self._rearm()
        for family in FAMILIES:
            if restored := sum(key[1].version == family for key in self.table.entries):
                self._core.emit(events.RESTORED(entries=restored), family)

    def _rearm(self) -> None:
        self._deadlines.rearm_all([*self.table.entries, *self.table.unresolved])

    def _deadline(self, key: Key) -> int | None:
        if (waiting := self.table.unresolved.get(key)) is not None:
            return waiting.until
        entry = self.table.entries.get(key)
        return None if entry is None else entry.deadline(self._core.profile)

    def _entry_due(self, key: Key, entry: Entry, at: int) -> None:
        profile = self._core.profile
        if entry.claim is not None and entry.claim.deadline <= at:
            self._claim_due(key, entry, entry.claim, at)
        elif entry.probing is not None and entry.probing.deadline <= at:
            self._probing_due(key, entry, entry.probing, at)
        elif entry.next_probe(profile) == at:
            entry.probes += 1
            last = entry.probes == profile.refresh_probes
            to_all = profile.refresh_cast == "broadcast" or (profile.refresh_cast == "last-broadcast" and last)
            self._core.emit_of(key, events.REFRESH(mac=entry.mac, probe=entry.probes))
            self.request(key, BROADCAST if to_all else entry.mac, entry)
        else:
            self._core.emit_of(key, events.AGED(mac=entry.mac))
            self._forget(key)

    def _claim_due(self, key: Key, entry: Entry, claim: Claim, at: int) -> None:
        if claim.asked == "owner":
            claim.asked, claim.deadline = "claimant", at + nanoseconds(self._core.profile.verify_timeout)
            self.request(key, claim.mac, entry)
        else:
            entry.claim = None
            ignored = events.IGNORED(mac=claim.mac, old_mac=entry.mac, reason="claimant-silent")
            self._core.emit_of(key, ignored)

    def _probing_due(self, key: Key, entry: Entry, probing: Probing, at: int) -> None:
        if probing.probes == PROBES:
            self._give_up(key, at)
            self._deadlines.arm(key)
            return
        probing.probes += 1
        probing.deadline = at + nanoseconds(PROBE_INTERVAL_S)
        self._core.emit_of(key, events.REFRESH(mac=entry.mac, probe=probing.probes))
        self.request(key, entry.mac, entry)


class RefreshDaemon:
    """SONiC's refresh of entries (arp_update): it requests all of them every `refresh_period`. `deadline` is the time
    of its next round; None if the profile has no such daemon."""

    def __init__(self, core: Core, neighbours: Neighbours) -> None:
        self.deadline: int | None = None
        self._core = core
        self._neighbours = neighbours

    def start(self, now: int) -> None:
        """Count the time to the next round from now on."""
        daemon = self._core.profile.arp_refresh == "daemon"
        self.deadline = now + nanoseconds(self._core.profile.refresh_period) if daemon else None

    def resume(self, now: int) -> None:
        if self.deadline is not None:
            self.deadline = max(self.deadline, now)

    def act(self, at: int) -> None:
        table = self._neighbours.table
        to_all = self._core.profile.refresh_cast == "broadcast"
        for family in FAMILIES:
            entries = [(key, entry) for key, entry in table.entries.items() if key[1].version == family]
            for key, entry in entries:
                self._neighbours.request(key, BROADCAST if to_all else entry.mac, entry)
            unresolved = table.unresolved.items()
            failed = [key for key, wait in unresolved if wait.state == "failed" and key[1].version == family]
            for key in failed:
                self._neighbours.request(key, BROADCAST)
            if entries or failed:
                self._core.emit(events.REFRESH(entries=len(entries) + len(failed), reason="daemon"), family)
        self.start(at)
