"""A job among the observations of its run: where it stopped, its links and addresses, and its counters."""

import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from testbed.protocol import events
from testbed.protocol.flight import Call
from testbed.records.counter_names import find
from testbed.report.diagnosis.calls import Collective, Wait, collectives, waits
from testbed.report.diagnosis.observations import Observations, at
from testbed.report.diagnosis.observed_jobs import Job
from testbed.report.owners import Owned

GID = re.compile(
    r"(?:\bdgid[ =]|(?:status=(?:IBV_WC_RETRY_EXC_ERR\()?|with error )12\b[^\n]*? remoteGids? ?|\bremote GID )"
    r"(?:::ffff:)?(?P<ip>[0-9a-fA-F.:]+)"
)
"""UCX's and NCCL's texts for a peer that did not answer: retries that are used up, and a queue pair that cannot be
connected."""
SLOW_NS = 1_000_000_000
"""A call of MPI of this length is a pause of the job, if it is `SLOW_TIMES` as long as the median of all, too."""
SLOW_TIMES = 10


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
        if job.ok is None and not self.seen.whole:
            return f"has no known end{f'; {reason}' if reason else ''}"
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
    def parts(self) -> Mapping[tuple[str, str], str]:
        """The parts of the network that cables join, by the ends of the links of ranks: those with the same name may
        reach each other. Any node without a rank may forward."""
        own = {node for node, _ in self.ports}
        part: dict[str, str] = {}

        def name(place: str) -> str:
            while part.setdefault(place, place) != place:
                place = part[place]
            return place

        def place(end: tuple[str, str]) -> str:
            return ":".join(end) if end[0] in own else end[0]

        for row in self.seen.interfaces:
            for member in row.get("members", ()):
                part[name(place((row["node"], member)))] = name(place((row["node"], row["interface"])))
        for end, peer in self.seen.peers.items():
            part[name(place(end))] = name(place(peer))
        return {end: name(place(end)) for end in self.ports}

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
        return collectives(self.calls)

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
    def waits(self) -> Sequence[Wait]:
        """The calls between two ranks in which ranks were when the job ended."""
        return waits(self.calls)

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
    def cut_off(self) -> Sequence[int]:
        """The ranks that are one end of every two that do not reach each other, where there are several such."""
        pairs = [
            {asking, *self.addresses[ip].ranks}
            for ip, ranks in self.unanswered.items()
            for asking in ranks
            if ip in self.addresses
        ]
        return sorted(set.intersection(*pairs)) if len(pairs) > 1 else []

    @functools.cached_property
    def growth(self) -> Mapping[tuple[str, str, str], int]:
        """Growth of counters while the job ran, by node, interface or device, and name. Counters beside a job for which
        they are not read do not count against it if it ended well."""
        if self.job.counted_ns is None and self.job.ok:
            return {}
        return self.seen.growth(self.job.began + (self.job.counted_ns or 0), self.job.ended)

    def sent_again_since(self, t: int) -> bool:
        """Return whether RDMA devices of the ranks sent packets again, or missed some, in `growth_since`."""
        return any(
            (node, place) in self.seen.devices and find(name).role in ("retry", "gap") and self.ranks_on(node)
            for node, place, name in self.growth_since(t)
        )

    def growth_since(self, t: int) -> Mapping[tuple[str, str, str], int]:
        """Return the growth of counters to the end of the job from their first reading after a time, or from the last
        before it where that is the only one."""
        first = self.seen.read_at(t)
        return self.seen.growth(first if first < self.seen.read_at(self.job.ended) else t, self.job.ended)

    @functools.cached_property
    def counters(self) -> frozenset[tuple[str, str, str]]:
        """All counters that were read, by node, interface or device, and name."""
        return frozenset(key for _, found in self.seen.counted for key in found)

    @functools.cached_property
    def routes(self) -> Sequence[tuple[int, str]]:
        """The changes of switches' routes while the job ran."""
        found = ((at(event), f"{event['node']}: {event['text']}") for event, _ in self.seen.of(events.Route))
        return [one for one in found if self.job.began < one[0] < self.job.ended]

    @functools.cached_property
    def counted_at(self) -> int:
        """The time of the reading behind `growth`: what it tells was so at that time, perhaps not before."""
        return self.seen.read_at(self.job.ended)

    @functools.cached_property
    def busy(self) -> Mapping[tuple[str, str], float]:
        """Seconds for which each end of a link sent while the job ran: its bytes by its rate, where that is known."""
        return {
            end: 8 * self.growth.get((*end, "tx_bytes"), 0) / self.rates[end]
            for end in self.seen.peers
            if self.rates.get(end)
        }

    @functools.cached_property
    def paths(self) -> Mapping[tuple[int, int], Sequence[str]]:
        """The interfaces that sent the packets from a rank to another, in order, where that is known: the flow with the
        first source port."""
        found: dict[tuple[int, int], Sequence[str]] = {}
        for _, data in self.seen.of(events.JobPaths):
            for flow in data.flows if data.name == self.job.name else ():
                match flow:
                    case [int(one), int(other), int(), [*ends]] if all(isinstance(end, str) for end in ends):
                        found.setdefault((one, other), ends)
        return found

    def over(self, link: str) -> list[tuple[int, int]]:
        """Return the ranks whose flows are sent by an end of a link, such as ``leaf2:e2 - n3:eth1``."""
        ends = set(link.split(" - "))
        return [pair for pair, path in self.paths.items() if not ends.isdisjoint(path)]

    @functools.cached_property
    def rates(self) -> Mapping[tuple[str, str], int]:
        """Bits per second at which ends of links send, where that is known."""
        return self.seen.latest("queue_rate_bps", self.job.ended)

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
