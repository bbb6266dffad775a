"""What switches knew and did about addresses over the time of a run, by their events."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from testbed.protocol import Event, events
from testbed.records.event_reader import happened_ns
from testbed.records.rules import NEAR_NS
from testbed.report.timeline import ENTRY_ENDS

T = TypeVar("T")


class _Changes(Generic[T]):
    """A value over time; `none` before its first change."""

    def __init__(self, *, none: T) -> None:
        self._times: list[int] = []
        self._values = [none]

    def add(self, t: int, value: T) -> None:
        at = bisect_right(self._times, t)
        self._times.insert(at, t)
        self._values.insert(at + 1, value)

    def at(self, t: int) -> T:
        return self._values[bisect_right(self._times, t)]


class Learned:
    def __init__(self, found: Iterable[Event]) -> None:
        self._entries: dict[str, dict[tuple[str, int | None], _Changes[str]]] = {}
        """By address, switch and VLAN: the MAC that EVPN has put into the table, empty for none."""
        self._behind: dict[tuple[str, int | None, str], _Changes[tuple[str, ...]]] = {}
        """By switch, VLAN and MAC: the VTEPs behind which it is."""
        self._masters: dict[str, dict[tuple[str, str], _Changes[bool]]] = {}
        """By virtual MAC, switch and address: whether the switch is master."""
        self._proxied: dict[tuple[str, str, str], list[int]] = {}
        for event in found:
            self._follow(event, happened_ns(event))

    def _follow(self, event: Event, t: int) -> None:
        switch, data = event["node"], events.read(event)
        match data:
            case events.Fdb():
                key = switch, data.vlan, data.mac
                self._behind.setdefault(key, _Changes(none=())).add(t, tuple(data.vteps or ()))
            case events.VirtualRouter():
                masters = self._masters.setdefault(data.mac, {})
                master = data.kind is events.VRRP_MASTER
                masters.setdefault((switch, data.ip), _Changes(none=False)).add(t, master)
            case events.Entry(ip=str(ip)) if data.kind is events.PROXIED:
                self._proxied.setdefault((switch, ip, data.mac), []).append(t)
            case events.Neighbour(ip=str(ip)) if data.kind in (events.LEARNED, events.UPDATED, *ENTRY_ENDS):
                remote = data.mac if isinstance(data, events.Claim) and data.reason == "evpn" else ""
                entries = self._entries.setdefault(ip, {})
                entries.setdefault((switch, data.vlan), _Changes(none="")).add(t, remote)

    def remote(self, ip: str, mac: str, t: int) -> dict[str, tuple[str, ...]]:
        """Return the switches that had an address at a MAC by EVPN, with the VTEPs behind which the MAC was."""
        found = {}
        for (switch, vlan), entry in self._entries.get(ip, {}).items():
            behind = self._behind.get((switch, vlan, mac))
            if entry.at(t) == mac and behind and (vteps := behind.at(t)):
                found[switch] = vteps
        return found

    def masters(self, mac: str, t: int) -> list[str]:
        """Return the switches that were masters of a virtual router with a MAC."""
        now = (switch for (switch, _), master in self._masters.get(mac, {}).items() if master.at(t))
        return list(dict.fromkeys(now))

    def proxied(self, switch: str, ip: str, asker: str, t: int) -> bool:
        """Return whether a switch answered an asker in the place of an address' owner then."""
        return any(abs(t - one) <= NEAR_NS for one in self._proxied.get((switch, ip, asker), ()))
