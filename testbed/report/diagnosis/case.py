"""A job among the observations of its run: where it stopped, its links and addresses, and its counters."""

import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from testbed.protocol.flight import Call
from testbed.report.diagnosis.observations import Observations
from testbed.report.diagnosis.observed_jobs import Job
from testbed.report.owners import Owned

GID = re.compile(r"dgid=(?:::ffff:)?(?P<ip>[0-9a-fA-F.:]+)")
"""UCX's text for a completion with an error: the peer that did not answer."""
SLOW_NS = 1_000_000_000
"""A call of MPI of this length is a pause of the job, if it is `SLOW_TIMES` as long as the median of all, too."""
SLOW_TIMES = 10
MOST_RANKS = 1 << 12
"""Maximum of ranks of a communicator."""


@dataclass(frozen=True)
class Collective:
    """A collective of a communicator, with the calls of the ranks that entered it."""

    communicator: str
    sequence: int
    calls: Sequence[Call]
    absent: Sequence[int]
    """Ranks of the communicator that did not enter it."""

    def __str__(self) -> str:
        """Return ``collective 7 (Allreduce of 4096 bytes) of ranks 0-3``."""
        call = self.calls[0]
        size = f" of {call.bytes} bytes" if call.bytes else ""
        return f"collective {self.sequence} ({call.operation}{size}) of ranks {self.communicator}"

    @property
    def began(self) -> int:
        return min(call.began for call in self.calls)

    @property
    def ended(self) -> int:
        """The time when the last rank left it; its beginning if none has."""
        return max((call.ended for call in self.calls if call.ended), default=self.began)

    @property
    def lasted(self) -> int:
        return self.ended - self.began

    @property
    def waiting(self) -> list[int]:
        return sorted(call.rank for call in self.calls if call.ended is None)

    def json(self) -> dict[str, object]:
        return {
            "operation": self.calls[0].operation,
            "communicator": self.communicator,
            "number": self.sequence,
            "bytes": self.calls[0].bytes,
            "since": self.began,
            "waiting": self.waiting,
            "absent": list(self.absent),
        }


@dataclass(frozen=True)
class Address:
    """An address of ranks, with the interface that has it."""

    owner: Owned
    ranks: Sequence[int]


