"""The flight recorders of a job's ranks: the calls of MPI that each made, from the files that flight.c maps."""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.protocol import FLIGHT
from testbed.workload.jobs.placement import Rank

HEAD = struct.Struct("=qii")
"""Calls, groups, and what aligns the rest. These are the structures of flight.c."""
GROUP = struct.Struct("=ii62i")
GROUPS = 64
CALL = struct.Struct("=qqqqqii24s")
CALLS = 2048


@dataclass(frozen=True)
class Call:
    """`number` counts the calls of a rank, `sequence` the collectives of a communicator, 0 for what is none. `bytes`
    are those of the buffer that the call is given. `peer` is the other rank, of a collective with one its root.

    `communicator` are its ranks, such as ``0-3`` or ``0,2``; ``0-3#2`` is the second of these ranks. A call that does
    not wait, such as Isend, has ended when it returned."""

    rank: int
    number: int
    operation: str
    communicator: str
    sequence: int
    bytes: int
    peer: int | None
    began_ns: int
    ended_ns: int | None

    def json(self, host: str, zero_ns: int) -> dict[str, Any]:
        """A line of flight.jsonl, in the time of the events."""
        return {
            "rank": self.rank, "host": host, "call": self.number, "operation": self.operation,
            "communicator": self.communicator, "sequence": self.sequence, "bytes": self.bytes, "peer": self.peer,
            "began": self.began_ns - zero_ns, "ended": None if self.ended_ns is None else self.ended_ns - zero_ns,
        }  # fmt: skip


def write(directory: Path, ranks: Sequence[Rank], zero_ns: int) -> None:
    """Turn the recorders' files in the directory of a job into its flight.jsonl; nothing where there are none."""
    found: list[dict[str, Any]] = []
    for rank in ranks:
        file = path(directory, rank.number)
        if file.exists():
            found += (call.json(str(rank.host), zero_ns) for call in read(file, rank.number))
            file.unlink()
    if found:
        found.sort(key=lambda line: (line["began"], line["rank"]))
        lines = (json.dumps(line, separators=(",", ":")) + "\n" for line in found)
        (directory / FLIGHT).write_text("".join(lines))


def path(directory: Path, rank: int) -> Path:
    return directory / f"flight-{rank}.bin"


def read(file: Path, rank: int) -> Iterator[Call]:
    """The calls of a rank that its ring still has, the first one first."""
    data = file.read_bytes()
    if len(data) < _place(CALLS):  # it ended while it made the file
        return
    count, groups, _ = HEAD.unpack_from(data)
    names = list(_communicators(data, groups))
    for number in range(max(0, count - CALLS), count):
        yield _call(data, number, rank, names)


def last(file: Path, rank: int) -> Call | None:
    """The last call of a rank, None if there is none yet."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(handle, _place(CALLS), 0)
    finally:
        os.close(handle)
    if len(data) < _place(CALLS):
        return None
    count, groups, _ = HEAD.unpack_from(data)
    return _call(data, count - 1, rank, list(_communicators(data, groups))) if count else None


def _place(number: int) -> int:
    return HEAD.size + GROUPS * GROUP.size + number * CALL.size


def _call(data: bytes, number: int, rank: int, names: Sequence[tuple[str, Sequence[int]]]) -> Call:
    found, began, ended, size, sequence, group, peer, operation = CALL.unpack_from(data, _place(number % CALLS))
    name, members = names[group] if 0 <= group < len(names) else ("", ())
    return Call(
        rank, found, operation.partition(b"\0")[0].decode(), name, sequence, size,
        members[peer] if 0 <= peer < len(members) else None, began, ended or None,
    )  # fmt: skip


def _communicators(data: bytes, count: int) -> Iterator[tuple[str, Sequence[int]]]:
    """Name and ranks of each."""
    seen: Counter[str] = Counter()
    for number in range(count):
        size, _, *members = GROUP.unpack_from(data, HEAD.size + number * GROUP.size)
        name = ranges(members[:size]) + (f" of {size}" if size > len(members) else "")
        seen[name] += 1
        yield name + (f"#{seen[name]}" if seen[name] > 1 else ""), members[:size]


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in words: ``0-2,5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == end else f"{first}-{end}" for first, end in runs)
