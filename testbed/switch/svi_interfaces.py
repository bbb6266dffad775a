"""The SVIs of a switch in the kernel: their VLANs, names, MACs, addresses and carriers, as messages tell them."""

import contextlib
from collections.abc import Iterable, Iterator

from testbed.kernel import link_readings
from testbed.kernel.link_readings import LinkState
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.switch.changes import CarrierLost, SviChange
from testbed.topology.plan import IPInterface, Svi

DAY_MS = 86_400_000
SOLICIT = {"mcast_solicit": 0, "app_solicit": 1, "retrans_time_ms": DAY_MS}
"""Values of an SVI's neighbour table, by which the kernel leaves all to the control plane (`build`)."""


class SviInterfaces:
    """`vlans` are the VLANs by the index of the SVI."""

    def __init__(self, svis: Iterable[Svi], netlink: Rtnetlink, bridge: int) -> None:
        self.vlans: dict[int, int] = {}
        self._named = {svi.name: svi.vlan for svi in svis}
        self._macs = {svi.vlan: (svi.name, svi.mac) for svi in svis}
        self._addresses: dict[int, list[IPInterface]] = {}
        """Addresses by index."""
        self._carriers: set[int] = set()
        """VLANs whose SVI has a carrier."""
        self._netlink = netlink
        self._bridge = bridge
        self._bound = False

    def add(self, vlan: int, index: int) -> None:
        self.vlans[index] = vlan

    def index(self, vlan: int) -> int | None:
        """Return the index of a VLAN's SVI; None if it is gone."""
        return next((index for index, of in self.vlans.items() if of == vlan), None)

    def vlan_of(self, name: str) -> int | None:
        """Return the VLAN of an interface, by its name; None if it is no SVI."""
        return self._named.get(name)

    def sender(self, vlan: int) -> tuple[str, str]:
        """Return the name and MAC of a VLAN's SVI, or those of the one that was."""
        return self._macs[vlan]

    def bind(self, bound: bool) -> None:
        """Have each SVI follow the links of its VLAN, or only the bridge (`Profile.autostate`)."""
        self._bound = bound
        for index in self.vlans:
            with contextlib.suppress(OSError):  # it is gone, and the message is still to come
                self._netlink.bind_vlan(index, bound)

    def follow(self, index: int, link: LinkState, body: bytes) -> Iterator[CarrierLost | SviChange]:
        """Follow RTM_NEWLINK about an interface, which may be an SVI that a command has made."""
        if index not in self.vlans:
            vlan = link_readings.vlan_on(body, self._bridge)
            if vlan is None:
                return
            self.vlans[index] = vlan
            self._named[link.name] = vlan
            with contextlib.suppress(OSError):  # it is gone already
                self._netlink.set_solicitations(index, SOLICIT["mcast_solicit"], SOLICIT["app_solicit"], DAY_MS)
                self._netlink.bind_vlan(index, self._bound)
        vlan = self.vlans[index]
        before = self._macs.get(vlan)
        self._macs[vlan] = link.name, link.mac
        if before and before != (link.name, link.mac):
            self._named = {name: of for name, of in self._named.items() if of != vlan} | {link.name: vlan}
            yield self._change(index)
        if link.carrier != (vlan in self._carriers):
            self._carriers ^= {vlan}
            if not link.carrier:
                yield CarrierLost(vlan)

    def gone(self, index: int) -> Iterator[SviChange]:
        """Follow RTM_DELLINK about an interface."""
        vlan = self.vlans.pop(index, None)
        self._addresses.pop(index, None)
        if vlan is not None:
            yield SviChange(vlan, self._macs[vlan][1], ())

    def address(self, index: int, address: IPInterface, *, has: bool) -> Iterator[SviChange]:
        """Follow an address of an interface."""
        if index not in self.vlans or (address.version == 6 and address.is_link_local):
            return
        known = self._addresses.setdefault(index, [])
        if has != (address in known):
            (known.append if has else known.remove)(address)
            yield self._change(index)

    def addresses(self) -> list[tuple[int, IPInterface]]:
        """Return (index, address) of all that are known."""
        return [(index, address) for index, known in self._addresses.items() for address in known]

    def _change(self, index: int) -> SviChange:
        vlan = self.vlans[index]
        return SviChange(vlan, self._macs[vlan][1], tuple(self._addresses.get(index, ())))
