"""Ways between two ranks: a queue pair, or the memory of the host that both are on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from testbed.workload.attributes import Completion
from testbed.workload.verbs import Endpoint

SLOTS = 4
"""Messages that may be under way on a queue pair, in each direction."""


class Lane(ABC):
    """A rank's end of a way to a peer, whose end is `far`. `arrived` has the places and the contents of messages that
    came."""

    def __init__(self, rank: int, peer: int) -> None:
        self.rank = rank
        self.peer = peer
        self.far: Lane
        self.arrived: deque[tuple[int, memoryview]] = deque()

    @property
    @abstractmethod
    def open(self) -> bool:
        """Return whether a message can be sent now."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Return whether all that was sent has arrived."""

    @abstractmethod
    def send(self, data: memoryview) -> bool:
        """Send a message. Return whether the peer has it already."""

    @abstractmethod
    def lend(self, place: int) -> None:
        """Return the place of a received message to the peer."""


class Memory(Lane):
    """The lane between ranks on one host, in place of NVLink or shared memory; no packets."""

    open = True
    idle = True

    def send(self, data: memoryview) -> bool:
        self.far.arrived.append((0, memoryview(bytes(data))))
        return True

    def lend(self, place: int) -> None:
        pass


class QueuePair(Lane):
    """A lane over an RC endpoint, whose memory has SLOTS places for sent messages, then as many for received ones, of
    `message` bytes each. A credit is a receive that the peer has posted and that no message was sent for."""

    far: QueuePair

    def __init__(self, rank: int, peer: int, endpoint: Endpoint, message: int) -> None:
        super().__init__(rank, peer)
        self.endpoint = endpoint
        self._message = message
        self._memory = endpoint.memory()
        self._free = deque(range(SLOTS))
        self._sends: dict[int, int] = {}
        self._receives: dict[int, int] = {}
        self._credits = 0

    def begin(self) -> None:
        """Lend all places to the peer."""
        for place in range(SLOTS):
            self.lend(place)
        self.endpoint.arrivals()

    def lend(self, place: int) -> None:
        number = self.endpoint.post_recv(self._message, offset=(SLOTS + place) * self._message)
        self._receives[number] = place
        self.far.credit()

    def credit(self) -> None:
        self._credits += 1

    @property
    def open(self) -> bool:
        """Return whether there is a place for a message here, and a receive for it there."""
        return bool(self._free) and self._credits > 0

    @property
    def idle(self) -> bool:
        return not self._sends

    def send(self, data: memoryview) -> bool:
        place = self._free.popleft()
        offset = place * self._message
        self._memory[offset : offset + len(data)] = data
        self._sends[self.endpoint.post_send(len(data), offset=offset)] = place
        self._credits -= 1
        return False

    def complete(self, completion: Completion) -> None:
        """Record the end of a send or of a receive."""
        if completion.wr_id in self._sends:
            self._free.append(self._sends.pop(completion.wr_id))
            return
        place = self._receives.pop(completion.wr_id)
        offset = (SLOTS + place) * self._message
        self.arrived.append((place, self._memory[offset : offset + completion.byte_len]))
