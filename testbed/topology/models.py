"""
The topology file as data: containerlab's format with testbed's own keys (containerlab.dev, Topology definition).

One key, one field, with its description: the JSON Schema and the error messages come from here. What only makes sense
with the rest of the file in view (does the node of a link exist? is the address in the subnet?) is checked by the
planner.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from testbed.topology import containerlab
from testbed.topology.document import describe, quoted
from testbed.topology.plan import NicModel, RdmaMode, Routing
from testbed.topology.values import (
    DEFAULT_MTU,
    INTERFACE,
    LABEL,
    Address4,
    Address6,
    Command,
    Delay,
    Destination,
    Env,
    InterfaceName,
    Kind,
    Label,
    Labels,
    Mac,
    Mtu,
    Packets,
    Percent,
    Rate,
    Sysctls,
    Via,
    Vlan,
    Vlans,
    check_link_type,
    empty,
    expand_special,
    named,
    split_endpoint,
)


class _Definition(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class RouteDefinition(_Definition):
    """A static route."""

    to: Destination
    """The destination: `default` (of the family of `via`), or a subnet such as `10.0.20.0/24`."""
    via: Via
    """
    The next hop: an address in a subnet that the node has an address in. Several in a list are of equal cost (ECMP):
    each flow takes one of them, by the hash of its addresses and ports.
    """


class NodeDefinition(_Definition):
    """A node, or what the nodes of a kind, of a group, or all nodes have in common. Keys that are absent or null are
    inherited."""

    kind: Kind | None = None
    """
    `host`: a machine with RDMA NICs. `switch`: VLANs, SVIs and a profile. `bridge`: an unmanaged layer-2 segment.
    `linux`: containerlab's, here a host whose interfaces have the addresses that the file gives them, and no others but
    IPv6's link-local ones.
    """
    profile: str | None = None
    """Switch: the name of its ARP/MAC profile, for example `cisco-nxos`."""
    profile_values: dict[str, Any] | None = None
    """
    Switch: values in the place of its profile's own, for example `{arp_age: 300}`; `testbed profile describe NAME`
    shows them all. Merged value by value when several levels of the file have the key.
    """
    vlans: Vlans | None = None
    """
    Switch: its VLANs (1..4094), each with the address of the switch's SVI there, `[IPv4, IPv6]` for one of each, or
    null for layer 2 only.
    Default: VLAN 1 without an address. Merged VLAN by VLAN when several levels of the file have the key.
    """
    proxy_arp: list[Vlan] | None = None
    """
    Switch: the VLANs whose SVI answers ARP requests and neighbour solicitations for the other addresses of its subnets
    with its own MAC; between the ports of such a VLAN nothing is flooded to all. As SONiC's VLAN_INTERFACE `proxy_arp`.
    """
    nic: NicModel | None = None
    """Host: `hardware` keeps a QP's destination MAC and sends no ARP, as real NICs do; `rxe` (default) is soft-RoCE."""
    rdma: bool | None = None
    """Host: whether each of its interfaces gets a soft-RoCE device, named `<node>-<interface>`. Default true."""
    routes: list[RouteDefinition] | None = None
    """
    Host, switch: its static routes. A host without this key has a default route via the SVI of its first interface's
    VLAN; with the key it has exactly what is listed (`[]`: none).
    """
    host_routes: bool | None = None
    """
    Switch: whether it announces each neighbour of its SVIs as a host route (/32, /128) by BGP; needs routed links.
    Switches that do may have one subnet, and one gateway address, with nothing in layer 2 between them. Default false.
    """
    exec: list[Command] | None = None
    """
    Host, linux: commands that are run on the node when the lab is up, in this order and without a shell. All levels of
    the file add theirs. One that fails is an error; what they write is in the run directory.
    """
    env: Env | None = None
    """Host, linux: environment variables of programs on the node. Merged by name over the levels of the file."""
    sysctls: Sysctls | None = None
    """
    Host, linux: sysctls of its network namespace by name, such as `net.ipv4.ip_forward: 1`, set before its interfaces
    come up. Merged by name over the levels of the file.
    """
    image: str | None = None
    """Linux: not used. No container is run; the programs are those of the lab's machine."""
    labels: Labels | None = None
    """Annotations without effect."""
    group: str | None = None
    """One of `groups`, whose keys the node inherits. A name that is not there only annotates."""


class _Quality(_Definition):
    rate: Rate | None = None
    """Bits per second, such as `100mbit`, Ethernet headers included. Packets that have to wait do so at the switch."""
    delay: Delay | None = None
    """How long a packet is under way, such as `50us`."""
    jitter: Delay | None = None
    """By how much the delay varies; packets overtake each other, which RoCE takes for loss."""
    loss: Percent | None = None
    """Percent of the packets that are lost."""
    queue: Packets | None = None
    """Packets that wait for the rate, at most; the next is dropped. Default 1000. Needs `rate`."""
    ecn: Packets | None = None
    """Packets in the queue from which on ECN-capable ones are marked CE. Needs `rate`."""


QUALITY_KEYS = tuple(_Quality.model_fields)


