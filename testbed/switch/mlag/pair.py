"""
One switch of a pair: its session with the other, its MACs, its port channels, its part in the LACP system.

Pure, as the control plane is: inputs are times, messages and what the bridge reports; outputs are effects.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from testbed.protocol import events
from testbed.switch.core import Event
from testbed.switch.mlag.macs import KeepMac, Macs, PlaceMac, RemoveMac
from testbed.switch.mlag.messages import Channel, Hello, Mac, Neighbour, Record, Sync, unpack, unpack_records
from testbed.switch.mlag.session import Loss, Session
from testbed.switch.profile import Profile
from testbed.topology.plan import Node


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send a payload to the other switch."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Isolate:
    """Deliver nothing of the peer link to these ports from now on, and to all others: the other switch does so."""

    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Have the port channels of the pair their own LACP system, or that of the pair again."""

    left: bool


@dataclass(frozen=True, slots=True)
class Disable:
    """Disable the members of the pair's port channels, or enable them again."""

    disabled: bool


@dataclass(frozen=True, slots=True)
class Told:
    """The other switch has heard that an address is at a MAC."""

    neighbour: Neighbour


Effect = Transmit | Isolate | Leave | Disable | Told | PlaceMac | KeepMac | RemoveMac | Event


class Pair:
    """`profile` returns the switch's profile; `heard` yields the addresses that its control plane has."""

    def __init__(self, node: Node, profile: Callable[[], Profile], heard: Callable[[], Iterable[Neighbour]]) -> None:
        assert node.mlag
        self._plan = node.mlag
        self._name = node.name
        self._profile, self._all_heard = profile, heard
        self._channels = {port.name: port.bond.mlag for port in node.bonds if port.bond and port.bond.mlag}
        self._session = Session(node.number, self._plan.system, self._plan.timeout_s)
        self._macs = Macs(self._channels, self._plan.peer_link)
        self._isolated: tuple[str, ...] = ()
        self._left = self._disabled = False
        self._cut = self._heard = False
        """The peer link went down, and the other switch has been heard since."""
        self._effects: list[Effect] = []
        self._news: list[Record] = []
        self._late: deque[tuple[int, list[Record]]] = deque()
        self.delay = 0
        """Nanoseconds by which it tells the other switch late."""

    @property
    def next_deadline(self) -> int | None:
        due = self._session.deadline, self._late[0][0] if self._late else None
        return min((at for at in due if at is not None), default=None)

    def start(self, now: int) -> list[Effect]:
        self._session.start(now)
        return self._done(now)

    def on_timer(self, now: int) -> list[Effect]:
        while (at := self._session.deadline) is not None and at <= now:
            self._ended(self._session.act(now))
        return self._done(now)

    def on_payload(self, now: int, payload: bytes) -> list[Effect]:
        match unpack(payload):
            case Hello() as hello:
                was = self._session.up
                loss = self._session.on_hello(now, hello)
                self._heard = True
                self._ended(loss)
                if self._session.up and (loss or not was):
                    self._began()
                self._protect()
            case Sync() as sync:
                for record in unpack_records(self._session.on_sync(sync) or b""):
                    self._take(record)
        return self._done(now)

    def on_fdb(
        self, now: int, vlan: int, mac: str, port: str | None, *, synced: bool = False, comes: bool = True
    ) -> list[Effect]:
        """Follow the bridge's table: a MAC is learned on a port, or is lost (None). `synced` is one that was put there;
        then `comes` says whether frames from it come."""
        if port is None:
            (self._macs.removed if synced else self._macs.lost)(vlan, mac)
        elif synced:
            self._macs.seen(vlan, mac, port, comes=comes)
        else:
            self._macs.learned(vlan, mac, port)
        return self._done(now)

    def on_settled(self, now: int) -> list[Effect]:
        """Handle that the bridge has reported all up to now."""
        self._macs.settle()
        return self._done(now)

    def on_port(self, now: int, port: str, *, up: bool) -> list[Effect]:
        """Follow a port's link."""
        if port == self._plan.peer_link:
            self._cut, self._heard = port in self._macs.up and not up, False
        if port == self._plan.peer_link or port in self._channels:
            self._macs.port_changed(port, up=up)
        if port in self._channels:
            self._news.append(Channel(self._channels[port], up))
        self._protect()
        return self._done(now)

    def on_profile(self, now: int) -> list[Effect]:
        self._protect()
        return self._done(now)

    def tell(self, now: int, neighbour: Neighbour) -> list[Effect]:
        """Tell the other switch of an address that this one has heard."""
        self._news.append(neighbour)
        return self._done(now)

    def backs(self, port: str) -> bool:
        """Return whether hosts behind a port channel that is down are reached by the other switch."""
        return self._channels.get(port) in self._macs.up_there

    def state(self) -> dict[str, Any]:
        """Return the state of the session, the role, and the port channels: whether each is up here and there."""
        up, there = self._macs.up, self._macs.up_there
        channels = [
            {"number": number, "port": port, "up": port in up, "peer_up": number in there if self._session.up else None}
            for port, number in sorted(self._channels.items(), key=lambda item: item[1])
        ]
        return {
            "peer": self._plan.peer,
            "session": "up" if self._session.up else "down",
            "role": self._role,
            "peer_link": {"port": self._plan.peer_link, "up": self._plan.peer_link in up},
            "channels": channels,
        }

    @property
    def _role(self) -> str:
        return "active" if self._session.active else "standby"

    def _take(self, record: Record) -> None:
        match record:
            case Channel(number, up):
                self._macs.channel_told(number, up=up)
            case Mac():
                self._macs.told(record)
            case Neighbour():
                self._effects.append(Told(record))

    def _began(self) -> None:
        """Tell all, and be one system with the other switch again."""
        self._emit(events.MLAG_UP(peer=self._plan.peer, role=self._role))
        ports = [Channel(number, port in self._macs.up) for port, number in self._channels.items()]
        self._news = [*ports, *self._macs.all(), *self._all_heard()]
        self._leave(False)

    def _ended(self, loss: Loss | None) -> None:
        if loss is None:
            return
        self._late.clear()
        self._emit(events.MLAG_LOST(peer=self._plan.peer, role=self._role, reason=loss))
        self._macs.session_lost()
        self._protect()
        if not self._session.active and self._profile().mlag_session_lost == "leave":
            self._leave(True)

    def _leave(self, left: bool) -> None:
        if left == self._left:
            return
        self._left = left
        self._effects.append(Leave(left))
        kind = events.MLAG_LEFT if left else events.MLAG_JOINED
        self._emit(kind(ports=[*self._channels], system=self._plan.system))

    def _protect(self) -> None:
        """Without the peer link, and with the other switch alive, the standby may have to give its hosts up."""
        standby = self._session.up and not self._session.active
        disabled = self._cut and self._heard and standby and self._profile().mlag_peer_link_down == "disable"
        if disabled != self._disabled:
            self._disabled = disabled
            self._effects.append(Disable(disabled))
            kind = events.MLAG_DISABLED if disabled else events.MLAG_ENABLED
            self._emit(kind(ports=[*self._channels]))

    def _emit(self, data: events.Data) -> None:
        self._effects.append(Event(data.kind_name, {"switch": self._name, **vars(data)}))

    def _done(self, now: int) -> list[Effect]:
        """Return the effects since the last call."""
        both = {number for port, number in self._channels.items() if port in self._macs.up} & self._macs.up_there
        isolated = tuple(port for port, number in self._channels.items() if number in both)
        alone = not self._session.up and self._profile().mlag_session_lost == "leave"
        if isolated != self._isolated and (self._session.up or alone):
            self._isolated = isolated
            self._effects.append(Isolate(isolated))
        news = [*self._news, *self._macs.news]
        changes = [*self._macs.changes]
        self._news.clear()
        self._macs.news.clear()
        self._macs.changes.clear()
        if self._session.up and news:
            self._late.append((now + self.delay, news))
        while self._late and self._late[0][0] <= now:
            self._session.tell(now, self._late.popleft()[1])
        sent = [Transmit(payload) for payload in self._session.outbox]
        self._session.outbox.clear()
        effects, self._effects = [*changes, *self._effects, *sent], []
        return effects
