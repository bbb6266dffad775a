"""The steps of collectives, carried out on lists: each rank ends with what it has to have."""

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.workload.collectives.algorithms import ALGORITHMS, Shape, Span, between, cut, steps_of, volume
from testbed.workload.collectives.results import FACTORS

RANKS = st.integers(2, 17)
LENGTHS = st.integers(1, 80)
ALLREDUCE = list(ALGORITHMS["allreduce"])


def carry_out(collective: str, algorithm: str, sources: list[list[int]], targets: list[list[int]], root: int = 0):
    """Each rank goes on as far as it can, in turns; elements are added."""
    ranks = range(len(sources))
    steps = steps_of(collective, algorithm, [Shape(rank, len(ranks), len(sources[rank]), root) for rank in ranks])
    wires: dict[tuple[int, int], deque[list[int]]] = defaultdict(deque)
    at = [0] * len(ranks)
    begun = [False] * len(ranks)
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            if at[rank] == len(steps[rank]):
                continue
            step = steps[rank][at[rank]]
            if not begun[rank]:
                begun[rank] = moved = True
                for send in step.sends:
                    wires[rank, send.to].append(sources[rank][send.span.start : send.span.stop])
            if all(wires[receive.of, rank] for receive in step.receives):
                for receive in step.receives:
                    data, span = wires[receive.of, rank].popleft(), receive.span
                    assert len(data) == span.length
                    old = targets[rank][span.start : span.stop]
                    new = [a + b for a, b in zip(old, data, strict=True)] if receive.reduce else data
                    targets[rank][span.start : span.stop] = new
                at[rank], begun[rank], moved = at[rank] + 1, False, True
    assert at == [len(each) for each in steps], "a rank waits for ever"
    assert not any(wires.values()), "something was sent that nobody receives"
    return steps


def arrays(ranks: int, length: int) -> list[list[int]]:
    return [[1000 * rank + number for number in range(length)] for rank in range(ranks)]


def summed(of: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*of, strict=True)]


@given(RANKS, LENGTHS, st.sampled_from(ALLREDUCE))
def test_allreduce_gives_each_rank_the_sum(ranks: int, length: int, algorithm: str) -> None:
    work = arrays(ranks, length)
    wanted = summed(work)
    carry_out("allreduce", algorithm, work, work)
    assert work == [wanted] * ranks


@given(RANKS, LENGTHS, st.integers(0, 16))
def test_reduce_gives_the_root_the_sum_and_broadcast_its_elements_to_all(ranks: int, length: int, root: int) -> None:
    root %= ranks
    work = arrays(ranks, length)
    wanted = summed(work)
    carry_out("reduce", "tree", work, work, root)
    assert work[root] == wanted
    carry_out("broadcast", "tree", work, work, root)
    assert work == [wanted] * ranks


@given(RANKS, st.integers(1, 9), st.integers(0, 16))
def test_blocks_are_where_they_belong(ranks: int, size: int, root: int) -> None:
    root %= ranks
    length = ranks * size
    parts = cut(Span(0, length), ranks)
    whole = list(range(length))
    own = [[*[-1] * part.start, *whole[part.start : part.stop], *[-1] * (length - part.stop)] for part in parts]

    gathered = [list(one) for one in own]
    carry_out("gather", "direct", gathered, gathered, root)
    assert gathered[root] == whole
    everywhere = [list(one) for one in own]
    carry_out("allgather", "ring", everywhere, everywhere)
    assert everywhere == [whole] * ranks
    scattered = [whole if rank == root else [-1] * length for rank in range(ranks)]
    carry_out("scatter", "direct", scattered, scattered, root)
    assert [scattered[rank][part.start : part.stop] for rank, part in enumerate(parts)] == [
        whole[part.start : part.stop] for part in parts
    ]
    reduced = arrays(ranks, length)
    wanted = summed(reduced)
    carry_out("reduce-scatter", "ring", reduced, reduced)
    for rank, part in enumerate(parts):
        assert reduced[rank][part.start : part.stop] == wanted[part.start : part.stop]


@given(RANKS, st.integers(1, 9))
def test_alltoall_transposes(ranks: int, size: int) -> None:
    sources = [[100 * rank + to for to in range(ranks) for _ in range(size)] for rank in range(ranks)]
    targets = [list(one) for one in sources]
    carry_out("alltoall", "pairwise", sources, targets)
    assert targets == [[100 * of + rank for of in range(ranks) for _ in range(size)] for rank in range(ranks)]


@given(RANKS)
def test_a_barrier_hears_of_every_rank(ranks: int) -> None:
    steps = carry_out("barrier", "dissemination", [[]] * ranks, [[]] * ranks)
    heard = [{rank} for rank in range(ranks)]
    for number in range(len(steps[0])):
        before = [set(one) for one in heard]
        for rank in range(ranks):
            (receive,) = steps[rank][number].receives
            heard[rank] |= before[receive.of]
    assert heard == [set(range(ranks))] * ranks


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("collective", "algorithm"), [("allreduce", "ring"), ("allgather", "ring"), ("alltoall", "pairwise")]
)
def test_a_rank_sends_what_the_bus_bandwidth_counts(ranks: int, collective: str, algorithm: str) -> None:
    length = 24 * ranks
    steps = steps_of(collective, algorithm, [Shape(rank, ranks, length) for rank in range(ranks)])
    assert [volume(one) / length for one in steps] == [pytest.approx(FACTORS[collective](ranks))] * ranks


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_halving_and_doubling_sends_as_much_as_a_ring_in_fewer_steps(ranks: int) -> None:
    shapes = [Shape(rank, ranks, 64 * ranks) for rank in range(ranks)]
    fewer, ring = (steps_of("allreduce", name, shapes)[0] for name in ("halving-doubling", "ring"))
    assert volume(fewer) == volume(ring)
    assert len(fewer) == 2 * (ranks.bit_length() - 1)


def test_what_goes_between_ranks_adds_up_to_what_each_sends() -> None:
    steps = steps_of("allreduce", "ring", [Shape(rank, 4, 10) for rank in range(4)])
    found = between(steps)
    assert list(found) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert list(found.values()) == [volume(own) for own in steps]


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="allreduce has no algorithm 'rnig'") as error:
        steps_of("allreduce", "rnig", [])
    assert error.value.hint == "Did you mean ring? It has: ring, halving-doubling, tree."