class EndpointDefinition(_Quality):
    """One end of a link. `rate` to `ecn` are here for what this end sends; on the link they are for both directions."""

    node: Label
    """A node of this file."""
    interface: InterfaceName
    """The name of the interface, unique in its node."""
    mac: Mac | None = None
    """The MAC address of the interface; planned when absent."""
    ipv4: Address4 | None = None
    """Host: the address of the interface with its prefix length; planned when absent."""
    ipv6: Address6 | None = None
    """Host: the same of IPv6; planned when absent and its VLAN or segment has IPv6 addresses."""

    _split = model_validator(mode="before")(split_endpoint)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        extended = handler.resolve_ref_schema(handler(core_schema))
        brief = {
            "type": "string",
            "pattern": f"^{LABEL}:{INTERFACE}$",
            "description": "Brief format: `node:interface`.",
            "examples": ["leaf:e1"],
        }
        return {"anyOf": [brief, extended]}


class LinkDefinition(_Quality):
    """A cable between two nodes, in containerlab's brief or extended format."""

    _expand = model_validator(mode="before")(expand_special)

    endpoints: list[EndpointDefinition] = Field(min_length=2, max_length=2)
    """The two ends: `["leaf:e1", "client:eth1"]`, or two mappings of `node`, `interface` and more."""
    type: Annotated[str, BeforeValidator(check_link_type), WithJsonSchema({"type": "string"})] = "veth"
    """The extended format's type of link: `veth`; in containerlab's files also `host` and `mgmt-net`, with one
    `endpoint` and a `host-interface`."""
    ipv4: list[Address4 | None] | None = Field(None, min_length=1, max_length=2)
    """The addresses of the ends in the order of `endpoints`; null, or nothing for the second end: planned."""
    ipv6: list[Address6 | None] | None = Field(None, min_length=1, max_length=2)
    """The same of IPv6."""
    mtu: Mtu = DEFAULT_MTU
    """MTU of both ends in bytes, 68..65535."""
    vlan: Vlan | None = None
    """The access (untagged) VLAN of the switch port or ports of this link. Default: VLAN 1 when the switch has it."""
    trunk: list[Vlan] | None = Field(None, min_length=1)
    """The tagged VLANs of the switch port or ports of this link."""
    rdma: bool | None = None
    """Whether a host's end of this link gets a soft-RoCE device: false for a management network. Default: as the node
    says."""
    labels: Labels | None = None
    """Annotations without effect."""


def check_fault(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"a fault is a mapping with its name under 'fault' and its parameters, not {describe(value)}")  # noqa: TRY004
    if "fault" not in value:
        raise ValueError("a fault lacks the key 'fault', its name: see `testbed fault list`")
    if not isinstance(value["fault"], str):
        raise ValueError(f"'fault' must be a string, not {describe(value['fault'])}")  # noqa: TRY004
    return value


FaultDefinition = Annotated[
    dict[str, Any],
    BeforeValidator(check_fault),
    WithJsonSchema({"type": "object", "required": ["fault"]}),
]


class Elements(_Definition):
    """What the lab consists of. Keys of a node win over those of its group, those over the ones of its kind, and those
    over the defaults."""

    nodes: Annotated[
        dict[Label, NodeDefinition | None],
        BeforeValidator(named),
        Field(min_length=1, json_schema_extra={"additionalProperties": False}),
    ]
    """The nodes by name: letters, digits, `-` and `_`, at most 63."""
    links: Annotated[list[LinkDefinition], empty(list)] = []
    """The links. Their order is the order in which addresses are planned."""
    routing: Routing = "static"
    """
    `static`: switches have the routes that the file gives them. `frr`: each link between two switches without `vlan`
    and `trunk` is routed, unnumbered, and FRR on the switches finds the routes: BGP with BFD.
    """
    rdma_mode: RdmaMode | None = None
    """
    How the kernel shows RDMA devices in network namespaces. `shared`: rdma_cm works (rping, UCX's rdmacm), perftest
    exchanges its parameters beside the data network; memory and time grow with the square of the devices. `exclusive`:
    also `rdma link` shows a node its own devices only, rdma_cm does not work, perftest's TCP is on the data network.
    Default: `shared` up to 16 devices, else `exclusive`.
    """
    faults: Annotated[list[FaultDefinition], empty(list)] = []
    """What is broken from the start: `fault` is its name, the other keys are its parameters (`testbed fault list`)."""
    kinds: Annotated[dict[Kind, NodeDefinition | None], empty(dict)] = {}
    """What the nodes of a kind have in common."""
    groups: Annotated[dict[Annotated[str, Field(min_length=1)], NodeDefinition | None], empty(dict)] = {}
    """What the nodes with the same `group` have in common, by its name, their kind included."""
    defaults: NodeDefinition | None = None
    """What all nodes have in common. Here and in `groups` a key that a kind does not have is passed over for its
    nodes."""


Place = tuple[str, type[BaseModel], containerlab.Reasons]
"""What to call a mapping of the file, its model, and the keys that only containerlab knows there."""


def place_of(path: tuple[str | int, ...], top: Place) -> Place:
    """The place of the mapping at `path`; `top` is that of the whole file."""
    place = top
    match path:
        case ("topology",):
            place = ("'topology'", Elements, {})
        case ("topology", "defaults"):
            place = ("'defaults'", NodeDefinition, containerlab.NODE_KEYS)
        case ("topology", "kinds" | "groups" | "nodes" as what, name):
            place = (f"{what[:-1]} {quoted(name)}", NodeDefinition, containerlab.NODE_KEYS)
        case ("topology", "links", _):
            place = ("a link", LinkDefinition, containerlab.LINK_KEYS)
        case ("topology", "links", _, "endpoints", _):
            place = ("an endpoint", EndpointDefinition, {})
        case (*_, "routes", _):
            place = ("a route", RouteDefinition, {})
    return place
