"""Switches: VLANs, SVIs and a profile."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from testbed.documents.problems import Problems
from testbed.topology.addressing import bgp, svi_mac
from testbed.topology.definition import BridgeKeys, RoutedKeys
from testbed.topology.kinds import mlag_keys, vrrp_keys
from testbed.topology.kinds.bond_keys import BondKeys
from testbed.topology.kinds.kind import Kind, Shape, static_routes
from testbed.topology.kinds.mlag_keys import MlagKeys
from testbed.topology.kinds.vrrp_keys import VrrpKeys
from testbed.topology.plan import Interface, Node, Svi, by_family
from testbed.topology.resolved import Given, Port, ResolvedNode
from testbed.topology.values import ADDRESS_SCHEMA, Address, Mac, Vlan, VlanKey, Vni

DEFAULT_VLAN = 1
"""The default VLAN of a switch and of a port, as on a factory-default switch."""


def listed(value: Any) -> Any:
    """Return the list of an SVI's addresses, which may be written as none, one or a list."""
    if value is None:
        return []
    return value if isinstance(value, list | tuple) else [value]


SviAddresses = Annotated[
    list[Address],
    BeforeValidator(listed),
    WithJsonSchema(
        {"anyOf": [ADDRESS_SCHEMA, {"type": "array", "items": ADDRESS_SCHEMA, "maxItems": 2}, {"type": "null"}]}
    ),
]
# Other keys are errors; without this the schema would accept them.
Vlans = Annotated[dict[VlanKey, SviAddresses], Field(json_schema_extra={"additionalProperties": False})]


class SwitchKeys(MlagKeys, VrrpKeys, BondKeys, RoutedKeys, BridgeKeys):
    profile: str | None = None
    """Switch: the name of its ARP/MAC profile, for example `cisco-nxos`."""
    profile_values: dict[str, Any] | None = None
    """
    Switch: values that replace its profile's own, for example `{arp_age: 300}`; `testbed profile describe NAME` shows
    all values. Merged value by value when several levels of the file have the key.
    """
    vlans: Vlans | None = None
    """
    Switch: its VLANs (1..4094), each with the address of the switch's SVI there, `[IPv4, IPv6]` for one of each, or
    null for layer 2 only.
    Default: VLAN 1 without an address. Merged VLAN by VLAN when several levels of the file have the key.
    """
    svi_mac: Mac | None = None
    """
    Switch: the MAC of its SVIs, planned when absent. Switches that each give one may have the same SVI addresses in one
    VLAN: with one MAC for all they are an anycast gateway.
    """
    vnis: Annotated[dict[VlanKey, Vni], Field(json_schema_extra={"additionalProperties": False})] | None = None
    """
    Switch: the VXLAN networks of its VLANs, such as `{10: 10010}`; needs `routing: evpn`. VLANs with the same VNI are
    one layer-2 network. Merged VLAN by VLAN when several levels of the file have the key.
    """
    l3vni: Vni | None = None
    """
    Switch: the VXLAN network by which switches route between their VLANs with a VNI (symmetric IRB, RFC 9135), whose
    SVIs are in a VRF `tenant` then. Without it a switch routes between its own VLANs only.
    """
    ecmp_seed: int | None = Field(None, ge=1, le=0xFFFFFFFF)
    """
    Switch: the key of the hash by which flows share next hops of equal cost. Default: one of its own, made of its name.
    With one key on several tiers, a switch gets only flows for which its own hash has one result (polarisation).
    """
    load_balancing: str | dict[int, str] | None = None
    """
    Switch: how packets of lossless classes share paths of equal cost: `ecmp`, `spray`, `random`, `adaptive` or
    `flowlet`; or by priority, such as `{3: adaptive, 0: spray}`. Its profile's value of this name; needs `lossless`.
    """
    proxy_arp: list[Vlan] | None = None
    """
    Switch: the VLANs whose SVI answers ARP requests and neighbour solicitations for the other addresses of its subnets
    with its own MAC; such a VLAN floods nothing between its ports. As SONiC's VLAN_INTERFACE `proxy_arp`.
    """
    host_routes: bool | None = None
    """
    Switch: true announces each neighbour of its SVIs as a host route (/32, /128) by BGP; needs routed links. Such
    switches may share a subnet and a gateway address without a layer-2 connection. Default false.
    """


