"""Flight records of PyTorch's process groups, which NCCL's watchdog dumps: nccl_trace_rank_<n>, a pickle, or JSON. They
are read, and written of a lab's jobs for PyTorch's own analyzer (tools/flight_recorder) and others.

A pickle is a program, and comes from outside: only its plain values are read (lists, dictionaries, tuples, texts,
numbers), and anything else is refused. The format is that of torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

import io
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from testbed.protocol.flight import Call, members, ranges
from testbed.records import json_files
from testbed.records.regular_files import contents

NUMBER = re.compile(r".*?(\d+)(?:\.(?:json|pkl|pickle))?")
"""The name of a dump: its rank is the last number."""
OPERATIONS = {
    "all_reduce": "Allreduce", "allreduce": "Allreduce", "broadcast": "Bcast", "reduce": "Reduce",
    "all_gather": "Allgather", "_all_gather_base": "Allgather", "_allgather_base": "Allgather",
    "all_gather_into_tensor": "Allgather", "reduce_scatter": "Reduce_scatter_block",
    "_reduce_scatter_base": "Reduce_scatter_block", "reduce_scatter_tensor": "Reduce_scatter_block",
    "all_to_all": "Alltoall", "barrier": "Barrier", "all_reduce_barrier": "Barrier", "gather": "Gather",
    "scatter": "Scatter",
}  # fmt: skip
"""Names of c10d's collectives, and those of MPI."""
OF_TWO = re.compile(r"(?P<what>send|recv) (?P<one>\d+)(?:->|<-)(?P<other>\d+)")
BYTES = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
    "Int": 4,
    "Float": 4,
    "Long": 8,
    "Double": 8,
}
MOST_CALLS = 100_000
LATEST_NS = 1 << 63


