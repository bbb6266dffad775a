"""Probes between all pairs of NICs: what arrives, how long it takes, and where the network has the rest last."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, Literal, NamedTuple

from testbed.errors import InputError, TestbedError
from testbed.lab import HostInterface, Switch
from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.protocol import events
from testbed.protocol.live import LostAt
from testbed.topology import Family, IPAddress
from testbed.workload.probes.datagrams import Datagrams, Way
from testbed.workload.probes.sightings import MAGIC, NUMBER, Seen, Sightings
from testbed.workload.probes.tcp_probe import TcpEnd
from testbed.workload.queue_pair import PORT, ConnectError, open_device

Protocol = Literal["rdma", "tcp"]
ANSWER_S = 0.1
"""A datagram that has not arrived by then is not waited for; it counts if it comes before the end."""
LATE_S = 1.0
"""Wait at the end for datagrams that are late."""
LOOK_EVERY = 32
"""Probes between two looks at what nodes have seen."""
SLOW, SLOW_US = 5.0, 200.0
"""A port is slow if packets take so many times as long at it as at the middle one, and so many µs."""
FIRST_RETRANSMISSION_S = 1.0
"""Of a SYN (RFC 6298)."""
MOST_PAIRS = 1 << 14
PATHS = 4


@dataclass
class Pair:
    """The probes from one NIC to another. `times_ns` are those of what arrived: of RDMA from when the NIC sent it to
    when the other one had it, of TCP from the SYN to its answer. `error` is why it could not send, or what failed."""

    source: HostInterface
    target: HostInterface
    sent: int = 0
    times_ns: list[int] = field(default_factory=list)
    error: str = ""
    paths: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """How many probes each path took: the interfaces that sent them, in order."""

    @property
    def arrived(self) -> int:
        return len(self.times_ns)

    @property
    def median_us(self) -> float | None:
        return round(statistics.median(self.times_ns) / 1e3, 1) if self.times_ns else None


class Place(NamedTuple):
    """Where a lost probe was seen last, in words. `end` is the interface that should have sent it on, or did."""

    text: str
    end: str = ""


@dataclass
class Mesh:
    """The probes of one protocol. Pairs are those of `nics`, each in both directions."""

    protocol: Protocol
    nics: list[HostInterface]
    size: int
    pairs: dict[tuple[HostInterface, HostInterface], Pair]
    lost_at: Counter[Place] = field(default_factory=Counter)
    """Lost RDMA probes by the place where they were seen last."""
    unseen: int = 0
    """Packets of RDMA probes that the kernel could not show: places and paths are not all known."""
    at_ports: dict[Interface, list[int]] = field(default_factory=dict)
    """How long RDMA probes were in a node before its interface sent them, in ns."""

    def places(self) -> list[LostAt]:
        """Return where lost RDMA probes were seen last, the most frequent place first."""
        found = self.lost_at.most_common()
        return [{"place": place.text, "end": place.end, "count": count} for place, count in found]

    def slow_ports(self) -> dict[str, float]:
        """Return the interfaces that keep packets much longer than others do, with the median in µs."""
        medians = {port: statistics.median(times) / 1e3 for port, times in self.at_ports.items()}
        usual = statistics.median_low(medians.values()) if medians else 0.0
        return {
            str(port): round(median, 1)
            for port, median in sorted(medians.items(), key=lambda item: -item[1])
            if median > SLOW_US and median > SLOW * usual
        }

    @property
    def resent(self) -> int:
        """Return how many TCP connections took so long that the SYN, or its answer, was lost and sent again."""
        times = (time_ns for pair in self.pairs.values() for time_ns in pair.times_ns)
        return sum(time_ns >= FIRST_RETRANSMISSION_S * 1e9 for time_ns in times) if self.protocol == "tcp" else 0

    def data(self) -> events.Probed:
        """Return the data of its event."""
        names = [str(nic) for nic in self.nics]
        at = {nic: number for number, nic in enumerate(self.nics)}
        sent, arrived = ([[0] * len(names) for _ in names] for _ in range(2))
        median: list[list[float | None]] = [[None] * len(names) for _ in names]
        for (source, target), pair in self.pairs.items():
            sent[at[source]][at[target]] = pair.sent
            arrived[at[source]][at[target]] = pair.arrived
            median[at[source]][at[target]] = pair.median_us
        return events.PROBED(
            protocol=self.protocol,
            nics=names,
            bytes=self.size,
            sent=sent,
            arrived=arrived,
            median_us=median,
            errors=[[str(one.source), str(one.target), one.error] for one in self.pairs.values() if one.error],
            lost_at=[dict(place) for place in self.places()],
            slow_ports=self.slow_ports(),
            resent=self.resent,
        )


def mtu_of(nic: HostInterface) -> int:
    """Return the bytes of the largest datagram of a NIC's RDMA device: its active MTU."""
    with closing(open_device(nic.node.namespace, nic.device)) as context:
        return 128 << int(context.query_port(PORT).active_mtu)


