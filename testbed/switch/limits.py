"""Rates of packets to a switch's CPU, in integer nanoseconds: exact, and equal in every run."""

from testbed.protocol import events
from testbed.switch.core import Core
from testbed.switch.timers import SECOND
from testbed.topology.plan import Family


class CpuLimit:
    """A limit on packets of a kind, ARP or without a neighbour entry: `per_second` with a burst of as many; None: no
    limit. The first lost packet is an event, and so is the number of lost packets at the end."""

    def __init__(self, core: Core, reason: str, per_second: int | None) -> None:
        self._core = core
        self._reason = reason
        self._lost: dict[Family, int] = {4: 0, 6: 0}
        self._per_second: int | None = None
        self.change(per_second)

    def change(self, per_second: int | None) -> None:
        """Set another rate; the same rate changes nothing."""
        if per_second != self._per_second:
            self._per_second, self._at = per_second, 0
            self._level = (per_second or 0) * SECOND  # one packet is SECOND units: a nanosecond adds per_second of them

    def admits(self, now: int, vlan: int, family: Family) -> bool:
        """Return whether a packet reaches the CPU."""
        admitted, lost = self._admit(now), self._lost[family]
        self._lost[family] = 0 if admitted else lost + 1
        if (admitted and lost > 1) or not (admitted or lost):
            self._core.emit(events.LIMITED(vlan=vlan, reason=self._reason, packets=lost or 1), family)
        return admitted

    def _admit(self, now: int) -> bool:
        if self._per_second is None:
            return True
        self._level = min(self._per_second * SECOND, self._level + (now - self._at) * self._per_second)
        self._at = now
        if self._level < SECOND:
            return False
        self._level -= SECOND
        return True
