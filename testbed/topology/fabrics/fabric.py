"""A fabric during and after its construction: the nodes and links of a topology file, and its comments.

Names are the field's. Ports are counted per node in the order of the cables: e1, e2, … on a switch, hosts first; eth1,
eth2, … on a host, where the number is the rail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, get_args

from testbed.errors import InputError
from testbed.topology.fabrics import addresses
from testbed.topology.fabrics.addresses import FAMILIES, Families
from testbed.topology.plan import Family, IPNetwork, Routing
from testbed.topology.topology import Topology

DEFAULTS = {"kind": "host"}
ROUTINGS: tuple[str, ...] = get_args(Routing)
GATEWAY_MAC, L3VNI = "02:00:00:00:00:fe", 4001
"""The MAC of a gateway that several leaves are, and the network between the VRFs of an EVPN fabric's leaves."""
NODE_KINDS = {"host": {"nic": "hardware"}, "switch": {"profile": "sonic"}}


class Manner(TypedDict, total=False):
    """The options of every kind of fabric."""

    bridged: bool
    family: Families
    management: bool


class RoutedManner(Manner, total=False):
    routing: Routing


@dataclass(slots=True)
class Node:
    """A node with the keys of the file. A host without routes has the planner's default route."""

    name: str
    kind: str
    routes: list[dict[str, Any]] = field(default_factory=list)
    vlans: dict[int, Any] = field(default_factory=dict)
    notes: dict[str | int, str] = field(default_factory=dict)
    """The comments on VLANs by their number, and on routes by their destination."""
    ports: int = 0
    vnis: dict[int, int] = field(default_factory=dict)
    bonds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_vlan(self, vlan: int, svi: Mapping[Family, str], note: str) -> None:
        self.vlans[vlan], self.notes[vlan] = _listed(svi.values()), note

    def add_routes(self, to: Mapping[Family, object], via: Mapping[Family, Sequence[str]], note: str = "") -> None:
        """Add routes. A family without a next hop gets none."""
        for family, hops in via.items():
            if hops:
                self.routes.append({"to": str(to[family]), "via": _listed(hops)})
                self.notes[str(to[family])] = note

    def next_port(self) -> str:
        self.ports += 1
        return f"{self.name}:{'eth' if self.kind == 'host' else 'e'}{self.ports}"

    def value(self) -> dict[str, Any] | None:
        kind = None if self.kind == DEFAULTS["kind"] else self.kind
        keys = {"kind": kind, "vlans": self.vlans, **self.gateway(), "bonds": self.bonds, "routes": self.routes}
        return {key: value for key, value in keys.items() if value} or None

    def gateway(self) -> dict[str, Any]:
        """Return the keys of a leaf that is one gateway with others: all of an EVPN fabric, or two without a stack."""
        if self.vnis:
            return {"svi_mac": GATEWAY_MAC, "vnis": self.vnis, "l3vni": L3VNI}
        if self.bonds and self.kind == "switch":
            return {"svi_mac": GATEWAY_MAC, "host_routes": True, "profile_values": {"port_down": "purge"}}
        return {}


@dataclass(slots=True)
class Section:
    """A group of nodes and links in the file."""

    heading: str
    nodes: list[Node] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)


