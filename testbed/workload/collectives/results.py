"""The result of a collective: its time, the bandwidths that nccl-tests prints, and the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FACTORS: dict[str, Callable[[int], float]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "reduce": lambda n: 1,
    "broadcast": lambda n: 1,
    "gather": lambda n: (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "barrier": lambda n: 0,
}
"""Bus bandwidth to algorithm bandwidth, by the number of ranks. Source: nccl-tests, doc/PERFORMANCE.md."""


@dataclass(frozen=True)
class Progress:
    """The time of the ranks, in seconds of the lab's clock, and the payload bytes that each one sent.

    `elapsed_s` is from the first post to the end of the last rank, `finished_s` that of each rank.
    """

    elapsed_s: float
    finished_s: Sequence[float]
    sent: Sequence[int]


@dataclass(frozen=True)
class CollectiveResult(Progress):
    """A collective that ended.

    `size` is its size in bytes as nccl-tests counts it: all the elements of a rank, those of all ranks where each has
    a part. `outputs` has an array for each rank, an empty one where a rank has no result.
    """

    collective: str
    algorithm: str
    ranks: int
    size: int
    dtype: str
    op: str
    root: int
    outputs: Sequence[np.ndarray] = field(repr=False)

    @property
    def algorithm_bandwidth(self) -> float:
        """Return bytes per second: the size by the time."""
        return self.size / self.elapsed_s

    @property
    def bus_bandwidth(self) -> float:
        """Return bytes per second, multiplied so that a collective that is bound by the NICs has their bandwidth, for
        any number of ranks."""
        return self.algorithm_bandwidth * FACTORS[self.collective](self.ranks)


def bandwidth_table(results: Sequence[CollectiveResult]) -> str:
    """Return the lines that nccl-tests prints, with MB/s in place of its GB/s: an emulated CPU is slower."""
    head = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw")
    units = ("(B)", "(elements)", "", "", "", "(us)", "(MB/s)", "(MB/s)")
    rows = [
        (
            str(one.size),
            str(one.size // itemsize(one)),
            one.dtype,
            one.op or "none",
            str(one.root) if one.collective in ROOTED else "-1",
            f"{one.elapsed_s * 1e6:.0f}",
            f"{one.algorithm_bandwidth / 1e6:.2f}",
            f"{one.bus_bandwidth / 1e6:.2f}",
        )
        for one in results
    ]
    widths = [max(map(len, column)) for column in zip(head, units, *rows, strict=True)]
    lines = (head, units, *rows)
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


ROOTED = ("reduce", "broadcast", "gather", "scatter")


def itemsize(result: CollectiveResult) -> int:
    return int(result.outputs[0].itemsize)
