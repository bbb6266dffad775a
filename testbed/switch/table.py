"""The ARP and ND table of one switch: known addresses, unresolved ones, and the bounds. Times in nanoseconds."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from testbed.switch.profile import Profile
from testbed.switch.timers import SECOND, nanoseconds
from testbed.topology.plan import Family, IPAddress

Key = tuple[int, IPAddress]
"""(VLAN, address)"""
Where = Callable[[Key, str], tuple[str, str | None]]


@dataclass(slots=True)
class Claim:
    """A changed MAC under verification: first its old owner is asked, then the claimant."""

    mac: str
    asked: Literal["owner", "claimant"]
    deadline: int


@dataclass(slots=True)
class Probing:
    """An entry that is probed out of turn, as in the states DELAY and PROBE of Linux."""

    probes: int
    deadline: int


@dataclass(slots=True)
class Entry:
    mac: str
    port: str | None
    """The MAC's port in the FDB when the entry was last confirmed."""
    confirmed: int
    probes: int = 0
    """Refresh requests since the last confirmation."""
    asked: bool = False
    """True if a request of ours is pending."""
    claim: Claim | None = None
    reachable: bool = False
    """True if an answer to a request confirmed it (Linux's REACHABLE); False if it was learned otherwise (STALE)."""
    probing: Probing | None = None
    blocked: bool = False
    """True if lossless packets for it are dropped."""
    synced: bool = False
    """True if only the other switch of a pair has heard it (MLAG)."""
    late: int = 0
    """Nanoseconds by which its deadlines moved because the CPU was out."""
    jitter: int = 0
    """Nanoseconds that it lives longer."""

    def next_probe(self, profile: Profile) -> int | None:
        if profile.arp_refresh != "probe" or self.probes >= profile.refresh_probes:
            return None
        after = profile.arp_age - profile.refresh_before + self.probes * profile.refresh_interval
        return self.confirmed + self.late + self.jitter + nanoseconds(after)

    def deadline(self, profile: Profile) -> int:
        at = self.confirmed + self.late + self.jitter + nanoseconds(profile.arp_lifetime)
        if (probe := self.next_probe(profile)) is not None:
            at = min(at, probe)
        others = [part.deadline for part in (self.claim, self.probing) if part is not None]
        return min(at, *others) if others else at


@dataclass(slots=True)
class Unresolved:
    """An address that data packets need; `until` ends the wait for an answer, or the state."""

    state: Literal["asking", "held", "failed"]
    requests: int
    until: int


class NeighbourTable:
    """An address is in `entries` (least recently confirmed first), in `unresolved`, or in neither.

    Each family has its own bounds: Linux has a table for each, and vendors a limit for each.
    """

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self.unresolved: dict[Key, Unresolved] = {}
        self.remote: dict[Key, str] = {}
        """MACs of other switches' addresses, which EVPN owns; they do not count for the bounds."""
        self._sizes: dict[tuple[int, int], int] = {}
        """Sizes by family and VLAN; VLAN 0 is the total."""

    def __contains__(self, key: Key) -> bool:
        return key in self.entries or key in self.unresolved

    def addresses(self, family: Family) -> list[Key]:
        return [key for key in (*self.entries, *self.unresolved) if key[1].version == family]

    def rows(self, now: int, family: Family, where: Where) -> list[dict[str, Any]]:
        """Return the table by VLAN and address; `age` is seconds since the entry was confirmed. `where` tells the state
        and the port of an address of the fabric, by its MAC."""
        rows = []
        remote = [key for key in self.remote if key[1].version == family]
        for key in sorted([*self.addresses(family), *remote], key=lambda key: (key[0], int(key[1]))):
            row: dict[str, Any] = {"vlan": key[0], "ip": str(key[1])}
            if key in self.remote:
                state, port = where(key, self.remote[key])
                row |= {"state": state, "mac": self.remote[key], "port": port, "age": None}
            elif (entry := self.entries.get(key)) is None:
                row |= {"state": self.unresolved[key].state, "mac": None, "port": None, "age": None}
            else:
                age = (now - entry.confirmed) / SECOND
                state = "synced" if entry.synced else "resolved"
                row |= {"state": state, "mac": entry.mac, "port": entry.port, "age": age}
            rows.append(row)
        return rows

    def learn(self, key: Key, entry: Entry) -> None:
        """Add a resolved address; it replaces an unresolved one."""
        self.remove(key)
        self.entries[key] = entry
        self._count(key, 1)

    def wait(self, key: Key, unresolved: Unresolved) -> None:
        """Add an address without a MAC."""
        self.remove(key)
        self.unresolved[key] = unresolved
        self._count(key, 1)

    def remove(self, key: Key) -> Entry | None:
        """Remove an address; return its entry, None if there was none or it was unresolved."""
        if key in self:
            self._count(key, -1)
        self.unresolved.pop(key, None)
        return self.entries.pop(key, None)

    def most_recent(self, key: Key) -> None:
        self.entries[key] = self.entries.pop(key)

    def obstacle(self, key: Key, profile: Profile) -> Key | Literal["full"] | None:
        """Return what prevents one more address: nothing, an address to remove first, or the profile. Unresolved
        addresses go before entries (Linux: neigh_forced_gc)."""
        vlan, family = key[0], key[1].version
        full = _full(profile.arp_cap, self._sizes.get((family, 0), 0))
        vlan_full = _full(profile.arp_cap_per_svi, self._sizes.get((family, vlan), 0))
        if key in self or not (full or vlan_full):
            return None
        if profile.arp_full == "refuse":
            return "full"
        not_found = (old for old, waiting in self.unresolved.items() if waiting.state != "asking")
        same = (old for old in itertools.chain(not_found, self.entries) if old[1].version == family)
        return next((old for old in same if old[0] == vlan or not vlan_full), "full")

    def _count(self, key: Key, step: int) -> None:
        for vlan in key[0], 0:
            place = key[1].version, vlan
            self._sizes[place] = self._sizes.get(place, 0) + step


def _full(bound: int | None, used: int) -> bool:
    return bound is not None and used >= bound
