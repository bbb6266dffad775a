"""The idle parts of a time line that are folded: long, and few enough that the interesting part remains."""

import itertools
from collections.abc import Iterable

LEAST_NS = 500_000_000
MOST = 80
"""Maximum of folds of a time line."""
ALIKE = 3
"""Maximum ratio of the longest to the shortest of gaps that are folded together."""
KEPT = 0.02
"""Maximum share of a gap that stays at each of its ends, so that nothing stands on the edge of a fold."""


def folds(times: Iterable[int], end: int) -> list[tuple[int, int]]:
    """Return the parts of 0 to `end` to fold, in order. A few gaps without events are folded as long as they are a
    third of the rest: hours between two tries, not the even pauses of a thousand packets."""
    inside = sorted({0, end, *(t for t in times if 0 <= t <= end)})
    gaps = sorted(((after - before, before, after) for before, after in itertools.pairwise(inside)))
    left = end
    folded: list[tuple[int, int, int]] = []
    while gaps and gaps[-1][0] >= LEAST_NS:
        longest = gaps[-1][0]
        alike = [gap for gap in gaps if gap[0] * ALIKE >= longest]
        length = sum(gap[0] for gap in alike)
        if 3 * length < left or len(folded) + len(alike) > MOST:
            break
        folded += alike
        left -= length
        gaps = gaps[: len(gaps) - len(alike)]
    edges = (
        (before, after, round(min(KEPT * (after - before), left / (50 + 20 * len(folded)))))
        for _, before, after in folded
    )
    return sorted((before + edge, after - edge) for before, after, edge in edges)
