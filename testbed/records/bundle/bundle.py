"""The files of a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from testbed.errors import InputError
from testbed.protocol.flight import Call
from testbed.records.bundle import captures, clocks, flights, logs, nodes, ras, watchdog
from testbed.records.bundle.model import Node, colons, long, short
from testbed.records.regular_files import contents

End = tuple[str, str]
"""A node and its interface."""
MOST_FILES = 20_000
MOST_CAPTURES = 64
CAPTURES = (".pcap", ".pcapng")
PLACES = (("hosts", False), ("switches", True))
"""Directories of nodes, and whether these are switches."""
RANK_LOG = "rank-"
OUTPUT = "output.log"
RAS = ("ras.txt", "ras.json")
STATUS = re.compile(r"-?[0-9]{1,5}")


@dataclass
class Job:
    """A job: the hosts of its ranks, and the RDMA device of each, empty where it is not known."""

    name: str
    hosts: list[str]
    devices: list[str]
    calls: list[Call] = field(default_factory=list)
    logs: dict[int, str] = field(default_factory=dict)
    output: str = ""
    """Lines of its output that are of no known rank."""
    status: int | None = None
    """Exit status of its launcher."""
    ras: ras.Ras | None = None
    """What NCCL's RAS says of its ranks."""


@dataclass
class Bundle:
    """What was collected. Times of all nodes are those of one clock, nanoseconds since 1970, as far as the clocks
    are known; `unknown_clocks` are the nodes for which they are not."""

    nodes: dict[str, Node]
    jobs: list[Job]
    changes: dict[tuple[str, str], list[logs.LinkChange]]
    ahead: dict[str, int]
    remarks: list[str]
    captures: list[captures.Capture] = field(default_factory=list)

    @property
    def unknown_clocks(self) -> list[str]:
        return sorted(name for name in self.nodes if name not in self.ahead)

    @classmethod
    def read(cls, directory: Path) -> Bundle:
        """Read a bundle. InputError if it is none."""
        if not directory.is_dir():
            raise InputError("is no directory", where=str(directory), hint="See docs/diagnosis.md, Real clusters.")
        remarks: list[str] = []
        found: dict[str, Node] = {}
        changes: dict[tuple[str, str], list[logs.LinkChange]] = {}
        for place, switch in PLACES:
            for path in _files(directory / place, ".txt"):
                node = nodes.read(short(path.stem), _text(path, remarks), switch=switch)
                found[node.name] = node
                remarks += node.remarks
            for path in _files(directory / place, ".log"):
                name = short(path.stem)
                node = found.setdefault(name, Node(name, switch))
                year = _year(node.collected or path.stat().st_mtime_ns)
                for change in logs.link_changes(_text(path, remarks), year, node.zone):
                    changes.setdefault((name, change.port), []).append(change)
        captured = list(_captures(directory, found, remarks))
        jobs = [_job(path, found, remarks) for path in sorted(_directories(directory / "jobs"))]
        if not found and not jobs:
            raise InputError(
                "has nothing of a cluster: no hosts/*.txt, no switches/*.txt, no jobs/*, no captures",
                where=str(directory),
                hint="docs/diagnosis.md has the layout; collect.sh prints what a host has.",
            )
        made = cls(found, [job for job in jobs if job], changes, {}, remarks, captured)
        made._add_what_logs_say()
        for name, port in made.peers:
            made.nodes[name].interface(port)
        asked = {name: node.collected - node.asked for name, node in found.items() if node.asked and node.collected}
        times = {end: [(one.t, one.up) for one in own] for end, own in changes.items()}
        calls = [call for job in made.jobs for call in job.calls]
        made.ahead = clocks.ahead(asked, calls, times, made.peers)
        return made

    def _add_what_logs_say(self) -> None:
        """Add the calls in which ranks wait by their logs, where there is no flight record, and ports that go down."""
        for job in self.jobs:
            recorded = {call.rank for call in job.calls}
            for rank, text in job.logs.items():
                host = job.hosts[rank]
                year, zone = self.year(host), self.zone(host)
                if rank not in recorded:
                    job.calls += watchdog.calls(text, rank, host, year, zone)
                own = self.nodes[host].interfaces.values() if host in self.nodes else ()
                ports = {one.rdma: (host, one.name) for one in own if one.rdma}
                for change in logs.port_changes(text, year, zone):
                    self.nodes.setdefault(host, Node(host, False))
                    end = ports.get(change.port, (host, change.port))
                    self.changes.setdefault(end, []).append(replace(change, port=end[1]))
        for changes in self.changes.values():
            changes.sort(key=lambda change: change.t)

    @property
    def lasting(self) -> dict[tuple[str, str], list[logs.LinkChange]]:
        """The changes of links that do not contradict what was collected later: a link that is up did not go down
        last."""
        found = {}
        for (name, port), changes in self.changes.items():
            own = self.nodes[name].interfaces.get(port)
            up = own is not None and own.carrier is True
            found[name, port] = changes[:-1] if up and changes and not changes[-1].up else changes
        return found

    @property
    def peers(self) -> dict[End, End]:
        """The other ends of links: by LLDP, else by the port at which one switch alone, or the one with the fewest MACs
        there, has the MAC of a host's interface. That of a bond is the port channel of all its links, and that of a
        port is the bond where its member there is not known."""
        found: dict[End, End] = {}
        for node in self.nodes.values():
            for port, (other, theirs) in node.cables.items():
                if other in self.nodes:
                    end = other, self._named(other, theirs)
                    found[node.name, port] = end
                    found.setdefault(end, (node.name, port))
        for node in self.nodes.values():
            if not node.switch:
                self._add_by_macs(node, found)
        for node in self.nodes.values():
            for bond, members in node.bonds().items():
                ends = [found.get((node.name, one.name)) for one in members]
                channels = {(end[0], self.master(end)) if end else ("", "") for end in ends}
                if len(channels) == 1 and all(channel := channels.pop()):
                    found[node.name, bond] = channel
        return found

    def master(self, end: End) -> str:
        """Return the bond of which an end of a link is a member, empty if none is known."""
        node = self.nodes.get(end[0])
        return node.interfaces[end[1]].master if node and end[1] in node.interfaces else ""

    def _named(self, node: str, port: str) -> str:
        """Return the interface that LLDP names, by its MAC if that is what it says; the bond of several with that
        MAC."""
        mac = colons(port)
        has = [one for one in self.nodes[node].interfaces.values() if mac and (one.permanent or one.mac) == mac]
        members = [one for one in has if one.master]
        if len(members) > 1:
            return members[0].master
        return next((one.name for one in members or has), port)

    def _add_by_macs(self, node: Node, found: dict[End, End]) -> None:
        """Add the ports at which the MACs of a host are. Interfaces with the MAC of one whose cable is known share
        it."""
        bonds = node.bonds()
        cabled = {one.mac for one in node.interfaces.values() if (node.name, one.name) in found}
        for one in node.interfaces.values():
            members = bonds.get(one.name, [])
            known = one.mac in cabled or any((node.name, member.name) in found for member in members)
            if not one.mac or one.master or known:
                continue
            for end in self._places(one.mac, found, len(members)):
                cabled.add(one.mac)
                found.setdefault((node.name, one.name), end)
                found.setdefault(end, (node.name, one.name))

    def _places(self, mac: str, cabled: Mapping[End, End], members: int) -> list[End]:
        """Return the port of a switch at which a MAC is; of a bond the port channels of several switches."""
        ports = {
            (node.name, port): len({other for (_, other), own in node.macs.items() if own == port})
            for node in self.nodes.values()
            for (_, known), port in (node.macs.items() if node.switch else ())
            if known == mac and (node.name, port) not in cabled and port != node.peer_link
        }
        least = min(ports.values(), default=0)
        fewest = sorted(end for end, count in ports.items() if count == least)
        bonds = all(end[1] in self.nodes[end[0]].bonds() for end in fewest)
        return fewest if bonds and len({name for name, _ in fewest}) <= members else fewest[:1]

    def year(self, name: str) -> int:
        """Return the year of a node's log, for lines that have none."""
        node = self.nodes.get(name)
        return _year(node.collected) if node and node.collected else datetime.now(UTC).year

    def zone(self, name: str) -> int:
        """Return the seconds that a node's logs are ahead of UTC where their lines name no zone."""
        return self.nodes[name].zone if name in self.nodes else 0

    def common(self, node: str, t: int) -> int:
        """Return a time of a node's clock by the common one."""
        return t - self.ahead.get(node, 0)


