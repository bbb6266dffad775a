"""Links, switches and hosts of the packet simulator.

Sizes are those of IEEE 802.3 and of the InfiniBand specification's annex A17 (RoCEv2). A switch stores a packet, then
forwards it: it is at the next node when its last bit is. CPUs take no time.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

GAP_BYTES, LEAST_BYTES = 24, 84
"""Preamble, FCS and gap between frames; the least that a frame takes on the wire with them."""
PAYLOAD = 1024
HEADERS = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH, ICRC."""
FIRST_BYTES, ACK_BYTES, ECHO_BYTES = 16, 4, 16
"""RETH of a message's first packet, AETH, what an echo of telemetry has."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    def at(self, when: float, act: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (when, next(self._order), act, arguments))

    def step(self) -> None:
        self.now, _, act, arguments = heapq.heappop(self._events)
        act(*arguments)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.step()
        self.now = until


class Level:
    """A number that changes: its mean over time and its maximum since `reset`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.value = self.most = 0
        self._area = self._since = self._start = 0.0

    def add(self, number: int) -> None:
        self._area += self.value * (self._clock.now - self._since)
        self._since = self._clock.now
        self.value += number
        self.most = max(self.most, self.value)

    def reset(self) -> None:
        self._area, self._since, self._start, self.most = 0.0, self._clock.now, self._clock.now, self.value

    @property
    def mean(self) -> float:
        self.add(0)
        return self._area / (self._clock.now - self._start)


@dataclass
class Hop:
    """What a port writes into a packet that it sends (INT): bytes that wait, bytes sent, seconds, bits per second."""

    port: "Port"
    waiting: int
    sent: int
    at: float
    rate: float


@dataclass
class Packet:
    flow: "Flow"
    number: int
    size: int
    kind: str = "data"
    asks: bool = False
    owned: bool = True
    hops: list[Hop] = field(default_factory=list)

    @property
    def link_bytes(self) -> int:
        return max(self.size + GAP_BYTES, LEAST_BYTES)


class Port:
    """A link's near end: a queue of data, and one of echoes before it. A packet that is being sent waits no more.

    `rate` is in bits per second, `delay` in seconds.
    """

    def __init__(
        self, clock: Clock, rate: float, to: Callable[[Packet], None], *, delay: float = 0.0, telemetry: bool = False
    ) -> None:
        self.clock, self.rate, self.to, self.delay, self.telemetry = clock, rate, to, delay, telemetry
        self.bytes, self.packets = Level(clock), Level(clock)
        self.sent_packets = self.sent_bytes = 0
        self._queues: tuple[deque[Packet], ...] = (deque(), deque())
        self._busy = False

    def put(self, packet: Packet) -> None:
        self._queues[packet.kind != "echo"].append(packet)
        self.bytes.add(packet.size)
        self.packets.add(1)
        if not self._busy:
            self._send()

    def _send(self) -> None:
        queue = next((queue for queue in self._queues if queue), None)
        self._busy = queue is not None
        if queue:
            packet = queue.popleft()
            self.bytes.add(-packet.size)
            self.packets.add(-1)
            self.sent_packets += packet.kind == "data"
            self.sent_bytes += packet.link_bytes
            if self.telemetry and packet.kind == "data":
                packet.hops.append(Hop(self, self.bytes.value, self.sent_bytes, self.clock.now, self.rate))
            end = self.clock.now + packet.link_bytes * 8 / self.rate
            self.clock.at(end + self.delay, self.to, packet)
            self.clock.at(end, self._send)


Balance = Callable[[Sequence[Port], Packet], Port]


class Switch:
    """`routes`: the ports towards each host; `balance` picks one of several."""

    def __init__(self, balance: Balance | None = None, *, routed: bool = True) -> None:
        self.routes: dict[Host, list[Port]] = {}
        self._balance, self._routed = balance, routed

    def receive(self, packet: Packet) -> None:
        if self._routed:
            packet.flow.sender.release(packet)
        ports = self.routes[packet.flow.target if packet.kind == "data" else packet.flow.source]
        (self._balance(ports, packet) if self._balance and len(ports) > 1 else ports[0]).put(packet)


def in_turn(dice: random.Random) -> Balance:
    """The next port, for the packets to each host."""
    turns: dict[Host, Iterator[int]] = {}

    def pick(ports: Sequence[Port], packet: Packet) -> Port:
        to = packet.flow.target if packet.kind == "data" else packet.flow.source
        turn = turns.setdefault(to, itertools.count(dice.randrange(len(ports))))
        return ports[next(turn) % len(ports)]

    return pick


