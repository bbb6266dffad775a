"""
The topology file as data: containerlab's format with testbed's own keys (containerlab.dev, Topology definition).

One key, one field, with its description: the JSON Schema and the error messages come from here. What only makes sense
with the rest of the file in view (does the node of a link exist? is the address in the subnet?) is checked by the
planner.
"""

from collections.abc import Mapping
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from testbed.documents.json import value_of
from testbed.documents.text import describe, quoted
from testbed.errors import InputError, did_you_mean
from testbed.topology import containerlab, values
from testbed.topology.definition import Definition, RouteDefinition
from testbed.topology.kinds import KINDS, KindName, every_key
from testbed.topology.kinds.start_keys import (
    HealthDefinition,
    StageDefinition,
    StageExecDefinition,
    StagesDefinition,
    WaitDefinition,
)
from testbed.topology.lossless_classes import ClassDefinition, Classes, QosDefinition
from testbed.topology.plan import ETHERNET_MTU, Quality, RdmaMode, Routing
from testbed.topology.values import Address4, Address6, Delay, Label, Packets, Vlan, empty


def split_endpoint(value: Any) -> Any:
    """The brief format's "node:interface" in the shape of the extended format's mapping."""
    if not isinstance(value, str):
        return value
    node, colon, interface = value.partition(":")
    if not colon or ":" in interface:
        raise ValueError(f"{describe(value)} is not an endpoint such as 'leaf:e1' (node:interface)")
    return {"node": node, "interface": interface}


def named(value: Any) -> Any:
    """Nodes by name, where YAML takes the name for a number."""
    if not isinstance(value, dict):
        return value
    nodes = {str(name) if type(name) is int else name: node for name, node in value.items()}
    if len(nodes) < len(value):
        raise ValueError("a number and the same number in quotes are the same node name")
    return nodes


def check_labels(value: dict[str, Any]) -> dict[str, Any]:
    for key, item in value.items():
        if not isinstance(item, str | int | float | bool):
            raise ValueError(f"label {quoted(key)} must be a string, a number or a boolean, not {describe(item)}")  # noqa: TRY004
    return value


def check_fault(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"a fault must be a mapping with 'fault', its name, and parameters, not {describe(value)}")  # noqa: TRY004
    if "fault" not in value:
        raise ValueError("a fault lacks the key 'fault', its name: see `testbed fault list`")
    if not isinstance(value["fault"], str):
        raise ValueError(f"'fault' must be a string, not {describe(value['fault'])}")  # noqa: TRY004
    return value


def parse_subnet(version: int, value: Any) -> Any:
    if value in (None, "", "auto"):
        return None
    wrong = f"expected a subnet such as {'172.20.20.0/24' if version == 4 else '2001:172:20:20::/64'}"
    try:
        subnet = ip_network(value) if isinstance(value, str) else None
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from None
    if subnet is None or subnet.version != version:
        raise ValueError(f"{wrong}, not {describe(value)}")
    return subnet


