"""The steps of each collective, rank by rank: the elements that each peer gets, and the use of received ones.

Pure planning: a step is carried out in `engine`, or on lists in a test. A rank begins a step when its last one has
ended; nothing else keeps ranks together. Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective
Communication Operations in MPICH" (2005) for halving and doubling; MPI's and NCCL's documentation for the rest.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from testbed.errors import InputError, did_you_mean

PARTS = 8
"""Parts of a tree's data, so that an inner rank sends one part while it receives the next one."""


class Span(NamedTuple):
    """Elements from `start` up to `stop`, without `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Send:
    """Elements of this rank for a peer."""

    to: int
    span: Span


@dataclass(frozen=True, slots=True)
class Receive:
    """Elements from a peer, which replace those here or with `reduce` are combined with them."""

    of: int
    span: Span
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The messages of a rank side by side, after it has computed for so many seconds. Messages between two ranks are
    received in the order in which they are sent."""

    sends: Sequence[Send] = ()
    receives: Sequence[Receive] = ()
    computes_s: float = 0.0


Steps = Iterator[Step]


@dataclass(frozen=True, slots=True)
class Shape:
    """A rank among `ranks`, the number of elements, and the root of a collective that has one."""

    rank: int
    ranks: int
    length: int
    root: int = 0

    def blocks(self) -> list[Span]:
        """Return the elements in as many parts as there are ranks. They differ by one element at most."""
        return cut(Span(0, self.length), self.ranks)

    def from_root(self, hops: int) -> int:
        """Return the rank so many places behind the root."""
        return (self.root + hops) % self.ranks

    @property
    def hops(self) -> int:
        """Return the places of this rank behind the root."""
        return (self.rank - self.root) % self.ranks


def cut(span: Span, parts: int) -> list[Span]:
    """Return a span in consecutive parts that differ by one element at most."""
    size, larger = divmod(span.length, parts)
    ends = [span.start + number * size + min(number, larger) for number in range(parts + 1)]
    return [Span(start, stop) for start, stop in itertools.pairwise(ends)]


# Rings: each rank sends to the next one only


def ring_reduce_scatter(shape: Shape) -> Steps:
    """Combine the elements: block r of the result ends on rank r. Each rank sends all blocks but one."""
    yield from _ring(shape, shape.blocks(), first=shape.rank - 1, reduce=True)


def ring_allgather(shape: Shape) -> Steps:
    """Gather block r of rank r; in the end each rank has all."""
    yield from _ring(shape, shape.blocks(), first=shape.rank, reduce=False)


def ring_allreduce(shape: Shape) -> Steps:
    """Reduce-scatter, then allgather: 2 (n - 1) / n of the elements are sent by each rank, the least possible."""
    yield from ring_reduce_scatter(shape)
    yield from ring_allgather(shape)


def _ring(shape: Shape, blocks: Sequence[Span], *, first: int, reduce: bool) -> Steps:
    n = shape.ranks
    for step in range(n - 1):
        send, receive = blocks[(first - step) % n], blocks[(first - step - 1) % n]
        yield Step([Send((shape.rank + 1) % n, send)], [Receive((shape.rank - 1) % n, receive, reduce)])


# Halving and doubling: log2(n) steps, each with a partner twice as far away


def halving_doubling_allreduce(shape: Shape) -> Steps:
    """Halve recursively, then double recursively (Rabenseifner): as many bytes as a ring, in 2 log2(n) steps.

    If n is no power of two, the first ranks form pairs: one gives its elements to the other before, and gets the result
    from it afterwards.
    """
    whole = Span(0, shape.length)
    size = 1 << (shape.ranks.bit_length() - 1)
    pairs = shape.ranks - size
    if shape.rank < 2 * pairs and shape.rank % 2 == 0:
        yield Step(sends=[Send(shape.rank + 1, whole)])
        yield Step(receives=[Receive(shape.rank + 1, whole)])
        return
    if shape.rank < 2 * pairs:
        yield Step(receives=[Receive(shape.rank - 1, whole, reduce=True)])
    place = shape.rank // 2 if shape.rank < 2 * pairs else shape.rank - pairs
    mine, halves = whole, []
    distance = size // 2
    while distance:
        other = place ^ distance
        partner = 2 * other + 1 if other < pairs else other + pairs
        low, high = cut(mine, 2)
        keep, give = (low, high) if place < other else (high, low)
        yield Step([Send(partner, give)], [Receive(partner, keep, reduce=True)])
        halves.append((partner, keep, give))
        mine, distance = keep, distance // 2
    for partner, kept, given in reversed(halves):
        yield Step([Send(partner, kept)], [Receive(partner, given)])
    if shape.rank < 2 * pairs:
        yield Step(sends=[Send(shape.rank - 1, whole)])


# Trees: binary, with rank `root` on top, and with parts that follow each other through it


