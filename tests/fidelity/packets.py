"""DCQCN packet by packet: senders, a link that marks, and the paper's algorithm, in a few lines that share nothing with
the lab's programs.

The fluid model has rates that flow; here, as in the lab, they change in steps, and a queue of a few packets is not at
its fixed point all the time.
"""

import heapq
import random
from dataclasses import dataclass
from typing import NamedTuple


class Link(NamedTuple):
    """Bits per second, bytes of a packet, Kmin and Kmax in bytes, Pmax, packets that a sender may have under way."""

    rate: float
    packet: int
    least: float
    most: float
    probability: float
    window: int


class Algorithm(NamedTuple):
    """DCQCN's values: seconds, bits per second, bytes."""

    cnp: float
    alpha: float
    increase: float
    increase_bytes: float
    additive: float
    hyper: float
    floor: float
    stages: int = 5
    g: float = 1 / 256


@dataclass
class Sender:
    """A reaction point (SIGCOMM 2015, section 5)."""

    line: float
    values: Algorithm
    limited = False
    rate = target = alpha = alpha_at = increase_at = next_at = 0.0
    time_stage = byte_stage = sent_bytes = under_way = 0
    notified = -1.0
    waits = False

    def grow(self) -> None:
        most, least = max(self.time_stage, self.byte_stage), min(self.time_stage, self.byte_stage)
        if least > self.values.stages:
            self.target += self.values.hyper * (least - self.values.stages)
        elif most > self.values.stages:
            self.target += self.values.additive
        self.target = min(self.target, self.line)
        self.rate = (self.rate + self.target) / 2
        self.limited = self.rate < self.line * 0.999

    def pass_time(self, now: float) -> None:
        while (
            self.limited
            and (at := min(self.alpha_at + self.values.alpha, self.increase_at + self.values.increase)) <= now
        ):
            if at == self.alpha_at + self.values.alpha:
                self.alpha *= 1 - self.values.g
                self.alpha_at = at
            else:
                self.increase_at = at
                self.time_stage += 1
                self.grow()

    def cut(self, now: float) -> None:
        self.pass_time(now)
        if not self.limited:
            self.limited, self.rate, self.alpha = True, self.line, 1.0
        self.target = self.rate
        self.rate = max(self.values.floor, self.rate * (1 - self.alpha / 2))
        self.alpha = self.alpha * (1 - self.values.g) + self.values.g
        self.alpha_at = self.increase_at = now
        self.time_stage = self.byte_stage = self.sent_bytes = 0

    def gap(self, now: float, size: int) -> float:
        """Seconds between the start of this packet and of the next one."""
        self.pass_time(now)
        if not self.limited:
            return size * 8 / self.line
        self.sent_bytes += size
        if self.sent_bytes >= self.values.increase_bytes:
            self.sent_bytes = 0
            self.byte_stage += 1
            self.grow()
        return size * 8 / self.rate


def mean_queue(link: Link, values: Algorithm, flows: int, seconds: float, start: float, seed: int = 1) -> float:
    """Bytes that wait for the link on average from `start` to `seconds`."""
    dice = random.Random(seed)  # noqa: S311
    senders = [Sender(link.rate, values) for _ in range(flows)]
    events = [(dice.random() / 1000, number, "send") for number in range(flows)]
    waiting: list[tuple[int, bool]] = []
    sending: tuple[int, bool] | None = None
    last, area, takes = 0.0, 0.0, link.packet * 8 / link.rate
    while events[0][0] < seconds:
        now, number, kind = heapq.heappop(events)
        area += len(waiting) * link.packet * (now - last) if last >= start else 0
        last = now
        if kind == "send":
            sender = senders[number]
            if sender.under_way >= link.window:
                sender.waits = True
                continue
            sender.under_way += 1
            over = (len(waiting) * link.packet - link.least) / (link.most - link.least)
            waiting.append((number, over > 1 or dice.random() < link.probability * over))
            sender.next_at = max(sender.next_at + sender.gap(now, link.packet), now)
            heapq.heappush(events, (max(sender.next_at, now + takes), number, "send"))
        elif sending:
            (number, marked), sending = sending, None
            sender = senders[number]
            sender.under_way -= 1
            if marked and now - sender.notified >= values.cnp:
                sender.notified = now
                sender.cut(now)
            if sender.waits:
                sender.waits = False
                heapq.heappush(events, (now, number, "send"))
        if waiting and not sending:
            sending = waiting.pop(0)
            heapq.heappush(events, (now + takes, sending[0], "sent"))
    return area / (last - start)
