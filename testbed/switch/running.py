"""The agent process: control planes at work on their data planes, in one loop that sleeps until something is due."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from typing import Any, NoReturn

from testbed.errors import InputError
from testbed.switch.arp import ControlPlane
from testbed.switch.dataplane import DataPlane, Miss
from testbed.switch.effects import BlockLossless, DeleteNeighbour, Effect, Event, SendArp, SetNeighbour
from testbed.switch.profile import Profile
from testbed.switch.timers import SECOND

_PR_SET_PDEATHSIG = 1


def run_in_child(parent: int, channel: socket.socket, switches: Sequence[tuple[DataPlane, Profile]]) -> NoReturn:
    """The life of the forked process: never back into the parent's code, nor what that registered for its end."""
    gc.freeze()  # the parent's objects must not be finalised here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it ends the agent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    try:
        asyncio.run(_serve(channel, switches))
    except BaseException:  # whatever it is, the parent must hear of it
        channel.setblocking(True)
        channel.sendall(json.dumps({"crash": traceback.format_exc()}).encode() + b"\n")
        os._exit(1)
    os._exit(0)


async def _serve(channel: socket.socket, switches: Sequence[tuple[DataPlane, Profile]]) -> None:
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()

    def fail(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a callback ends the agent; asyncio would log it and go on."""
        if not failed.done():
            failed.set_exception(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(fail)
    reader, writer = await asyncio.open_connection(sock=channel.dup())
    running = {plane.node.name: _Switch(plane, profile, writer) for plane, profile in switches}
    commands = asyncio.ensure_future(_commands(reader, writer, running))
    await asyncio.wait([commands, failed], return_when=asyncio.FIRST_COMPLETED)
    for switch in running.values():
        switch.close()
    writer.close()
    await writer.wait_closed()
    (failed if failed.done() else commands).result()


async def _commands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, running: dict[str, _Switch]) -> None:
    while line := await reader.readline():
        answer: dict[str, Any]
        try:
            answer = {"result": _command(running, **json.loads(line))}
        except InputError as error:
            answer = {"wrong": {"message": error.message, "where": error.where, "hint": error.hint}}
        writer.write(json.dumps(answer).encode() + b"\n")


def _command(running: dict[str, _Switch], command: str, switch: str = "", **arguments: Any) -> Any:
    if command == "ready":
        return None
    if switch not in running:
        raise InputError(f"there is no switch {switch!r}", hint=f"switches: {', '.join(running)}")
    at_work = running[switch]
    at_work.catch_up()
    match command:
        case "tables":
            return at_work.tables()
        case "clear_arp":
            return at_work.clear_arp(**arguments)
        case "clear_fdb":
            return at_work.clear_fdb(**arguments)
        case "set":
            return at_work.set(arguments["values"])
    raise ValueError(command)


class _Switch:
    def __init__(self, data: DataPlane, profile: Profile, writer: asyncio.StreamWriter) -> None:
        self._data = data
        self._writer = writer
        self._control = ControlPlane(data.node.name, data.node.svis, profile)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        for fileno in data.filenos():
            self._loop.add_reader(fileno, self.catch_up)
        self._do(self._control.start(time.monotonic_ns()))
        self.catch_up()

    def close(self) -> None:
        for fileno in self._data.filenos():
            self._loop.remove_reader(fileno)
        if self._timer is not None:
            self._timer.cancel()

    def catch_up(self) -> None:
        """Handles all that has happened by now: news of the tables, packets, deadlines."""
        self._hear_changes()
        for vlan, arp in self._data.arps():
            self._hear_changes()  # the bridge learned the packet's sender before it passed the packet up
            self._do(self._control.on_arp(time.monotonic_ns(), vlan, arp))
        self._do(self._control.on_timer(time.monotonic_ns()))
        self._set_timer()

    def tables(self) -> dict[str, list[Any]]:
        return {"arp": [*self._control.arp_table(time.monotonic_ns())], "fdb": [*self._control.fdb_table()]}

    def clear_arp(self, vlan: int | None, ip: str | None) -> None:
        self._do(self._control.clear(vlan, None if ip is None else IPv4Address(ip)))

    def clear_fdb(self, vlan: int | None, mac: str | None) -> None:
        for (at_vlan, learned), port in self._control.fdb.items():
            if vlan in (None, at_vlan) and mac in (None, learned):
                self._data.delete_fdb(at_vlan, learned, port)
        self.catch_up()

    def set(self, values: dict[str, object]) -> None:
        profile = self._control.profile.replace(**values)
        self._data.configure(profile)
        self._do(self._control.set_profile(time.monotonic_ns(), profile))
        self._set_timer()

    def _hear_changes(self) -> None:
        for change in self._data.changes():
            if isinstance(change, Miss):
                self._do(self._control.on_miss(time.monotonic_ns(), change.vlan, change.ip))
            else:
                self._do(self._control.on_fdb(change.vlan, change.mac, change.port, change.lost))

    def _set_timer(self) -> None:
        at = self._control.next_deadline
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if at is None else self._loop.call_at(at / SECOND, self._on_time)

    def _on_time(self) -> None:
        self._timer_at = None
        self.catch_up()

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendArp(vlan, dst, arp):
                    self._data.send(vlan, dst, arp)
                case SetNeighbour(vlan, ip, mac):
                    self._data.set_neighbour(vlan, ip, mac)
                case DeleteNeighbour(vlan, ip):
                    self._data.delete_neighbour(vlan, ip)
                case BlockLossless(_, ip, blocked):
                    self._data.block_lossless(ip, blocked)
                case Event(kind, fields):
                    line = json.dumps({"t": time.monotonic_ns(), "kind": kind, **fields})
                    self._writer.write(line.encode() + b"\n")
