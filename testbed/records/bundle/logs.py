"""Logs with times: the kernel's and a switch's, in which links go down, and those of ranks, in which a job ends."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.protocol.ucx_words import STATUS, UNREACHED
from testbed.records.bundle.switch_texts import long
from testbed.records.bundle.times import time_of

LINKS = (
    re.compile(r"\b(?P<port>[\w./-]{1,40}): (?:NIC )?[Ll]ink (?:is )?(?P<state>[Dd]own|[Uu]p)\b"),
    re.compile(r"\b(?P<port>[\w./-]{1,40}): (?P<state>link becomes ready|Lost carrier|Gained carrier|carrier lost)"),
    re.compile(r"[Pp]ort (?P<port>Ethernet[\w/]+) oper state set from \w+ to (?P<state>\w+)"),
    re.compile(
        r"%LINEPROTO-5-UPDOWN: Line protocol on Interface (?P<port>[\w/]+)(?: \([^)]*\))?, "
        r"changed state to (?P<state>\w+)"
    ),
    re.compile(r"%ETHPORT-5-IF_(?P<state>DOWN|UP)\w*: Interface (?P<port>[\w/]+) is"),
)
"""Words for a link that goes down or up: of Linux and its drivers, systemd-networkd, SONiC, EOS, NX-OS."""
UP = ("up", "link becomes ready", "gained carrier")
NCCL = re.compile(r"Got completion from peer \S+ with (?:error |status=)(?:IBV_WC_\w+\()?(?P<status>\d+)")
STATUSES = {
    "1": "LOC_LEN_ERR", "4": "LOC_PROT_ERR", "5": "WR_FLUSH_ERR", "9": "REM_INV_REQ_ERR", "10": "REM_ACCESS_ERR",
    "11": "REM_OP_ERR", "12": "RETRY_EXC_ERR", "13": "RNR_RETRY_EXC_ERR",
}  # fmt: skip
"""enum ibv_wc_status of libibverbs."""
CERTAIN = re.compile(r"Watchdog caught collective operation timeout: .*|\S*(?:DistBackendError|DistStoreError)\b.*")
FAILED = re.compile(
    r"(?:\w+\.)*\w*(?:Error|Exception)\b: .*|ncclRemoteError.*"
    r"|(?:Segmentation fault|Signal: |Aborted|Killed|core dumped).*"
)
"""Words of an end, and of what may also have been survived."""
LONGEST = 4096
"""Characters of a line that is looked at."""


@dataclass(frozen=True)
class LinkChange:
    t: int
    port: str
    up: bool
    text: str


@dataclass(frozen=True)
class End:
    """A rank's own report of why it ended."""

    t: int | None
    status: str
    text: str
    certain: bool = True
    """Whether a rank that says so cannot have gone on."""


def link_changes(text: str, year: int) -> Iterator[LinkChange]:
    """Yield the links that a log reports as down or up, at lines with a time."""
    for line in lines(text):
        for words in LINKS:
            found = words.search(line)
            t = time_of(line, year) if found else None
            if found and t is not None:
                yield LinkChange(t, long(found["port"]), found["state"].lower() in UP, line.strip()[-160:])
                break


def end(text: str, year: int) -> End | None:
    """Return what a rank's log says of its end; None if it says nothing. Of several errors the last one ended it."""
    failure: End | None = None
    for line in lines(text):
        if found := NCCL.search(line):
            status = STATUSES.get(found["status"], f"status {found['status']}")
            return End(time_of(line, year), status, line.strip()[-200:])
        for words, status in STATUS.items():
            if words in line:
                return End(time_of(line, year), status, words)
        if found := UNREACHED.search(line):
            return End(time_of(line, year), "", found[0][:200])
        if found := CERTAIN.search(line):
            failure = failure if failure and failure.certain else End(time_of(line, year), "", found[0][:200])
        elif (found := FAILED.search(line)) and not (failure and failure.certain):
            failure = End(time_of(line, year), "", line.strip()[:200], certain=False)
    return failure


def span(text: str, year: int) -> tuple[int, int] | None:
    """Return the first and the last time of a log."""
    times = [t for line in lines(text) if (t := time_of(line, year)) is not None]
    return (min(times), max(times)) if times else None


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a log, their beginnings where they are long."""
    return (line[:LONGEST] for line in text.split("\n"))
