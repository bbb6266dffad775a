"""Calls of MPI from flight records: the collectives of communicators, and the ranks for which others wait."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.protocol.flight import Call, members

SAME_SIZE = frozenset(
    {"Bcast", "Reduce", "Allreduce", "Reduce_scatter_block", "Scan", "Exscan", "Gather", "Scatter", "Allgather",
     "Alltoall"}
)  # fmt: skip
"""Collectives whose ranks all give the same number of bytes (MPI 4.1, chapter 6)."""
RECEIVES = frozenset({"Recv", "Probe", "Mprobe", "Sendrecv"})
SENDS = frozenset({"Send", "Ssend"})
BEGUN = re.compile(r"I(send|recv)")
"""Calls that return before their message is there."""


@dataclass(frozen=True)
class Collective:
    """A collective of a communicator, with the calls of the ranks that entered it."""

    communicator: str
    sequence: int
    calls: Sequence[Call]
    absent: Sequence[int]
    """Ranks of the communicator that did not enter it."""

    def __str__(self) -> str:
        """Return ``collective 7 (Allreduce of 4096 bytes) of ranks 0-3``."""
        return f"collective {self.sequence} ({self.asked}) of {self.of}"

    @property
    def of(self) -> str:
        """Return ``ranks 0-3``, or the name of a group of which the ranks are not known."""
        return f"ranks {self.communicator}" if members(self.communicator) else self.communicator

    @property
    def by_call(self) -> Mapping[str, list[Call]]:
        """The calls of ranks that match each other, by their words; the words of most ranks first."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in sorted(self.calls, key=lambda one: one.rank):
            found[_words(call)].append(call)
        return dict(sorted(found.items(), key=lambda one: -len(one[1])))

    @property
    def matches(self) -> bool:
        """Return whether all ranks called the same."""
        return len(self.by_call) == 1

    @property
    def asked(self) -> str:
        """What the ranks called: ``Allreduce of 4096 bytes``, or that of each of them."""
        if self.matches:
            return _words(self.calls[0], with_bytes=True)
        who = ((words, ranks([call.rank for call in calls])) for words, calls in self.by_call.items())
        return "; ".join(f"{words} by {whom}" for words, whom in who)

    @property
    def operation(self) -> str:
        """What most ranks called."""
        return next(iter(self.by_call.values()))[0].operation

    @property
    def bytes(self) -> int:
        """The most bytes that a rank gave."""
        return max(call.bytes for call in self.calls)

    @property
    def began(self) -> int:
        return min(call.began for call in self.calls)

    @property
    def ended(self) -> int:
        """The time when the last rank left it; its beginning if none has."""
        return max((call.ended for call in self.calls if call.ended), default=self.began)

    @property
    def lasted(self) -> int:
        return self.ended - self.began

    @property
    def waiting(self) -> list[int]:
        return sorted(call.rank for call in self.calls if call.ended is None)

    def json(self) -> dict[str, object]:
        return {
            "operation": self.operation,
            "communicator": self.communicator,
            "number": self.sequence,
            "bytes": self.bytes,
            "since": self.began,
            "waiting": self.waiting,
            "absent": list(self.absent),
            "calls": [{"call": words, "ranks": [call.rank for call in calls]} for words, calls in self.by_call.items()],
        }


def _words(call: Call, *, with_bytes: bool = False) -> str:
    """Return a rank's call of a collective as far as it has to be that of the others: ``Bcast of 8 bytes, root 2``."""
    size = f" of {call.bytes} bytes" if call.bytes and (with_bytes or call.operation in SAME_SIZE) else ""
    return f"{call.operation}{size}{f', root {call.peer}' if call.peer is not None else ''}"


def ranks(numbers: Sequence[int]) -> str:
    """Return ``rank 2`` or ``ranks 0, 1, 3 and 8 more``."""
    more = f" and {len(numbers) - 8} more" if numbers[8:] else ""
    return f"rank{'s' if numbers[1:] else ''} {', '.join(map(str, numbers[:8]))}{more}"


def collectives(calls: Sequence[Call]) -> list[Collective]:
    """Return the collectives in the order of their beginnings."""
    found: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        if call.sequence:
            found[call.communicator, call.sequence].append(call)
    made = [
        Collective(name, number, entered, sorted({*members(name)} - {call.rank for call in entered}))
        for (name, number), entered in found.items()
    ]
    return sorted(made, key=lambda one: one.began)


@dataclass(frozen=True)
class Wait:
    """A call that is no collective and in which a rank is. `of` are the ranks whose messages it needs, as far as they
    are known."""

    call: Call
    of: Sequence[int]

    def __str__(self) -> str:
        whom = f" {'from' if self.call.operation in RECEIVES else 'to'} rank {self.of[0]}" if self.of else ""
        size = f" of {self.call.bytes} bytes" if self.call.bytes else ""
        return f"rank {self.call.rank} waits in {self.call.operation}{size}{whom}"


def waits(calls: Sequence[Call]) -> list[Wait]:
    """Return the calls that are no collectives and in which ranks are, the longest first."""
    of_ranks: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        of_ranks[call.rank].append(call)
    found = []
    for own in of_ranks.values():
        last = max(own, key=lambda call: call.number)
        if last.ended is None and not last.sequence:
            found.append(Wait(last, _partners(last, own)))
    return sorted(found, key=lambda wait: wait.call.began)


def _partners(last: Call, own: Sequence[Call]) -> list[int]:
    """Return the ranks whose messages a call waits for; Wait for those begun since the one before it."""
    if last.operation in RECEIVES | SENDS:
        return [] if last.peer is None else [last.peer]
    begun: list[int] = []
    for call in sorted(own, key=lambda call: call.number):
        if BEGUN.fullmatch(call.operation) and call.peer is not None:
            begun.append(call.peer)
        elif call.operation.startswith("Wait") and call is not last:
            begun = []
    return list(dict.fromkeys(begun))


def blocked(calls: Sequence[Call], found: Sequence[Wait]) -> dict[int, list[int]]:
    """Return the ranks that wait for what others have not done, with these: receives without a send, and sends without
    a receive. A message that was sent and asked for is on the network's side. MPI_Sendrecv has one partner in a record:
    of ranks that call it nothing is known."""
    sent: Counter[tuple[str, int, int]] = Counter()
    asked: Counter[tuple[str, int, int]] = Counter()
    both = set()
    for call in calls:
        if call.operation == "Sendrecv":
            both.add(call.rank)
        elif call.peer is not None and (call.operation in SENDS or call.operation == "Isend"):
            sent[call.communicator, call.rank, call.peer] += 1
        elif call.peer is not None and call.operation in ("Recv", "Irecv"):
            asked[call.communicator, call.peer, call.rank] += 1
    waiting: dict[int, list[int]] = {}
    for call, partners in ((wait.call, wait.of) for wait in found):
        for partner in partners:
            there = (call.communicator, partner, call.rank)
            here = (call.communicator, call.rank, partner)
            probes = call.operation in ("Probe", "Mprobe")
            receives = (call.operation == "Recv" and sent[there] < asked[there]) or (
                probes and sent[there] <= asked[there]
            )
            sends = call.operation in SENDS and asked[here] < sent[here]
            if partner not in both and (receives or sends):
                waiting.setdefault(call.rank, []).append(partner)
    return waiting
