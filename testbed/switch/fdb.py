"""A control plane's view of the FDB, and its MAC move guard, which disables ports. Times in nanoseconds."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from testbed.protocol import events
from testbed.switch.core import Core, SetPort
from testbed.switch.profile import Profile
from testbed.switch.timers import nanoseconds

Flow = tuple[int, str]
"""(VLAN, MAC)"""
Lost = Literal["aged", "flushed", "evpn", "mlag"]
"""The end of an entry: its age; a port that went down, or a command; another switch that withdrew it, by EVPN, or that
of a pair."""


class Fdb:
    """`ports` is the port by VLAN and MAC; `vteps` has the far ends of those that are VXLAN networks."""

    def __init__(self, core: Core) -> None:
        self.ports: dict[Flow, str] = {}
        self.vteps: dict[Flow, tuple[str, ...]] = {}
        self.synced: set[Flow] = set()
        """Those that only the other switch of a pair has seen."""
        self._core = core
        self._guard = MoveGuard()

    def start(self, now: int) -> None:
        self._guard.began = now

    def port(self, vlan: int, mac: str) -> str | None:
        return self.ports.get((vlan, mac))

    def is_local(self, vlan: int, mac: str) -> bool:
        """Return whether a MAC is on a port of this switch, not behind a VXLAN network."""
        port = self.port(vlan, mac)
        return port is not None and port != self._core.svis.network(vlan)

    def change(
        self,
        now: int,
        vlan: int,
        mac: str,
        port: str | None,
        lost: Lost = "aged",
        vteps: tuple[str, ...] = (),
        *,
        synced: bool = False,
    ) -> None:
        """Record that the bridge learned `mac` on `port`, with these far ends of a tunnel, or lost it (None). `synced`:
        the other switch of a pair sees it there."""
        flow = vlan, mac
        (self.synced.add if synced and port else self.synced.discard)(flow)
        old, old_vteps = self.port(*flow), self.vteps.pop(flow, ())
        if vteps:
            self.vteps[flow] = vteps
        by: dict[str, Any] = {"reason": "evpn", "vteps": [*vteps]} if vteps else {"reason": "mlag"} if synced else {}
        if port is None:
            if old is not None:
                del self.ports[flow]
                gone = events.FDB_AGED if lost == "aged" else events.FDB_FLUSHED
                by = {"reason": lost} if lost in ("evpn", "mlag") else {}
                self._core.emit(gone(vlan=vlan, mac=mac, port=old, **by))
        elif old is None:
            self.ports[flow] = port
            self._core.emit(events.FDB_LEARNED(vlan=vlan, mac=mac, port=port, **by))
        elif port != old or vteps != old_vteps:
            self.ports[flow] = port
            self._core.emit(events.FDB_MOVED(vlan=vlan, mac=mac, port=port, old_port=old, **by))
            if vteps or synced:
                return
            for disabled in self._guard.moved(now, (vlan, mac), port, self._core.profile):
                self._core.do(SetPort(disabled, up=False))
                moves = self._core.profile.mac_moves
                self._core.emit(events.PORT_DISABLED(vlan=vlan, mac=mac, port=disabled, moves=moves))

    def profile_changed(self) -> None:
        if self._core.profile.mac_moves is None:
            self._enable(self._guard.stop())

    @property
    def deadline(self) -> int | None:
        return self._guard.due(self._core.profile)

    def act(self, at: int) -> None:
        """Enable ports again when their time is over."""
        self._enable(self._guard.recover(at, self._core.profile))

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for flow, port in sorted(self.ports.items()):
            row: dict[str, Any] = {"vlan": flow[0], "mac": flow[1], "port": port}
            row |= {"vteps": [*self.vteps[flow]]} if flow in self.vteps else {}
            rows.append(row | ({"state": "synced"} if flow in self.synced else {}))
        return rows

    def _enable(self, ports: list[str]) -> None:
        for port in ports:
            self._core.do(SetPort(port, up=True))
            self._core.emit(events.PORT_ENABLED(port=port))


@dataclass(slots=True)
class _Moves:
    times: deque[int] = field(default_factory=deque)
    ports: dict[str, int] = field(default_factory=dict)
    """The ports that the MAC moved to, with the time of its last move there."""
    bad_since: int | None = None
    """The time of the last move above the limit."""
    pinned: str = ""
    """The port that stays up for it."""

    def forget_before(self, time: int) -> None:
        while self.times and self.times[0] < time:
            self.times.popleft()
        self.ports = {port: at for port, at in self.ports.items() if at >= time}


class MoveGuard:
    """A guard that disables ports for a while when a MAC moves between them too often; the profile has the limits.

    It models SONiC's (orchagent's macmoveguard.cpp, action DISABLE_PORT): of the ports that the MAC moved to, the first
    by name stays up, whoever is behind it, and the others go down. `began` is the switch's start; from then on it
    checks for ports to enable every `mac_move_check`.
    """

    def __init__(self) -> None:
        self.began = 0
        self._flows: dict[Flow, _Moves] = {}
        self._disabled: dict[str, set[Flow]] = {}
        """Disabled ports, each with the MACs that caused it."""

    def moved(self, now: int, flow: Flow, port: str, profile: Profile) -> list[str]:
        """Count a MAC's move to `port`; return the ports to disable for it."""
        if profile.mac_moves is None:
            return []
        moves = self._flows.setdefault(flow, _Moves())
        moves.times.append(now)
        moves.ports[port] = now
        moves.forget_before(now - nanoseconds(profile.mac_move_window))
        if len(moves.times) < profile.mac_moves:
            return []
        moves.bad_since = now
        ports = sorted(moves.ports)
        if not moves.pinned:
            moves.pinned = next((up for up in ports if up not in self._disabled), ports[0])
        others = [other for other in ports if other != moves.pinned]
        new = [other for other in others if other not in self._disabled]
        for other in others:
            self._disabled.setdefault(other, set()).add(flow)
        return new

    def due(self, profile: Profile) -> int | None:
        """Return the first check at which a MAC's time is over."""
        bad = [moves.bad_since for moves in self._flows.values() if moves.bad_since is not None]
        if not bad:
            return None
        period = nanoseconds(profile.mac_move_check)
        over = min(bad) + nanoseconds(profile.mac_move_recovery) - self.began
        return self.began + -(-over // period) * period

    def recover(self, now: int, profile: Profile) -> list[str]:
        """Release the MACs whose time is over; return the ports to enable."""
        last = now - nanoseconds(profile.mac_move_recovery)
        over = {flow for flow, moves in self._flows.items() if moves.bad_since is not None and moves.bad_since <= last}
        return self._release(over)

    def stop(self) -> list[str]:
        """Release all MACs; return the ports to enable."""
        return self._release(set(self._flows))

    def _release(self, flows: set[Flow]) -> list[str]:
        for flow in flows:
            del self._flows[flow]
        for causes in self._disabled.values():
            causes.difference_update(flows)
        up = [port for port, causes in self._disabled.items() if not causes]
        for port in up:
            del self._disabled[port]
        return sorted(up)
