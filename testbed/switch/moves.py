"""
The MAC move guard of a switch: a MAC that moves between ports too often has ports disabled for a while.

Pure, as the control plane, whose profile says when and for how long. It does what SONiC's does (orchagent's
macmoveguard.cpp, action DISABLE_PORT): of the ports that the MAC moved to, the first one by name stays up, whoever is
behind it, and the others go down. Times in nanoseconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from testbed.switch.profile import Profile
from testbed.switch.timers import nanoseconds

Flow = tuple[int, str]
"""(VLAN, MAC)"""


@dataclass(slots=True)
class _Moves:
    times: deque[int] = field(default_factory=deque)
    ports: dict[str, int] = field(default_factory=dict)
    """The ports that the MAC moved to, and when it last did."""
    bad_since: int | None = None
    """The last move at which there were too many."""
    pinned: str = ""
    """The port that stays up for it."""

    def forget_before(self, time: int) -> None:
        while self.times and self.times[0] < time:
            self.times.popleft()
        self.ports = {port: at for port, at in self.ports.items() if at >= time}


class MoveGuard:
    """`began` is when the switch started; from then on it looks for ports to enable every `mac_move_check`."""

    def __init__(self) -> None:
        self.began = 0
        self._flows: dict[Flow, _Moves] = {}
        self._disabled: dict[str, set[Flow]] = {}
        """Ports that are down, and the MACs for which they are."""

    def moved(self, now: int, flow: Flow, port: str, profile: Profile) -> list[str]:
        """Count that a MAC moved to `port`; return the ports that go down for it."""
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
        """Return the first look at which a MAC's time is over."""
        bad = [moves.bad_since for moves in self._flows.values() if moves.bad_since is not None]
        if not bad:
            return None
        period = nanoseconds(profile.mac_move_check)
        over = min(bad) + nanoseconds(profile.mac_move_recovery) - self.began
        return self.began + -(-over // period) * period

    def recover(self, now: int, profile: Profile) -> list[str]:
        """Let go of the MACs whose time is over; return the ports that come up again."""
        last = now - nanoseconds(profile.mac_move_recovery)
        over = {flow for flow, moves in self._flows.items() if moves.bad_since is not None and moves.bad_since <= last}
        return self._release(over)

    def stop(self) -> list[str]:
        """Let go of all; return the ports that come up again."""
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
