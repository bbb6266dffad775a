"""The BPF programs of a lossless network on the ports of a lab: loaded, attached, configured and read.

A port's counters and settings are in memory shared with the kernel: neither needs a system call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from testbed.errors import InputError
from testbed.kernel.bpf import BpfObject
from testbed.kernel.lossless import ethtool
from testbed.kernel.lossless.layout import constants, structures
from testbed.kernel.rtnetlink import Rtnetlink

OBJECT = Path(__file__).with_name("lossless.o")
QDISC, SORTER = "lossless", "sorter"
LO_INDEX = 1
EPISODE_GAP_NS = constants()["EPISODE_GAP_NS"]
_loaded: list[Programs] = []
"""This process's programs, once loaded, which takes half a second of an emulated processor."""


class Episode(NamedTuple):
    """A time in which a port was told repeatedly to pause a class, with gaps below 10 ms. CLOCK_MONOTONIC."""

    port: int
    priority: int
    from_ns: int
    to_ns: int
    frames: int


class Programs:
    """The programs in this kernel, with their shared memory: the structures of bpf/layout.h."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        numbers, kinds = constants(), structures()
        ports, switches = numbers["PORTS"] + 1, numbers["SWITCHES"]
        lists, flows = ports * (2 * numbers["CLASSES"] + 1), ports * numbers["FLOWS"]
        shared = {
            **{"configs": ("port_config", ports), "states": ("port_state", ports), "parameters": ("control", ports)},
            **{"flows": ("flow", flows), "pools": ("pool", switches)},
            **{
                "path_slots_used": ("counter", 1),
                "episodes": ("episode", numbers["EPISODES"]),
                "episodes_written": ("counter", 1),
            },
        }
        sizes = {name: number for name, (_, number) in shared.items()}
        sizes |= {"pool_locks": switches, "flow_lists": flows, "port_lists": lists}
        sizes |= dict.fromkeys(("sequences", "trees"), ports * numbers["SEQUENCES"]) | {"last_journeys": flows}
        self.object = BpfObject(OBJECT, sizes, failed)
        self.arrays: dict[str, Any] = {
            name: self.object.array(name, kinds[kind], number) for name, (kind, number) in shared.items()
        }
        self.registered = [self.object.register(name) for name in (QDISC, SORTER)]
        self.labs = 0
        """The number of labs that they have served."""


def prepare(failed: Callable[[str], None] = lambda _: None) -> Programs:
    """Return this process's programs; the first call loads them. `failed` gets the reasons of a kernel that refuses."""
    if not _loaded:
        _loaded.append(Programs(failed))
    return _loaded[0]


