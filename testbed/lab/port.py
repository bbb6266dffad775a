"""A port of a lossless link: its queues by class, its pause frames, its counters. docs/lossless.md."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from testbed.errors import InputError, did_you_mean
from testbed.kernel.lossless import port_counters
from testbed.kernel.lossless.layout import PRIORITIES, constants
from testbed.kernel.lossless.ports import Ports
from testbed.lab.overlay import Overlay
from testbed.nic.congestion_control import Algorithm
from testbed.switch.buffer import Marking
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Lossless, Reordering
from testbed.topology.plan import CONTROL_DSCP, CONTROL_PRIORITY

SETTINGS = (
    *("sends_pause", "honours_pause", "headroom", "reserve", "marking", "dscp", "pcp", "weights", "strict"),
    *("watchdog_poll_ns", "watchdog_detect_ns", "watchdog_restore_ns", "watchdog_action", "holds", "receives"),
    "reorder",
)
KIB = 1024
HELD_PACKETS = 256
UNLIMITED_NS = 1_000_000
"""The time for which a NIC holds packets: that of so many of the link's MTU, and at least this."""
PAUSE_BYTES = 60


class Queue(NamedTuple):
    """A queue of a port: its packets and bytes now, the maximum so far, and its counters."""

    bytes: int
    packets: int
    most_bytes: int
    sent_bytes: int
    sent_packets: int
    dropped_packets: int
    marked_packets: int


class PriorityGroup(NamedTuple):
    """The bytes of a class that came in by a port and are in its switch: now, and the maximum."""

    reserve: int
    shared: int
    headroom: int
    most_bytes: int
    most_headroom: int