def probe(
    nics: Sequence[HostInterface],
    nodes: Iterable[Node[Any]],
    *,
    protocols: Sequence[Protocol] = ("rdma", "tcp"),
    count: int = 8,
    size: int = 0,
    traffic_class: int = 0,
    family: Family = 4,
) -> list[Mesh]:
    """Probe every pair of NICs in both directions, `count` times, and report it as an event of the lab.

    By RDMA: UD datagrams of `size` bytes, by default as many as the NIC's MTU, by turns from PATHS UDP source ports, so
    that ECMP spreads them; `nodes` are asked where they saw them. By TCP: connections. One probe is under way at a
    time. A pair that cannot send, or whose connection fails, is not tried again. InputError for fewer than two NICs, or
    one without an address of `family`.
    """
    if len(nics) < 2:
        raise InputError("a probe needs two NICs or more")
    if len(nics) * (len(nics) - 1) > MOST_PAIRS:
        raise InputError(f"{len(nics)} NICs have more than {MOST_PAIRS} pairs", hint="Name the nodes to probe.")
    found = []
    for protocol in protocols:
        mesh = _new(protocol, nics, size)
        if protocol == "rdma":
            _Rdma(mesh, list(nodes), count, traffic_class, family).run()
        else:
            _tcp(mesh, count, family)
        lost = sum(pair.sent - pair.arrived for pair in mesh.pairs.values())
        sent = sum(pair.sent for pair in mesh.pairs.values())
        text = f"{protocol.upper()} probes between {len(nics)} NICs: {lost} of {sent} are lost"
        nics[0].node.context.emit(mesh.data(), "", text)
        found.append(mesh)
    return found


def _new(protocol: Protocol, nics: Sequence[HostInterface], size: int) -> Mesh:
    narrowest = min(nics, key=mtu_of)
    largest = mtu_of(narrowest)
    if protocol == "rdma" and size > largest:
        raise InputError(f"{size} bytes do not fit into a datagram of {narrowest}", hint=f"Its MTU is {largest}.")
    return Mesh(protocol, list(nics), size or largest, {pair: Pair(*pair) for pair in permutations(nics, 2)})


def _tcp(mesh: Mesh, count: int, family: Family) -> None:
    with ExitStack() as stack:
        ends = {nic: stack.enter_context(TcpEnd(nic, mesh.size, family)) for nic in mesh.nics}
        for _, pair in product(range(count), mesh.pairs.values()):
            if pair.error:
                continue
            pair.sent += 1
            elapsed, pair.error = ends[pair.source].probe(ends[pair.target])
            if not pair.error:
                pair.times_ns.append(elapsed)


class _Sent(NamedTuple):
    """A datagram of a pair, from its queue pair number `path`."""

    pair: Pair
    path: int
    t_ns: int


