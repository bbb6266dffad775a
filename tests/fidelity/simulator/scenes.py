"""What the lab measures (inside/spraying.py, inside/hpcc.py), in the simulator."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .hpcc import Hpcc, Values
from .network import Balance, Clock, Flow, Host, Packet, Port, Switch

PHASES_S = 0.05
"""Flows start within this time, at random."""


@dataclass(frozen=True)
class Rates:
    """Bits per second: of the first leaf's hosts, of the other's, of the first leaf's uplinks, of the other links."""

    hosts: Sequence[float]
    receiver: float
    uplinks: Sequence[float]
    spine: float


class LeafSpine:
    """Two leaves, and a spine for each uplink. The leaves balance, each by a function of its own."""

    def __init__(self, rates: Rates, balance: Callable[[], Balance]) -> None:
        self.clock = clock = Clock()
        self.near, self.far = ([Host(clock) for _ in rates.hosts] for _ in range(2))
        leaves, spines = [Switch(balance()), Switch(balance())], [Switch() for _ in rates.uplinks]
        self.uplinks = [Port(clock, rate, spine.receive) for rate, spine in zip(rates.uplinks, spines, strict=True)]
        ups = [self.uplinks, [Port(clock, rates.spine, spine.receive) for spine in spines]]
        for leaf, other, hosts, speeds in (
            (leaves[0], leaves[1], self.near, rates.hosts),
            (leaves[1], leaves[0], self.far, [rates.receiver] * len(self.far)),
        ):
            for host, rate in zip(hosts, speeds, strict=True):
                host.port = Port(clock, rate, leaf.receive)
                leaf.routes[host] = [Port(clock, rate, host.receive)]
                other.routes[host] = ups[leaf is leaves[0]]
            for spine in spines:
                down = Port(clock, rates.spine, leaf.receive)
                spine.routes |= {host: [down] for host in hosts}
        self.downlinks = [leaves[1].routes[host][0] for host in self.far]


class Chain:
    """Switches in a row, one subnet, whose ports write telemetry. `rates` are those of the links between switches."""

    def __init__(self, rates: Sequence[float] = (), delay: float = 0.0) -> None:
        self.clock, self.delay = Clock(), delay
        self.switches = [Switch(routed=False) for _ in range(len(rates) + 1)]
        links = list(zip(pairwise(self.switches), rates, strict=True))
        self.right = [self._port(rate, after) for (_, after), rate in links]
        self._left = [self._port(rate, before) for (before, _), rate in links]

    def _port(self, rate: float, to: Switch | Host) -> Port:
        return Port(self.clock, rate, to.receive, delay=self.delay, telemetry=True)

    def host(self, at: int, rate: float) -> Host:
        """A host at a switch."""
        host = Host(self.clock)
        host.port = Port(self.clock, rate, self.switches[at].receive, delay=self.delay)
        port = self._port(rate, host)
        for n, switch in enumerate(self.switches):
            switch.routes[host] = [self.right[n] if n < at else self._left[n - 1] if n > at else port]
        return host

    def flow(self, near: Host, far: Host, message: int, values: Values, start: float) -> Flow:
        flow = Flow(near, far, message)
        flow.echoes, flow.sender = True, Hpcc(flow, values)
        self.clock.at(start, flow.sender.fill)
        return flow


@dataclass
class Steady:
    """Packets per second of ports, their queues in packets by time, and what receivers hold."""

    uplinks: list[float]
    receivers: list[float]
    queues: list[float]
    held: float


def steady(
    rates: Rates, balance: Callable[[random.Random], Balance], message: int, seconds: float, seed: int
) -> Steady:
    """Each host of one leaf writes to one of the other for ever; means from the third second on."""
    dice, start = random.Random(seed), 3.0  # noqa: S311
    net = LeafSpine(rates, lambda: balance(dice))
    flows = [Flow(near, far, message) for near, far in zip(net.near, net.far, strict=True)]
    for flow in flows:
        net.clock.at(dice.random() * PHASES_S, flow.sender.fill)
    net.clock.run(start)
    ports = (net.uplinks, net.downlinks)
    before = [[port.sent_packets for port in some] for some in ports]
    levels = [port.packets for port in net.uplinks], [flow.receiver.held for flow in flows]
    for level in (*levels[0], *levels[1]):
        level.reset()
    net.clock.run(start + seconds)
    ups, downs = (
        [(port.sent_packets - then) / seconds for port, then in zip(some, earlier, strict=True)]
        for some, earlier in zip(ports, before, strict=True)
    )
    return Steady(ups, downs, [level.mean for level in levels[0]], sum(level.mean for level in levels[1]))


def bulk(net: LeafSpine, pairs: Sequence[tuple[Host, Host]], packets: int, rounds: int = 1, gap: float = 0) -> float:
    """All pairs write so many packets at once: the seconds until the last acknowledgement, a mean of rounds."""
    flows, total = [Flow(near, far, packets, 0) for near, far in pairs], 0.0
    for _ in range(rounds):
        began, done = net.clock.now, [flow.sender.una + packets for flow in flows]
        for flow in flows:
            flow.post(packets)
        while any(flow.sender.una < number for flow, number in zip(flows, done, strict=True)):
            net.clock.step()
        total += net.clock.now - began
        net.clock.run(net.clock.now + gap)
    return total / rounds


def ecmp(rates: Rates, picks: Sequence[int], packets: int) -> float:
    """The seconds of `bulk` if each host's packets take the uplink that its flow was given; ACKs take the first one."""
    paths: dict[Host, int] = {}

    def pick(ports: Sequence[Port], packet: Packet) -> Port:
        return ports[paths[packet.flow.source] if packet.kind == "data" else 0]

    net = LeafSpine(rates, lambda: pick)
    paths |= zip(net.near, picks, strict=True)
    return bulk(net, list(zip(net.near, net.far, strict=True)), packets)


@dataclass
class Controlled:
    """Packets per second of senders, and the queues of ports in packets, sampled."""

    rates: list[float]
    queues: list[list[int]]


def controlled(
    net: Chain, flows: Sequence[Flow], ports: Sequence[Port], seconds: float, look: float, start: float = 2.0
) -> Controlled:
    net.clock.run(start)
    before, queues = [flow.sender.next for flow in flows], [list[int]() for _ in ports]
    for _ in range(round(seconds / look)):
        net.clock.run(net.clock.now + look)
        for port, seen in zip(ports, queues, strict=True):
            seen.append(port.packets.value)
    passed = net.clock.now - start
    rates = [(flow.sender.next - then) / passed for flow, then in zip(flows, before, strict=True)]
    return Controlled(rates, queues)


def progress(net: Chain, flows: Sequence[Flow], until: float, look: float) -> Iterator[list[float]]:
    """Seconds, and packets sent by each."""
    began = net.clock.now
    while net.clock.now < began + until:
        net.clock.run(net.clock.now + look)
        yield [net.clock.now - began, *(flow.sender.next for flow in flows)]
