"""HPCC as in algorithm 1 of "HPCC: High Precision Congestion Control" (SIGCOMM 2019), with an echo for each packet."""

from collections import deque
from dataclasses import dataclass

from .network import Flow, Hop, Packet, Sender


@dataclass(frozen=True)
class Values:
    """Seconds of the idle round trip, W_AI in bytes, eta, maxStage."""

    base_rtt: float
    additive: float
    eta: float = 0.95
    stages: int = 5


class Hpcc(Sender):
    """A sender with a window W and a rate W/T.

    The paper leaves open which bytes these are and when a window is full. As in its authors' simulator
    (alibaba-edu/High-Precision-Congestion-Control), packets are paced by their size without what only the wire has, one
    may go while less than W is under way, and W is at most that of the NIC's rate. Under way is counted in the same
    bytes here, in payload there.
    """

    def __init__(self, flow: Flow, values: Values) -> None:
        super().__init__(flow)
        assert flow.source.port
        self.values, self.line = values, flow.source.port.rate
        self.most = self.window = self.reference = self.line / 8 * values.base_rtt
        self.utilisation, self.stage, self.updated = 1.0, 0, 0
        self._before: list[Hop] = []
        self._paced: deque[Packet] = deque()
        self._in_flight, self._sizes = 0, dict[int, int]()
        self._next_at, self._timer = 0.0, False
        self.sent = 0

    @property
    def rate(self) -> float:
        return self.window / self.values.base_rtt * 8

    def give(self, packet: Packet) -> None:
        self._paced.append(packet)
        self._send()

    def _send(self) -> None:
        clock = self.flow.source.clock
        while self._paced and not self._timer:
            size = self._paced[0].size
            if self._in_flight >= self.window:
                return
            if clock.now < self._next_at:
                self._timer = True
                clock.at(self._next_at, self._due)
                return
            packet = self._paced.popleft()
            self._in_flight += size
            self._sizes[packet.number] = size
            self.sent = packet.number + 1
            self._next_at = clock.now + size * 8 / self.rate
            self.flow.source.send(packet)

    def _due(self) -> None:
        self._timer = False
        self._send()

    def echoed(self, packet: Packet) -> None:
        self._in_flight -= self._sizes.pop(packet.number)
        if self._before:
            self._react(packet)
        self._before = packet.hops
        self._send()

    def _react(self, packet: Packet) -> None:
        """NewAck: the reference window moves once in a round trip."""
        self._measure(packet.hops)
        update = packet.number >= self.updated
        falls = self.utilisation >= self.values.eta or self.stage >= self.values.stages
        factor = self.values.eta / self.utilisation if falls else 1.0
        self.window = min(self.reference * factor + self.values.additive, self.most)
        if update:
            self.stage = 0 if falls else self.stage + 1
            self.reference = self.window
            self.updated = self.sent

    def _measure(self, hops: list[Hop]) -> None:
        """MeasureInflight: U of the busiest hop, smoothed over a round trip."""
        base, highest, passed = self.values.base_rtt, 0.0, 0.0
        for now, then in zip(hops, self._before, strict=True):
            waiting = min(now.waiting, then.waiting) * 8 / (now.rate * base)
            used = (now.sent - then.sent) * 8 / (now.at - then.at) / now.rate
            if waiting + used > highest:
                highest, passed = waiting + used, now.at - then.at
        part = min(passed, base) / base
        self.utilisation = (1 - part) * self.utilisation + part * highest
