"""The observations for a diagnosis: the facts that hosts, switches and NICs of a real cluster show.

A run directory also names the fault: the scenario, its variant, its expectations, its faults. Nothing of that passes
here: rules get an `Observations`, and no path.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import InputError
from testbed.protocol import COUNTERS, FLIGHT, TOPOLOGY, Event, InterfaceRow, events, flight
from testbed.protocol.events import Data
from testbed.protocol.flight import Call
from testbed.records import json_files, switch_tables
from testbed.records.bundle.ras import Ras
from testbed.records.comments import rows
from testbed.records.event_reader import Log, happened_ns
from testbed.records.regular_files import opened
from testbed.records.switch_tables import Tables
from testbed.report.owners import Owners

SHOWN = (
    events.Address, events.Announcement, events.Bfd, events.Cni, events.Collective, events.Completion,
    events.Converged, events.Fdb, events.HostRoute, events.Job, events.JobPaths, events.JobStep, events.Link,
    events.Lossless, events.Mtus, events.Neighbour, events.Pause, events.Pod, events.PodRefused, events.Port,
    events.Probed, events.QueuePair, events.Resumed, events.Route,
)  # fmt: skip
"""Events that logs of switches, hosts and jobs have. Others stay outside."""
LOG_BYTES = 1 << 20
"""Bytes read from the end of a log."""
D = TypeVar("D", bound=Data)
End = tuple[str, str]
"""A node and its interface."""
Counters = Mapping[tuple[str, str, str], int]
"""Values by node, interface or RDMA device, and name."""


@dataclass(frozen=True)
class Sent:
    """RoCE packets to an address that a node sent to a MAC which the owner of the address has not, in a capture."""

    t: int
    node: str
    ip: str
    mac: str
    packets: int
    capture: str

    def __str__(self) -> str:
        return f"{self.packets} RoCE packets to {self.ip} go to {self.mac}, in {self.capture}"


@dataclass(frozen=True)
class Refusal:
    """Messages of ICMP by a node that a RoCE packet to an address was not sent on, in a capture. `mtu` is that of its
    next link where the packet was too large, 0 if the node does not say it."""

    t: int
    node: str
    ip: str
    reason: str
    mtu: int | None
    packets: int
    capture: str

    def __str__(self) -> str:
        mtu = f", MTU {self.mtu}" if self.mtu else ""
        return f"ICMP: {self.ip} is unreachable ({self.reason}{mtu}), {self.packets} times in {self.capture}"


@dataclass(frozen=True)
class Observations:
    """The events in their order, the cabling and addresses, the counters and switch tables over time, the flight
    records of jobs and the logs of their ranks."""

    events: Sequence[Event]
    interfaces: Sequence[InterfaceRow]
    counted: Sequence[tuple[int, Counters]]
    """Changed counters, by the time of their reading."""
    flights: Mapping[str, Sequence[Call]]
    """Calls by job."""
    logs: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Logs by job and rank."""
    tables_at: Callable[[int], Tables] = lambda _: {}
    """Function that returns the tables of all switches at a time."""
    epoch: int | None = None
    """The zero of times in nanoseconds since 1970; None for the begin of a run."""
    whole: bool = True
    """Whether the network has no other nodes, links, addresses and counters than these."""
    remarks: Sequence[str] = ()
    """What could not be read."""
    ras: Mapping[str, Ras] = field(default_factory=dict)
    """What NCCL's RAS says, by job."""
    sent: Sequence[Sent] = ()
    refusals: Sequence[Refusal] = ()
    measured_ns: int | None = None
    """Nanoseconds for which counters grew, where they were not read for all of the time."""

    @classmethod
    def read(cls, directory: Path) -> Observations:
        """Read a variant's directory. InputError for files that are missing or damaged."""
        log = Log.read(directory)
        every = [log.event(number) for number in range(len(log.lines))]
        found = [event for event in every if isinstance(events.read(event), SHOWN)]
        # A job's directory and logs have its name.
        known = dict(_placements(found))
        flights = {name: list(_flight(directory / name / FLIGHT)) for name in known}
        ranks = [(name, rank) for name, count in known.items() for rank in range(count)]
        logs = {(name, rank): _end_of(directory / name / f"rank-{rank}.log") for name, rank in ranks}
        interfaces, counted = _interfaces(directory / TOPOLOGY), list(_counted(directory / COUNTERS))

        def tables_at(t: int) -> Tables:
            before = [number for number, event in enumerate(every) if event["t"] <= t]
            return switch_tables.after(directory, log, [before[-1] if before else -1])[0]

        return cls(found, interfaces, counted, flights, logs, tables_at)

    @functools.cached_property
    def owners(self) -> Owners:
        return Owners(self.interfaces, self.events)

    @functools.cached_property
    def peers(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        """The other end of each link, by node and interface. A bond to several switches is none: its members are."""
        found = {}
        for row in self.interfaces:
            node, colon, interface = row["peer"].partition(":")
            if colon:
                found[row["node"], row["interface"]] = node, interface
        split = set()
        for row in self.interfaces:
            ends = [found.get((row["node"], member), ("", "")) for member in row.get("members", ())]
            if len({node for node, _ in ends}) > 1:
                split.add((row["node"], row["interface"]))
        return {end: peer for end, peer in found.items() if end not in split and peer not in split}

    @functools.cached_property
    def members(self) -> Mapping[End, Sequence[End]]:
        """The members of each bond."""
        return {
            (row["node"], row["interface"]): [(row["node"], member) for member in row["members"]]
            for row in self.interfaces
            if row.get("members")
        }

    @functools.cached_property
    def bonds(self) -> Mapping[End, End]:
        """The bond of each member."""
        return {member: bond for bond, members in self.members.items() for member in members}

    @functools.cached_property
    def wires(self) -> Mapping[End, End]:
        """The other end of each link, without bonds of which the links are known themselves."""
        peers = self.peers
        return {end: peer for end, peer in peers.items() if not any(one in peers for one in self.members.get(end, ()))}

    def along(self, end: End) -> frozenset[End]:
        """Return the ends of a link, with the bonds that they are members of; of a bond those of all its links."""
        ends = {end, *self.members.get(end, ())}
        ends |= {self.peers[one] for one in ends if one in self.peers}
        return frozenset(ends | {self.bonds[one] for one in ends if one in self.bonds})

    def ports_to(self, node: str, interface: str, switch: str) -> frozenset[str]:
        """Return the ports of a switch that lead to an interface, with the port channels that they are members of."""
        own = self._alike((node, interface))
        ends = {self.peers[one] for one in own if one in self.peers}
        ends |= {end for end, peer in self.peers.items() if peer in own}
        ends |= {self.bonds[end] for end in ends if end in self.bonds}
        port = self.owners.port(node, interface, switch)
        return frozenset({name for at, name in ends if at == switch} | ({port} if port else set()))

    def ends_at(self, node: str, interface: str) -> frozenset[str]:
        """Return the nodes at which the links of an interface end, with an empty name for those that are not known."""
        own = self._alike((node, interface)) - self.members.keys()
        return frozenset(self.peers.get(one, ("", ""))[0] for one in own) or frozenset({""})

    def _alike(self, end: End) -> frozenset[End]:
        """Return an interface with its members, and those of its node with its MAC: members that nothing names."""
        mac = self.rows[end]["mac"] if end in self.rows else ""
        same = {
            (row["node"], row["interface"])
            for row in self.interfaces
            if row["node"] == end[0] and mac and row["mac"] == mac and row["peer"]
        }
        return frozenset({end, *self.members.get(end, ()), *same})

    @functools.cached_property
    def rows(self) -> Mapping[tuple[str, str], InterfaceRow]:
        return {(row["node"], row["interface"]): row for row in self.interfaces}

    @functools.cached_property
    def gateways(self) -> frozenset[str]:
        """The nodes that forward for others: switches and bridges."""
        return frozenset(row["node"] for row in self.interfaces if row["kind"] not in ("host", "linux"))

    @functools.cached_property
    def devices(self) -> Mapping[tuple[str, str], str]:
        """The interface of an RDMA device, by node and device, also of pods that are gone."""
        found = {(row["node"], row["rdma"]): row["interface"] for row in self.interfaces if row["rdma"]}
        for event, pair in self.of(events.QueuePair):
            found[event["node"], pair.device] = pair.interface
        for event, ended in self.of(events.Cni):
            match ended:
                case events.Cni(command="ADD", result={"interfaces": list(made)}):
                    for one in made:
                        match one:
                            case {"name": str(interface), "rdma-device": str(device)}:
                                found[event["node"], device] = interface
        return found

    def device_of(self, ip: str, t: int) -> tuple[str, str]:
        """Return the node that has an address at a time, and the RDMA device of its interface, empty if that is not
        known; the address in place of the node where nobody has it, or several have."""
        owned = [(one.node, one.interface) for one in self.owners.owners(ip, t)]
        if len(owned) != 1:
            return ip, ""
        return owned[0][0], next((device for (of, device), name in self.devices.items() if (of, name) == owned[0]), "")

    def cabled(self, node: str, interface: str) -> tuple[str, str]:
        """Return the end of a link that an interface uses: itself, or for a pod that of its host in the same subnet."""
        host = self.owners.hosts.get(node)
        has = [
            ip
            for ip, owned in self.owners.of_address.items()
            if any((one.node, one.interface) == (node, interface) for one in owned)
        ]
        for row in self.interfaces if host else ():
            if row["node"] == host and row["address"]:
                subnet = ip_interface(row["address"]).network
                if any(ip_address(ip) in subnet for ip in has):
                    return row["node"], row["interface"]
        return node, interface

    def of(self, *kinds: type[D]) -> Iterator[tuple[Event, D]]:
        """Yield the events with data of these classes."""
        return ((event, data) for event, data in self._read if isinstance(data, kinds))

    @functools.cached_property
    def _read(self) -> list[tuple[Event, Data | None]]:
        return [(event, events.read(event)) for event in self.events]

    def read_at(self, until: int) -> int:
        """Return the time of the reading that `growth` ends with: the first at a time or after it, else the last."""
        return next((t for t, _ in self.counted if t >= until), self.counted[-1][0] if self.counted else until)

    def growth(self, since: int, until: int) -> dict[tuple[str, str, str], int]:
        """Return by node, place and name how much counters grew from the last reading before one time to the first
        after the other."""
        before: dict[tuple[str, str, str], int] = {}
        after: dict[tuple[str, str, str], int] = {}
        for t, found in self.counted:
            if t <= since:
                before |= found
            after |= found
            if t >= until:
                break
        return {key: value - before.get(key, 0) for key, value in after.items() if value > before.get(key, 0)}

    def latest(self, name: str, until: int) -> dict[tuple[str, str], int]:
        """Return the last value of a gauge up to the first reading after a time, by node and place."""
        last: dict[tuple[str, str], int] = {}
        for t, found in self.counted:
            last |= {(node, place): value for (node, place, own), value in found.items() if own == name}
            if t >= until:
                break
        return last

    def mean(self, name: str, since: int, until: int) -> dict[tuple[str, str], float]:
        """Return the mean of a gauge over the readings between two times, by node and place."""
        now: dict[tuple[str, str], int] = {}
        total: Counter[tuple[str, str]] = Counter()
        readings = 0
        for t, found in self.counted:
            # A reading has changed values only.
            now |= {(node, place): value for (node, place, own), value in found.items() if own == name}
            if since <= t <= until:
                total.update(now)
                readings += 1
        return {place: value / readings for place, value in total.items()}


def _placements(found: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """Yield the jobs that began, each with its number of ranks."""
    for job in map(events.JOB.of, found):
        if job and job.hosts is not None and _is_name(job.name):
            yield job.name, len(job.hosts)


def _is_name(found: str) -> bool:
    """Return whether it can be the name of a directory here, and not of one elsewhere."""
    return found not in ("", ".", "..") and "/" not in found and "\0" not in found


def _interfaces(file: Path) -> list[InterfaceRow]:
    return list(rows(json_files.plan(file)))


def _counted(file: Path) -> Iterator[tuple[int, Counters]]:
    for number, line in json_files.lines(file):
        match line:
            case {"t": int(t), "counters": dict(found)}:
                yield t, _by_name(found)
            case _:
                raise InputError("is not a line of counters", where=f"{file}:{number}")


def _by_name(found: Mapping[str, Any]) -> Counters:
    """Return the values of a reading by node, place and name."""
    return {
        (node, place, name): value
        for node, places in found.items()
        if isinstance(places, dict)
        for place, named in places.items()
        if isinstance(named, dict)
        for name, value in named.items()
        if isinstance(value, int)
    }


def _flight(file: Path) -> Iterator[Call]:
    for number, line in json_files.lines(file):
        try:
            yield flight.read(line)
        except ValueError as error:
            raise InputError(str(error), where=f"{file}:{number}") from None


def _end_of(file: Path) -> str:
    if not file.is_file():
        return ""
    with opened(file) as log:
        log.seek(max(0, file.stat().st_size - LOG_BYTES))
        return log.read().decode(errors="replace")


def at(event: Event) -> int:
    """Return the time of the fact that an event reports."""
    return happened_ns(event)
