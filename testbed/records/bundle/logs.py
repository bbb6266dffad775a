"""Logs with times: the kernel's and a switch's, in which links go down, and those of ranks, in which a job ends."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.protocol.ucx_words import STATUS, UNREACHED
from testbed.records.bundle.model import long, short
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
NCCL = re.compile(r"Got completion (?:from peer \S+ )?with (?:error |status=)(?:IBV_WC_\w+\()?(?P<status>\d+)")
STATUSES = {
    "1": "LOC_LEN_ERR", "2": "LOC_QP_OP_ERR", "4": "LOC_PROT_ERR", "5": "WR_FLUSH_ERR", "7": "BAD_RESP_ERR",
    "8": "LOC_ACCESS_ERR", "9": "REM_INV_REQ_ERR", "10": "REM_ACCESS_ERR", "11": "REM_OP_ERR", "12": "RETRY_EXC_ERR",
    "13": "RNR_RETRY_EXC_ERR", "16": "REM_ABORT_ERR", "19": "FATAL_ERR", "20": "RESP_TIMEOUT_ERR", "21": "GENERAL_ERR",
}  # fmt: skip
"""enum ibv_wc_status of libibverbs."""
MLX5 = {"Transport retry count exceeded": "RETRY_EXC_ERR", "Receive-no-ready retry count exceeded": "RNR_RETRY_EXC_ERR"}
"""Words of UCX's accelerated transports for a completion status (src/uct/ib/mlx5/ib_mlx5_log.c)."""
CERTAIN = re.compile(
    r"Watchdog caught collective operation timeout: .*|\S*(?:DistBackendError|DistStoreError)\b.*"
    r"|NCCL WARN (?P<words>Call to ibv_(?:modify_qp|create_qp|reg_mr\w*) failed.*|NET/IB : \S+ async fatal event.*)"
)
CONSEQUENCE = re.compile(
    r"remote process exited|Watchdog|DistStoreError|DistNetworkError|Connection (?:reset|closed|refused)|Broken pipe"
    r"|ncclRemoteError|NCCL (?:error|watchdog)"
)
"""Words of a rank that another one's end, or the network, has ended."""
ASYNC = re.compile(
    r"NET/IB ?: (?P<device>[\w.-]{1,64}):\d+ Got (?:non-fatal )?async event ?: port (?P<state>error|active)\b"
)
"""NCCL's words for a port that goes down or up: of the carrier of its device."""
FAILED = re.compile(
    r"(?:\w+\.)*\w*(?:Error|Exception)\b: .*|ncclRemoteError.*"
    r"|(?:Segmentation fault|Signal: |Aborted|Killed|core dumped).*"
)
"""Words of an end, and of what may also have been survived."""
PREFIX = re.compile(
    r"\[rank(?P<torch>\d{1,6})\]:|^\[\d+,(?P<mpi>\d{1,6})\]<std(?:out|err)>:|^ {0,6}(?P<srun>\d{1,6}): "
    r"|\[PG (?:ID \d+ PG )?(?:GUID )?0 ?\(default_pg\) Rank (?P<group>\d{1,6})\]"
)
PROCESS = re.compile(r"(?:^|[\s>\]])(?P<host>[\w.-]{1,253}):(?P<pid>\d{1,10}):\d{1,10} \[\d{1,4}\] .*NCCL ")
INIT = re.compile(PROCESS.pattern + r"INFO .*\bcomm \w+ rank (?P<rank>\d{1,6}) n[rR]anks (?P<size>\d{1,7})\b")
"""NCCL's lines, and the one that names the rank of a process."""
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

    @property
    def own(self) -> bool:
        """Whether it is a program's own error, and not one that the network or another rank causes."""
        return not (self.status or CONSEQUENCE.search(self.text) or UNREACHED.search(self.text))


def link_changes(text: str, year: int, zone: int = 0) -> Iterator[LinkChange]:
    """Yield the links that a log reports as down or up, at lines with a time."""
    for line in lines(text):
        for words in LINKS:
            found = words.search(line)
            t = time_of(line, year, zone) if found else None
            if found and t is not None:
                yield LinkChange(t, long(found["port"]), found["state"].lower() in UP, line.strip()[-160:])
                break


def port_changes(text: str, year: int, zone: int = 0) -> Iterator[LinkChange]:
    """Yield the ports of RDMA devices that go down or up by a rank's log; a line without a time has that of the line
    before it."""
    t: int | None = None
    for line in lines(text):
        now = time_of(line, year, zone)
        t = t if now is None else now
        if t is not None and (found := ASYNC.search(line)):
            yield LinkChange(t, found["device"], found["state"] == "active", line.strip()[-160:])


def end(text: str, year: int, zone: int = 0) -> End | None:
    """Return what a rank's log says of its end; None if it says nothing. Of several errors the last one ended it."""
    failure: End | None = None
    for line in lines(text):
        if found := NCCL.search(line):
            status = STATUSES.get(found["status"], f"status {found['status']}")
            return End(time_of(line, year, zone), status, line[found.start() :].strip()[:200])
        for words, status in (STATUS | MLX5).items():
            if words in line:
                return End(time_of(line, year, zone), status, words)
        if found := UNREACHED.search(line):
            return End(time_of(line, year, zone), "", found[0][:200])
        if found := CERTAIN.search(line):
            said = (found["words"] or found[0])[:200]
            failure = failure if failure and failure.certain else End(time_of(line, year, zone), "", said)
        elif (found := FAILED.search(line)) and not (failure and failure.certain):
            failure = End(time_of(line, year, zone), "", line.strip()[:200], certain=False)
    return failure


def span(text: str, year: int, zone: int = 0) -> tuple[int, int] | None:
    """Return the first and the last time of a log."""
    times = [t for line in lines(text) if (t := time_of(line, year, zone)) is not None]
    return (min(times), max(times)) if times else None


def of_ranks(text: str, hosts: Sequence[str]) -> tuple[dict[int, str], str]:
    """Return the lines of each rank in the output of all: by the prefixes of PyTorch, mpirun and srun, else by the
    host and process that NCCL names; and the lines that are of no known rank."""
    found: dict[int | None, list[str]] = {None: []}
    processes = {
        (short(named["host"]), named["pid"]): int(named["rank"])
        for line in lines(text)
        if (named := INIT.search(line)) and int(named["size"]) == len(hosts)
    }
    for line in lines(text):
        if prefix := PREFIX.search(line):
            rank: int | None = int(prefix["torch"] or prefix["mpi"] or prefix["srun"] or prefix["group"])
        elif process := PROCESS.search(line):
            name = short(process["host"])
            rank = processes.get((name, process["pid"]), hosts.index(name) if hosts.count(name) == 1 else None)
        else:
            rank = None
        found.setdefault(rank if rank is None or rank < len(hosts) else None, []).append(line)
    others = "\n".join(found.pop(None))
    return {rank: "\n".join(own) for rank, own in found.items() if rank is not None}, others


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a log, their beginnings where they are long."""
    return (line[:LONGEST] for line in text.split("\n"))
