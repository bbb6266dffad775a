"""The smallest part of a run that still fails in the same way: delta debugging, and bisection of numbers."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from testbed.machine.record import VariantResult

T = TypeVar("T")
HALVINGS = 12
"""Halvings, at most, between a default and a number that is not an integer."""


def signature(result: VariantResult) -> tuple[str | None, frozenset[str]]:
    """Return the marks of a failure: what users observed, and the expectations that failed, whatever was found instead.
    Numbers in texts are left out: they are times, and change with everything."""
    heads = (failure.partition(": it was ")[0] for failure in result.failures)
    return result.observed, frozenset(re.sub(r"\d+(\.\d+)?", "#", head) for head in heads)


async def smallest(parts: Sequence[T], fails: Callable[[list[list[T]]], Awaitable[int | None]]) -> list[T]:
    """Return parts of which none can be left out without losing the failure, by ddmin (Zeller and Hildebrandt, 2002).

    All of them fail. `fails` gets several selections, and returns the number of the first that does.
    """
    left, pieces = [*parts], 2
    if left and await fails([[]]) is not None:
        return []
    while len(left) >= 2:
        size = -(-len(left) // pieces)
        chunks = [left[at : at + size] for at in range(0, len(left), size)]
        others = [[part for part in left if part not in chunk] for chunk in chunks]
        if (one := await fails(chunks)) is not None:
            left, pieces = chunks[one], 2
        elif len(chunks) > 2 and (one := await fails(others)) is not None:
            left, pieces = others[one], max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(len(left), 2 * pieces)
    return left


async def nearest(default: float, value: float, fails: Callable[[float], Awaitable[bool]], *, whole: bool) -> float:
    """Return the number nearest to the default that still fails, by bisection: `value` does and `default` does not.
    `whole` numbers are found exactly, others after some halvings."""
    good, bad = default, value
    for _ in range(64 if whole else HALVINGS):
        middle = (good + bad) // 2 if whole else (good + bad) / 2
        if middle in (good, bad):
            break
        if await fails(middle):
            bad = middle
        else:
            good = middle
    return bad