class _Rdma:
    """The RDMA probes of a mesh."""

    def __init__(self, mesh: Mesh, nodes: list[Node[Any]], count: int, traffic_class: int, family: Family) -> None:
        self._mesh = mesh
        self._nodes = nodes
        self._count = count
        self._traffic_class = traffic_class
        self._family = family
        self._under_way: dict[int, _Sent] = {}
        """By number."""
        self._arrived: dict[int, tuple[Datagrams, int]] = {}
        """By number: where it arrived, and how long after it was sent."""
        self._taken: dict[tuple[int, int], list[Interface]] = {}
        """The interfaces that sent the last probe of a pair and path that arrived."""
        self._lost: list[tuple[_Sent, list[Seen]]] = []

    def run(self) -> None:
        with ExitStack() as stack:
            ends: dict[HostInterface, Datagrams] = {}
            for nic in self._mesh.nics:
                made = ends[nic] = Datagrams(nic, min(PATHS, self._count), self._mesh.size, self._family)
                stack.callback(made.close)
            sightings = Sightings(self._nodes)
            stack.callback(sightings.close)
            ways = [(pair, way) for pair in self._mesh.pairs.values() if (way := self._way(ends, pair))]
            for number, (turn, (pair, way)) in enumerate(product(range(self._count), ways)):
                self._send(number, pair, ends[pair.source], way, turn % min(PATHS, self._count))
                if number % LOOK_EVERY == 0:
                    sightings.look()
                    self._judge(sightings, [one for one in self._under_way if one in self._arrived])
            deadline = time.monotonic() + LATE_S
            while (left := deadline - time.monotonic()) > 0:
                for end in ends.values():
                    self._receive(end)
                if not self._missing():
                    break
                self._ready(list(ends.values()), left)
            sightings.look()
            self._judge(sightings, list(self._under_way))
            self._mesh.unseen = sightings.lost
            usual = self._usual(ends)
            for sent, seen in self._lost:
                self._mesh.lost_at[_last(sent.pair, seen, usual.get((id(sent.pair), sent.path), []))] += 1

    def _usual(self, ends: Mapping[HostInterface, Datagrams]) -> dict[tuple[int, int], list[Interface]]:
        """Return the interfaces that send the probes of a pair and path: those that sent others of them, else the one
        by which the switch that had a lost one routes it."""
        found = {**self._taken}
        asked: dict[Switch, dict[tuple[int, int], tuple[IPAddress, IPAddress, int]]] = {}
        for sent, seen in self._lost:
            key, near, far = (id(sent.pair), sent.path), ends[sent.pair.source], ends[sent.pair.target]
            node = seen[-1].interface.node if seen else None
            if key not in found and isinstance(node, Switch):
                asked.setdefault(node, {})[key] = near.ip, far.ip, near.source_port(sent.path)
        for switch, flows in asked.items():
            with suppress(TestbedError):  # it does not route, or not there
                names = switch.egress_ports(list(flows.values()))
                ports = [switch.interfaces.get(name) for name in names]
                found |= {key: [port] for key, port in zip(flows, ports, strict=True) if port}
        return found

    def _way(self, ends: dict[HostInterface, Datagrams], pair: Pair) -> Way | None:
        try:
            return ends[pair.source].way(ends[pair.target], self._traffic_class)
        except ConnectError as error:
            pair.error = error.message
            return None

    def _ready(self, ends: Sequence[Datagrams], within: float) -> bool:
        return self._mesh.nics[0].node.context.scheduler.ready(ends, within)

    def _missing(self) -> list[int]:
        return [number for number in self._under_way if number not in self._arrived]

    def _send(self, number: int, pair: Pair, end: Datagrams, way: Way, path: int) -> None:
        pair.sent += 1
        self._under_way[number] = _Sent(pair, path, time.monotonic_ns())
        end.send(way, NUMBER.pack(MAGIC, number), path)
        deadline = time.monotonic() + ANSWER_S
        while number not in self._arrived and (left := deadline - time.monotonic()) > 0:
            if self._ready([way.to], left):
                self._receive(way.to)

    def _receive(self, end: Datagrams) -> None:
        for data in end.arrivals(NUMBER.size):
            magic, number = NUMBER.unpack(data)
            if magic == MAGIC and number in self._under_way:
                self._arrived[number] = end, time.monotonic_ns() - self._under_way[number].t_ns

    def _judge(self, sightings: Sightings, numbers: list[int]) -> None:
        """Count probes whose way is known to its end."""
        for number in numbers:
            sent = self._under_way.pop(number)
            pair, seen = sent.pair, sightings.take(number)
            arrived = self._arrived.pop(number, None)
            if arrived and arrived[0].interface is pair.target:
                pair.times_ns.append(_on_the_wire(pair, seen) or arrived[1])
                path = list(dict.fromkeys(one.interface for one in seen if one.out))
                pair.paths[tuple(map(str, path))] += 1
                self._taken[id(pair), sent.path] = path
            elif arrived:
                self._mesh.lost_at[Place(f"received by {arrived[0].interface}, not by {pair.target}")] += 1
            else:
                self._lost.append((sent, seen))
            for port, waited in _waits(seen):
                self._mesh.at_ports.setdefault(port, []).append(waited)


def _on_the_wire(pair: Pair, seen: list[Seen]) -> int | None:
    """Return the time between the two NICs, if both have seen it."""
    first = next((one.t_ns for one in seen if one.out and one.interface is pair.source), None)
    last = next((one.t_ns for one in seen if not one.out and one.interface is pair.target), None)
    return None if first is None or last is None else last - first


def _last(pair: Pair, seen: list[Seen], usual: Sequence[Interface]) -> Place:
    """Return where a lost probe was seen last. `usual` are the interfaces that sent others of its path."""
    sent = [one.interface for one in seen if one.out]
    if not sent:
        return Place(f"not sent by {pair.source}", str(pair.source))
    last = seen[-1].interface
    for node in dict.fromkeys(one.node for one in sent):
        if len({one for one in sent if one.node is node}) > 1:
            return Place(f"sent by several ports of {node}")
    if seen[-1].out:
        return Place(f"sent by {last}" + (f" to {last.peer}" if last.peer else ""), str(last))
    if isinstance(last, HostInterface):
        return Place(f"received by {last}" + ("" if last is pair.target else f", not by {pair.target}"))
    out = next((one for one in usual if one.node is last.node), None)
    if out is None:
        return Place(f"in {last.node}, which sends it by no port")
    return Place(f"in {last.node}, before {out} sends it", str(out))


def _waits(seen: list[Seen]) -> Iterator[tuple[Interface, int]]:
    """Yield how long a packet was in each node before an interface sent it."""
    came: dict[str, int] = {}
    for one in seen:
        node = one.interface.node.name
        if one.out and node in came:
            yield one.interface, one.t_ns - came[node]
        elif not one.out:
            came[node] = one.t_ns