def values_of(keys: SwitchKeys) -> dict[str, Any]:
    """Return the values that replace those of a switch's profile."""
    own = {} if keys.load_balancing is None else {"load_balancing": keys.load_balancing}
    return {**(keys.profile_values or {}), **own}


class Switch(Kind):
    name = "switch"
    lab_class = "switch_node:Switch"
    about = "VLANs, SVIs and a profile"
    keys = SwitchKeys
    shape = Shape(("[", "]"), "box", "fill: #eef2f7; stroke: #475569", "es")
    has_vlans = True

    def complete(self, node: ResolvedNode, problems: Problems) -> None:
        keys: SwitchKeys = node.keys
        node.host_routes = bool(keys.host_routes)
        node.stp = bool(keys.stp)
        node.vnis = dict(keys.vnis or {})
        for vlan, addresses in (keys.vlans or {DEFAULT_VLAN: []}).items():
            found = node.vlans[vlan] = {}
            for index, address in enumerate(addresses):
                path = node.paths["vlans", vlan]
                place = (*path, index) if len(addresses) > 1 else path
                given = Given(address, place, f"the SVI of VLAN {vlan} on {node.name}", anycast=bool(keys.svi_mac))
                if (first := found.setdefault(address.version, given)) is not given:
                    problems.add(place, f"an SVI has one IPv{address.version} address; the first is {first.address}")
        vrrp_keys.complete(node, problems)

    def untagged(self, port: Port) -> str | int | None:
        return port.access

    def describe(self, node: ResolvedNode, part: str | int) -> str:
        return f"VLAN {part} of {node.name}"

    def plan(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> Node:
        keys: SwitchKeys = node.keys
        proxy_arp = keys.proxy_arp or []
        svis = tuple(
            Svi(
                vlan,
                f"vlan{vlan}",
                keys.svi_mac or svi_mac(node.number),
                **by_family({family: given.address for family, given in addresses.items()}),
                proxy_arp=vlan in proxy_arp,
                vni=node.vnis.get(vlan, 0),
                vrrp=vrrp_keys.plan((keys.vrrp or {}).get(vlan)),
            )
            for vlan, addresses in sorted(node.vlans.items())
        )
        for index, vlan in enumerate(proxy_arp):
            if not node.vlans.get(vlan):
                wrong = f"{node.name!r} has no SVI with an address in VLAN {vlan} to answer for other addresses"
                problems.add((*node.paths["proxy_arp"], index), wrong)
        routed = any(interface.routed for interface in interfaces)
        speaker = bgp(node.number, evpn=node.routing == "evpn") if routed else None
        if node.host_routes and speaker is None:
            wrong = f"'host_routes' needs a routed link of {node.name!r} ('routing: frr' or 'evpn'): BGP announces them"
            problems.add(node.paths["host_routes"], wrong, at_key=True)
        own = [address for svi in svis for address in svi.addresses]
        return Node(
            node.name,
            self.name,
            interfaces,
            profile=keys.profile or "",
            profile_values=tuple(values_of(keys).items()),
            svis=svis,
            sysctls=tuple((keys.sysctls or {}).items()),
            routes=static_routes(node, own, problems) if keys.routes is not None else (),
            bgp=speaker,
            host_routes=node.host_routes,
            stp=node.stp,
            ecmp_seed=keys.ecmp_seed or 0,
            vtep=speaker.router_id if speaker and node.vnis else None,
            l3vni=keys.l3vni or 0,
            anycast=keys.svi_mac is not None,
            mlag=mlag_keys.plan(node),
        )
