"""
The MACs of a pair's two switches, as one of them has them: each lives while either switch sees it.

SONiC's iccpd has two flags for each MAC, "aged here" and "aged there", and deletes one with both. A MAC that this
switch sees is the bridge's own entry. One that only the other switch sees is put into the bridge: on the port channel
that both have, or on the peer link if that port channel is down, or if it is on an orphan port, which has no partner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.switch.fdb import Flow
from testbed.switch.mlag.messages import Mac


@dataclass(frozen=True, slots=True)
class PlaceMac:
    """Put a MAC of the other switch on a port."""

    vlan: int
    mac: str
    port: str


@dataclass(frozen=True, slots=True)
class KeepMac:
    """Have a MAC on a port as one that has just been learned there."""

    vlan: int
    mac: str
    port: str


@dataclass(frozen=True, slots=True)
class RemoveMac:
    """Remove a MAC that was put on a port."""

    vlan: int
    mac: str
    port: str


Change = PlaceMac | KeepMac | RemoveMac


@dataclass(slots=True)
class _Known:
    channel: int = 0
    """The number of the port channel that both switches have; 0: an orphan port."""
    here: bool = False
    there: bool = False
    placed: str = ""
    """The port on which it was put."""


class Macs:
    """`changes` are for the bridge, `news` for the other switch. `channels` has the numbers of port channels."""

    def __init__(self, channels: Mapping[str, int], peer_link: str) -> None:
        self.changes: list[Change] = []
        self.news: list[Mac] = []
        self.up: set[str] = set()
        """Ports that are up: port channels with a number, and the peer link."""
        self.up_there: set[int] = set()
        """Numbers of the other switch's port channels that are up."""
        self._channels = channels
        self._ports = {number: port for port, number in channels.items()}
        self._peer_link = peer_link
        self._known: dict[Flow, _Known] = {}
        self._lost: list[Flow] = []
        """Those that the bridge has just lost."""

    # What the bridge reports

    def learned(self, vlan: int, mac: str, port: str) -> None:
        """The bridge has learned a MAC on a port, or an entry has followed its frames there."""
        if port == self._peer_link:
            return
        known, channel = self._known.setdefault((vlan, mac), _Known()), self._channels.get(port, 0)
        if known.placed:
            known.placed = ""
            self.changes.append(KeepMac(vlan, mac, port))
        new = not known.here or known.channel != channel
        if channel != known.channel or not channel:
            known.there = False
        known.here, known.channel = True, channel
        if new:
            self.news.append(Mac(vlan, mac, channel, present=True))

    def seen(self, vlan: int, mac: str, port: str, *, comes: bool) -> None:
        """Frames of a MAC that was put on a port come there from now on, or come no longer."""
        known = self._known.get((vlan, mac))
        if known is None or not known.placed:
            return
        if port != known.placed:
            if comes and (port in self.up or port not in self._channels):
                self.learned(vlan, mac, port)
        elif comes != known.here:
            known.here = comes
            self.news.append(Mac(vlan, mac, known.channel, present=comes))
            self._settle((vlan, mac), known)

    def lost(self, vlan: int, mac: str) -> None:
        """The bridge has lost a MAC that it had learned. If a port that goes down is the reason, it reports that after
        the loss, and before `settle`: then the MAC is on its other link."""
        self._lost.append((vlan, mac))

    def settle(self) -> None:
        """Handle losses, after all that the bridge has reported with them."""
        lost, self._lost = self._lost, []
        for flow in lost:
            known = self._known.get(flow)
            if known is not None and known.here and not known.placed:
                known.here = False
                self.news.append(Mac(*flow, known.channel, present=False))
                self._settle(flow, known)

    def removed(self, vlan: int, mac: str) -> None:
        """Somebody else has removed a MAC that was put on a port: put it there again."""
        known = self._known.get((vlan, mac))
        if known is not None and known.placed:
            known.here = False
            self.changes.append(PlaceMac(vlan, mac, known.placed))

    def port_changed(self, port: str, *, up: bool) -> None:
        """A port channel with a number, or the peer link, has come up or gone down."""
        (self.up.add if up else self.up.discard)(port)
        number = self._channels.get(port)
        for flow, known in self._of(number) if number else list(self._known.items()):
            if number and not up and known.here:
                known.here, known.there = False, known.there or number in self.up_there
            self._settle(flow, known)

    # What the other switch says

    def told(self, told: Mac) -> None:
        flow = told.vlan, told.mac
        if not told.present and flow not in self._known:
            return
        known = self._known.setdefault(flow, _Known())
        known.there = told.present
        if told.present:
            if told.channel != known.channel or not told.channel:
                known.here = False
            known.channel = told.channel
        self._settle(flow, known)

    def channel_told(self, number: int, *, up: bool) -> None:
        """Follow a port channel of the other switch: what is behind one that is down is behind this switch's only."""
        (self.up_there.add if up else self.up_there.discard)(number)
        for flow, known in () if up else self._of(number):
            self._take_over(flow, known)
        for flow, known in self._of(number) if up else ():
            self._settle(flow, known)

    def session_lost(self) -> None:
        """Go on alone, as SONiC does: what is behind a common port channel stays there, the rest goes."""
        self.up_there.clear()
        for flow, known in list(self._known.items()):
            self._take_over(flow, known)

    def all(self) -> Iterator[Mac]:
        """Yield what this switch sees."""
        for (vlan, mac), known in self._known.items():
            if known.here:
                yield Mac(vlan, mac, known.channel, present=True)

    def _of(self, number: int) -> list[tuple[Flow, _Known]]:
        return [(flow, known) for flow, known in self._known.items() if known.channel == number]

    def _take_over(self, flow: Flow, known: _Known) -> None:
        port = self._ports.get(known.channel, "")
        if known.there and port in self.up and known.placed == port:
            known.placed, known.here = "", True
            self.changes.append(KeepMac(*flow, port))
        known.there = False
        self._settle(flow, known)

    def _place(self, known: _Known) -> str:
        """Return the port on which a MAC that the other switch sees belongs; empty while there is none."""
        port = self._ports.get(known.channel, "")
        if port in self.up:
            return port
        return self._peer_link if self._peer_link in self.up else ""

    def _settle(self, flow: Flow, known: _Known) -> None:
        if known.here and not known.placed:
            return
        place = self._place(known) if known.there or known.here else ""
        if place != known.placed:
            self.changes.append(PlaceMac(*flow, place) if place else RemoveMac(*flow, known.placed))
            known.placed = place
        if not (known.there or known.here):
            del self._known[flow]
