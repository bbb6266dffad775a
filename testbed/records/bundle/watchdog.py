"""What PyTorch's watchdog of NCCL says in ranks' logs: the collectives in which they wait.

The words are those of torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, of 1.x to 2.9.
"""

import re
from collections.abc import Iterator

from testbed.protocol.flight import Call
from testbed.records.bundle.flights import OPERATIONS
from testbed.records.bundle.times import time_of

TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), )?OpType=(?P<op>\w{1,40})[^)]*(?:\(ms\))?[^)]*\) "
    r"ran for (?P<ms>\d{1,15}) milliseconds"
)
GROUP = re.compile(
    r"\[PG (?:ID \d+ PG )?(?:GUID )?(?P<group>[^\]]{1,80}?) Rank \d+\] .*"
    r"(?:detected by watchdog at work(?: sequence id)?: |Timeout at NCCL work: )(?P<seq>\d{1,18})\b"
)
"""The line after it, which names the process group."""
NAMES = {
    "allgather": "Allgather", "allreduce_coalesced": "Allreduce", "_broadcast_oop": "Bcast", "reduce_scatter":
    "Reduce_scatter_block", "alltoall": "Alltoall", "alltoall_base": "Alltoall",
}  # fmt: skip
"""Names of types of operations beside those of flight records."""
OF_TWO = ("SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN")
LONGEST = 4096
MOST_LINES = 1_000_000


def calls(text: str, rank: int, host: str, year: int, zone: int = 0) -> Iterator[Call]:
    """Yield the collectives that timed out by a rank's log, with times of its host's clock. Where no line names the
    process group, the call is of none: those of several groups have the same numbers."""
    lines = [line[:LONGEST] for line in text.split("\n")]
    groups = {found["seq"]: found["group"] for line in lines if (found := GROUP.search(line))}
    for number, line in enumerate(lines[:MOST_LINES], 1):
        found = TIMEOUT.search(line)
        t = time_of(line, year, zone) if found else None
        if not found or t is None:
            continue
        seq, op = found["seq"] or "0", found["op"]
        group = groups.get(seq, "")
        collective = bool(group) and op not in OF_TWO
        name = op.lower()
        yield Call(
            rank, host, number, NAMES.get(name) or OPERATIONS.get(name, op.title()[:23]),
            f"process group {group}" if collective else "", int(seq) if collective else 0, 0, None,
            max(0, t - int(found["ms"]) * 10**6), None,
        )  # fmt: skip
