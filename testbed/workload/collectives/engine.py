"""The messages of a collective: queue pairs between ranks, and the ranks' steps, side by side in one thread.

A rank's receives are posted before its peer sends, as NCCL's clear-to-send has it, so nobody meets RNR. That a receive
is posted is known here as Python objects are: on the wire are the elements alone.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.errors import DeadlineError, TestbedError
from testbed.lab.processes import Ready
from testbed.workload.collectives.algorithms import Receive, Send, Span, Step
from testbed.workload.completion import Completion
from testbed.workload.verbs import Endpoint

if TYPE_CHECKING:
    import numpy as np

Combine = Callable[[memoryview, memoryview], object]
"""Combines the elements in the first one with those in the second."""
SLOTS = 4
"""Messages that may be under way on a queue pair, in each direction."""


class CollectiveError(TestbedError):
    """A rank's message failed. `rank` and `peer` are numbers, `status` is the completion's."""

    def __init__(self, message: str, rank: int, peer: int, status: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.peer = peer
        self.status = status


class Lane:
    """A rank's end of a queue pair to a peer. Its memory has SLOTS places for what is sent, then as many for what
    comes."""

    def __init__(self, rank: int, peer: int, endpoint: Endpoint, message: int) -> None:
        self.rank = rank
        self.peer = peer
        self.endpoint = endpoint
        self.far: Lane
        self.arrived: deque[tuple[int, memoryview]] = deque()
        """The places of messages that came, and what is in them."""
        self._message = message
        self._memory = endpoint.memory()
        self._free = deque(range(SLOTS))
        self._sends: dict[int, int] = {}
        self._receives: dict[int, int] = {}
        self._sent = self._lent = 0

    def begin(self) -> None:
        """Lend all places to the peer."""
        for place in range(SLOTS):
            self.lend(place)
        self.endpoint.arrivals()

    def lend(self, place: int) -> None:
        """Post a receive into a place."""
        number = self.endpoint.post_recv(self._message, offset=(SLOTS + place) * self._message)
        self._receives[number] = place
        self._lent += 1

    @property
    def open(self) -> bool:
        """Whether there is a place for a message here, and a receive for it there."""
        return bool(self._free) and self._sent < self.far._lent

    @property
    def idle(self) -> bool:
        """Whether all that was sent is acknowledged."""
        return not self._sends

    def send(self, data: memoryview) -> None:
        place = self._free.popleft()
        offset = place * self._message
        self._memory[offset : offset + len(data)] = data
        self._sends[self.endpoint.post_send(len(data), offset=offset)] = place
        self._sent += 1

    def take(self, completion: Completion) -> None:
        """Note the end of a send or of a receive."""
        if completion.wr_id in self._sends:
            self._free.append(self._sends.pop(completion.wr_id))
            return
        place = self._receives.pop(completion.wr_id)
        offset = (SLOTS + place) * self._message
        self.arrived.append((place, self._memory[offset : offset + completion.byte_len]))


@dataclass(slots=True)
class Moving:
    """A send or a receive while its messages are under way: the bytes from `at` on are still to come."""

    act: Send | Receive
    lanes: Sequence[Lane]
    data: memoryview
    at: int = 0
    messages: int = 0

    @property
    def lane(self) -> Lane:
        """The queue pair of the next message: each has its turn."""
        return self.lanes[self.messages % len(self.lanes)]

    def moved(self, length: int) -> bool:
        """Count a message. Whether it was the last one; there is one of no bytes where there is nothing to send."""
        self.at += length
        self.messages += 1
        return self.at == len(self.data)


@dataclass
class Rank:
    """A rank at work: it sends from `source` and receives into `target`, arrays of one dimension. Its `lanes` are those
    of each peer."""

    name: str
    steps: Sequence[Step]
    source: np.ndarray
    target: np.ndarray
    lanes: dict[int, list[Lane]]
    step: int = 0
    moving: list[Moving] = field(default_factory=list)
    finished_s: float | None = None

    def begin_step(self) -> None:
        step = self.steps[self.step]
        self.moving = [
            *(Moving(send, self.lanes[send.to], _part(self.source, send.span)) for send in step.sends),
            *(Moving(receive, self.lanes[receive.of], _part(self.target, receive.span)) for receive in step.receives),
        ]

    @property
    def over(self) -> bool:
        return self.step == len(self.steps)

    @property
    def acknowledged(self) -> bool:
        return all(lane.idle for lane in self.ends())

    def ends(self) -> Iterator[Lane]:
        for lanes in self.lanes.values():
            yield from lanes

    def progress(self) -> str:
        """What it does at the moment, in words."""
        if self.over:
            return "done" if self.acknowledged else "waits for acknowledgements"
        waits = [
            f"sends to rank {moving.act.to}" if isinstance(moving.act, Send) else f"waits for rank {moving.act.of}"
            for moving in self.moving
        ]
        return f"step {self.step + 1} of {len(self.steps)}: {', '.join(waits)}"


def _part(array: np.ndarray, span: Span) -> memoryview:
    part: memoryview = memoryview(array[span.start : span.stop]).cast("B")
    return part


class Engine:
    """Ranks that carry out their steps side by side, with messages of `message` bytes at most."""

    def __init__(self, what: str, ranks: Sequence[Rank], message: int, combine: Combine) -> None:
        """`what` names the collective in errors."""
        self._what, self._ranks, self._message, self._combine = what, ranks, message, combine
        self._by_file = {lane.endpoint.fileno(): lane for rank in ranks for lane in rank.ends()}

    def run(self, ready: Ready, within: float) -> float:
        """The seconds until the last rank is done. `ready` waits, as a lab's scheduler does.

        Raises CollectiveError when the first message fails, DeadlineError after `within` seconds.
        """
        began = time.monotonic()
        with select.epoll() as events:
            for file in self._by_file:
                events.register(file, select.EPOLLIN)
            self._go_on(range(len(self._ranks)), began)
            while any(rank.finished_s is None for rank in self._ranks):
                left = began + within - time.monotonic()
                if left <= 0 or not ready([events], left):
                    raise DeadlineError(f"{self._what} is not done after {within:g} s: {self.progress()}")
                woken: dict[int, None] = {}
                for file, _ in events.poll(0):
                    lane = self._by_file[file]
                    woken[lane.rank] = None
                    for completion in lane.endpoint.arrivals():
                        self._take(lane, completion)
                self._go_on(woken, began)
        return time.monotonic() - began

    def progress(self) -> str:
        """What the ranks do that are not done."""
        return "; ".join(f"{rank.name}: {rank.progress()}" for rank in self._ranks if rank.finished_s is None)

    def _take(self, lane: Lane, completion: Completion) -> None:
        if not completion.ok:
            rank, peer = self._ranks[lane.rank], self._ranks[lane.peer]
            text = f"{self._what}: {rank.name} towards {peer.name}: {completion.opcode} ends with {completion.status}"
            raise CollectiveError(f"{text}; {self.progress()}", lane.rank, lane.peer, completion.status)
        lane.take(completion)

    def _go_on(self, numbers: Iterable[int], began: float) -> None:
        """Let ranks do what is possible now, and those that may go on by that."""
        todo = dict.fromkeys(numbers)
        while todo:
            rank = self._ranks[number := next(iter(todo))]
            del todo[number]
            todo |= dict.fromkeys(self._advance(rank))
            if rank.over and rank.finished_s is None and rank.acknowledged:
                rank.finished_s = time.monotonic() - began

    def _advance(self, rank: Rank) -> list[int]:
        """Send and take in what is possible now. The peers that may go on, because a receive was posted for them."""
        woken: list[int] = []
        while not rank.over:
            if not rank.moving:
                rank.begin_step()
            rank.moving = [moving for moving in rank.moving if not self._move(rank, moving, woken)]
            if rank.moving:
                break
            rank.step += 1
        return woken

    def _move(self, rank: Rank, moving: Moving, woken: list[int]) -> bool:
        """Move what is possible now; whether that was all."""
        if isinstance(moving.act, Send):
            while moving.lane.open:
                piece = moving.data[moving.at : moving.at + self._message]
                moving.lane.send(piece)
                if moving.moved(len(piece)):
                    return True
            return False
        while (lane := moving.lane).arrived:
            place, piece = lane.arrived.popleft()
            here = moving.data[moving.at : moving.at + len(piece)]
            if moving.act.reduce:
                self._combine(here, piece)
            else:
                here[:] = piece
            lane.lend(place)
            woken.append(lane.peer)
            if moving.moved(len(piece)):
                return True
        return False
