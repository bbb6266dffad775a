"""A kind of node in a topology: its keys in the file, its role in layer 2, its plan, its look in pictures."""

from typing import ClassVar, Literal, NamedTuple

from testbed.documents.problems import Problems
from testbed.documents.text import listing
from testbed.topology.definition import DEFAULT_ROUTE, DEFAULT_ROUTE6, Definition
from testbed.topology.plan import Interface, IPInterface, Node, Route
from testbed.topology.resolved import Port, ResolvedNode

Role = Literal["container", "bridge", "machine"]
"""The roles: a container, a bridge, or the machine that runs the containers."""


class Shape(NamedTuple):
    """Shapes in the languages of pictures, the style in SVG's CSS, and the plural's suffix."""

    mermaid: tuple[str, str]
    dot: str
    style: str
    plural: str = "s"


class Kind:
    """An unmanaged layer-2 segment without addresses. `KINDS` of `testbed.topology.kinds` registers subclasses."""

    name: ClassVar[str]
    """The name in the file."""
    planned_as: ClassVar[str] = ""
    """The kind of its nodes in a plan, if that is another one."""
    lab_class: ClassVar[str]
    """The class of its nodes in a lab, below `testbed.lab.nodes`, as a name: `topology` imports nothing of `lab`."""
    about: ClassVar[str]
    """A phrase for the schema."""
    keys: ClassVar[type[Definition]] = Definition
    added_up: ClassVar[tuple[str, ...]] = ()
    """The keys whose lists add up over the levels of the file. Other lists are replaced; mappings are merged."""
    shape: ClassVar[Shape]
    is_host: ClassVar[bool] = False
    """True if its interfaces end paths: with addresses, neighbours and RDMA devices of their own."""
    has_vlans: ClassVar[bool] = False
    """True if its ports are in VLANs, between which it routes."""
    plans_addresses: ClassVar[bool] = True
    """True if its interfaces get addresses that the file does not give."""
    containerlab: ClassVar[Role | None] = None
    """The role of this kind in containerlab's files; None if containerlab has no such kind."""
    special: ClassVar[str] = ""
    """The special endpoint of containerlab for a node of this kind."""

    def key_names(self) -> tuple[str, ...]:
        return tuple(self.keys.model_fields)

    def complete(self, node: ResolvedNode, problems: Problems) -> None:
        """Set on the node, from its keys, what planning needs for nodes of all kinds."""

    def check_port(self, port: Port, problems: Problems) -> None:
        if port.name == "br0" or port.name.startswith("vlan"):
            kept = f"is kept for the {self.name}'s own interfaces (br0, vlan<N>)"
            problems.add(port.path, f"port name {port.name!r} {kept}")

    def check_addresses(self, port: Port, problems: Problems) -> None:
        """Report the addresses that a port cannot have."""
        for given in port.given.values():
            instead = "; give the address to a VLAN in 'vlans'" if self.has_vlans else ""
            problems.add(given.path, f"{port} is a port of a {self.name} and cannot have an address{instead}")

    def has_classes(self, node: ResolvedNode) -> bool:
        """Return whether its ports can have queues by class."""
        return self.has_vlans

    def untagged(self, port: Port) -> str | int | None:
        """Return the part of the node, such as a VLAN, that gets a port's untagged frames; None if it takes none."""
        return ""

    def describe(self, node: ResolvedNode, part: str | int) -> str:
        """Describe in words a broadcast domain by its part in this node."""
        return f"{self.name} {node.name}"

    def plan(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> Node:
        return Node(node.name, self.name, interfaces)


def static_routes(node: ResolvedNode, own: list[IPInterface], problems: Problems) -> tuple[Route, ...]:
    """Return the routes that the file gives a node with these addresses."""
    path = node.paths["routes"]
    routes: list[Route] = []
    for index, route in enumerate(node.keys.routes):
        to = DEFAULT_ROUTE6 if route.to == DEFAULT_ROUTE and route.via[0].version == 6 else route.to
        if any(to == known.destination for known in routes):
            problems.add((*path, index, "to"), f"{node.name!r} has two routes to {to}")
        routes.append(Route(to, route.via))
        for number, hop in enumerate(route.via):
            place = (*path, index, "via", number)
            if to.version != hop.version:
                problems.add(place, f"{hop} is IPv{hop.version}, but {to} is not")
            if any(hop == address.ip for address in own):
                problems.add(place, f"{hop} is an address of {node.name!r} itself")
            elif not any(hop in address.network for address in own):
                subnets = listing(address.network for address in own)
                problems.add(place, f"{hop} is in no subnet of {node.name!r}; its subnets: {subnets}")
    return tuple(routes)
