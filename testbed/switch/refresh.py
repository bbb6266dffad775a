"""SONiC's way to keep entries fresh: a daemon that asks for all of them every `refresh_period` (arp_update)."""

from __future__ import annotations

from testbed.switch.core import Core
from testbed.switch.frames import BROADCAST
from testbed.switch.neighbours import Neighbours
from testbed.switch.packets import PROTOCOLS
from testbed.switch.timers import nanoseconds


class RefreshDaemon:
    """`deadline` is the time of its next round; None if the profile has no such daemon."""

    def __init__(self, core: Core, neighbours: Neighbours) -> None:
        self.deadline: int | None = None
        self._core = core
        self._neighbours = neighbours

    def start(self, now: int) -> None:
        """Count the time to the next round from now on."""
        daemon = self._core.profile.arp_refresh == "daemon"
        self.deadline = now + nanoseconds(self._core.profile.refresh_period) if daemon else None

    def resume(self, now: int) -> None:
        if self.deadline is not None:
            self.deadline = max(self.deadline, now)

    def act(self, at: int) -> None:
        table = self._neighbours.table
        to_all = self._core.profile.refresh_cast == "broadcast"
        for family, protocol in PROTOCOLS.items():
            entries = [(key, entry) for key, entry in table.entries.items() if key[1].version == family]
            for key, entry in entries:
                self._neighbours.request(key, BROADCAST if to_all else entry.mac, entry)
            unresolved = table.unresolved.items()
            failed = [key for key, wait in unresolved if wait.state == "failed" and key[1].version == family]
            for key in failed:
                self._neighbours.request(key, BROADCAST)
            if entries or failed:
                self._core.emit(f"{protocol}.refresh", entries=len(entries) + len(failed), reason="daemon")
        self.start(at)
