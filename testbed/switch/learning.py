"""
Learning from ARP and ND packets.

In RFC 826 a host merges the sender of every ARP packet into an existing entry, and adds an entry only if it is the
target. The profile has a switch's deviations. IPv6 works the same way: a solicitation is a request, a solicited
advertisement a reply, an unsolicited one a gratuitous ARP.
"""

from dataclasses import replace

from testbed.protocol import events
from testbed.switch.core import Core
from testbed.switch.fdb import Fdb
from testbed.switch.frames import NO_MAC, REQUEST, unicast
from testbed.switch.nd import Nd
from testbed.switch.neighbours import Neighbours
from testbed.switch.packets import Packet
from testbed.switch.table import Entry, Key


class Learning:
    def __init__(self, core: Core, fdb: Fdb, neighbours: Neighbours) -> None:
        self._core = core
        self._fdb = fdb
        self._neighbours = neighbours

    def learn(self, now: int, vlan: int, packet: Packet) -> bool:
        """Merge a packet's sender into the table; return True if the profile discards the packet."""
        packet = self._with_mac(vlan, packet)
        if packet.probe:
            return False
        key = (vlan, packet.sender_ip)
        if self._is_announced(key, packet) or self._is_ours(key, packet):
            return False
        if reason := self._untrustworthy(vlan, packet):
            self._core.emit_of(key, events.IGNORED(mac=packet.sender_mac, reason=reason))
            return False
        entry = self._neighbours.table.entries.get(key)
        via = "garp" if packet.gratuitous else "request" if packet.op == REQUEST else "reply"
        merges = self._merges(key, packet, via)
        if (remote := self._neighbours.table.remote.get(key)) is not None:
            self._claim(now, key, packet, via, remote)
        elif entry is None:
            self._add(now, key, packet, via, merges)
        elif packet.sender_mac != entry.mac:
            return self._other_owner(now, key, entry, packet, via, merges)
        elif merges:
            return self._same_owner(now, key, entry, packet, via)
        return False

    def _is_announced(self, key: Key, packet: Packet) -> bool:
        """Return whether a packet came from another switch, which announces its sender. An answer to a request of this
        switch counts: the other one may not have heard it."""
        if self._core.svis.network(key[0]) is None or self._fdb.is_local(key[0], packet.sender_mac):
            return False
        entry = self._neighbours.table.entries.get(key)
        asked = key in self._neighbours.table.unresolved or (entry is not None and entry.asked)
        return not (asked and packet.op != REQUEST and self._to_us(key[0], packet))

    def _is_ours(self, key: Key, packet: Packet) -> bool:
        """Return whether a packet is from the other switch of a pair, as the gateway that both are."""
        svis = self._core.svis
        ours = self._core.paired and svis.owns(packet.sender_ip, key[0])
        return ours and svis.mac_of(*key) == packet.sender_mac

    def _with_mac(self, vlan: int, packet: Packet) -> Packet:
        """Fill in the MAC that a solicited advertisement may omit in answer to a unicast solicitation, as Linux does
        (RFC 4861 section 4.4): the machine that was asked has answered."""
        entry = self._neighbours.table.entries.get((vlan, packet.sender_ip))
        if not isinstance(packet, Nd) or not packet.solicited or packet.sender_mac != NO_MAC or entry is None:
            return packet
        claim = entry.claim
        asked = claim.mac if claim is not None and claim.asked == "claimant" else entry.mac
        return replace(packet, sender_mac=asked, override=True)

    def _untrustworthy(self, vlan: int, packet: Packet) -> str | None:
        if not self._core.svis.on_link(vlan, packet.sender_ip):
            return "out-of-subnet"
        if self._core.svis.owns(packet.sender_ip):
            return "own-address"
        return None if unicast(packet.sender_mac) else "invalid-mac"

    def _to_us(self, vlan: int, packet: Packet) -> bool:
        return self._core.svis.owns(packet.target_ip, None if self._core.profile.arp_ignore == 0 else vlan)

    def _answers(self, vlan: int, packet: Packet, via: str) -> bool:
        return via == "reply" and self._to_us(vlan, packet)

    def _merges(self, key: Key, packet: Packet, via: str) -> bool:
        """Return whether the packet may change or confirm an entry, or resolve an address."""
        profile, table = self._core.profile, self._neighbours.table
        if self._answers(key[0], packet, via):
            entry = table.entries.get(key)
            if key in table.unresolved or (entry is not None and entry.asked):
                return True
        return profile.garp_update if via == "garp" else profile.request_update

    def _claim(self, now: int, key: Key, packet: Packet, via: str, remote: str) -> None:
        """Handle a packet of a host here from an address of another switch."""
        if remote != packet.sender_mac and self._core.profile.evpn_claim == "keep":
            self._ignore(key, packet, "remote")
        else:
            answered = self._answers(key[0], packet, via)
            self._neighbours.create(now, key, packet.sender_mac, via, answered=answered)

    def _add(self, now: int, key: Key, packet: Packet, via: str, merges: bool) -> None:
        adds = self._core.profile.garp_new if via == "garp" else via == "request" and self._to_us(key[0], packet)
        adds |= self._core.svis.network(key[0]) is not None
        # The other switch of the pair has asked, and a hash has led the answer here.
        adds |= self._core.paired and self._answers(key[0], packet, via)
        if adds or (key in self._neighbours.table.unresolved and merges):
            answered = self._answers(key[0], packet, via)
            self._neighbours.create(now, key, packet.sender_mac, via, answered=answered)
        elif via != "request":
            self._ignore(key, packet, f"{via}-creates-nothing")

    def _same_owner(self, now: int, key: Key, entry: Entry, packet: Packet, via: str) -> bool:
        port = self._fdb.port(key[0], entry.mac)
        if entry.port is not None and port is not None and port != entry.port:
            if self._core.profile.on_port_change == "drop":
                self._ignore(key, packet, "port-changed", port=port)
                return True
            moved = events.UPDATED(mac=entry.mac, port=port, old_port=entry.port, reason="port-changed")
            self._core.emit_of(key, moved)
        if entry.claim is not None:
            ignored = events.IGNORED(mac=entry.claim.mac, old_mac=entry.mac, reason="old-owner-answered")
            self._core.emit_of(key, ignored)
        elif entry.probes:
            self._core.emit_of(key, events.CONFIRMED(mac=entry.mac))
        self._neighbours.confirm(now, key, entry, port, answered=self._answers(key[0], packet, via))
        return False

    def _other_owner(self, now: int, key: Key, entry: Entry, packet: Packet, via: str, merges: bool) -> bool:
        profile, mac, answered = self._core.profile, packet.sender_mac, self._answers(key[0], packet, via)
        if not merges:
            self._ignore(key, packet, f"{via}-changes-nothing")
        elif not packet.override:
            self._ignore(key, packet, "no-override")
        elif entry.claim is not None and entry.claim.mac == mac:
            if entry.claim.asked == "claimant" and via == "reply":
                self._neighbours.update(now, key, entry, mac, "verified", answered=answered)
        elif profile.on_mac_change == "update":
            self._neighbours.update(now, key, entry, mac, via, answered=answered)
        elif profile.on_mac_change == "drop":
            self._ignore(key, packet, "mac-changed")
            return True
        elif entry.claim is None:
            self._neighbours.verify(now, key, entry, mac)
        return False

    def _ignore(self, key: Key, packet: Packet, reason: str, port: str | None = None) -> None:
        entry = self._neighbours.table.entries.get(key)
        old = entry.mac if entry is not None and entry.mac != packet.sender_mac else None
        self._core.emit_of(key, events.IGNORED(mac=packet.sender_mac, old_mac=old, reason=reason, port=port))
