"""The BFD of a switch: between FRR's bfdd, which has the sessions, and the ports, which carry them out."""

import itertools
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.kernel.bfd.offload import HOPS, PACKET, SESSIONS, Arrival, Duty, Offload, PortSession
from testbed.protocol import events
from testbed.switch.bfd.control_packet import DIAGNOSTICS, ControlPacket, State, datagram, parse
from testbed.switch.bfd.dplane_protocol import (
    AddSession,
    DeleteSession,
    Messages,
    RequestCounters,
    StateChange,
    counters,
)
from testbed.switch.bfd.state_machine import Session, Settings
from testbed.topology import IPAddress

FIRST_SOURCE_PORT = 49152
"""UDP source ports from here on each belong to one session of the system (RFC 5881 section 4)."""
_READ_BYTES = 1 << 16
Report = tuple[str, dict[str, Any]]
"""The kind and the fields of an event."""
AddressOf = Callable[[int, int], IPAddress | None]
"""Returns an address of an interface, given by its index, and of an IP version."""


@dataclass
class _Peer:
    """A session with its peer, and what bfdd and the ports know of it."""

    number: int
    added: AddSession
    source: IPAddress
    session: Session
    line: PortSession
    reported: StateChange
    duty: Duty | None = None
    state: State = State.DOWN
    passed_up: int = 0
    """Packets that the ports did not expect."""

    def packet(self, packet: ControlPacket) -> bytes:
        return datagram(self.source, self.added.peer, FIRST_SOURCE_PORT + self.number, packet.pack())


