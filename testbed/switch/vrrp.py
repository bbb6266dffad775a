"""FRR's vrrpd on a switch: the devices that it needs, and its configuration."""

from collections.abc import Sequence
from ipaddress import ip_interface
from typing import NamedTuple

from testbed.topology.addressing import virtual_mac
from testbed.topology.plan import FAMILIES, Family, IPInterface, Node, Svi, VirtualRouter

DEFAULTS = VirtualRouter(0, None)


class Device(NamedTuple):
    """The macvlan device of a virtual router's family, on the SVI of its VLAN."""

    name: str
    svi: Svi
    family: Family
    router: int
    mac: str
    address: IPInterface
    """Its address with the prefix length of the SVI's."""


def devices(svis: Sequence[Svi]) -> list[Device]:
    """Return the devices of the virtual routers of some SVIs."""
    found = []
    for svi in svis:
        for family in FAMILIES:
            if svi.vrrp and (ip := svi.vrrp.address if family == 4 else svi.vrrp.address6):
                own = svi.address if family == 4 else svi.address6
                assert own is not None
                name = f"vrrp{family}-{svi.vlan}-{svi.vrrp.id}"
                address = ip_interface((ip, own.network.prefixlen))
                found.append(Device(name, svi, family, svi.vrrp.id, virtual_mac(family, svi.vrrp.id), address))
    return found


def conf(node: Node) -> str:
    """Return vrrpd's configuration."""
    lines: list[str] = []
    for svi, _ in node.virtual_routers:
        lines += [*commands(svi), "exit"]
    return "".join(f"{line}\n" for line in lines)


def commands(svi: Svi) -> list[str]:
    """Return the commands that make an SVI's virtual router. Its addresses come last: they start it."""
    assert svi.vrrp
    router, begin = svi.vrrp, f"vrrp {svi.vrrp.id}"
    lines = [f"interface {svi.name}", f"{begin} version 3"]
    if router.priority != DEFAULTS.priority:
        lines.append(f"{begin} priority {router.priority}")
    if router.interval_ms != DEFAULTS.interval_ms:
        lines.append(f"{begin} advertisement-interval {router.interval_ms}")
    if not router.preempt:
        lines.append(f"no {begin} preempt")
    return lines + [f"{begin} {'ip' if address.version == 4 else 'ipv6'} {address}" for address in router.addresses]
