"""The base of the models of a topology file, and the static routes that several kinds of nodes have."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from testbed.documents.text import describe
from testbed.topology.plan import IPAddress, IPNetwork
from testbed.topology.values import ADDRESS, Sysctls, of_interface, parse_ip, string_schema

DEFAULT_ROUTE = IPv4Network("0.0.0.0/0")
DEFAULT_ROUTE6 = IPv6Network("::/0")


def parse_destination(value: Any) -> Any:
    if isinstance(value, IPNetwork):
        return value
    if value == "default":
        return DEFAULT_ROUTE
    wrong = "'to' must be 'default' or a subnet such as 10.0.20.0/24"
    if not isinstance(value, str) or "/" not in value:
        raise ValueError(f"{wrong}, not {describe(value)}")
    try:
        return IPv6Network(value) if ":" in value else IPv4Network(value)
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from None


def parse_via(value: Any) -> Any:
    """Return one next hop, or the list of several between which the route balances."""
    hops = tuple(map(_next_hop, value if isinstance(value, list | tuple) else [value]))
    if not hops:
        raise ValueError("'via' is an empty list: a route needs a next hop")
    if double := next((hop for number, hop in enumerate(hops) if hop in hops[:number]), None):
        raise ValueError(f"{double} is twice in 'via'; each next hop has the same weight")
    return hops


def _next_hop(value: Any) -> IPAddress:
    if isinstance(value, IPAddress):
        return value
    if not isinstance(value, str):
        expected = "'via' must be the next hop's address, such as 10.0.10.1, or a list of addresses"
        raise ValueError(f"{expected}, not {describe(value)}")  # noqa: TRY004
    address = parse_ip(value)
    if address.version == 6 and address.is_link_local:
        raise ValueError(f"{address}: link-local next hops are not supported; give an address of one of its subnets")
    return of_interface(address)


_NEXT_HOP = string_schema(ADDRESS, "10.0.10.1")
Destination = Annotated[
    IPNetwork,
    BeforeValidator(parse_destination),
    PlainSerializer(str),
    WithJsonSchema(string_schema(f"(default|{ADDRESS}/[0-9]{{1,3}})", "default")),
]
Via = Annotated[
    tuple[IPAddress, ...],
    BeforeValidator(parse_via),
    PlainSerializer(lambda hops: str(hops[0]) if len(hops) == 1 else [str(hop) for hop in hops]),
    WithJsonSchema({"anyOf": [_NEXT_HOP, {"type": "array", "items": _NEXT_HOP, "minItems": 1, "uniqueItems": True}]}),
]


class Definition(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class RouteDefinition(Definition):
    """A static route."""

    to: Destination
    """The destination: `default` (of the family of `via`), or a subnet such as `10.0.20.0/24`."""
    via: Via
    """
    The next hop: an address in a subnet that the node has an address in. Several in a list are of equal cost (ECMP):
    each flow takes one of them, by the hash of its addresses and ports.
    """


class BridgeKeys(Definition):
    stp: bool | None = None
    """
    Bridge, switch: true runs the kernel's spanning tree (802.1D), so that links may close loops; the lab is up after
    its 30 seconds. Default false.
    """


class RoutedKeys(Definition):
    routes: list[RouteDefinition] | None = None
    """
    Host, switch: its static routes. A host without this key has a default route via the SVI of its first interface's
    VLAN; with the key it has exactly what is listed (`[]`: none).
    """
    sysctls: Sysctls | None = None
    """
    Host, linux, switch: sysctls of its network namespace by name, such as `net.ipv4.ip_forward: 1`, set before a host's
    interfaces come up, and before a switch forwards. Merged by name over the levels of the file.
    """
