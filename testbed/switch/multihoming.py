"""
What zebra asks of the kernel in vain for EVPN multihoming, done in its place.

The kernel refuses two of its requests: the entry of a host that another switch of a segment has heard (frr #15253), and
that of a MAC behind several switches ("A nexthop fdb cannot be dynamic"). Both are heard on a device of type nlmon.
"""

import contextlib

from testbed.kernel import link_readings
from testbed.kernel import rtnetlink as rt
from testbed.kernel.link_readings import link_state
from testbed.kernel.netlink_monitor import NetlinkMonitor
from testbed.kernel.rtnetlink import FdbEntry, Neighbour, Rtnetlink
from testbed.switch.fdb import Flow
from testbed.switch.kernel_neighbours import KernelNeighbours
from testbed.switch.svi_interfaces import SviInterfaces
from testbed.switch.tunnels import Tunnels
from testbed.topology.plan import IPAddress, Node


class Multihoming:
    """`requests` are those of zebra. `neighbours` are the entries of this switch: it does without another's."""

    def __init__(
        self, node: Node, netlink: Rtnetlink, svis: SviInterfaces, neighbours: KernelNeighbours, buffer: int
    ) -> None:
        self.requests = NetlinkMonitor(netlink, buffer)
        self._node = node
        self._netlink = netlink
        self._svis = svis
        self._neighbours = neighbours
        self._synced: set[tuple[int, IPAddress]] = set()
        """Index and address of the neighbours that others have heard."""
        self._peers: set[Flow] = set()
        """VLAN and MAC of the bridge's entries that others have, too."""
        self._ports: set[int] = set()
        """Indices of the port channels that zebra has as segments."""
        self._segments = {bond.name for bond in node.bonds if bond.bond and bond.bond.es_id}

    def complete(self) -> None:
        """Do what has been asked up to now."""
        for kind, body in self.requests.requests():
            if kind not in (rt.RTM_NEWNEIGH, rt.RTM_DELNEIGH):
                continue
            with contextlib.suppress(OSError):  # the interface is gone, or the group
                if found := rt.neighbour_of(body):
                    self._synchronise(kind, found)
                elif entry := rt.fdb_entry(body):
                    self._take(kind, entry)

    def has_peer(self, flow: Flow) -> bool:
        """Return whether zebra has asked for the bridge's entry: another switch of the segment has the MAC, too."""
        return flow in self._peers

    def concerns_segments(self, kind: int, body: bytes) -> bool:
        """Return whether a message is about something on which the Ethernet segments depend. zebra flushes the MACs of
        a port that has another segment, and reports nothing."""
        if kind in (rt.RTM_NEWNEXTHOP, rt.RTM_DELNEXTHOP):
            return True
        if kind == rt.RTM_DELNEIGH:
            entry = rt.fdb_entry(body)
            return entry is not None and entry.index in self._ports
        found = link_state(body) if kind in (link_readings.RTM_NEWLINK, link_readings.RTM_DELLINK) else None
        return found is not None and found[1].name in self._segments

    def set_backup(self, index: int, port: str, group: int, tunnels: Tunnels) -> None:
        """Reach the host behind a port channel by the switches of a next-hop group while its own links are down. The
        kernel can do so for a port with one VXLAN network."""
        self._ports.add(index)
        plan = self._node.interface(port)
        networks = tunnels.of_vlans({vlan for vlan in (plan.vlan, *plan.trunk) if vlan})
        if len(networks) == 1:
            with contextlib.suppress(OSError):  # the group is gone already: the next change says so
                self._netlink.set_backup(index, networks[0] if group else 0, group)

    def _take(self, kind: int, entry: FdbEntry) -> None:
        if kind == rt.RTM_NEWNEIGH and entry.group:
            self._netlink.set_far_ends(entry.index, entry.mac, entry.group)
        elif kind == rt.RTM_NEWNEIGH and entry.state & rt.NUD_NOARP and not _far(entry):
            self._peers.add((entry.vlan, entry.mac))
        else:
            self._peers.discard((entry.vlan, entry.mac))

    def _synchronise(self, kind: int, found: Neighbour) -> None:
        key = found.index, found.ip
        vlan = self._svis.vlans.get(found.index)
        if vlan is None or (vlan, found.ip) in self._neighbours:
            return
        if kind == rt.RTM_NEWNEIGH and found.sync and found.mac:
            self._synced.add(key)
            self._netlink.set_external_neighbour(*key, found.mac)
        elif key in self._synced:
            self._synced.discard(key)
            if kind == rt.RTM_DELNEIGH:
                self._netlink.delete_neighbour(*key)


def _far(entry: FdbEntry) -> bool:
    """Return whether an entry is one of another switch's; zebra asks for others with 0.0.0.0 behind them."""
    return entry.behind is not None and not entry.behind.is_unspecified
