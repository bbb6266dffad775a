"""Bonds of hosts, and port channels of switches: several links as one interface (Linux: networking/bonding.rst)."""

from typing import Any, Literal, get_args

from pydantic import Field

from testbed.documents.problems import Problems
from testbed.topology.definition import Definition
from testbed.topology.plan import Bond, HashPolicy
from testbed.topology.resolved import Port, ResolvedNode
from testbed.topology.values import MAX_VNI, Address4, Address6, InterfaceName, Mac

Mode = Literal["802.3ad", "active-backup", "balance-xor"]
OF_MODE = {
    "broadcast_neighbor": ("802.3ad",),
    "es_id": ("802.3ad",),
    "lacp_rate": ("802.3ad",),
    "min_links": ("802.3ad",),
    "mlag": ("802.3ad",),
    "system": ("802.3ad",),
    "hash": ("802.3ad", "balance-xor"),
    "primary": ("active-backup",),
}
"""The modes that have a key."""
assert set(get_args(Mode)) >= {mode for modes in OF_MODE.values() for mode in modes}


class BondDefinition(Definition):
    """A bond of a host, or a port channel of a switch."""

    members: list[InterfaceName] = Field(min_length=1)
    """Its links: the names of the node's interfaces there."""
    mode: Mode = "802.3ad"
    """`802.3ad`: LACP. `active-backup`: one member carries all. `balance-xor`: a static bundle, without a protocol."""
    hash: HashPolicy | None = None
    """802.3ad, balance-xor: what a flow's member follows from. Default `layer3+4`: addresses and UDP ports."""
    lacp_rate: Literal["slow", "fast"] | None = None
    """802.3ad: `slow` (default): LACPDUs every 30 s, a silent partner is lost after 90 s. `fast`: 1 s and 3 s."""
    min_links: int | None = Field(None, ge=0, le=64)
    """802.3ad: members that must carry traffic, or the bond has no carrier. Default 0."""
    primary: InterfaceName | None = None
    """active-backup: the member that carries the traffic whenever it is up. Default: whichever was first."""
    system: Mac | None = None
    """802.3ad: the system's MAC in LACPDUs. Two switches with the same one are one partner to a host. Default: the MAC
    of the first member."""
    broadcast_neighbor: bool | None = None
    """802.3ad: true sends ARP and neighbour discovery by all members, for switches that do not tell each other what
    they hear. Default false."""
    es_id: int | None = Field(None, ge=1, le=MAX_VNI)
    """Switch, 802.3ad: the number of its Ethernet segment beside `system` (EVPN multihoming): port channels of several
    switches with both in common lead to one host."""
    mlag: int | None = Field(None, ge=1, le=65535)
    """Switch, 802.3ad: the number that the port channels of one host have in common on the two switches of a pair
    (`mlag` of the switch), whose LACP system they have."""
    mac: Mac | None = None
    """Default: that of its first member."""
    ipv4: Address4 | None = None
    """Host: its address with the prefix length; planned when absent."""
    ipv6: Address6 | None = None
    """Host: its IPv6 address; planned when absent if its VLAN or segment has IPv6 addresses."""


def system_of(definition: BondDefinition, node: ResolvedNode) -> str | None:
    """Return the LACP system's MAC of a bond: its own one's, or that of the pair of switches that has it."""
    pair = getattr(node.keys, "mlag", None) if definition.mlag is not None else None
    return pair.system if pair else definition.system


def bond(definition: BondDefinition, port: Port, problems: Problems) -> Bond:
    """Return the plan of a bond."""
    for key, modes in OF_MODE.items():
        if getattr(definition, key) is not None and definition.mode not in modes:
            problems.add((*port.path, key), f"{key!r} is for bonds of mode {' and '.join(modes)}", at_key=True)
    names = tuple(definition.members)
    if definition.primary and definition.primary not in names:
        problems.add((*port.path, "primary"), f"{definition.primary!r} is not among the members of {port}")
    if (least := definition.min_links or 0) > len(names):
        wrong = f"{port} has never a carrier: it has {len(names)} members, fewer than 'min_links'"
        problems.add((*port.path, "min_links"), wrong)
    given: dict[str, Any] = {key: value for key in ("hash", "lacp_rate") if (value := getattr(definition, key))}
    return Bond(
        definition.mode,
        names,
        **given,
        min_links=least,
        primary=definition.primary or "",
        system=system_of(definition, port.node) or "",
        broadcast_neighbor=bool(definition.broadcast_neighbor),
        es_id=definition.es_id or 0,
        mlag=definition.mlag or 0,
    )


class BondKeys(Definition):
    bonds: dict[InterfaceName, BondDefinition] | None = None
    """
    Host, linux, switch: bonds or port channels by name, such as `bond0: {members: [eth1, eth2]}`. VLANs, MTU and
    quality are those of the members' links; addresses and the RDMA device are the bond's. Merged by name over the
    levels of the file.
    """