_SUBNET = values.string_schema(f"({values.ADDRESS}/[0-9]{{1,3}}|auto)")
Subnet4 = Annotated[IPv4Network | None, BeforeValidator(partial(parse_subnet, 4)), WithJsonSchema(_SUBNET)]
Subnet6 = Annotated[IPv6Network | None, BeforeValidator(partial(parse_subnet, 6)), WithJsonSchema(_SUBNET)]
Labels = Annotated[
    dict[str, Any],
    AfterValidator(check_labels),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
FaultDefinition = Annotated[
    dict[str, Any], BeforeValidator(check_fault), WithJsonSchema({"type": "object", "required": ["fault"]})
]


class NodeDefinition(every_key()):  # type: ignore[misc]  # its bases follow from the registry
    """A node, or what the nodes of a kind, of a group, or all nodes have in common. Keys that are absent or null are
    inherited."""

    kind: KindName | None = Field(None, description=" ".join(f"`{name}`: {one.about}." for name, one in KINDS.items()))
    labels: Labels | None = None
    """Annotations without effect."""
    group: str | None = None
    """One of `groups`; the node inherits its keys. A name that is not in `groups` is only a note."""


class _Quality(Definition):
    rate: values.Rate | None = None
    """Bits per second, such as `100mbit`, Ethernet headers included. Packets wait at the switch."""
    delay: Delay | None = None
    """The delay of a packet, such as `50us`."""
    jitter: Delay | None = None
    """Variation of the delay; packets overtake each other, which RoCE treats as loss."""
    loss: values.Percent | None = None
    """Percent of the packets that are lost."""
    queue: Packets | None = None
    """Maximum number of packets that wait for the rate; further ones are dropped. Default 1000. Needs `rate`."""
    ecn: Packets | None = None
    """Queue length in packets from which ECN-capable packets are marked CE. Needs `rate`."""


QUALITY_KEYS = tuple(_Quality.model_fields)


def quality_of(texts: Mapping[str, str]) -> dict[str, Any]:
    """Fields of `Quality` from the words of a user's, by the keys of a link; ``none`` is the default. InputError for a
    key or a value that is none."""
    if unknown := [key for key in texts if key not in QUALITY_KEYS]:
        hint = f"{did_you_mean(unknown[0], QUALITY_KEYS)}It has: {', '.join(QUALITY_KEYS)}."
        raise InputError(f"a link has no {unknown[0]!r}", hint=hint)
    values: dict[str, Any] = {key: None if text == "none" else value_of(text) for key, text in texts.items()}
    try:
        found = _Quality.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(detail["msg"].removeprefix("Value error, ") for detail in error.errors())
        raise InputError(f"link: {problems}") from None
    defaults = Quality()
    return {key: getattr(defaults, key) if (value := getattr(found, key)) is None else value for key in texts}


class _End(_Quality):
    pfc: bool | None = None
    """Lossless link: true if pause frames are sent and honoured. Default: true for switches and for `nic: hardware`."""
    qos: QosDefinition | None = None
    """Lossless link: scheduling of its queues, and values of its port that differ from the profile of its switch."""


class EndpointDefinition(_End):
    """One end of a link. `rate` to `qos` are here for what this end sends; on the link they are for both directions."""

    node: Label
    """A node of this file."""
    interface: values.InterfaceName
    """The name of the interface, unique in its node."""
    mac: values.Mac | None = None
    """The MAC address of the interface; planned when absent."""
    hardware: values.InterfaceName | None = None
    """With `--machine local`: the interface of this machine, such as `ens2f0`, that becomes this end, with its cable.
    The other end of the link must be such an interface, too, or a NIC (`rdma` of a host)."""
    ipv4: Address4 | None = None
    """Host: the address of the interface with its prefix length; planned when absent."""
    ipv6: Address6 | None = None
    """Host: the IPv6 address; planned when absent if its VLAN or segment has IPv6 addresses."""

    _split = model_validator(mode="before")(split_endpoint)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        brief = values.string_schema(f"{values.LABEL}:{values.INTERFACE}", "leaf:e1")
        brief["description"] = "Brief format: `node:interface`."
        return {"anyOf": [brief, handler.resolve_ref_schema(handler(core_schema))]}


class LinkDefinition(_End):
    """A cable between two nodes, in containerlab's brief or extended format."""

    _expand = model_validator(mode="before")(containerlab.expand_special)

    endpoints: list[EndpointDefinition] = Field(min_length=2, max_length=2)
    """The two ends: `["leaf:e1", "client:eth1"]`, or two mappings of `node`, `interface` and more."""
    type: Annotated[str, BeforeValidator(containerlab.check_link_type), WithJsonSchema({"type": "string"})] = "veth"
    """The extended format's type of link: `veth`; in containerlab's files also `host` and `mgmt-net`, with one
    `endpoint` and a `host-interface`."""
    ipv4: list[Address4 | None] | None = Field(None, min_length=1, max_length=2)
    """The addresses of the ends in the order of `endpoints`; null, or nothing for the second end: planned."""
    ipv6: list[Address6 | None] | None = Field(None, min_length=1, max_length=2)
    """The IPv6 addresses of the ends, in the same form."""
    mtu: values.Mtu = ETHERNET_MTU
    """MTU of both ends in bytes, 68..65535."""
    vlan: Vlan | None = None
    """The access (untagged) VLAN of the switch port or ports of this link. Default: VLAN 1 when the switch has it."""
    trunk: list[Vlan] | None = Field(None, min_length=1)
    """The tagged VLANs of the switch port or ports of this link."""
    rdma: bool | None = None
    """True if a host's end of this link gets a soft-RoCE device: false for a management network. Default: that of the
    node."""
    lossless: bool | None = None
    """True if the link has the lossless classes of the topology, with queues by class instead of `queue` and `ecn`.
    Default: true if the topology has such classes and the ends are switches and RDMA NICs."""
    labels: Labels | None = None
    """Annotations without effect."""


class ManagementDefinition(Definition):
    """The management network of containerlab's files: `eth0` of `linux` nodes."""

    ipv4_subnet: Subnet4 = Field(None, alias="ipv4-subnet")
    """Its IPv4 subnet. Default: 172.20.20.0/24."""
    ipv6_subnet: Subnet6 = Field(None, alias="ipv6-subnet")
    """Its IPv6 subnet. Default: 3fff:172:20:20::/64."""


class Elements(Definition):
    """The elements of a lab. Keys of a node win over those of its group, those over the ones of its kind, and those
    over the defaults."""

    nodes: Annotated[
        dict[Label, NodeDefinition | None],
        BeforeValidator(named),
        Field(min_length=1, json_schema_extra={"additionalProperties": False}),
    ]
    """The nodes by name: letters, digits, `-`, `_` and single `.`, at most 63."""
    links: Annotated[list[LinkDefinition], empty(list)] = Field([])
    """The links. Their order is the order in which addresses are planned."""
    routing: Routing = "static"
    """
    `static`: switches have the routes that the file gives them. `frr`: each link between two switches without `vlan`
    and `trunk` is routed, unnumbered, and FRR on the switches finds the routes: BGP with BFD.
    """
    lossless: Classes | None = None
    """
    Lossless classes, one or a list: `{dscp: 26, priority: 3}`. Their links have priority flow control (802.1Qbb), their
    switches a buffer that the ports share, with the sizes of their profiles (`testbed profile describe NAME`).
    """
    rdma_mode: RdmaMode | None = None
    """
    How the kernel shows RDMA devices in network namespaces. `shared`: rdma_cm works (rping, UCX's rdmacm), perftest
    exchanges its parameters beside the data network; memory and time grow with the square of the devices. `exclusive`:
    also `rdma link` shows a node its own devices only, rdma_cm does not work, perftest's TCP is on the data network.
    Default: `shared` up to 16 devices, else `exclusive`.
    """
    faults: Annotated[list[FaultDefinition], empty(list)] = Field([])
    """Faults from the start: `fault` is its name, the other keys are its parameters (`testbed fault list`)."""
    kinds: Annotated[dict[KindName, NodeDefinition | None], empty(dict)] = Field({})
    """Keys for all nodes of a kind."""
    groups: Annotated[dict[Annotated[str, Field(min_length=1)], NodeDefinition | None], empty(dict)] = Field({})
    """Keys for all nodes with the same `group`, by its name; the kind may be among them."""
    defaults: NodeDefinition | None = None
    """Keys for all nodes. Here and in `groups`, nodes ignore a key that their kind does not have."""


class Place(NamedTuple):
    """A mapping of the file: its name in messages, its model, and containerlab's keys that it refuses and notes."""

    name: str
    model: type[BaseModel]
    refused: containerlab.Reasons
    noted: containerlab.Reasons


def _place_in_start(path: tuple[str | int, ...]) -> Place | None:
    match path:
        case (*_, "healthcheck"):
            return Place("'healthcheck'", HealthDefinition, {}, {})
        case (*_, "stages"):
            return Place("'stages'", StagesDefinition, {}, {})
        case (*_, "stages", name):
            return Place(f"stage {quoted(name)}", StageDefinition, {}, {})
        case (*_, "stages", _, "wait-for", _):
            return Place("an entry of 'wait-for'", WaitDefinition, {}, {})
        case (*_, "stages", _, "exec", _):
            return Place("a command of a stage", StageExecDefinition, {}, {})
    return None


def place_of(path: tuple[str | int, ...], file: type[BaseModel]) -> Place | None:
    """Return the place of the mapping at `path`, if one of ours is expected there; `file` is the model of the whole
    file."""
    if "stages" in path[3:] or "healthcheck" in path[3:] or path[2:3] in (("stages",), ("healthcheck",)):
        return _place_in_start(path)
    place = None
    nothing: containerlab.Reasons = {}
    node = (NodeDefinition, nothing, containerlab.NODE_NOTES)
    match path:
        case ():
            place = Place("the file", file, {}, containerlab.TOP_NOTES)
        case ("topology",):
            place = Place("'topology'", Elements, {}, containerlab.TOPOLOGY_NOTES)
        case ("topology", "defaults"):
            place = Place("'defaults'", *node)
        case ("topology", "kinds" | "groups" | "nodes" as part, name):
            place = Place(f"{part[:-1]} {quoted(name)}", *node)
        case ("topology", "links", _):
            place = Place("a link", LinkDefinition, containerlab.LINK_KEYS, containerlab.LINK_NOTES)
        case ("topology", "links", _, "endpoints", _) | ("topology", "links", _, "endpoint"):
            place = Place("an endpoint", EndpointDefinition, {}, containerlab.ENDPOINT_NOTES)
        case ("mgmt",) | ("mgmt", _):
            place = Place("'mgmt'", ManagementDefinition, {}, containerlab.MANAGEMENT_NOTES)
        case (*_, "routes", _):
            place = Place("a route", RouteDefinition, {}, {})
        case (*_, "qos"):
            place = Place("'qos'", QosDefinition, {}, {})
        case ("topology", "lossless", _):
            place = Place("a lossless class", ClassDefinition, {}, {})
    return place