@dataclass(frozen=True)
class Case:
    """A job among the observations of its run."""

    seen: Observations
    job: Job

    def rank(self, number: int) -> str:
        """Return ``rank 3 on n3``."""
        return f"rank {number} on {self.job.hosts[number]}"

    def ranks(self, numbers: Sequence[int]) -> str:
        """Return ``rank 2 on n2 and rank 3 on n3 and 6 more``."""
        more = f" and {len(numbers) - 2} more" if numbers[2:] else ""
        return " and ".join(self.rank(number) for number in numbers[:2]) + more

    def log(self, rank: int) -> str:
        """Return the end of a rank's output."""
        return self.seen.logs.get((self.job.name, rank), "")

    def ranks_on(self, node: str) -> list[int]:
        return [number for number, host in enumerate(self.job.hosts) if host == node]

    @property
    def ending(self) -> str:
        """The end of the job in words."""
        job = self.job
        if job.ok:
            return "ends well"
        first = f"{self.rank(job.rank)} ends first" if job.rank is not None else ""
        how = ": ".join(part for part in (job.status, job.failure) if part)
        reason = f"{first}: {how}" if first and how else first or how
        if job.late or job.ok is None:
            return f"was still running when it was stopped{f'; {reason}' if reason else ''}"
        return reason or "ends without success"

    @functools.cached_property
    def ports(self) -> Mapping[tuple[str, str], list[int]]:
        """Ranks by their end of a link; those in pods by that of their host."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for nic, ranks in self.nics.items():
            found[self.seen.cabled(*nic)] += ranks
        return found

    @functools.cached_property
    def nics(self) -> Mapping[tuple[str, str], list[int]]:
        """Ranks by the RDMA interface of their host or pod."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, (host, device) in enumerate(zip(self.job.hosts, self.job.devices, strict=False)):
            if interface := self.seen.devices.get((host, device)):
                found[host, interface].append(number)
        return found

    @functools.cached_property
    def addresses(self) -> Mapping[str, Address]:
        """The addresses that ranks use, at the end of the job."""
        return {
            ip: Address(one, self.nics[one.node, one.interface])
            for ip, owned in self.seen.owners.of_address.items()
            for one in owned
            if one.at(self.job.ended) and (one.node, one.interface) in self.nics
        }

    @functools.cached_property
    def calls(self) -> Sequence[Call]:
        ranks = len(self.job.hosts)
        recorded = self.job.collectives or self.seen.flights.get(self.job.name, ())
        return [call for call in recorded if 0 <= call.rank < ranks]

    @functools.cached_property
    def collectives(self) -> Sequence[Collective]:
        """Collectives in the order of their beginnings."""
        found: dict[tuple[str, int], list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.sequence:
                found[call.communicator, call.sequence].append(call)
        made = [
            Collective(name, number, calls, sorted({*members(name)} - {call.rank for call in calls}))
            for (name, number), calls in found.items()
        ]
        return sorted(made, key=lambda one: one.began)

    @functools.cached_property
    def done(self) -> Sequence[Collective]:
        """Collectives that set a job's pace: in the first one of a launched job ranks wait for each other's start."""
        return [one for one in self.collectives[0 if self.job.collectives else 1 :] if not one.waiting]

    @functools.cached_property
    def lasted(self) -> int:
        """Nanoseconds in the collectives of `done`."""
        return sum(one.lasted for one in self.done)

    @functools.cached_property
    def stuck(self) -> Collective | None:
        """The first collective in which a rank was when the job ended."""
        return next((one for one in self.collectives if one.waiting), None)

    @functools.cached_property
    def unanswered(self) -> Mapping[str, list[int]]:
        """The addresses that did not answer, with the ranks whose completions report so, from their logs."""
        found: dict[str, list[int]] = {}
        for (name, rank), text in self.seen.logs.items():
            if name == self.job.name:
                for ip in dict.fromkeys(match["ip"] for match in GID.finditer(text)):
                    found.setdefault(ip, []).append(rank)
        return found

    @functools.cached_property
    def growth(self) -> Mapping[tuple[str, str, str], int]:
        """Growth of counters while the job ran, by node, interface or device, and name. Counters beside a job for which
        they are not read do not count against it if it ended well."""
        if self.job.counted_ns is None and self.job.ok:
            return {}
        return self.seen.growth(self.job.began + (self.job.counted_ns or 0), self.job.ended)

    @functools.cached_property
    def counted_at(self) -> int:
        """The time of the reading behind `growth`: what it tells was so at that time, perhaps not before."""
        return self.seen.read_at(self.job.ended)

    @functools.cached_property
    def busy(self) -> Mapping[tuple[str, str], float]:
        """Seconds for which each end of a link sent while the job ran: its bytes by its rate, where that is known."""
        rates = self.seen.latest("queue_rate_bps", self.job.ended)
        return {
            end: 8 * self.growth.get((*end, "tx_bytes"), 0) / rates[end] for end in self.seen.peers if rates.get(end)
        }

    @functools.cached_property
    def waiting(self) -> Mapping[tuple[str, str], float]:
        """Packets that waited in the queue of an interface, on average over the readings while the job ran."""
        return self.seen.mean("queue_waiting", self.job.began, self.job.ended)

    @functools.cached_property
    def pauses(self) -> list[Collective]:
        """The collectives that lasted far longer than others. In the first one of a communicator ranks connect."""
        lasted = {
            (one.communicator, one.sequence): one.lasted
            for one in self.collectives
            if one.sequence > 1 and any(call.ended for call in one.calls)
        }
        if not lasted:
            return []
        usual = median(lasted.values())
        return [
            one
            for one in self.collectives
            if lasted.get((one.communicator, one.sequence), 0) >= max(SLOW_NS, SLOW_TIMES * usual)
        ]


def members(communicator: str) -> list[int]:
    """Return the ranks of a communicator by its name: ``0-2,5#2``."""
    found: list[int] = []
    for part in communicator.partition("#")[0].partition(" ")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found += range(int(first), min(int(last or first), int(first) + MOST_RANKS) + 1)
    return found
