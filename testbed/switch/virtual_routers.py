"""
The virtual routers of a switch in the kernel: macvlan devices on its SVIs, as FRR's vrrpd needs them.

vrrpd sets the device of a backup protocol-down. That alone does not stop the kernel: the device still receives what
has its MAC (macvlan_handle_frame asks only whether it is set up), and its addresses are still accepted. Behind a bridge
the backup so forwards a second copy of each packet that passes it on the way to the master. And a device with a MAC of
its own makes the bridge promiscuous: its stack gets a copy of every frame.

Therefore the kernel has a router's MAC and addresses only while this switch is master: the MAC as the bridge's own in
the VLAN, as an ASIC has it in its table of own MACs, and the addresses on the device.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from testbed.kernel.link_readings import LinkState, macvlan
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.switch import nd
from testbed.switch.changes import RouterChange
from testbed.topology import IPInterface

VIRTUAL_MACS = "00:00:5e:00:01:", "00:00:5e:00:02:"
"""Begins of the MACs of virtual routers for IPv4 and IPv6 (RFC 9568 section 7.3)."""


@dataclass(slots=True)
class _Device:
    name: str
    svi: int
    vlan: int
    mac: str
    addresses: list[IPInterface] = field(default_factory=list)
    """Those that it has as master."""
    up: bool = False
    master: bool = False

    @property
    def virtual(self) -> bool:
        """False after a command has set another MAC: its addresses are then that command's own."""
        return _is_virtual(self.mac)

    @property
    def change(self) -> RouterChange:
        return RouterChange(self.vlan, self.mac, tuple(address.ip for address in self.addresses if self.master))


def _is_virtual(mac: str) -> bool:
    return mac.startswith(VIRTUAL_MACS)


class VirtualRouters:
    def __init__(self, netlink: Rtnetlink, bridge: int) -> None:
        self._netlink = netlink
        self._bridge = bridge
        self._devices: dict[int, _Device] = {}

    @property
    def indices(self) -> set[int]:
        return {*self._devices}

    def follow(self, index: int, link: LinkState, body: bytes, svis: Mapping[int, int]) -> Iterator[RouterChange]:
        """Follow an interface, and RTM_NEWLINK about it. `svis` are the VLANs by the index of the SVI."""
        device = self._devices.get(index)
        if device and link.mac != device.mac:  # a command's: it is that virtual router no longer
            yield from self._resign(index, device)
            device.mac, device.up = link.mac, False
        if not _is_virtual(link.mac) or (below := macvlan(body)) is None:
            return
        if device is None:
            if below.parent not in svis:
                return
            device = self._devices[index] = _Device(link.name, below.parent, svis[below.parent], link.mac)
        device.name = link.name
        if link.up and not device.up:
            self._netlink.delete_own_mac(device.svi, device.mac)
        device.up = link.up
        if device.master != (master := link.up and not below.protocol_down):
            device.master = master
            self._program(index, device)
            yield device.change

    def gone(self, index: int) -> Iterator[RouterChange]:
        """Follow RTM_DELLINK."""
        if device := self._devices.pop(index, None):
            yield from self._resign(index, device)

    def address(self, index: int, address: IPInterface, *, has: bool) -> Iterator[RouterChange]:
        """Follow an address of a device: as a backup it has none, so only the master's are a command's."""
        device = self._devices.get(index)
        if device is None or not device.virtual or (address.version == 6 and address.is_link_local):
            return
        if has and address not in device.addresses:
            device.addresses.append(address)
        elif device.master and not has and address in device.addresses:
            device.addresses.remove(address)
        else:
            return
        if device.master:
            yield device.change
        else:
            with contextlib.suppress(OSError):  # it is gone
                self._netlink.delete_address(index, address)

    def vlan_of(self, name: str) -> int | None:
        """Return the VLAN of a device, by its name."""
        return next((device.vlan for device in self._devices.values() if device.name == name), None)

    def accepts(self, vlan: int, destination: IPv6Address) -> bool:
        """Return whether a master accepts packets to an address: its own, or that of their multicast group."""
        here = [device for device in self._devices.values() if device.master and device.vlan == vlan]
        own = [address.ip for device in here for address in device.addresses if isinstance(address.ip, IPv6Address)]
        return destination in own or destination in map(nd.solicited_node, own)

    def _resign(self, index: int, device: _Device) -> Iterator[RouterChange]:
        if device.master:
            device.master = False
            self._program(index, device)
            yield device.change

    def _program(self, index: int, device: _Device) -> None:
        with contextlib.suppress(OSError):  # the device, or its VLAN, is gone
            if device.master:
                self._netlink.set_bridge_mac(self._bridge, device.vlan, device.mac)
            else:
                self._netlink.delete_bridge_mac(self._bridge, device.vlan, device.mac)
            for address in device.addresses:
                if device.master:  # the route to the subnet is the SVI's
                    self._netlink.set_address(index, address, prefix_route=False)
                else:
                    self._netlink.delete_address(index, address)
