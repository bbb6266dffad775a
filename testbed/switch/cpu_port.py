"""What reaches a switch's control plane of the ARP and neighbour discovery on its SVIs, and what it sends there."""

import contextlib
from collections.abc import Iterator
from ipaddress import IPv6Address

from testbed.kernel import packet_socket as ps
from testbed.kernel.packet_socket import PacketSocket
from testbed.switch import frames, nd
from testbed.switch.changes import Lost
from testbed.switch.packets import Packet, pack
from testbed.switch.svi_interfaces import SviInterfaces
from testbed.switch.virtual_routers import VirtualRouters
from testbed.topology.addressing import link_local
from testbed.topology.plan import Node, Svi

_DISCOVERY = [
    (ps.LOAD_BYTE, 0, 0, nd.NEXT_HEADER_AT),
    (ps.JUMP_IF_EQUAL, 0, 4, nd.ICMPV6),
    (ps.LOAD_BYTE, 0, 0, nd.TYPE_AT),
    (ps.JUMP_IF_EQUAL, 1, 0, nd.SOLICITATION),
    (ps.JUMP_IF_EQUAL, 0, 1, nd.ADVERTISEMENT),
    (ps.RETURN, 0, 0, 0xFFFF),
    (ps.RETURN, 0, 0, 0),
]
"""Filter for the IPv6 packets that the control plane handles: all forwarded packets pass here."""


class CpuPort:
    """Packet sockets of the calling thread's namespace, each with `buffer` bytes."""

    def __init__(self, node: Node, svis: SviInterfaces, virtual: VirtualRouters, buffer: int) -> None:
        self._svis = svis
        self._virtual = virtual
        self._groups = {svi.vlan: _groups(svi) for svi in node.svis if svi.address6 is not None}
        """Destinations of IPv6 packets that an SVI accepts, by VLAN."""
        self._listening = {svi.vlan for svi in node.svis if svi.proxy_arp or svi.vni}
        self._arp = PacketSocket(frames.ETH_P_ARP, buffer)
        self._nd = PacketSocket(nd.ETH_P_IPV6, buffer, _DISCOVERY) if self._groups else None

    def files(self) -> list[PacketSocket]:
        return [self._arp, *([self._nd] if self._nd else [])]

    def packets(self) -> Iterator[tuple[int, Packet]]:
        """Yield (VLAN, packet) of ARP and ND packets that reached an SVI, after the FDB change that each makes."""
        for name, to, frame in self._arp.frames():
            vlan = self._received_in(name, to, ps.BROADCAST)
            if vlan is not None and (arp := frames.parse(frame)):
                yield vlan, arp
        if self._nd:
            for name, to, frame in self._nd.frames():
                vlan = self._received_in(name, to, ps.MULTICAST)
                if vlan is not None and (found := nd.parse(frame)):
                    destination, packet = found
                    if self._accepts(vlan, destination):
                        yield vlan, packet

    def losses(self) -> Iterator[Lost]:
        """Yield the number of packets dropped since the last call: their profile may have admitted them."""
        for what, packets in ("ARP packets", self._arp), ("ND packets", self._nd):
            if packets and (lost := packets.lost()):
                yield Lost(what, lost)

    def send(self, vlan: int, dst: str, packet: Packet) -> None:
        name, mac = self._svis.sender(vlan)
        with contextlib.suppress(OSError):  # it is down, or gone
            self._arp.send(name, pack(dst, mac, packet))

    def _received_in(self, name: str, to: int, to_all: int) -> int | None:
        """Return the VLAN in which a frame reached an SVI, or the MAC of a virtual router; None for another frame. What
        is sent to all reaches the SVI and each device on it."""
        if (vlan := self._svis.vlan_of(name)) is not None:
            return vlan if to in (ps.HOST, to_all) else None
        return self._virtual.vlan_of(name) if to == ps.HOST else None

    def _accepts(self, vlan: int, destination: IPv6Address) -> bool:
        """Return whether an SVI accepts packets to an address. A proxy, and an SVI whose neighbours other switches have
        to know, is in the groups of all addresses."""
        asked_for_others = vlan in self._listening and destination in nd.SOLICITED_NODES
        for_virtual = self._virtual.accepts(vlan, destination)
        return vlan in self._groups and (asked_for_others or for_virtual or destination in self._groups[vlan])


def _groups(svi: Svi) -> frozenset[IPv6Address]:
    """Return the SVI's IPv6 addresses and a router's multicast groups for them (RFC 4291 section 2.8)."""
    assert svi.address6 is not None
    own = svi.address6.ip, link_local(svi.mac)
    return frozenset((*own, *map(nd.solicited_node, own), nd.ALL_NODES, nd.ALL_ROUTERS))
