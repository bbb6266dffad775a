"""
The session between the two switches of a pair: whether each hears the other, and what is still to arrive.

SONiC's is a TCP connection with a heartbeat each second. Here hellos say what has arrived, and what has not is sent
again after a hello: so no change is lost while the session is up. Times in nanoseconds.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from testbed.switch.mlag.messages import Hello, Record, Sync, pack_hello, pack_records, pack_sync
from testbed.switch.timers import SECOND, nanoseconds

HELLO_S = 1
"""SONiC: doc/mclag/Sonic-mclag-hld.md, 5.5."""
WINDOW = 64
"""Frames that are sent again after a hello."""
Loss = Literal["timeout", "unheard", "restarted"]
"""The end of a session: no hello came, the other switch hears none, or it has begun anew."""


@dataclass(slots=True)
class _Sent:
    sequence: int
    frame: bytes
    at: int


class Session:
    """`outbox` has the payloads to send. It is up if each switch hears the other's present session."""

    def __init__(self, number: int, system: str, timeout_s: float) -> None:
        self.outbox: list[bytes] = []
        self.up = False
        self.other: int | None = None
        """The other switch's number, as last heard."""
        self._number, self._system = number, system
        self._timeout = nanoseconds(timeout_s)
        self._session = 0
        self._hears = 0
        self._heard_at = 0
        self._hello_at: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._session += 1
        self._last = self._received = 0
        self._sent: deque[_Sent] = deque()

    @property
    def active(self) -> bool:
        """Return whether this switch is the active one, and not the standby; so is one that has heard no other."""
        return self.other is None or self._number < self.other

    @property
    def deadline(self) -> int | None:
        ends = self._heard_at + self._timeout if self._hears else None
        return min((at for at in (self._hello_at, ends) if at is not None), default=None)

    def start(self, now: int) -> None:
        # Another one than before a restart: the other switch would take its numbers for those of the old session.
        self._session = now // nanoseconds(0.001) & 0x7FFFFFFF or 1
        self._say_hello(now)

    def act(self, now: int) -> Loss | None:
        """Handle a deadline; return why the session has ended, if it has."""
        if self._hears and now >= self._heard_at + self._timeout:
            return self._end(now, "timeout")
        if self._hello_at is not None and now >= self._hello_at:
            self._say_hello(max(self._hello_at, now - SECOND + 1))
        return None

    def on_hello(self, now: int, hello: Hello) -> Loss | None:
        """Handle a hello; return why the session has ended, if it has. It may be up afterwards."""
        if hello.system != self._system:
            return None
        loss: Loss | None = None
        if self.up and hello.session != self._hears:
            loss = self._end(now, "restarted")
        elif self.up and hello.hears != self._session:
            loss = self._end(now, "unheard")
        answer = hello.session != self._hears
        self.other, self._hears, self._heard_at = hello.number, hello.session, now
        if hello.hears == self._session:
            answer |= not self.up
            self.up = True
            self._repeat(now, hello.received)
        if answer:
            self._say_hello(now)
        return loss

    def on_sync(self, sync: Sync) -> bytes | None:
        """Return the records of a frame if it is the next one."""
        if not self.up or sync.session != self._hears or sync.sequence != self._received + 1:
            return None
        self._received = sync.sequence
        return sync.records

    def tell(self, now: int, records: Iterable[Record]) -> None:
        for body in pack_records(records):
            self._last += 1
            frame = pack_sync(Sync(self._session, self._last, body))
            self._sent.append(_Sent(self._last, frame, now))
            self.outbox.append(frame)

    def _repeat(self, now: int, received: int) -> None:
        """Forget what has arrived, and send again what was sent longer than a hello ago."""
        while self._sent and self._sent[0].sequence <= received:
            self._sent.popleft()
        if self._sent and self._sent[0].at + nanoseconds(HELLO_S) <= now:
            for sent in list(self._sent)[:WINDOW]:
                sent.at = now
                self.outbox.append(sent.frame)

    def _say_hello(self, now: int) -> None:
        hello = Hello(self._system, self._number, self._session, self._hears, self._last, self._received)
        self.outbox.append(pack_hello(hello))
        self._hello_at = now + HELLO_S * SECOND

    def _end(self, now: int, loss: Loss) -> Loss | None:
        was, self.up, self._hears = self.up, False, 0
        self._begin()
        self._say_hello(now)
        return loss if was else None