class Ports:
    """A lab's ports, numbered from 1, and its switches, from 0. One lab at a time has them."""

    def __init__(self, ports: int, switches: int, failed: Callable[[str], None]) -> None:
        numbers = constants()
        if ports > numbers["PORTS"] or switches > numbers["SWITCHES"]:
            most = f"at most {numbers['PORTS']} on {numbers['SWITCHES']} switches"
            raise InputError(f"{ports} ports with lossless classes on {switches} switches are too many: {most}")
        self._programs = prepare(failed)
        arrays = self._programs.arrays
        self.configs, self.states, self.parameters = arrays["configs"], arrays["states"], arrays["parameters"]
        self.pools, self._flows = arrays["pools"], arrays["flows"]
        self._number = ports
        for name, number in (
            *((name, ports + 1) for name in ("configs", "states", "parameters")),
            ("flows", (ports + 1) * numbers["FLOWS"]),
            ("pools", switches),
            ("episodes_written", 1),
        ):
            ctypes.memset(arrays[name], 0, ctypes.sizeof(arrays[name][0]) * number)
        self._programs.labs += 1
        self._read = 0
        self._ended: list[Episode] = []
        self._undo = ExitStack()

    def show_counters(self) -> None:
        """Have `ethtool -S` in programs that this process starts from now on show the counters of ports, too."""
        numbers = [self._programs.object.number(name) for name in ethtool.SHARED]
        self._undo.enter_context(ethtool.found_first(numbers))

    def follow(self) -> None:
        """Follow from now on what congestion control and buffers need: the peer of each queue pair that connects, and
        the packets that the kernel holds for want of a neighbour."""
        for name in "qp_connects", "is_held", "flush_begins", "flush_ends", "is_dropped":
            self._undo.callback(self._programs.object.attach(name).close)

    def attach(self, port: int, kernel: Rtnetlink, index: int) -> None:
        """Make an interface of the calling thread's namespace a port; `kernel` is a socket there."""
        self.classify(port, kernel, index)
        self._undo.callback(self._programs.object.attach_tcx("goes_out", index).close)
        kernel.set_qdisc(index, QDISC, port)
        self._undo.callback(kernel.delete_qdisc, index)

    def circulate(self, kernel: Rtnetlink) -> None:
        """Make the loopback interface of the calling thread's namespace hold the pause frames that its ports send
        later. `kernel` is a socket there."""
        kernel.set_fair_queue(LO_INDEX, constants()["PORTS"])
        for name in "waits_in_loopback", "comes_round":
            self._undo.callback(self._programs.object.attach_tcx(name, LO_INDEX).close)

    def sort(self, port: int, kernel: Rtnetlink, name: str) -> int:
        """Make an ifb device, a port of its own, that puts packets of a NIC in order. Return its index."""
        kernel.add_ifb(name)
        index = kernel.index(name)
        kernel.set_qdisc(index, SORTER, port)
        self._undo.callback(kernel.delete_qdisc, index)
        return index

    def classify(self, port: int, kernel: Rtnetlink, index: int) -> None:
        """Classify and charge the incoming packets of a port whose own queue stays as it is."""
        kernel.set_group(index, port)
        self._undo.callback(self._programs.object.attach_tcx("comes_in", index).close)

    def begin_pool(self, switch: int, macs: Iterable[str]) -> None:
        """Begin with a switch, whose own interfaces have these MACs."""
        pool = self.pools[switch]
        pool.number, pool.lab = switch, self._programs.labs
        pool.random = int.from_bytes(os.urandom(8), "little") | 1
        for mac in sorted(set(macs)):
            key = bytes.fromhex(mac.replace(":", "")) + switch.to_bytes(2, "little")
            self._programs.object.update("routers", key, bytes(4))
            self._undo.callback(self._programs.object.delete, "routers", key)

    def set_pool(self, switch: int, values: Mapping[str, Any], classes: Sequence[Mapping[str, int]]) -> None:
        """Set values of a switch (struct pool), and each class's thresholds (struct pool_class)."""
        pool = self.pools[switch]
        for name, value in values.items():
            if isinstance(value, list):
                getattr(pool, name)[:] = value
            else:
                setattr(pool, name, value)
        for record, own in zip(getattr(pool, "class"), classes, strict=True):
            for name, value in own.items():
                setattr(record, name, value)

    def note_journeys(self) -> None:
        """Have ports note what packets meet, if a NIC's congestion control needs it; have NICs send that back."""
        wanted = any(self.configs[port].algorithm == constants()["HPCC"] for port in range(1, self._number + 1))
        for port in range(1, self._number + 1):
            self.configs[port].telemetry = wanted

    def flows(self, port: int) -> Iterator[Any]:
        """Yield the queue pairs of a NIC that are paced, or could be (struct flow)."""
        first = port * constants()["FLOWS"]
        return (self._flows[first + slot] for slot in range(self.states[port].flows))

    def end_episodes(self, now_ns: int, *, all_: bool = False) -> None:
        """End the episodes of ports that have not been paused for a while, or all."""
        for number in range(1, self._number + 1):
            state = self.states[number]
            for priority, queue in enumerate(state.queue):
                lasts = bool(state.paused & 1 << priority and queue.pause_until > now_ns)
                ended = queue.pause_until if state.paused & 1 << priority else queue.episode_end
                if queue.episode_at and (all_ or (not lasts and now_ns - ended > EPISODE_GAP_NS)):
                    until = now_ns if lasts else ended
                    self._ended.append(Episode(number, priority, queue.episode_at, until, queue.episode_frames))
                    queue.episode_at = 0

    def episodes(self) -> tuple[list[Episode], int]:
        """Return the episodes that ended since the last call, and how many more were overwritten before it."""
        ring, size = self._programs.arrays["episodes"], constants()["EPISODES"]
        written = self._programs.arrays["episodes_written"][0].value
        found, self._ended = self._ended, []
        first = max(self._read, written - size)
        for number in range(first, written):
            one = ring[number % size]
            found.append(Episode(one.port, getattr(one, "class"), one.from_ns, one.to_ns, one.frames))
        lost, self._read = first - self._read, written
        return found, lost

    def close(self) -> None:
        """Detach the programs from the ports."""
        self._undo.close()
