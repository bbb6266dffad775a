"""
What a switch of a pair needs of the kernel: a socket for frames of the other one, and what becomes of its bridge.

The bridge learns nothing from the peer link: MACs there come from the other switch's word. An nftables rule drops what
comes by the peer link for a port channel that both have (SONiC: an ebtables rule, doc/mclag/Sonic-mclag-hld.md, 7.2.6).
"""

import contextlib
import os
from collections.abc import Iterator, Sequence

from testbed.kernel import netns, nftables, syscalls
from testbed.kernel.netlink import mac_bytes
from testbed.kernel.packet_socket import PacketSocket
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.kernel.syscalls import CLONE_NEWNET
from testbed.switch.frames import ETHERNET
from testbed.switch.mlag.messages import ETHERTYPE, GROUP
from testbed.topology.plan import Node


class PairPlane:
    """It stays in the namespace in which it is made."""

    def __init__(self, node: Node, netlink: Rtnetlink, buffer: int) -> None:
        assert node.mlag
        self.socket = PacketSocket(ETHERTYPE, buffer)
        self._node = node
        self._plan = node.mlag
        self._netlink = netlink
        self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._channels = {port.name: port.mac for port in node.bonds if port.bond and port.bond.mlag}
        """MACs of the port channels of the pair."""
        self._header = ETHERNET.pack(mac_bytes(GROUP), mac_bytes(node.interface(self._plan.talks_by).mac), ETHERTYPE)

    def prepare(self) -> None:
        """Learn nothing from the links to the other switch; they are ports."""
        for port in {self._plan.peer_link, self._plan.talks_by}:
            self._netlink.set_learning(self._netlink.index(port), learn=False)

    def close(self) -> None:
        self.socket.close()
        os.close(self._namespace)

    def payloads(self) -> Iterator[bytes]:
        """Yield what the other switch has sent, without waiting."""
        for interface, _, frame in self.socket.frames():
            if interface == self._plan.talks_by:
                yield frame[ETHERNET.size :]

    def send(self, payload: bytes) -> None:
        with contextlib.suppress(OSError):  # the port is gone
            self.socket.send(self._plan.talks_by, self._header + payload)

    def isolate(self, ports: Sequence[str]) -> None:
        """Drop what comes by the peer link and leaves by one of these ports."""
        rules = [f'iifname "{self._plan.peer_link}" oifname "{port}" drop' for port in ports]
        chain = ["chain forward {", "type filter hook forward priority 0;", *rules, "}"]
        table = "\n".join(["destroy table bridge mlag", "table bridge mlag {", *chain, "}"])
        with netns.restored():
            syscalls.setns(self._namespace, CLONE_NEWNET)
            nftables.run(table)

    def leave(self, *, left: bool) -> None:
        """Give the port channels an LACP system of their own, their MAC, or that of the pair."""
        for port, mac in self._channels.items():
            with contextlib.suppress(OSError):  # it is gone
                index = self._netlink.index(port)
                self._netlink.set_link(index, up=False)
                self._netlink.set_system(index, mac if left else self._plan.system)
                self._netlink.set_link(index, up=True)

    def disable(self, *, disabled: bool) -> None:
        """Set the members of the port channels down, so that hosts lose the link, or up."""
        for member in [member.name for member in self._node.interfaces if member.master in self._channels]:
            with contextlib.suppress(OSError):  # it is gone
                self._netlink.set_link(self._netlink.index(member), up=not disabled)