def at_least_one(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InputError(f"{name} is {value}; at least 1 is needed")


def at_most(most: int, why: str, **options: int) -> None:
    for name, value in options.items():
        if value > most:
            raise InputError(f"{name} is {value}; {why}", hint=f"At most {most}.")


class Fabric:
    """A topology as nodes and links. `options` are those that made it, `about` has lines for people."""

    def __init__(self, kind: str, options: Mapping[str, int | str], manner: Mapping[str, Any]) -> None:
        self.kind = kind
        self.options = options
        self.bridged: bool = manner.get("bridged", False)
        self.family: Families = manner.get("family", 4)
        self.dual_tor = "dual-tor" in options
        """True if each NIC of a host has two links, to two leaves."""
        self.routing: Routing = manner.get("routing", "frr" if self.dual_tor else "static")
        self.management: bool = manner.get("management", False)
        self.parallel = 1
        """The number of links between a switch and each one above it."""
        if self.family not in FAMILIES:
            raise InputError(f"family is {self.family!r}; expected 4, 6 or dual")
        if self.routing not in ROUTINGS:
            raise InputError(f"routing is {self.routing!r}; expected {', '.join(ROUTINGS[:-1])} or {ROUTINGS[-1]}")
        if self.dual_tor and (self.bridged or self.routing == "static"):
            how = "bridged" if self.bridged else "by static routes"
            raise InputError(f"dual_tor: two leaves cannot announce the same hosts {how}", hint="Choose frr or evpn.")
        if self.bridged and self.routing != "static":
            raise InputError(f"a bridged fabric has no routing: routing is {self.routing}", hint="Make it routed.")
        self.one_subnet = self.bridged or self.routing == "evpn"
        """True if the hosts of a rail share a subnet, behind all leaves."""
        self.about: list[str] = []
        self.sections: list[Section] = []
        self._links = 0

    @property
    def manner(self) -> str:
        return "bridged" if self.bridged else "EVPN" if self.routing == "evpn" else "routed"

    # Limits, checked before anything is made: one error that names the value

    def check_hosts(self, hosts: int, per_subnet: int) -> None:
        """Check the option `hosts`, which puts `per_subnet` hosts into one subnet."""
        most, prefix = (addresses.MAX_HOSTS_BRIDGED, 16) if self.one_subnet else (addresses.MAX_HOSTS, 24)
        if per_subnet > most:
            room = f"a /{prefix} has addresses for {most} and a gateway"
            raise InputError(f"hosts is {hosts}: {per_subnet} hosts in a subnet, and {room}")

    def check_links(self, name: str, value: int, links: int) -> None:
        """Check that `value` of option `name` does not make too many links: with static routes each has a VLAN."""
        if self.bridged and self.parallel > 1:
            raise InputError(
                f"bridged, {self.parallel} links between the same two switches are a layer-2 loop",
                hint="Make it routed.",
            )
        if not self.bridged and self.routing == "static" and links > (most := addresses.MAX_LINKS):
            made = f"makes {links} links between switches; there are VLANs for {most}"
            raise InputError(f"{name} is {value}, which {made}")

    def check_tree(self, uppers: list[str], lowers: list[str]) -> None:
        """Check that bridged switches form a tree: each lower one is joined with each upper one."""
        if self.bridged and len(uppers) > 1 and len(lowers) > 1:
            loop = " – ".join([lowers[0], uppers[0], lowers[-1], uppers[-1], lowers[0]])
            raise InputError(
                f"bridged, {loop} is a layer-2 loop, and the bridges of a lab run no spanning tree",
                hint="Make it routed, or leave one switch in the upper tier.",
            )

    # Parts

    def subnet(self, part: int, number: int) -> dict[Family, IPNetwork]:
        """Return the hosts' subnet in each family of the fabric; if bridged, or with EVPN, that of rail `part`."""
        place = None if self.one_subnet else number
        return {family: addresses.subnet(part, place, family) for family in FAMILIES[self.family]}

    def svi(self, part: int, number: int) -> dict[Family, str]:
        """Return the gateway of the same subnet, with its prefix length."""
        return {family: f"{net[1]}/{net.prefixlen}" for family, net in self.subnet(part, number).items()}

    def anywhere(self) -> dict[Family, str]:
        return dict.fromkeys(FAMILIES[self.family], "default")

    def section(self, heading: str) -> None:
        """Put all nodes and links that are added from now on under `heading`."""
        self.sections.append(Section(heading))

    def add(self, kind: str, names: Iterable[str]) -> list[Node]:
        nodes = [Node(name, kind) for name in names]
        self.sections[-1].nodes += nodes
        return nodes

    def attach(self, hosts: Iterable[Node], switch: Node, vlan: int) -> None:
        """Connect each host's next NIC to the switch's next port."""
        for host in hosts:
            self._cable(switch, host.next_port(), {"vlan": vlan})

    def add_leaf(
        self, leaf: Node, hosts: Iterable[Node], uppers: Sequence[Node], vlan: int, note: str, place: tuple[int, int]
    ) -> None:
        """Connect the leaf to its hosts and to the upper switches. If routed, it is the gateway of the subnet `place`,
        to which each upper switch has a route; if bridged, the VLAN continues above; with EVPN, on the other leaves."""
        leaf.add_vlan(vlan, {} if self.bridged else self.svi(*place), note)
        if self.routing == "evpn":
            leaf.vnis[vlan] = addresses.vni(place[0])
        self.attach(hosts, leaf, vlan)
        if self.bridged:
            self.trunks(leaf, uppers, vlan)
        else:
            leaf.add_routes(self.anywhere(), self.join(leaf, uppers, self.subnet(*place)))

    def bond(self, hosts: Iterable[Node], leaves: Sequence[Node], place: tuple[int, int]) -> None:
        """Make a bond of each host's last NICs, which are on all of these leaves: one LACP partner, with EVPN an
        Ethernet segment, without it two leaves that tell each other nothing."""
        evpn = self.routing == "evpn"
        for number, host in enumerate(hosts, start=1):
            for leaf in leaves:
                port = {"members": [f"e{number}"], "system": addresses.lacp_system(*place)}
                leaf.bonds[f"po{number}"] = {**port, "es_id": number} if evpn else port
            members = [f"eth{nic}" for nic in range(host.ports - len(leaves) + 1, host.ports + 1)]
            bond = {"members": members} if evpn else {"members": members, "broadcast_neighbor": True}
            host.bonds[f"bond{len(host.bonds)}"] = bond

    def join(self, lower: Node, uppers: Iterable[Node], below: Mapping[Family, object]) -> dict[Family, list[str]]:
        """Make routed cables; each upper switch gets a route to `below`. Return the upper addresses: none with FRR."""
        hops: dict[Family, list[str]] = {family: [] for family in FAMILIES[self.family]}
        for upper in uppers:
            lows: dict[Family, list[str]] = {family: [] for family in hops}
            for _ in range(self.parallel):
                for family, (low, high) in self._routed_cable(lower, upper).items():
                    lows[family].append(low)
                    hops[family].append(high)
            upper.add_routes(below, lows, lower.name)
        return hops

    def _routed_cable(self, lower: Node, upper: Node) -> dict[Family, tuple[str, str]]:
        """Make a cable; return the addresses of its lower and its upper end, none with FRR."""
        if self.routing != "static":
            self._cable(lower, upper.next_port(), {})
            return {}
        self._links += 1
        vlan = 1000 + self._links
        ends = {family: addresses.link(self._links, family) for family in FAMILIES[self.family]}
        for switch, other, end in (lower, upper, 0), (upper, lower, 1):
            svis = {family: f"{ends[family][end]}/{addresses.LINK_PREFIX[family]}" for family in ends}
            switch.add_vlan(vlan, svis, f"to {other.name}")
        self._cable(lower, upper.next_port(), {"vlan": vlan})
        return ends

    def trunks(self, lower: Node, uppers: Iterable[Node], vlan: int) -> None:
        """Make bridged cables."""
        for upper in uppers:
            self._cable(lower, upper.next_port(), {"trunk": [vlan]})

    def finish(self) -> Fabric:
        """Add what a job needs (docs/jobs.md) if requested: a host that launches it, and a separate network that
        every host is on with `mgmt0`."""
        if self.management:
            hosts = [node for node in self.nodes() if node.kind == "host"]
            self.section("the management network, for what launches jobs")
            (bridge,), (launcher,) = self.add("bridge", ["mgmt"]), self.add("host", ["launcher"])
            for host in [*hosts, launcher]:
                self._cable(bridge, f"{host.name}:mgmt0", {"rdma": False})
        return self

    def _cable(self, node: Node, other: str, settings: dict[str, Any]) -> None:
        self.sections[-1].links.append({"endpoints": [node.next_port(), other], **settings})

    @property
    def command(self) -> str:
        """Return the command that makes the same fabric again."""
        options = (f"--{name} {value}".strip() for name, value in self.options.items())
        family = [] if self.family == 4 else [f"--family {self.family}"]
        routed = f"--routing {self.routing}" if self.routing != "static" else "--routed"
        manner = "--bridged" if self.bridged else routed
        management = ["--management"] if self.management else []
        return " ".join(["testbed topology new", self.kind, *options, *family, manner, *management])

    def nodes(self) -> list[Node]:
        return [node for section in self.sections for node in section.nodes]

    def document(self) -> dict[str, Any]:
        """Return the file as plain data."""
        links = [link for section in self.sections for link in section.links]
        nodes = {node.name: node.value() for node in self.nodes()}
        routing = {"routing": self.routing} if self.routing != "static" else {}
        elements = {**routing, "defaults": DEFAULTS, "kinds": NODE_KINDS, "nodes": nodes, "links": links}
        return {"name": self.kind, "topology": elements}

    def topology(self) -> Topology:
        return Topology.model_validate(self.document())


def _listed(values: Iterable[str]) -> str | list[str] | None:
    """Return the values in the shape of the file: nothing, one value, or a list of several."""
    found = list(values)
    return found if len(found) > 1 else found[0] if found else None


def count(number: int, noun: str) -> str:
    plural = "leaves" if noun == "leaf" else noun + ("es" if noun.endswith("switch") else "s")
    return f"{number} {noun if number == 1 else plural}"


def span(names: Sequence[str]) -> str:
    """Return `leaf1`, `leaf1, leaf2` or `leaf1 … leaf8`."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"


def bonding(fabric: Fabric) -> list[str]:
    """Return comments on the bonds of hosts on two leaves."""
    if not fabric.dual_tor:
        return []
    bond = "Two links of a host are a bond: they end at two leaves that are one LACP partner and one gateway."
    if fabric.routing == "evpn":
        return [bond, "EVPN knows the two port channels as an Ethernet segment."]
    return [bond, "The leaves tell each other nothing: each announces a host by a route, from its ARP table."]


def addressing(fabric: Fabric, first: str, second: str, top: str) -> list[str]:
    """Return comments on addresses. `first` and `second` are an address's parts, such as a rail and a leaf."""
    family = fabric.family
    if fabric.bridged:
        subnets = _either(family, "10.R.0.0/16", "2001:db8:R::/64")
        return [f"The hosts of rail R are in VLAN R0, one subnet {subnets} with {top} as gateway."]
    if fabric.routing == "evpn":
        part = first[0].upper()
        subnets = _either(family, f"10.{part}.0.0/16", f"2001:db8:{part}::/64")
        return [
            f"The hosts of {first} {part} are one subnet {subnets}, by VXLAN over the routed fabric.",
            f"Each switch with hosts is their gateway, with the MAC {GATEWAY_MAC}, and routes between the subnets.",
            "A link between switches has no addresses. FRR finds what is where: BGP unnumbered, BFD, EVPN.",
        ]
    a, b = first[0].upper(), second[0].upper()
    vlan = f"VLAN {a}0" if first == "rail" else "VLAN 10"
    subnet = _either(family, f"10.{a}.{b}.0/24", f"2001:db8:{a}:{b}::/64")
    gateway = "their two leaves" if fabric.dual_tor else "their switch"
    hosts = f"The hosts of {first} {a}, {second} {b} are in {vlan}, {subnet}, with {gateway} as gateway."
    if fabric.routing == "frr":
        found = "FRR finds the routes: BGP unnumbered, ECMP, BFD."
        return [hosts, f"A link between switches is routed and has no addresses. {found}"]
    link = f"A link between switches is a VLAN of its own and a {_either(family, '/31', '/127')}."
    return [hosts, f"{link} Routes are static; several next hops are ECMP."]


def _either(family: Families, four: str, six: str) -> str:
    return {4: four, 6: six, "dual": f"{four} and {six}"}[family]