def at_random(dice: random.Random) -> Balance:
    return lambda ports, packet: dice.choice(ports)


def shortest_queue(dice: random.Random) -> Balance:
    """The port where the fewest bytes wait; of several, any."""

    def pick(ports: Sequence[Port], packet: Packet) -> Port:
        least = min(port.bytes.value for port in ports)
        return dice.choice([port for port in ports if port.bytes.value == least])

    return pick


def flowlets(dice: random.Random, gap: float) -> Balance:
    """A path at random for what comes after a gap in a flow."""
    last: dict[tuple[Flow, bool], tuple[float, int]] = {}

    def pick(ports: Sequence[Port], packet: Packet) -> Port:
        key, now = (packet.flow, packet.kind == "data"), ports[0].clock.now
        seen, path = last.get(key, (-1.0, 0))
        if seen < 0 or now - seen > gap:
            path = dice.randrange(len(ports))
        last[key] = now, path
        return ports[path]

    return pick


class Host:
    """A NIC. Its queue is a FIFO of all its flows."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.port: Port | None = None

    def send(self, packet: Packet) -> None:
        assert self.port
        self.port.put(packet)

    def receive(self, packet: Packet) -> None:
        flow = packet.flow
        if packet.kind == "data":
            flow.sender.release(packet)
            if flow.echoes:
                size = HEADERS + ECHO_BYTES
                self.send(Packet(flow, packet.number, size, "echo", owned=False, hops=packet.hops))
            flow.receiver.receive(packet)
        elif packet.kind == "ack":
            flow.sender.acknowledged(packet.number)
        else:
            flow.sender.echoed(packet)


class Flow:
    """A queue pair that writes messages of so many packets, one behind the other, `total` of them or for ever.

    Soft-RoCE's sender has at most `window` packets without acknowledgement, and `owned` that no router or receiver has
    taken yet. It asks for an acknowledgement with the last packet of a message, and with each 64th.
    """

    def __init__(
        self, source: Host, target: Host, message: int, total: int | None = None, *, window: int = 129, owned: int = 65
    ) -> None:
        self.source, self.target, self.message, self.total = source, target, message, total
        self.window, self.owned = window, owned
        self.sender, self.receiver = Sender(self), Receiver(self)
        self.echoes = False

    def post(self, packets: int) -> None:
        """Send so many packets more."""
        self.total = (self.total or 0) + packets
        self.sender.fill()


class Sender:
    ASKS = 64

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.next = self.una = self.owned = self._silent = 0

    def fill(self) -> None:
        flow = self.flow
        while (
            self.next - self.una < flow.window
            and self.owned < flow.owned
            and (flow.total is None or self.next < flow.total)
        ):
            place = self.next % flow.message
            self._silent += 1
            asks = place == flow.message - 1 or self._silent >= self.ASKS
            self._silent = 0 if asks else self._silent
            size = HEADERS + PAYLOAD + (FIRST_BYTES if place == 0 else 0)
            packet = Packet(flow, self.next, size, asks=asks)
            self.next += 1
            self.owned += 1
            self.give(packet)

    def give(self, packet: Packet) -> None:
        self.flow.source.send(packet)

    def release(self, packet: Packet) -> None:
        """Somebody else has the packet now."""
        if packet.owned:
            packet.owned = False
            self.owned -= 1
            self.fill()

    def acknowledged(self, number: int) -> None:
        self.una = max(self.una, number)
        self.fill()

    def echoed(self, packet: Packet) -> None:
        raise NotImplementedError


class Receiver:
    """Puts packets in order. `held` are those that wait for an earlier one."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.expected = 0
        self.held = Level(flow.target.clock)
        self.done_at = 0.0
        self._early: dict[int, Packet] = {}

    def receive(self, packet: Packet) -> None:
        if packet.number != self.expected:
            self._early[packet.number] = packet
            self.held.add(1)
            return
        self._take(packet)
        while self.expected in self._early:
            self.held.add(-1)
            self._take(self._early.pop(self.expected))

    def _take(self, packet: Packet) -> None:
        self.expected += 1
        self.done_at = self.flow.target.clock.now
        if packet.asks:
            size = HEADERS + ACK_BYTES
            self.flow.target.send(Packet(self.flow, self.expected, size, "ack", owned=False))
