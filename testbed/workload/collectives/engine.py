"""The messages of a collective: queue pairs between ranks, and the ranks' steps, side by side in one thread.

A rank's receives are posted before its peer sends, as with NCCL's clear-to-send, so RNR never occurs. Ranks learn of a
posted receive as a Python object: only the elements are on the wire.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.errors import DeadlineError, TestbedError
from testbed.lab.processes import Ready
from testbed.workload.attributes import Completion
from testbed.workload.collectives.algorithms import Receive, Send, Span, Step
from testbed.workload.collectives.lanes import Lane, QueuePair

if TYPE_CHECKING:
    import numpy as np

Combine = Callable[[memoryview, memoryview], object]
"""A function that combines the elements in the first one with those in the second."""


class CollectiveError(TestbedError):
    """A rank's message failed. `rank` and `peer` are numbers, `status` is the completion's."""

    def __init__(self, message: str, rank: int, peer: int, status: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.peer = peer
        self.status = status


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
        """Return the queue pair of the next message: they take turns."""
        return self.lanes[self.messages % len(self.lanes)]

    def moved(self, length: int) -> bool:
        """Count a message. Return whether it was the last one; there is one of no bytes if there is nothing to send."""
        self.at += length
        self.messages += 1
        return self.at == len(self.data)


@dataclass
class Rank:
    """A rank at work: it sends from `source` and receives into `target`, arrays of one dimension. `lanes` has those of
    each peer."""

    name: str
    steps: Sequence[Step]
    source: np.ndarray
    target: np.ndarray
    lanes: dict[int, list[Lane]]
    step: int = 0
    moving: list[Moving] = field(default_factory=list)
    computes_until: float = 0.0
    """Time on the lab's clock, for a step that has begun and whose messages have not."""
    computed_s: float = 0.0
    """Seconds of its computations so far."""
    finished_s: float | None = None

    def begin_step(self) -> None:
        """Begin the messages of the step, or before that its computation."""
        step = self.steps[self.step]
        if step.computes_s and not self.computes_until:
            self.computes_until = time.monotonic() + step.computes_s
            self.computed_s += step.computes_s
        if self.computes:
            return
        self.computes_until = 0.0
        self.moving = [
            *(Moving(send, self.lanes[send.to], _part(self.source, send.span)) for send in step.sends),
            *(Moving(receive, self.lanes[receive.of], _part(self.target, receive.span)) for receive in step.receives),
        ]

    @property
    def over(self) -> bool:
        return self.step == len(self.steps)

    @property
    def computes(self) -> bool:
        return self.computes_until > time.monotonic()

    @property
    def acknowledged(self) -> bool:
        return all(lane.idle for lane in self.ends())

    def ends(self) -> Iterator[Lane]:
        for lanes in self.lanes.values():
            yield from lanes

    def progress(self) -> str:
        """Describe in words what it does now."""
        if self.over:
            return "done" if self.acknowledged else "waits for acknowledgements"
        if self.computes_until:
            return f"step {self.step + 1} of {len(self.steps)}: computes"
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
        ends = [lane for rank in ranks for lane in rank.ends() if isinstance(lane, QueuePair)]
        self._by_file = {lane.endpoint.fileno(): lane for lane in ends}

    def run(self, ready: Ready, within: float) -> float:
        """Return the seconds until the last rank is done. `ready` waits, as a lab's scheduler does.

        Raise CollectiveError when the first message fails, DeadlineError after `within` seconds.
        """
        began = time.monotonic()
        with select.epoll() as events:
            for file in self._by_file:
                events.register(file, select.EPOLLIN)
            self._go_on(range(len(self._ranks)), began)
            while any(rank.finished_s is None for rank in self._ranks):
                ends = {number: rank.computes_until for number, rank in enumerate(self._ranks) if rank.computes_until}
                until = min([began + within, *ends.values()])
                ready([events], max(0.0, until - time.monotonic()))
                if time.monotonic() >= began + within:
                    raise DeadlineError(f"{self._what} is not done after {within:g} s: {self.progress()}")
                woken = dict.fromkeys(number for number in ends if not self._ranks[number].computes)
                for file, _ in events.poll(0):
                    lane = self._by_file[file]
                    woken[lane.rank] = None
                    for completion in lane.endpoint.arrivals():
                        self._complete(lane, completion)
                self._go_on(woken, began)
        return time.monotonic() - began

    def progress(self) -> str:
        """Describe what the unfinished ranks do."""
        return "; ".join(f"{rank.name}: {rank.progress()}" for rank in self._ranks if rank.finished_s is None)

    def _complete(self, lane: QueuePair, completion: Completion) -> None:
        if not completion.ok:
            rank, peer = self._ranks[lane.rank], self._ranks[lane.peer]
            text = f"{self._what}: {rank.name} towards {peer.name}: {completion.opcode} ends with {completion.status}"
            raise CollectiveError(f"{text}; {self.progress()}", lane.rank, lane.peer, completion.status)
        lane.complete(completion)

    def _go_on(self, numbers: Iterable[int], began: float) -> None:
        todo = dict.fromkeys(numbers)
        while todo:
            rank = self._ranks[number := next(iter(todo))]
            del todo[number]
            todo |= dict.fromkeys(self._advance(rank))
            if rank.over and rank.finished_s is None and rank.acknowledged:
                rank.finished_s = time.monotonic() - began

    def _advance(self, rank: Rank) -> list[int]:
        """Send and receive what is possible now. Return the peers that may go on: a receive was posted for them."""
        woken: list[int] = []
        while not rank.over:
            if not rank.moving:
                rank.begin_step()
            if rank.computes_until:
                break
            rank.moving = [moving for moving in rank.moving if not self._move(rank, moving, woken)]
            if rank.moving:
                break
            rank.step += 1
        return woken

    def _move(self, rank: Rank, moving: Moving, woken: list[int]) -> bool:
        if isinstance(moving.act, Send):
            while (lane := moving.lane).open:
                piece = moving.data[moving.at : moving.at + self._message]
                if lane.send(piece):
                    woken.append(lane.peer)
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