class Speaker:
    """The data plane of a switch's bfdd. What it does with its input yields events of the switch."""

    def __init__(self, offload: Offload, address_of: AddressOf) -> None:
        self._offload = offload
        self._address_of = address_of
        self._peers: dict[int, _Peer] = {}
        """By local discriminator."""
        self._generations = itertools.count(1)
        self._bfdd: socket.socket | None = None
        self._messages = Messages()

    def connect(self, place: Path) -> int:
        """Connect to bfdd's socket, and return the descriptor that is readable when there may be something for
        `on_messages`."""
        self._bfdd = socket.socket(socket.AF_UNIX)
        self._bfdd.connect(str(place))
        self._bfdd.setblocking(False)
        return self._bfdd.fileno()

    def close(self) -> None:
        """Send nothing more. The peers notice by their detection time, as when a switch has lost its power."""
        for peer in self._peers.values():
            peer.line.close()
        self._peers.clear()
        if self._bfdd is not None:
            self._bfdd.close()
            self._bfdd = None

    # Inputs

    def on_messages(self) -> Iterator[Report]:
        """Carry out what bfdd orders. When its connection ends, so do the sessions."""
        assert self._bfdd is not None
        try:
            data = self._bfdd.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        for message in self._messages.take(data):
            match message:
                case AddSession():
                    yield from self._add(message)
                case DeleteSession(discriminator):
                    self._delete(discriminator)
                case RequestCounters(number, discriminator):
                    self._answer(number, discriminator)
        if not data:
            self.close()

    @property
    def connected(self) -> bool:
        return self._bfdd is not None

    def on_ports(self) -> Iterator[Report]:
        """Handle the packets that the ports did not expect, and detection times that are over."""
        for arrival in self._offload.arrivals():
            yield from self._receive(arrival)
        for number in self._offload.expired():
            for peer in self._peers.values():
                if peer.number == number:
                    peer.session.expire()
                    yield from self._carry_out(peer)

    # bfdd's orders

    def _add(self, added: AddSession) -> Iterator[Report]:
        peer = self._peers.get(added.settings.discriminator)
        if peer is None:
            source = added.source
            if source.is_unspecified:
                source = self._address_of(added.ifindex, added.peer.version) or source
            taken = {one.number for one in self._peers.values()}
            number = next((number for number in range(SESSIONS) if number not in taken), None)
            if reason := _refusal(added, source, number):
                yield _event(events.BFD_REFUSED(port=added.port, peer=str(added.peer), reason=reason))
                return
            assert number is not None
            discriminator = added.settings.discriminator
            line = self._offload.session(number, added.peer.version, discriminator, added.ifindex)
            peer = _Peer(number, added, source, Session(added.settings), line, StateChange(discriminator))
            self._peers[discriminator] = peer
        else:
            peer.added = added
            peer.session.configure(added.settings)
        yield from self._carry_out(peer)

    def _delete(self, discriminator: int) -> None:
        """End a session: the peer is told that it is on purpose (RFC 5880 section 6.8.16)."""
        if peer := self._peers.pop(discriminator, None):
            peer.session.configure(replace(peer.added.settings, shutdown=True))
            peer.line.send(peer.packet(peer.session.packet))
            peer.line.close()

    def _answer(self, number: int, discriminator: int) -> None:
        received = sent = 0
        if peer := self._peers.get(discriminator):
            received, sent = peer.line.counters()
            received += peer.passed_up
        self._tell(counters(number, discriminator, received, sent, PACKET))

    def _tell(self, message: bytes) -> None:
        assert self._bfdd is not None
        self._bfdd.setblocking(True)
        try:
            self._bfdd.sendall(message)
            self._bfdd.setblocking(False)
        except ConnectionError:  # on_messages sees the end
            pass

    # Packets

    def _receive(self, arrival: Arrival) -> Iterator[Report]:
        """Handle a packet (RFC 5880 section 6.8.6; RFC 5881 section 5)."""
        packet = parse(arrival.data)
        if packet is None or arrival.hops != HOPS:
            return
        peer = self._peers.get(packet.yours) if packet.yours else self._peer_at(arrival)
        if peer is None:
            return
        peer.passed_up += 1
        peer.line.received()
        reply = peer.session.receive(packet)
        if reply is not None:
            peer.line.send(peer.packet(reply))
        yield from self._carry_out(peer)

    def _peer_at(self, arrival: Arrival) -> _Peer | None:
        """Return the session of a packet whose sender does not know our discriminator."""
        place = arrival.ifindex, arrival.source
        return next((one for one in self._peers.values() if (one.added.ifindex, one.added.peer) == place), None)

    # Results

    def _carry_out(self, peer: _Peer) -> Iterator[Report]:
        """Have the ports and bfdd follow a session that may have changed."""
        session = peer.session
        packet = peer.packet(session.packet)
        interval = session.interval * 1000
        shortest = interval * 3 // 4
        longest = interval * 9 // 10 if peer.added.settings.multiplier == 1 else interval  # RFC 5880 section 6.8.7
        duty = Duty(packet, shortest, longest - shortest, session.detection * 1000, session.expected)
        before, peer.duty = peer.duty, duty
        if duty != before:
            changed = before is None or before.packet != packet
            peer.line.start(duty, next(self._generations), at_once=changed)
        report = _report(peer.added.settings, session)
        if report != peer.reported:
            peer.reported = report
            self._tell(report.pack())
        if session.state is not peer.state:
            state, peer.state = peer.state, session.state
            yield _event(
                events.BFD_CHANGED(
                    port=peer.added.port,
                    peer=str(peer.added.peer),
                    state=str(session.state),
                    old_state=str(state),
                    reason=DIAGNOSTICS[session.diagnostic],
                    remote_state=str(session.peer.state) if session.peer else None,
                )
            )


def _refusal(added: AddSession, source: IPAddress, number: int | None) -> str:
    """Return why the ports cannot do a session; nothing if they can."""
    if added.multihop:
        return "multihop sessions are not in the data plane"
    if not added.ifindex:
        return "it names no interface"
    if source.is_unspecified:
        return "the interface has no address"
    return f"{SESSIONS} sessions are there" if number is None else ""


def _report(settings: Settings, session: Session) -> StateChange:
    last = session.peer
    known = StateChange(settings.discriminator, session.state, session.remote_discriminator)
    if last is None:
        return known
    return replace(
        known,
        diagnostic=last.diagnostic,
        multiplier=last.multiplier,
        desired_tx=last.desired_tx,
        required_rx=last.required_rx,
        required_echo_rx=last.required_echo_rx,
        control_plane_independent=last.control_plane_independent,
        demand=last.demand,
    )


def _event(data: events.Data) -> Report:
    return data.kind_name, vars(data)