def _files(directory: Path, *suffixes: str) -> list[Path]:
    if not directory.is_dir():
        return []
    found = sorted(
        path for path in directory.iterdir() if path.suffix in suffixes and path.name.isprintable() and path.is_file()
    )
    if len(found) > MOST_FILES:
        raise InputError(f"has {len(found)} files; {MOST_FILES} are read at most", where=str(directory))
    return found


def _directories(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []


def _text(path: Path, remarks: list[str]) -> str:
    try:
        return contents(path).decode(errors="replace")
    except OSError as error:
        remarks.append(f"{path.name} cannot be read: {error.strerror}")
        return ""


def _captures(directory: Path, found: dict[str, Node], remarks: list[str]) -> Iterator[captures.Capture]:
    """Yield the captures, by their names of a node, and of an interface where they have it."""
    paths = [(path, switch) for place, switch in PLACES for path in _files(directory / place, *CAPTURES)]
    if len(paths) > MOST_CAPTURES:
        remarks.append(f"there are {len(paths)} captures: the first {MOST_CAPTURES} are read")
    for path, switch in paths[:MOST_CAPTURES]:
        name = short(path.stem)
        node = found.setdefault(name, Node(name, switch))
        interface = _interface(node, path.stem.partition(".")[2])
        try:
            capture = captures.read(path, f"{path.parent.name}/{path.name}", name, interface)
        except OSError as error:
            remarks.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        remarks += capture.remarks
        if capture.packets:
            yield capture


def _interface(node: Node, given: str) -> str:
    """Return the interface that the name of a file has, or that of its RDMA device: a slash is no part of a name."""
    words = re.sub(r"\W|_", "", long(given))
    for one in node.interfaces.values():
        if one.rdma and re.sub(r"\W|_", "", one.rdma) == words:
            return one.name
    return next((name for name in (*node.interfaces, *node.cables) if re.sub(r"\W|_", "", name) == words), "")


def _year(t: int) -> int:
    """Return the year of nanoseconds since 1970."""
    return datetime.fromtimestamp(t / 1e9, UTC).year


def _job(directory: Path, found: dict[str, Node], remarks: list[str]) -> Job | None:
    """Read a job's directory; None without the hosts of its ranks."""
    rows = [line.split() for line in _text(directory / "hosts", remarks).split("\n") if line.strip()]
    if not rows:
        remarks.append(f"job {directory.name} is left out: jobs/{directory.name}/hosts names no host of a rank")
        return None
    hosts = [short(row[0]) for row in rows]
    devices = [row[1] if row[1:] else _device(found.get(host)) for row, host in zip(rows, hosts, strict=True)]
    job = Job(directory.name, hosts, devices)
    for rank, path in flights.dumps(directory / "flight"):
        if rank >= len(hosts):
            remarks.append(f"{path.name}: the job has no rank {rank}")
            continue
        try:
            job.calls += flights.read(path, rank, hosts[rank])
        except ValueError as error:
            remarks.append(f"jobs/{job.name}/flight/{path.name} {error}")
    for rank in range(len(hosts)):
        path = directory / f"{RANK_LOG}{rank}.log"
        if path.is_file():
            job.logs[rank] = _text(path, remarks)
    output = directory / OUTPUT
    if output.is_file():
        found_in, job.output = logs.of_ranks(_text(output, remarks), hosts)
        job.logs = found_in | job.logs
    for path in (directory / name for name in RAS):
        if path.is_file():
            try:
                job.ras = ras.read(_text(path, remarks), len(hosts))
            except ValueError as error:
                remarks.append(f"jobs/{job.name}/{path.name} {error}")
    status = directory / "status"
    if status.is_file() and STATUS.fullmatch(text := _text(status, remarks).strip()):
        job.status = int(text)
    return job


def _device(node: Node | None) -> str:
    """Return the RDMA device of a host that has one."""
    own = [one.rdma for one in node.interfaces.values() if one.rdma and one.addresses] if node else []
    return own[0] if len(own) == 1 else ""
