"""Virtual routers of switches, by VRRP: one gateway address on several switches."""

from ipaddress import ip_interface
from typing import Annotated

from pydantic import AfterValidator, Field

from testbed.documents.problems import Problems
from testbed.topology.addressing import virtual_mac
from testbed.topology.definition import Definition
from testbed.topology.plan import FAMILIES, VirtualRouter
from testbed.topology.resolved import Given, ResolvedNode
from testbed.topology.values import Alone4, Alone6, VlanKey, parse_address


def _centiseconds(value: int) -> int:
    if value % 10:
        raise ValueError(f"{value} ms is no multiple of 10 ms: advertisements have it in centiseconds")
    return value


class VrrpDefinition(Definition):
    """A virtual router of a switch (VRRP version 3, RFC 9568)."""

    id: int = Field(ge=1, le=255)
    """Its id (VRID), 1..255: the same on all switches of the virtual router. Its MAC ends with it."""
    address: Alone4 | None = None
    """Its IPv4 address, without a prefix length: the gateway of the hosts. No SVI has it as its own."""
    address6: Alone6 | None = None
    """Its IPv6 address."""
    priority: int = Field(100, ge=1, le=254)
    """
    1..254; the switch with the highest becomes master. Of equal ones the first stays it; of two masters the one with
    the higher SVI address does.
    """
    interval: Annotated[int, Field(ge=10, le=40950), AfterValidator(_centiseconds)] = 1000
    """
    Milliseconds from one advertisement to the next; a master that is silent for three of them, and up to one more by
    priority, is taken over from.
    """
    preempt: bool = True
    """Whether it takes over from a master of lower priority."""


# Other keys are errors; without this the schema would accept them.
Routers = Annotated[dict[VlanKey, VrrpDefinition], Field(json_schema_extra={"additionalProperties": False})]


class VrrpKeys(Definition):
    vrrp: Routers | None = None
    """
    Switch: its virtual routers by VLAN, such as `{10: {id: 5, address: 10.0.10.1, priority: 200}}`, by FRR's vrrpd. The
    VLAN's SVI has an address of its own in the same subnet. Merged VLAN by VLAN when several levels of the file have
    the key.
    """


def complete(node: ResolvedNode, problems: Problems) -> None:
    """Have the addresses of a switch's virtual routers with the prefix lengths of its SVIs."""
    for vlan, router in (node.keys.vrrp or {}).items():
        path = node.paths["vrrp", vlan]
        if router.address is None and router.address6 is None:
            problems.add(path, f"the virtual router {router.id} has no address: give 'address', 'address6' or both")
        found = node.virtual[vlan] = {}
        for family in FAMILIES:
            key, address = ("address", router.address) if family == 4 else ("address6", router.address6)
            if address is None:
                continue
            svi = node.vlans.get(vlan, {}).get(family)
            if svi is None:
                needs = f"'vrrp' needs an SVI with an IPv{family} address of its own in VLAN {vlan} of {node.name!r}"
                problems.add((*path, key), f"{needs}, beside {address}")
                continue
            given = ip_interface((address, svi.address.network.prefixlen))
            try:
                parse_address(str(given))
            except ValueError as error:
                problems.add((*path, key), str(error))
            owner = f"the virtual router {router.id} of VLAN {vlan} on {node.name}"
            found[family] = Given(given, (*path, key), owner, virtual=router.id)
            if node.keys.svi_mac == virtual_mac(family, router.id):
                problems.add(node.paths["svi_mac"], f"{node.keys.svi_mac} is the MAC of {owner}")


def plan(definition: VrrpDefinition | None) -> VirtualRouter | None:
    if definition is None:
        return None
    return VirtualRouter(
        definition.id,
        definition.address,
        definition.address6,
        definition.priority,
        definition.interval,
        definition.preempt,
    )
