"""The kernel's entries of a switch for MACs of other switches.

Each has two: the bridge's, on the port of the VXLAN network, then that of the network itself, with the far end of its
tunnel, which is reported only if it changes.
"""

from collections.abc import Collection, Iterator

from testbed.kernel import rtnetlink as rt
from testbed.kernel.rtnetlink import FdbEntry, Rtnetlink
from testbed.switch.changes import FdbChange
from testbed.switch.fdb import Flow
from testbed.switch.frames import NO_MAC
from testbed.topology.plan import Svi


class Tunnels:
    """It is true if the switch has VXLAN networks."""

    def __init__(self) -> None:
        self._networks: dict[int, Svi] = {}
        """The VLANs' SVIs by the index of their network's port."""
        self._bridged: dict[Flow, int] = {}
        """Indices of the ports by VLAN and MAC, as the bridge has them."""
        self._new: dict[Flow, int] = {}
        """Those that are not reported yet: the network's own entry may follow."""
        self._far_ends: dict[Flow, tuple[str, ...]] = {}
        self._groups: dict[Flow, int] = {}
        """The next-hop groups of MACs behind several far ends."""
        self.by_hand: set[Flow] = set()
        """MACs behind far ends that zebra has not set."""

    def __bool__(self) -> bool:
        return bool(self._networks)

    def add(self, index: int, svi: Svi) -> str:
        """Take in the port of a VLAN's network, and return its name."""
        self._networks[index] = svi
        return svi.network

    def bridged(self, kind: int, entry: FdbEntry) -> bool:
        """Take in an entry of the bridge; return whether it is one on the port of a network."""
        flow = entry.vlan, entry.mac
        self._bridged.pop(flow, None)
        self._new.pop(flow, None)
        if entry.index not in self._networks:
            return False
        if kind == rt.RTM_NEWNEIGH:
            self._bridged[flow] = self._new[flow] = entry.index
        return True

    def far_end(self, kind: int, entry: FdbEntry, kernel: Rtnetlink) -> FdbChange | None:
        """Take in a network's own entry; return the change that it makes to one of the bridge."""
        svi = self._networks.get(entry.index)
        if svi is None or entry.bridge or entry.mac == NO_MAC:  # which has the far ends of broadcasts
            return None
        flow = svi.vlan, entry.mac
        self._groups.pop(flow, None)
        self.by_hand.discard(flow)
        if kind == rt.RTM_DELNEIGH:
            self._far_ends.pop(flow, None)
            return None
        if not entry.external:
            self.by_hand.add(flow)
        if entry.group:
            self._groups[flow] = entry.group
        hops = [entry.behind] if entry.behind else kernel.next_hops_behind(entry.group)
        self._far_ends[flow] = tuple(map(str, hops))
        self._new.pop(flow, None)
        return self._change(flow) if flow in self._bridged else None

    def regrouped(self, kernel: Rtnetlink) -> Iterator[FdbChange]:
        """Yield the changes of entries whose next-hop group has other members."""
        now = {group: tuple(map(str, kernel.next_hops_behind(group))) for group in set(self._groups.values())}
        for flow, group in self._groups.items():
            if self._far_ends[flow] != now[group]:
                self._far_ends[flow] = now[group]
                if flow in self._bridged:
                    yield self._change(flow)

    def of_vlans(self, vlans: Collection[int]) -> list[int]:
        """Return the ports of the networks of some VLANs, by index."""
        return [index for index, svi in self._networks.items() if svi.vlan in vlans]

    def rest(self) -> Iterator[FdbChange]:
        """Yield the changes of entries after which none of the network's own has come."""
        new, self._new = self._new, {}
        return map(self._change, new)

    def _change(self, flow: Flow) -> FdbChange:
        network = self._networks[self._bridged[flow]].network
        return FdbChange(*flow, network, vteps=self._far_ends.get(flow, ()))
