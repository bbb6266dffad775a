"""
The state of a BFD session in asynchronous mode (RFC 5880 section 6.8), without its timers.

What a session sends periodically, and when it is over, are attributes: the ports carry them out. So a session learns of
events only: a packet that changes something, an expired detection time, other settings.
"""

from dataclasses import dataclass, replace

from testbed.switch.bfd.control_packet import (
    ADMINISTRATIVELY_DOWN,
    DETECTION_EXPIRED,
    NEIGHBOUR_DOWN,
    NO_DIAGNOSTIC,
    ControlPacket,
    State,
)

SLOW = 1_000_000
"""Microseconds: the shortest interval that a session may desire while it is not up (section 6.8.3)."""
_ADMIN_DOWN, _DOWN, _INIT, _UP = State
_NEXT = {
    (_DOWN, _DOWN): _INIT,
    (_DOWN, _INIT): _UP,
    (_INIT, _INIT): _UP,
    (_INIT, _UP): _UP,
    (_INIT, _ADMIN_DOWN): _DOWN,
    (_UP, _ADMIN_DOWN): _DOWN,
    (_UP, _DOWN): _DOWN,
}
"""The next state by one's own and the peer's (section 6.2); others stay."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A session's configuration. Times are in microseconds."""

    discriminator: int
    multiplier: int
    desired_tx: int
    required_rx: int
    passive: bool = False
    shutdown: bool = False
    control_plane_independent: bool = False


class Session:
    """A session. `peer` is the last packet received, None before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.state = _ADMIN_DOWN if settings.shutdown else _DOWN
        self.diagnostic = ADMINISTRATIVELY_DOWN if settings.shutdown else NO_DIAGNOSTIC
        self.remote_discriminator = 0
        self.peer: ControlPacket | None = None
        self.polling = False
        self._announced = self._in_use = self._wanted

    @property
    def _wanted(self) -> tuple[int, int]:
        """The desired transmission interval, and the required reception interval."""
        desired = self._settings.desired_tx if self.state is _UP else max(self._settings.desired_tx, SLOW)
        return desired, self._settings.required_rx

    @property
    def packet(self) -> ControlPacket:
        """The packet to send periodically."""
        return ControlPacket(
            self.state,
            self.diagnostic,
            self._settings.multiplier,
            self._settings.discriminator,
            self.remote_discriminator,
            *self._announced,
            poll=self.polling,
            control_plane_independent=self._settings.control_plane_independent,
        )

    @property
    def interval(self) -> int:
        """The microseconds between two packets, of which jitter takes up to a quarter; 0: none is sent (6.8.7)."""
        unknown = self._settings.passive and not self.remote_discriminator
        if unknown or (self.peer and not self.peer.required_rx) or self._demanded:
            return 0
        return max(self._in_use[0], self.peer.required_rx if self.peer else 0)

    @property
    def _demanded(self) -> bool:
        """Whether the peer is in demand mode, and so wants no periodic packets."""
        both_up = self.peer is not None and self.state is self.peer.state is _UP
        return both_up and self.peer is not None and self.peer.demand and not self.polling

    @property
    def detection(self) -> int:
        """The detection time in microseconds (6.8.4); 0 while the peer is not known."""
        if self.peer is None or not self.remote_discriminator:
            return 0
        return self.peer.multiplier * max(self._in_use[1], self.peer.desired_tx)

    @property
    def expected(self) -> bytes:
        """The peer's packet that would change nothing; empty if each one may."""
        if self.peer is None or self.state is _ADMIN_DOWN or (self.state, self.peer.state) in _NEXT:
            return b""
        return replace(self.peer, poll=False, final=False).pack() if self.remote_discriminator else b""

    def receive(self, packet: ControlPacket) -> ControlPacket | None:
        """Take in a packet that belongs to this session, and return the reply that is to be sent at once (6.8.6)."""
        self.peer = packet
        self.remote_discriminator = packet.mine
        if packet.final and self.polling:
            self.polling, self._in_use = False, self._announced
        if self.state is _ADMIN_DOWN:
            return None
        following = _NEXT.get((self.state, packet.state), self.state)
        if following is not self.state:
            self._enter(following, NEIGHBOUR_DOWN if following is _DOWN else NO_DIAGNOSTIC)
        return replace(self.packet, poll=False, final=True) if packet.poll else None

    def expire(self) -> None:
        """The detection time is over: forget the peer's discriminator, and go down."""
        self.remote_discriminator = 0
        if self.state in (_INIT, _UP):
            self._enter(_DOWN, DETECTION_EXPIRED)

    def configure(self, settings: Settings) -> None:
        """Take other settings; the discriminator stays."""
        before, self._settings = self._settings, settings
        if settings.shutdown and not before.shutdown:
            self._enter(_ADMIN_DOWN, ADMINISTRATIVELY_DOWN)
        elif before.shutdown and not settings.shutdown:
            self._enter(_DOWN, NO_DIAGNOSTIC)
        else:
            self._announce()

    def _enter(self, state: State, diagnostic: int) -> None:
        if state is not _INIT:  # until the session is up, the reason for the last time down stays
            self.diagnostic = diagnostic
        self.state = state
        self._announce()

    def _announce(self) -> None:
        """Announce the intervals that are wanted now. While the session is up a slower transmission and a faster
        reception wait for the end of a poll sequence (6.8.3)."""
        if self.state is not _UP:
            self.polling = False
            self._announced = self._in_use = self._wanted
        elif self._wanted != self._announced:
            self.polling = True
            self._announced = self._wanted
            (desired, required), (sending, receiving) = self._wanted, self._in_use
            self._in_use = min(sending, desired), max(receiving, required)
