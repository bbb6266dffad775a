"""The FDB, as a switch's control plane knows it, and the ports that its MAC move guard disables."""

from __future__ import annotations

from typing import Literal

from testbed.switch.core import Core
from testbed.switch.effects import SetPort
from testbed.switch.moves import MoveGuard


class Fdb:
    """`ports` is the port by VLAN and MAC."""

    def __init__(self, core: Core) -> None:
        self.ports: dict[tuple[int, str], str] = {}
        self._core = core
        self._guard = MoveGuard()

    def start(self, now: int) -> None:
        self._guard.began = now

    def port(self, vlan: int, mac: str) -> str | None:
        return self.ports.get((vlan, mac))

    def change(self, now: int, vlan: int, mac: str, port: str | None, lost: Literal["aged", "flushed"]) -> None:
        """Take over that the bridge learned `mac` on `port`, or lost it (None)."""
        old = self.port(vlan, mac)
        if port is None:
            if old is not None:
                del self.ports[vlan, mac]
                self._core.emit(f"fdb.{lost}", vlan, mac=mac, port=old)
        elif old is None:
            self.ports[vlan, mac] = port
            self._core.emit("fdb.learned", vlan, mac=mac, port=port)
        elif port != old:
            self.ports[vlan, mac] = port
            self._core.emit("fdb.moved", vlan, mac=mac, port=port, old_port=old)
            for disabled in self._guard.moved(now, (vlan, mac), port, self._core.profile):
                self._core.do(SetPort(disabled, up=False))
                moves = self._core.profile.mac_moves
                self._core.emit("port.disabled", vlan, mac=mac, port=disabled, moves=moves)

    def profile_changed(self) -> None:
        if self._core.profile.mac_moves is None:
            self._enable(self._guard.stop())

    @property
    def deadline(self) -> int | None:
        return self._guard.due(self._core.profile)

    def act(self, at: int) -> None:
        """Let ports come up again whose time is over."""
        self._enable(self._guard.recover(at, self._core.profile))

    def rows(self) -> list[dict[str, str | int]]:
        return [{"vlan": vlan, "mac": mac, "port": port} for (vlan, mac), port in sorted(self.ports.items())]

    def _enable(self, ports: list[str]) -> None:
        for port in ports:
            self._core.do(SetPort(port, up=True))
            self._core.emit("port.enabled", port=port)
