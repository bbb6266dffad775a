"""The lines of flight.jsonl: MPI calls of a job's ranks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

MOST_RANKS = 1 << 12
"""Maximum of ranks of a communicator."""


@dataclass(frozen=True, slots=True)
class Call:
    """An MPI call. `number` counts a rank's calls, `sequence` a communicator's collectives, 0 for other calls. `bytes`
    is the size of the call's buffer. `peer` is the other rank, or a collective's root.

    `communicator` lists its ranks, such as ``0-3`` or ``0,2``; ``0-3#2`` is the second one of these ranks. Times are
    those of events, in nanoseconds. A call that does not wait, such as Isend, has ended when it returned."""

    rank: int
    host: str
    number: int
    operation: str
    communicator: str
    sequence: int
    bytes: int
    peer: int | None
    began: int
    ended: int | None

    @property
    def seconds(self) -> float:
        """Return its duration; infinite for a call that has not ended."""
        return float("inf") if self.ended is None else (self.ended - self.began) / 1e9

    def json(self) -> dict[str, Any]:
        return {"call" if name == "number" else name: value for name, value in asdict(self).items()}


def read(line: Any) -> Call:
    """Return the call in a line that `json` has parsed. ValueError for anything else."""
    match line:
        case {
            "rank": int(rank),
            "host": str(host),
            "call": int(number),
            "operation": str(operation),
            "communicator": str(communicator),
            "sequence": int(sequence),
            "bytes": int(size),
            "peer": int() | None as peer,
            "began": int(began),
            "ended": int() | None as ended,
        }:
            return Call(rank, host, number, operation, communicator, sequence, size, peer, began, ended)
    raise ValueError("is not a line of a flight record")


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers in words: ``0-2,5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == end else f"{first}-{end}" for first, end in runs)


def members(communicator: str) -> list[int]:
    """Return the ranks of a communicator by its name: ``0-2,5#2``."""
    found: list[int] = []
    for part in communicator.partition("#")[0].partition(" ")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found += range(int(first), min(int(last or first), int(first) + MOST_RANKS) + 1)
    return found