def dumps(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yield the files of a directory that may be dumps, with their ranks."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.is_file() and (found := NUMBER.fullmatch(path.name)):
            yield int(found[1]), path


class _Plain(pickle._Unpickler):
    """The one in Python: the other takes memory for any number that a pickle says it will remember."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it has an object of {module[:40]}.{name[:40]}; a flight record has none")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to something outside")


def read(path: Path, rank: int, host: str) -> list[Call]:
    """Return a rank's calls, by its own clock in nanoseconds since 1970. ValueError for what is no flight record."""
    try:
        data = contents(path)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if data.lstrip()[:1] == b"{":
        found = json_files.parsed(data)
    else:
        try:
            found = _Plain(io.BytesIO(data)).load()
        except Exception as error:
            raise ValueError(f"is no flight record: {str(error) or type(error).__name__}") from None
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise ValueError("is no flight record: it has no entries")  # noqa: TRY004
    groups = _groups(found.get("pg_config"))
    return [call for entry in found["entries"][-MOST_CALLS:] if (call := _call(entry, rank, host, groups))]


def _groups(found: Any) -> dict[str, str]:
    """Return the ranks of each process group, as communicators of calls have them: ``0-3``."""
    named: dict[str, str] = {}
    for name, group in found.items() if isinstance(found, dict) else ():
        given = group.get("ranks") if isinstance(group, dict) else None
        try:
            ranks = json_files.parsed(given) if isinstance(given, str) else given
        except ValueError:
            continue
        if isinstance(ranks, list) and ranks and all(isinstance(one, int) for one in ranks):
            text = ranges(ranks)
            again = sum(other.partition("#")[0] == text for other in named.values())
            named[str(name)] = f"{text}#{again + 1}" if again else text
    return named


def _call(entry: Any, rank: int, host: str, groups: Mapping[str, str]) -> Call | None:
    match entry:
        case {"profiling_name": str(name), "record_id": int(number), "time_created_ns": int(made)}:
            pass
        case _:
            return None
    name = name.rpartition(":")[2]
    two = OF_TWO.fullmatch(name)
    group = entry.get("process_group")
    of = group[0] if isinstance(group, (list, tuple)) and group else group
    of = of if isinstance(of, str) else "0"
    started, ended = entry.get("time_discovered_started_ns"), entry.get("time_discovered_completed_ns")
    if any(isinstance(t, int) and not 0 <= t < LATEST_NS for t in (made, started, ended)):
        return None
    done = entry.get("state") == "completed"
    until = ended if done and isinstance(ended, int) else (made if done else None)
    began = started if isinstance(started, int) and done else made
    sequence = entry.get("collective_seq_id", entry.get("seq_id", 0))
    return Call(
        rank,
        host,
        number,
        two["what"].title() if two else OPERATIONS.get(name, name[:23]),
        groups.get(of, ""),
        sequence if isinstance(sequence, int) and not two and 0 <= sequence < LATEST_NS else 0,
        _bytes(entry),
        int(two["other"]) if two else None,
        min(began, until) if until is not None else began,
        until,
    )


def _bytes(entry: Mapping[str, Any]) -> int:
    sizes, kinds = entry.get("input_sizes"), entry.get("input_dtypes")
    if not isinstance(sizes, (list, tuple)) or not isinstance(kinds, (list, tuple)):
        return 0
    found = 0
    for shape, kind in zip(sizes, kinds, strict=False):
        if isinstance(shape, (list, tuple)) and all(isinstance(length, int) for length in shape):
            found += prod(shape) * BYTES.get(str(kind), 0)
    return found if 0 <= found < 1 << 62 else 0


NAME = "nccl_trace_rank_"
NAMES = {
    "Allreduce": "all_reduce", "Bcast": "broadcast", "Allgather": "_all_gather_base", "Gather": "gather",
    "Reduce_scatter_block": "_reduce_scatter_base", "Alltoall": "all_to_all", "Scatter": "scatter", "Reduce": "reduce",
    "Barrier": "all_reduce",
}  # fmt: skip
"""MPI's collectives, and those of NCCL. A barrier of NCCL is an all_reduce of one number."""


def dumped(calls: Sequence[Call]) -> bytes:
    """Return the dump of a rank's calls, as PyTorch 2.6 writes it (version 2.5), with bytes in place of numbers. Calls
    that NCCL has no name for are left out, such as those that make a communicator."""
    groups = {call.communicator: members(call.communicator) for call in calls if call.communicator}
    config = {name: {"name": name, "desc": name, "ranks": str(ranks)} for name, ranks in groups.items() if ranks}
    entries = [
        entry for call in calls if call.communicator in config and (entry := _entry(call, groups[call.communicator]))
    ]
    return pickle.dumps({"version": "2.5", "pg_config": config, "entries": entries}, protocol=4)


def _entry(call: Call, group: Sequence[int]) -> dict[str, Any] | None:
    given = result = call.bytes or 1
    two = call.operation.removeprefix("I") if call.operation.startswith("I") else call.operation.lower()
    if call.operation in NAMES:
        name = NAMES[call.operation]
        given *= len(group) if call.operation in ("Reduce_scatter_block", "Alltoall") else 1
        result *= len(group) if call.operation in ("Allgather", "Alltoall") else 1
    elif two in ("send", "recv") and call.peer in group and call.rank in group:
        arrow = "->" if two == "send" else "<-"
        name = f"{two} {group.index(call.rank)}{arrow}{group.index(call.peer)}"
    else:
        return None
    return {
        "frames": [],
        "record_id": call.number,
        "pg_id": 0,
        "process_group": (call.communicator, call.communicator),
        "collective_seq_id": call.sequence,
        "p2p_seq_id": 0 if call.sequence else call.number,
        "op_id": call.number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": call.began,
        "duration_ms": None if call.ended is None else (call.ended - call.began) / 1e6,
        "input_sizes": [[given]],
        "input_dtypes": ["Byte"],
        "output_sizes": [[result]],
        "output_dtypes": ["Byte"],
        "state": "started" if call.ended is None else "completed",
        "time_discovered_started_ns": call.began,
        "time_discovered_completed_ns": call.ended,
        "retired": call.ended is not None,
        "timeout_ms": 600_000,
        "is_p2p": not call.sequence,
    }
