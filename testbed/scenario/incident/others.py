"""Traffic of others in the lab of an incident: pings each second, which nobody may hurt."""

import re
from collections.abc import Sequence
from itertools import pairwise

from testbed.lab import Lab

LOSES = 2
"""A flow that was well suffers when it loses more pings than these."""
LATELY = 5
"""The last pings, by which a flow is well."""


class Flow:
    """Pings from one host to another."""

    def __init__(self, lab: Lab, near: str, far: str) -> None:
        self.name = f"{near} to {far}"
        address = lab.host(far)["eth1"].address().ip
        self._ping = lab.host(near).launch("ping", "-n", "-i", "1", "-W", "1", "-O", str(address))

    @property
    def _answered(self) -> list[int]:
        return [int(found) for found in re.findall(r"icmp_seq=(\d+) ttl", self._ping.output)]

    @property
    def _sent(self) -> int:
        return max(map(int, re.findall(r"icmp_seq=(\d+)", self._ping.output)), default=0)

    def lost(self) -> int:
        """Return the number of pings without an answer so far."""
        return sum(later - earlier - 1 for earlier, later in pairwise([0, *self._answered, self._sent + 1]))

    def works(self) -> bool:
        """Return whether the last pings were answered."""
        return len(self._answered) >= LATELY and self._answered[-LATELY] > self._sent - LATELY - 1

    def stop(self) -> None:
        self._ping.stop()


class Others:
    """All of them."""

    def __init__(self, lab: Lab, flows: Sequence[tuple[str, str]]) -> None:
        self._flows = [Flow(lab, near, far) for near, far in flows]
        self._lost = self._victims = [0 for _ in self._flows]

    def mark(self) -> None:
        """Remember what was lost before it goes wrong."""
        self._lost = [flow.lost() for flow in self._flows]

    def begin(self) -> None:
        """Begin to judge: a flow that has lost pings since the mark is a victim of the incident."""
        now = [flow.lost() for flow in self._flows]
        self._victims = [later - before for later, before in zip(now, self._lost, strict=True)]
        self._lost = now

    def suffered(self) -> list[str]:
        """Return the flows that were no victims and have lost pings since then, and those that do not work now."""
        return [
            flow.name
            for flow, before, victim in zip(self._flows, self._lost, self._victims, strict=True)
            if (not victim and flow.lost() - before > LOSES) or not flow.works()
        ]

    def stop(self) -> None:
        for flow in self._flows:
            flow.stop()
