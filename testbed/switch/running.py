"""A switch at work in the agent's process: a control plane on its data plane, in a loop that sleeps until the next
deadline."""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.protocol import events
from testbed.switch.bfd.speaker import Speaker
from testbed.switch.changes import (
    CarrierLost,
    Change,
    FabricEntry,
    FdbChange,
    Flushed,
    Lost,
    Miss,
    PortDown,
    PortUp,
    RouteChange,
    RouterChange,
    SegmentsChange,
    SviChange,
)
from testbed.switch.control import ControlPlane
from testbed.switch.core import BlockLossless, DeleteNeighbour, Effect, Event, Heard, Send, SetNeighbour, SetPort
from testbed.switch.dataplane import DataPlane
from testbed.switch.mlag.runner import PairRunner
from testbed.switch.packets import PROTOCOLS, Packet
from testbed.switch.profile import Profile
from testbed.switch.segments import ELECTION_S, Segments
from testbed.switch.timers import SECOND
from testbed.topology.plan import Family

COMMANDS = (
    *("tables", "clear", "clear_fdb", "set", "profile", "set_cpu", "cpu", "restart", "add_routed"),
    *("follow_segments", "serve_bfd", "mlag", "set_mlag"),
)
"""Methods of a switch that the parent may call."""
SLACK = 110_000_000
"""Nanoseconds by which the loop wakes early for a distant deadline: epoll is late by a thousandth, up to 0.1 s."""


