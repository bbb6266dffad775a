"""The smallest selection that fails, the nearest number that does, and what a failure is known by."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.machine.record import VariantResult
from testbed.machine.sweeps.attempts import nearest, signature, smallest

RESULT = VariantResult(
    name="a",
    expected="healthy",
    observed="fault",
    trace="",
    virtual_s=1.0,
    wall_s=1.0,
    evidence={},
    failures=["the first WRITE: it was 'RETRY_EXC_ERR', not 'SUCCESS'", "aged after 3.25 s"],
    variant="a",
    settings={},
    parameters=None,
    topology=None,
    epoch=None,
)


@given(st.sets(st.integers(0, 20)), st.integers(0, 21))
def test_exactly_what_is_needed_stays(needed: set[int], count: int) -> None:
    needed &= {*range(count)}

    async def fails(selections: list[list[int]]) -> int | None:
        return next((number for number, parts in enumerate(selections) if needed <= {*parts}), None)

    assert asyncio.run(smallest(range(count), fails)) == sorted(needed)


@given(st.sets(st.sets(st.integers(0, 9), max_size=4).map(frozenset), min_size=1, max_size=4))
def test_of_several_reasons_one_stays(reasons: set[frozenset[int]]) -> None:
    async def fails(selections: list[list[int]]) -> int | None:
        return next((n for n, parts in enumerate(selections) if any(one <= {*parts} for one in reasons)), None)

    left = asyncio.run(smallest(range(10), fails))
    assert frozenset(left) in reasons


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.floats(0, 1))
def test_the_nearest_whole_number_is_met(default: int, value: int, part: float) -> None:
    edge = default + round((value - default) * part)
    tried = []

    async def fails(number: float) -> bool:
        tried.append(number)
        return number >= edge if value > default else number <= edge

    if edge not in (default, value):
        assert asyncio.run(nearest(default, value, fails, whole=True)) == edge
        assert len(tried) <= 12
        assert all(isinstance(number, int) for number in tried)


def test_another_number_is_near_enough() -> None:
    async def fails(number: float) -> bool:
        return number > 0.3

    assert 0.3 < asyncio.run(nearest(0.0, 1.0, fails, whole=False)) < 0.301


@pytest.mark.parametrize(
    ("failures", "same"),
    [
        (["the first WRITE: it was 'WR_FLUSH_ERR', not 'SUCCESS'", "aged after 4 s"], True),
        (["aged after 3.25 s", "the first WRITE: it was None, not 'SUCCESS'"], True),
        (["the first WRITE: it was 'RETRY_EXC_ERR', not 'SUCCESS'"], False),
        (["the last WRITE: it was 'RETRY_EXC_ERR', not 'SUCCESS'", "aged after 3.25 s"], False),
    ],
)
def test_a_failure_is_known_by_its_expectations_and_not_by_their_numbers(failures: list[str], same: bool) -> None:
    assert (signature(replace(RESULT, failures=failures)) == signature(RESULT)) is same
    assert signature(replace(RESULT, failures=failures, observed="healthy")) != signature(RESULT)
