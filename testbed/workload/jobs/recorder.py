"""The flight recorders of a job's ranks: the calls of MPI or gloo that each made, from the files that flight.c and
gloo_calls.py map."""

import json
import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.protocol import FLIGHT
from testbed.protocol.flight import Call, ranges
from testbed.protocol.flight import read as of_line
from testbed.workload.jobs.flight_file import CALL, CALLS, GROUP, HEAD, place_of_call, place_of_group
from testbed.workload.jobs.placement import Rank


def write(directory: Path, ranks: Sequence[Rank], zero_ns: int) -> None:
    """Turn the recorders' files in the directory of a job into its flight.jsonl; nothing where there are none."""
    if found := text(directory, ranks, zero_ns):
        (directory / FLIGHT).write_text(found)
    for rank in ranks:
        path(directory, rank.number).unlink(missing_ok=True)


def text(directory: Path, ranks: Sequence[Rank], zero_ns: int) -> str:
    """Return flight.jsonl as it would be now."""
    files = ((rank, path(directory, rank.number)) for rank in ranks)
    found = [call for rank, file in files if file.exists() for call in read(file, rank, zero_ns)]
    found.sort(key=lambda call: (call.began, call.rank))
    return "".join(json.dumps(call.json(), separators=(",", ":")) + "\n" for call in found)


def calls(directory: Path, rank: Rank, zero_ns: int) -> list[Call]:
    """Return the calls of a rank so far, while its job runs and afterwards."""
    file, written = path(directory, rank.number), directory / FLIGHT
    if file.exists():
        return list(read(file, rank, zero_ns))
    lines = written.read_text().splitlines() if written.exists() else ()
    return [call for call in map(of_line, map(json.loads, lines)) if call.rank == rank.number]


def path(directory: Path, rank: int) -> Path:
    return directory / f"flight-{rank}.bin"


def read(file: Path, rank: Rank, zero_ns: int) -> Iterator[Call]:
    """Yield the calls of a rank that its ring still has, the first one first. `zero_ns` is the monotonic clock at the
    zero of events."""
    data = file.read_bytes()
    if len(data) < place_of_call(CALLS):  # it ended while it made the file
        return
    count, groups, _ = HEAD.unpack_from(data)
    names = list(_communicators(data, groups))
    for number in range(max(0, count - CALLS), count):
        yield _call(data, place_of_call(number % CALLS), rank, names, zero_ns)


def progress(file: Path) -> bytes:
    """Return a record of how far a rank has come, which is another one with each call that begins or ends; empty if it
    has called nothing yet. A job's watchdog looks often, so it takes no Python object of a call."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        head = os.pread(handle, HEAD.size, 0)
        if len(head) < HEAD.size:
            return b""
        count, _, _ = HEAD.unpack(head)
        return os.pread(handle, CALL.size, place_of_call((count - 1) % CALLS)) if count else b""
    finally:
        os.close(handle)


def waits(progress: bytes) -> bool:
    """Return whether a rank is in a call."""
    return len(progress) == CALL.size and not CALL.unpack(progress)[2]


def last(file: Path, rank: Rank, zero_ns: int) -> Call | None:
    """Return the last call of a rank, None if there is none yet."""
    data = file.read_bytes() if file.exists() else b""
    if len(data) < place_of_call(CALLS):
        return None
    count, groups, _ = HEAD.unpack_from(data)
    names = list(_communicators(data, groups))
    return _call(data, place_of_call((count - 1) % CALLS), rank, names, zero_ns) if count else None


def gid(file: Path) -> int | None:
    """Return the index of the GID that a rank's UCX was told to use; None if that is not known."""
    try:
        with file.open("rb") as handle:
            _, _, told = HEAD.unpack(handle.read(HEAD.size))
    except (OSError, struct.error):
        return None
    return told - 1 if told else None


def _call(data: bytes, at: int, rank: Rank, names: Sequence[tuple[str, Sequence[int]]], zero_ns: int) -> Call:
    found, began, ended, size, sequence, group, peer, operation = CALL.unpack_from(data, at)
    name, members = names[group] if 0 <= group < len(names) else ("", ())
    what, other = operation.partition(b"\0")[0].decode(), members[peer] if 0 <= peer < len(members) else None
    times = began - zero_ns, ended - zero_ns if ended else None
    return Call(rank.number, str(rank.host), found, what, name, sequence, size, other, *times)


def _communicators(data: bytes, count: int) -> Iterator[tuple[str, Sequence[int]]]:
    seen: Counter[str] = Counter()
    for number in range(count):
        size, _, *members = GROUP.unpack_from(data, place_of_group(number))
        name = ranges(members[:size]) + (f" of {size}" if size > len(members) else "")
        seen[name] += 1
        yield name + (f"#{seen[name]}" if seen[name] > 1 else ""), members[:size]