class RunningSwitch:
    """A control plane working on its data plane."""

    def __init__(self, data: DataPlane, profile: Profile, emit: Callable[[dict[str, Any]], None]) -> None:
        self.data = data
        self._emit = emit
        self._random: random.Random | None = None
        self._control = ControlPlane(
            data.node.name, data.node.svis, profile, self._draw, paired=data.node.mlag is not None
        )
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._delay = 0.0
        self._segments: Segments | None = None
        self._bfd_readers: list[int] = []
        for fileno in data.filenos():
            self._loop.add_reader(fileno, self.catch_up)
        self._bfd = Speaker(data.bfd, data.address_of) if data.bfd else None
        self._act(self._control.start)
        self._pair = PairRunner(data, self._control, self._take_changes, self._do) if data.pair else None
        self.catch_up()

    def _draw(self) -> float:
        """Return a random number of 0 to 1: the kernel's, which follow from the seed of a run."""
        self._random = self._random or random.Random(os.urandom(8))  # noqa: S311
        return self._random.random()

    def close(self) -> None:
        for fileno in self.data.filenos():
            self._loop.remove_reader(fileno)
        self._stop_bfd()
        if self._timer is not None:
            self._timer.cancel()
        if self._pair:
            self._pair.close()

    def catch_up(self) -> None:
        """Handle all input up to now: table changes, packets, deadlines."""
        self._take_changes()
        for vlan, packet in self.data.cpu_port.packets():
            self._take_changes()  # the bridge learned the sender before it passed the packet up
            if self._delay:
                self._loop.call_later(self._delay, self._handle, vlan, packet)
            else:
                self._handle(vlan, packet)
        for lost in self.data.losses():
            self._report(lost)
        self._act(self._control.on_timer)
        if self._pair:
            self._pair.catch_up()
        self._set_timer()

    def _handle(self, vlan: int, packet: Packet) -> None:
        self._act(self._control.on_packet, vlan, packet)
        self._set_timer()

    def _take_changes(self) -> None:
        for change in self.data.changes(self._control.fdb.ports):
            match change:
                case Lost():
                    self._report(change)
                case FdbChange(vlan, mac, port, lost, vteps, synced, comes):
                    now = time.monotonic_ns()
                    told = synced and not comes
                    self._do(now, self._control.on_fdb(now, vlan, mac, port, lost, vteps, synced=told))
                    if self._pair:
                        self._pair.on_fdb(change)
                case PortDown(port):
                    if not (self._pair and self._pair.backs(port)):
                        self._act(self._control.on_port_down, port)
                    self._port_changed(port, up=False)
                case PortUp(port):
                    self._port_changed(port, up=True)
                case SegmentsChange():
                    self._follow_segments()
                case RouteChange(to, ports):
                    name = self.data.node.name
                    fields: dict[str, str | int | list[str]] = {"switch": name, "to": str(to), "ports": list(ports)}
                    kind = events.ROUTE_INSTALLED if ports else events.ROUTE_LOST
                    self._do(time.monotonic_ns(), [Event(kind.name, fields)])
                case _:
                    self._take_change_of_svi(change)
        if self._pair:
            self._pair.settle()

    def _take_change_of_svi(self, change: Change) -> None:
        match change:
            case Miss(vlan, ip):
                self._act(self._control.on_miss, vlan, ip)
            case FabricEntry(vlan, ip, mac):
                self._do(time.monotonic_ns(), self._control.on_fabric(vlan, ip, mac))
            case SviChange(vlan, mac, addresses):
                self._act(self._control.on_svi, vlan, mac, addresses)
            case Flushed(vlan, ip):
                self._act(self._control.on_flushed, vlan, ip)
            case RouterChange(vlan, mac, ips):
                self._act(self._control.on_router, vlan, mac, ips)
            case CarrierLost(vlan):
                self._act(self._control.on_carrier_lost, vlan)

    def _port_changed(self, port: str, *, up: bool) -> None:
        if self._pair:
            self._pair.on_port(port, up=up)

    def _follow_segments(self) -> None:
        """Follow zebra's segments now, and when an election that begins now is over."""
        if self._segments is not None:
            self._refresh_segments()
            self._loop.call_later(ELECTION_S, self._refresh_segments)

    def _refresh_segments(self) -> None:
        assert self._segments is not None
        with contextlib.suppress(TestbedError):  # zebra is gone: the kernel goes on with what it has
            for segment in self._segments.refresh():
                self.data.set_backup(segment.port, segment.group)
                found = events.EVPN_SEGMENT(port=segment.port, esi=segment.esi, others=[*segment.others])
                fields = {"switch": self.data.node.name, **vars(found)}
                fields |= {} if segment.forwarder else {"reason": "not-forwarder"}
                self._do(time.monotonic_ns(), [Event(found.kind_name, fields)])

    def _report(self, lost: Lost) -> None:
        fields = vars(events.LOST(what=lost.what, records=lost.number))
        self._do(time.monotonic_ns(), [Event(events.LOST.name, {"switch": self.data.node.name, **fields})])

    # Commands from the parent

    def tables(self) -> dict[str, list[Any]]:
        now = time.monotonic_ns()
        found = {protocol: self._with_by_hand(now, family) for family, protocol in PROTOCOLS.items()}
        fdb = self._control.fdb.rows()
        return {**found, "fdb": [{**row, **self._kind_of(row)} for row in fdb]}

    def _with_by_hand(self, now: int, family: Family) -> list[dict[str, Any]]:
        """Return the table with the entries that a command has made in the kernel, which forwards by them: `data_plane`
        of a row is such a MAC, if the control plane has another one or none, and "none" if a command has deleted the
        entry; addresses that it does not know at all have a row of their own, with the state static."""
        ports = self._control.fdb.ports
        made = {key: mac for key, mac in self.data.neighbours.by_hand.items() if key[1].version == family}
        rows = []
        for row in self._control.neighbours(now, family):
            mac = made.pop((row["vlan"], ip_address(row["ip"])), None)
            rows.append({**row, "data_plane": mac} if mac else row)
        return rows + [
            {"vlan": vlan, "ip": str(ip), "mac": mac, "port": ports.get((vlan, mac)), "state": "static", "age": None}
            for (vlan, ip), mac in made.items()
        ]

    def _kind_of(self, row: Mapping[str, Any]) -> dict[str, str]:
        if self.data.is_static(row["vlan"], row["mac"]):
            return {"state": "static"}
        if "vteps" in row:
            return {"state": "remote"}
        return {"state": "synced"} if self.data.is_synced(row["vlan"], row["mac"]) else {}

    def clear(self, family: Family, vlan: int | None, ip: str | None) -> None:
        self._do(time.monotonic_ns(), self._control.clear(family, vlan, None if ip is None else ip_address(ip)))

    def clear_fdb(self, vlan: int | None, mac: str | None, port: str | None) -> None:
        for (at_vlan, learned), at_port in self._control.fdb.ports.items():
            if vlan in (None, at_vlan) and mac in (None, learned) and port in (None, at_port):
                self.data.delete_fdb(at_vlan, learned, at_port)
        self.catch_up()

    def set(self, values: dict[str, object]) -> None:
        profile = self._control.profile.replace(**values)
        self.data.configure(profile)
        self._act(self._control.set_profile, profile)
        if self._pair:
            self._pair.on_profile()
        self._set_timer()

    def profile(self) -> dict[str, Any]:
        return self._control.profile.model_dump(mode="json")

    def set_cpu(self, out: bool | None = None, delay: float | None = None) -> None:
        if out:
            self._control.pause(time.monotonic_ns())
        elif out is not None:
            self._act(self._control.resume)
        self._delay = self._delay if delay is None else delay
        self.catch_up()

    def cpu(self) -> dict[str, Any]:
        return {"out": self._control.out, "delay": self._delay}

    def mlag(self) -> dict[str, Any]:
        return {**self._pair.state(), "delay": self._pair.delay} if self._pair else {}

    def set_mlag(self, delay: float) -> None:
        assert self._pair
        self._pair.delay = delay

    def add_routed(self, index: int, port: str) -> None:
        self.data.know_routed(index, port)

    def follow_segments(self, namespace: str, directory: str) -> None:
        self._segments = Segments(namespace, Path(directory))
        self._follow_segments()

    def serve_bfd(self, place: str) -> None:
        assert self._bfd is not None
        assert self.data.bfd is not None
        self._bfd_readers = [self._bfd.connect(Path(place)), *self.data.bfd.filenos()]
        for fileno in self._bfd_readers:
            self._loop.add_reader(fileno, self._catch_up_bfd)

    def _catch_up_bfd(self) -> None:
        assert self._bfd
        for take in self._bfd.on_messages, self._bfd.on_ports:
            for kind, fields in take():
                self._do(time.monotonic_ns(), [Event(kind, {"switch": self.data.node.name, **fields})])
            if not self._bfd.connected:
                self._stop_bfd()
                return

    def _stop_bfd(self) -> None:
        for fileno in self._bfd_readers:
            self._loop.remove_reader(fileno)
        self._bfd_readers.clear()
        if self._bfd:
            self._bfd.close()

    def restart(self) -> None:
        self._act(self._control.restart)
        self._set_timer()

    # Effects and time

    def _set_timer(self) -> None:
        at = self._control.next_deadline
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        if at is None:
            self._timer = None
            return
        early = at - SLACK if at - time.monotonic_ns() > 2 * SLACK else at
        self._timer = self._loop.call_at(early / SECOND, self._on_time)

    def _on_time(self) -> None:
        self._timer_at = None
        self.catch_up()

    def _act(self, act: Callable[..., list[Effect]], *arguments: Any) -> None:
        now = time.monotonic_ns()
        self._do(now, act(now, *arguments))

    def _do(self, now: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(vlan, dst, packet):
                    self.data.cpu_port.send(vlan, dst, packet)
                case SetNeighbour(vlan, ip, mac):
                    self.data.neighbours.set(vlan, ip, mac)
                case DeleteNeighbour(vlan, ip):
                    self.data.neighbours.delete(vlan, ip)
                case BlockLossless(_, ip, blocked):
                    self.data.block_lossless(ip, blocked)
                case SetPort(port, up):
                    self.data.set_port(port, up)
                case Heard() as heard:
                    if self._pair:
                        self._pair.on_heard(now, heard)
                case Event(kind, fields):
                    self._emit({"t": now, "kind": kind, **fields})