class Port:
    """A port of a lossless link. `number` is its number in the lab."""

    def __init__(self, ports: Ports, number: int, lossless: Lossless, plan: InterfacePlan, *, switch: bool) -> None:
        self.number = number
        self.switch = switch
        self._ports = ports
        self._lossless = lossless
        self._plan = plan
        self._config, self._state = ports.configs[number], ports.states[number]
        self.algorithm: Algorithm | None = None
        """How the NIC controls congestion."""
        self._sorter: Any = None
        self._sorter_config: Any = None
        self._values: dict[str, Any] = {}
        self._overlay = Overlay(lambda names: {name: self._values[name] for name in names}, self._write)

    def begin(self, owner: int, ifindex: int, into: int, values: Mapping[str, Any]) -> None:
        """Set what stays constant, and the settings that it starts with."""
        config = self._config
        config.kind = constants()["SWITCH" if self.switch else "NIC"]
        config.owner, config.ifindex, config.into = owner, ifindex, into
        config.mac[:6] = bytes.fromhex(self._plan.mac.replace(":", ""))
        config.lossless = bits(self._lossless.priorities)
        config.cnp_class = CONTROL_PRIORITY
        config.trusts_pcp = bool(self._lossless.pcp)
        self._state.random = int.from_bytes(os.urandom(8), "little") | 1
        self._write(
            {
                **dict.fromkeys(("reserve", "headroom"), 0),
                **{name: 0 for name in SETTINGS if name.startswith("watchdog")},
                "marking": {},
                "dscp": dict(self._lossless.dscp),
                "pcp": dict(self._lossless.pcp),
                "weights": dict(self._plan.qos.weights),
                "strict": self._plan.qos.strict,
                "holds": (),
                "receives": None,
                "reorder": None,
                **values,
            }
        )

    def set_link(self, rate: int | None, delay: float) -> None:
        """Set the rate of the link in bits per second, None: no bound; and its delay in seconds."""
        self._config.ns_per_kib = ns_per_kib(rate)
        self._config.delay_ns = round(delay * 1e9)

    def control_congestion(self, algorithm: Algorithm | None) -> None:
        """Make a NIC pace its queue pairs by an algorithm, or none of them. State learned from them so far is lost."""
        for flow in self._flows():
            flow.limited = flow.probe = 0
        if algorithm:
            record = getattr(self._ports.parameters[self.number], algorithm.name)
            for name, value in algorithm.numbers().items():
                setattr(record, name, value)
        self.algorithm = algorithm
        self._config.algorithm = constants()[algorithm.name.upper() if algorithm else "UNCONTROLLED"]
        self._config.notifies = bool(algorithm and algorithm.answers_marks)
        self._ports.note_journeys()

    def sort(self, sorter: int, ifindex: int, reorder: Reordering) -> None:
        """Have a port of the lab, an ifb device, put the packets that a NIC receives in order."""
        self._sorter_config, self._sorter = self._ports.configs[sorter], self._ports.states[sorter]
        config = self._sorter_config
        config.kind, config.owner, config.ifindex = constants()["SORTER"], self.number, ifindex
        self._write({"reorder": reorder})

    def _sort_by(self, given: Reordering | int | None) -> None:
        reorder = Reordering(given) if isinstance(given, int) else given
        if self._sorter is None:
            if reorder is not None:
                raise InputError("this NIC has no place for packets that wait", hint="Give its host `reorder`.")
            return
        config, most = self._sorter_config, 1 << 40
        self._config.sorter = config.ifindex if reorder else 0
        if reorder:
            config.hold_packets, config.hold_bytes = reorder.packets or most, reorder.bytes or most
            frame = self._plan.mtu + constants()["LINK_OVERHEAD"]
            own = max(UNLIMITED_NS, HELD_PACKETS * frame * self._config.ns_per_kib // KIB)
            config.hold_ns = own if reorder.timeout is None else round(reorder.timeout * 1e9)

    @property
    def sorts(self) -> bool:
        """Return whether it is a NIC's that puts packets in order."""
        return self._sorter is not None

    def link(self) -> tuple[int | None, float]:
        """Return rate and delay of the link, read back."""
        return rate_of(self._config.ns_per_kib), self._config.delay_ns / 1e9

    def configure(self, values: Mapping[str, Any]) -> None:
        """Set new values of settings below the changes that are in force."""
        self._overlay.rebase(values)

    def change(self, **values: Any) -> Callable[[], None]:
        """Change settings beside other changes. The returned function undoes this change."""
        if unknown := sorted(values.keys() - set(SETTINGS)):
            hint = f"{did_you_mean(unknown[0], SETTINGS)}It has: {', '.join(SETTINGS)}."
            raise InputError(f"a port has no setting {unknown[0]!r}", hint=hint)
        return self._overlay.change(values)

    def settings(self) -> dict[str, Any]:
        """Return the settings as they were written last."""
        return dict(self._values)

    def applies(self, **values: Any) -> bool:
        """Return whether the programs have these settings, read back from their memory."""
        config, state = (type(shared).from_buffer_copy(shared) for shared in (self._config, self._state))
        self._assign(config, state, values)
        return bytes(config) == bytes(self._config) and state.holds & self._state.holds == state.holds

    def _write(self, values: Mapping[str, Any]) -> None:
        self._assign(self._config, self._state, {name: value for name, value in values.items() if name != "reorder"})
        if "reorder" in values:
            self._sort_by(values["reorder"])
        self._values |= values

    def _assign(self, config: Any, state: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            match name:
                case "sends_pause" | "honours_pause":
                    setattr(config, name, bits(value))
                case "marking":
                    for priority in PRIORITIES:
                        one, new = config.marking[priority], Marking(*value.get(priority, ()))
                        if new != Marking(*(getattr(one, field) for field in Marking._fields)):
                            one.min, one.max, one.probability, one.interval_us = new
                            state.queue[priority].adapt_at = 0  # its controller begins again
                case "dscp":
                    known = {CONTROL_DSCP: CONTROL_PRIORITY, **value}
                    config.class_of_dscp[:] = [known.get(dscp, 0) for dscp in range(64)]
                case "pcp":
                    known = {CONTROL_PRIORITY: CONTROL_PRIORITY, **value}
                    config.class_of_pcp[:] = [known.get(pcp, 0) for pcp in PRIORITIES]
                case "weights":
                    config.quantum[:] = quanta(value, self._plan.mtu)
                case "strict":
                    config.strict = bits({CONTROL_PRIORITY, *value})
                case "holds":
                    state.holds = bits(value)
                case "receives":
                    rate, config.receive_stop, config.receive_go = value or (None, 0, 0)
                    config.receive_ns_per_kib = ns_per_kib(rate)
                case _:
                    setattr(config, name, value)

    # What it does

    def queue(self, priority: int) -> Queue:
        """Return the queue of a priority, as it is now."""
        one = self._state.queue[priority]
        sent = one.sent_bytes, one.sent_packets
        return Queue(one.bytes, one.packets, one.max, *sent, one.dropped_packets, one.marked)

    def group(self, priority: int) -> PriorityGroup:
        """Return the bytes that came in by it in a priority, as they are now."""
        one = self._state.group[priority]
        return PriorityGroup(one.reserve, one.shared, one.headroom, one.max, one.max_headroom)

    def paused(self, priority: int) -> bool:
        """Return whether its peer has stopped a priority."""
        return bool(
            self._state.paused & 1 << priority and self._state.queue[priority].pause_until > time.monotonic_ns()
        )

    def paused_ns(self, priority: int) -> int:
        """Return the nanoseconds for which its peer has stopped a priority so far; of a pause that lasts, until now."""
        return port_counters.paused_ns(self._state.queue[priority])

    def pauses(self) -> int:
        """Return the number of pause frames that it has received, of all priorities."""
        return sum(self._state.rx_pause)

    def hasty(self) -> tuple[int, int] | None:
        """Return the shortest ACK timeout t of a NIC's queue pairs that is below a pause, behind the rate that the link
        had then; None if no queue pair of a class with pauses has one."""
        state = self._state
        rate = rate_of(state.timeout_ns_per_kib)
        return (rate, state.least_timeout) if rate else None

    def rates(self) -> list[tuple[str, int, int]]:
        """Return the queue pairs of a NIC that congestion control knows: address of the peer, its number there, and
        bits per second; 0 for one that is not limited."""
        return port_counters.rates(self._flows())

    def _flows(self) -> list[Any]:
        return list(self._ports.flows(self.number))

    def adds_up(self) -> bool:
        """Return whether all input of its queues was sent, dropped by a watchdog, or waits. False if memory ran out."""
        if self._state.no_memory:
            return False
        queues = self._state.queue
        return all(one.in_packets == one.sent_packets + one.packets + one.flushed_packets for one in queues)

    def counters(self) -> dict[str, int]:
        """Return its counters, under the names of SONiC (SAI) for a switch's port, of mlx5 for a NIC."""
        if self.switch:
            return port_counters.of_switch_port(self._config, self._state)
        return port_counters.of_nic(self._config, self._state, self._sorter, self._flows())


def pause_frame(mac: str, priority: int, quanta: int = 0xFFFF) -> bytes:
    """Return a frame of IEEE 802.1Qbb that stops a priority for `quanta` times 512 bits, from this MAC."""
    times = b"".join((quanta if one == priority else 0).to_bytes(2) for one in PRIORITIES)
    head = bytes.fromhex("0180c2000001" + mac.replace(":", "") + "88080101") + (1 << priority).to_bytes(2)
    return (head + times).ljust(PAUSE_BYTES, b"\0")


def ns_per_kib(rate: int | None) -> int:
    """Return the time that 1024 bytes take at a rate in bits per second; 0 without one."""
    return round(8 * KIB * 1e9 / rate) if rate else 0


def rate_of(ns: int) -> int | None:
    """Return the bits per second at which 1024 bytes take so many nanoseconds; None for 0."""
    return round(8 * KIB * 1e9 / ns) if ns else None


def quanta(weights: Mapping[int, int], mtu: int) -> list[int]:
    """Return the bytes that each priority gets in a turn: the smallest share, also the default, is a packet."""
    least = min(weights.values(), default=1)
    return [mtu * weights.get(priority, least) // least for priority in PRIORITIES]


def bits(priorities: Any) -> int:
    return sum(1 << priority for priority in priorities)
