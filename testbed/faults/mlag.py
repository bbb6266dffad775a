"""Faults of two switches that are one LACP system (MLAG): what they tell each other is lost, or late."""

from contextlib import ExitStack
from typing import Annotated, ClassVar

from pydantic import Field

from testbed.errors import InputError
from testbed.faults.fault import Fault, Verified
from testbed.kernel import nftables
from testbed.lab import Interface, Lab
from testbed.switch.mlag.messages import ETHERTYPE, SYNC

TABLE = "netdev testbed-mlag-sync-lost"
LOST = "lost"


class _PairFault(Fault):
    switch: str
    """One of the two: what it tells the other one."""

    def _receiver(self, lab: Lab) -> Interface:
        """Return the port by which the other switch hears this one."""
        mlag = lab.switch(self.switch).planned.mlag
        if mlag is None:
            raise InputError(f"fault {self}: {self.switch} is alone", hint="It needs 'mlag' in the topology file.")
        other = lab.switch(mlag.peer)
        assert other.planned.mlag
        return other[other.planned.mlag.talks_by]


class MlagSyncLost(_PairFault):
    """What a switch of a pair tells the other of its tables and port channels is lost; they still hear each other.

    As with an update that the process between the tables and the link drops. When the fault is gone, the other switch
    gets all that was lost.
    """

    name: ClassVar[str] = "mlag-sync-lost"

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        port = self._receiver(lab)
        chosen = f"ether type {ETHERTYPE:#06x} @nh,0,8 {SYNC} counter name {LOST} drop"
        chain = f'chain ingress {{ type filter hook ingress device "{port.name_now}" priority -10; {chosen}; }}'
        with port.node.entered():
            nftables.run(f"table {TABLE} {{\ncounter {LOST} {{}}\n{chain}\n}}")
        undo.callback(self._remove, port)

    def _remove(self, port: Interface) -> None:
        with port.node.entered():
            nftables.run(f"destroy table {TABLE}")

    def verify(self, lab: Lab) -> Verified | None:
        return {"dropped_at": str(self._receiver(lab))} if self._counted(lab) else None

    def hits(self, lab: Lab) -> int:
        """Return the number of frames that were lost so far."""
        return sum(self._counted(lab))

    def _counted(self, lab: Lab) -> list[int]:
        port = self._receiver(lab)
        with port.node.entered():
            found = nftables.run("list counters netdev")
        counters = [entry["counter"] for entry in found if "counter" in entry]
        return [one["packets"] for one in counters if f"netdev {one['table']}" == TABLE]


class MlagSyncLate(_PairFault):
    """What a switch of a pair tells the other of its tables and port channels comes late: it is busy."""

    name: ClassVar[str] = "mlag-sync-late"
    delay: Annotated[float, Field(gt=0, le=1e6)]
    """Seconds."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        self._receiver(lab)
        undo.callback(lab.switch(self.switch).change_mlag(delay=self.delay))

    def verify(self, lab: Lab) -> Verified | None:
        return {"delay": self.delay} if lab.switch(self.switch).mlag()["delay"] == self.delay else None