def tree_reduce(shape: Shape) -> Steps:
    """Reduce to the root, which has the combined elements; the other ranks have sums of their subtrees."""
    parent, children = _tree(shape)
    parts = [span for span in cut(Span(0, shape.length), PARTS) if span.length]
    for number in range(len(parts) + 1):
        sends = [Send(parent, parts[number - 1])] if parent is not None and number else []
        receives = [Receive(child, parts[number], True) for child in children] if number < len(parts) else []
        yield Step(sends, receives)


def tree_broadcast(shape: Shape) -> Steps:
    """Broadcast the root's elements to each rank."""
    parent, children = _tree(shape)
    parts = [span for span in cut(Span(0, shape.length), PARTS) if span.length]
    for number in range(len(parts) + 1):
        sends = [Send(child, parts[number - 1]) for child in children] if number else []
        receives = [Receive(parent, parts[number])] if parent is not None and number < len(parts) else []
        yield Step(sends, receives)


def tree_allreduce(shape: Shape) -> Steps:
    """Reduce to the root, then broadcast. Inner ranks send all elements up once and down twice."""
    yield from tree_reduce(shape)
    yield from tree_broadcast(shape)


def _tree(shape: Shape) -> tuple[int | None, list[int]]:
    place = shape.hops
    children = [shape.from_root(child) for child in (2 * place + 1, 2 * place + 2) if child < shape.ranks]
    return (shape.from_root((place - 1) // 2) if place else None), children


# From one to all and from all to one, all to all, and nothing at all


def direct_gather(shape: Shape) -> Steps:
    """Gather block r of rank r; in the end the root has all."""
    blocks = shape.blocks()
    if shape.rank != shape.root:
        yield Step(sends=[Send(shape.root, blocks[shape.rank])])
        return
    yield Step(receives=[Receive(rank, blocks[rank]) for rank in range(shape.ranks) if rank != shape.root])


def direct_scatter(shape: Shape) -> Steps:
    """Scatter the root's blocks; in the end rank r has block r."""
    blocks = shape.blocks()
    if shape.rank != shape.root:
        yield Step(receives=[Receive(shape.root, blocks[shape.rank])])
        return
    yield Step(sends=[Send(rank, blocks[rank]) for rank in range(shape.ranks) if rank != shape.root])


def pairwise_alltoall(shape: Shape) -> Steps:
    """Send block j of rank i to rank j as its block i. In step s a rank sends to the one s places behind it."""
    blocks = shape.blocks()
    for step in range(1, shape.ranks):
        to, of = (shape.rank + step) % shape.ranks, (shape.rank - step) % shape.ranks
        yield Step([Send(to, blocks[to])], [Receive(of, blocks[of])])


def dissemination_barrier(shape: Shape) -> Steps:
    """Send messages without elements to ranks 1, 2, 4, … places behind: no rank ends before all have begun."""
    nothing, distance = Span(0, 0), 1
    while distance < shape.ranks:
        to, of = (shape.rank + distance) % shape.ranks, (shape.rank - distance) % shape.ranks
        yield Step([Send(to, nothing)], [Receive(of, nothing)])
        distance *= 2


ALGORITHMS: dict[str, dict[str, Callable[[Shape], Steps]]] = {
    "allreduce": {"ring": ring_allreduce, "halving-doubling": halving_doubling_allreduce, "tree": tree_allreduce},
    "reduce": {"tree": tree_reduce},
    "broadcast": {"tree": tree_broadcast},
    "gather": {"direct": direct_gather},
    "allgather": {"ring": ring_allgather},
    "reduce-scatter": {"ring": ring_reduce_scatter},
    "scatter": {"direct": direct_scatter},
    "alltoall": {"pairwise": pairwise_alltoall},
    "barrier": {"dissemination": dissemination_barrier},
}
"""The algorithms of each collective by their names; the first one is the default."""


def steps_of(collective: str, algorithm: str, shapes: Sequence[Shape]) -> list[list[Step]]:
    """Return the steps of each rank. InputError if there is no such algorithm."""
    known = ALGORITHMS[collective]
    if algorithm not in known:
        hint = f"{did_you_mean(algorithm, known)}It has: {', '.join(known)}."
        raise InputError(f"{collective} has no algorithm {algorithm!r}", hint=hint)
    return [list(known[algorithm](shape)) for shape in shapes]


def volume(steps: Sequence[Step]) -> int:
    """Return the number of elements that a rank sends in these steps."""
    return sum(send.span.length for step in steps for send in step.sends)


def between(steps: Sequence[Sequence[Step]]) -> Mapping[tuple[int, int], int]:
    """Return the elements that go from rank to rank in the steps of each rank, in the order of the ranks."""
    found: Counter[tuple[int, int]] = Counter()
    for rank, own in enumerate(steps):
        for send in (send for step in own for send in step.sends):
            found[rank, send.to] += send.span.length
    return {pair: found[pair] for pair in sorted(found)}
