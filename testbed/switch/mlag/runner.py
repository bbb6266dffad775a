"""One switch of a pair at work: its session on the kernel's socket and timers, its effects on the bridge."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from testbed.switch import core
from testbed.switch.changes import FdbChange
from testbed.switch.control import ControlPlane
from testbed.switch.core import Event
from testbed.switch.dataplane import DataPlane
from testbed.switch.mlag.macs import KeepMac, PlaceMac, RemoveMac
from testbed.switch.mlag.messages import Neighbour
from testbed.switch.mlag.pair import Disable, Effect, Isolate, Leave, Pair, Told, Transmit
from testbed.switch.timers import SECOND, nanoseconds


class PairRunner:
    """`take_changes` has the control plane follow the data plane, `do` executes its effects. While the CPU is out it
    neither sends nor receives."""

    def __init__(
        self,
        data: DataPlane,
        control: ControlPlane,
        take_changes: Callable[[], None],
        do: Callable[[int, Iterable[core.Effect]], None],
    ) -> None:
        assert data.pair
        self._plane = data.pair
        self._data, self._control = data, control
        self._take_changes, self._do_core = take_changes, do
        self._pair = Pair(data.node, lambda: control.profile, self._heard)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._act(self._pair.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def catch_up(self) -> None:
        """Handle what the other switch has sent, and deadlines."""
        for payload in self._plane.payloads():
            if not self._control.out:
                self._act(self._pair.on_payload, payload)
        if not self._control.out:
            self._act(self._pair.on_timer)
        self._set_timer()

    def on_fdb(self, change: FdbChange) -> None:
        now = time.monotonic_ns()
        synced, comes = change.synced, change.comes
        self._do(now, self._pair.on_fdb(now, change.vlan, change.mac, change.port, synced=synced, comes=comes))

    def settle(self) -> None:
        """Follow what the data plane has reported up to now."""
        self._act(self._pair.on_settled)

    def on_port(self, port: str, *, up: bool) -> None:
        now = time.monotonic_ns()
        self._do(now, self._pair.on_port(now, port, up=up))

    def on_profile(self) -> None:
        self._act(self._pair.on_profile)

    def on_heard(self, now: int, heard: core.Heard) -> None:
        self._do(now, self._pair.tell(now, Neighbour(heard.vlan, heard.ip, heard.mac)))
        self._set_timer()

    def backs(self, port: str) -> bool:
        """See `Pair.backs`."""
        return self._pair.backs(port)

    def state(self) -> dict[str, Any]:
        """See `Pair.state`."""
        return self._pair.state()

    @property
    def delay(self) -> float:
        """Return the seconds by which it tells the other switch late."""
        return self._pair.delay / SECOND

    @delay.setter
    def delay(self, seconds: float) -> None:
        self._pair.delay = nanoseconds(seconds)

    def _heard(self) -> Iterator[Neighbour]:
        for heard in self._control.heard():
            yield Neighbour(heard.vlan, heard.ip, heard.mac)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = None if self._control.out else self._pair.next_deadline
        self._timer = None if at is None else self._loop.call_at(at / SECOND, self.catch_up)

    def _act(self, act: Callable[..., list[Effect]], *arguments: Any) -> None:
        now = time.monotonic_ns()
        self._do(now, act(now, *arguments))

    def _do(self, now: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(payload):
                    self._plane.send(payload)
                case PlaceMac(vlan, mac, port):
                    self._data.place_mac(vlan, mac, port)
                case KeepMac(vlan, mac, port):
                    self._data.learn_mac(vlan, mac, port)
                case RemoveMac(vlan, mac, port):
                    self._data.remove_mac(vlan, mac, port)
                case Isolate(ports):
                    self._plane.isolate(ports)
                case Leave(left):
                    self._plane.leave(left=left)
                case Disable(disabled):
                    self._plane.disable(disabled=disabled)
                case Told(told):
                    self._take_changes()  # the MAC of the address may just have got its port
                    self._do_core(now, self._control.on_told(now, told.vlan, told.ip, told.mac))
                case Event():
                    self._do_core(now, [effect])
