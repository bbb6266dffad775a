"""Queue pairs that are kept busy: RDMA WRITEs one behind the other, for as long as a scenario measures."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from testbed.lab import HostInterface
from testbed.workload.attributes import Attributes, Completion
from testbed.workload.verbs import Endpoint, connect_pair, open_endpoint

AHEAD = 4
"""Messages that a stream has under way by default."""
LOOK_S = 0.02
"""Seconds between two checks of what has completed."""


class Stream:
    """A queue pair with its messages. `status` is SUCCESS, or the status of the first message that failed."""

    def __init__(self, end: Endpoint, size: int, ahead: int = AHEAD) -> None:
        self.status = "SUCCESS"
        self.done_bytes = 0
        self._end = end
        self._size = size
        self._ahead = ahead
        self._posted: list[int] = []

    def feed(self) -> None:
        """Collect what has completed, and post as much."""
        for request in [request for request in self._posted if self._end.done(request)]:
            self._await(request, within=1)
        while self.status == "SUCCESS" and len(self._posted) < self._ahead:
            self.post(1)

    def post(self, messages: int) -> None:
        """Post so many messages."""
        self._posted += [self._end.post_write(self._size) for _ in range(messages)]

    def finish(self, within: float) -> Completion:
        """Wait for what is posted. Return the completion of the last message, or of the first one that failed."""
        done = [self._await(request, within) for request in tuple(self._posted)]
        return next((completion for completion in done if not completion.ok), done[-1])

    def _await(self, request: int, within: float) -> Completion:
        completion = self._end.wait(request, within=within)
        self._posted.remove(request)
        if completion.ok:
            self.done_bytes += self._size
        elif self.status == "SUCCESS":
            self.status = completion.status
        return completion


class Streams:
    """Streams from host to host, connected when this is entered and closed when it is left."""

    def __init__(
        self,
        pairs: Sequence[tuple[HostInterface, HostInterface]],
        attributes: Attributes | None = None,
        *,
        size: int = 32768,
        ahead: int = AHEAD,
    ) -> None:
        """`size` is that of a message in bytes, `ahead` the number under way in a stream. They are fed every 0.02 s, so
        `size * ahead` bounds the rate of each."""
        self._pairs = pairs
        self._attributes = attributes
        self._size = size
        self._ahead = ahead
        self._open = contextlib.ExitStack()
        self._streams: list[Stream] = []

    def __enter__(self) -> Self:
        for near, far in self._pairs:
            here = self._open.enter_context(open_endpoint(near, memory=self._size))
            there = self._open.enter_context(open_endpoint(far, memory=self._size))
            connect_pair(here, there, self._attributes)
            self._streams.append(Stream(here, self._size, self._ahead))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams)

    def run(self, seconds: float, look: Callable[[], object] = lambda: None) -> list[float]:
        """Keep all streams busy. Return the bits per second that each got through, without headers. `look` is called
        every 0.02 s."""
        scheduler = self._pairs[0][0].node.context.scheduler
        before, began = [stream.done_bytes for stream in self._streams], time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            for stream in self._streams:
                stream.feed()
            scheduler.sleep(min(LOOK_S, left))
            look()
        passed = time.monotonic() - began
        return [(stream.done_bytes - start) * 8 / passed for stream, start in zip(self._streams, before, strict=True)]

    def write(self, messages: int, within: float = 60) -> list[Completion]:
        """Write so many messages on each stream, all at once. Return the completion of the last of each stream, or of
        the first that failed. DeadlineError if one takes longer than `within` seconds."""
        for stream in self._streams:
            stream.post(messages)
        return [stream.finish(within) for stream in self._streams]

    @property
    def statuses(self) -> list[str]:
        """Return SUCCESS for each stream, or the status of its first message that failed."""
        return [stream.status for stream in self._streams]


def fairness(rates: Sequence[float]) -> float:
    """Return Jain's index: 1 when all have the same, 1/n when one has everything; 0 when nobody has anything."""
    squares = len(rates) * sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / squares if squares else 0.0
