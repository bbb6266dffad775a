"""
The values of a topology file: what each may be, in Python, in the JSON Schema, and in words when it is something else.
"""

from __future__ import annotations

import re
import shlex
from ipaddress import (
    IPv4Interface,
    IPv4Network,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
)
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    WithJsonSchema,
)

from testbed.documents.text import choices, describe, quoted
from testbed.topology import containerlab
from testbed.topology.plan import Family, IPAddress, IPInterface, IPNetwork

DEFAULT_MTU = 1500
DEFAULT_ROUTE = IPv4Network("0.0.0.0/0")
DEFAULT_ROUTE6 = IPv6Network("::/0")

RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
MIN_RATE, MAX_RATE = 8_000, 800_000_000_000
MAX_DELAY_S = 100.0

LABEL = r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
INTERFACE = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,14}"
_MAC = r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}"
_VLAN = r"([1-9]|[1-9][0-9]{1,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4])"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SYSCTL = r"[a-z0-9_]+([./][A-Za-z0-9_-][A-Za-z0-9._-]*){1,9}"
_IPV4 = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
_IPV6 = r"[0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*"
_ADDRESS = f"({_IPV4}|{_IPV6})"

_TAKEN = frozenset({"lo", "all", "default"})
"""The loopback device, and the two directories of net.ipv4.conf that are not devices."""


def check_label(value: str) -> str:
    """A lab's or a node's name: it becomes a host name and a file in /run/netns, so it is one DNS label (RFC 1123),
    but for the `_` that containerlab's users write."""
    if not re.fullmatch(LABEL, value):
        raise ValueError(
            f"{describe(value)} is not a usable name: letters, digits, '-' and '_', at most 63, "
            "a letter or a digit at either end"
        )
    return value


def check_interface(value: str) -> str:
    """Linux: at most 15 bytes (IFNAMSIZ - 1), no '/', ':' or white space; '%' is a pattern to it."""
    if not re.fullmatch(INTERFACE, value):
        raise ValueError(
            f"{describe(value)} is not a usable interface name: letters, digits, '.', '_' and '-', at most 15"
        )
    if value in _TAKEN:
        raise ValueError(f"interface name {value!r} is taken by Linux in every network namespace")
    return value


def check_link_type(value: Any) -> Any:
    if value == "veth":
        return value
    name = quoted(value) if isinstance(value, str) else describe(value)
    if isinstance(value, str) and value in containerlab.LINK_TYPES:
        raise ValueError(f"containerlab's link type {name} is not supported: {containerlab.LINK_TYPES[value]}")
    types = ("veth", *containerlab.SPECIAL)
    raise ValueError(f"link type {name} is not supported; supported: {choices(value, types)}")


def expand_special(value: Any) -> Any:
    """The extended format's link to a special endpoint, in the shape of one between two nodes."""
    if not isinstance(value, dict) or value.get("type") not in containerlab.SPECIAL:
        return value
    special = value["type"]
    if missing := [key for key in ("endpoint", "host-interface") if value.get(key) is None]:
        raise ValueError(f"a link of type {special!r} lacks the key {missing[0]!r}")
    if "endpoints" in value:
        raise ValueError(f"a link of type {special!r} has one 'endpoint', and no 'endpoints'")
    rest = {key: item for key, item in value.items() if key not in ("type", "endpoint", "host-interface")}
    return {**rest, "endpoints": [value["endpoint"], {"node": special, "interface": value["host-interface"]}]}


def _between(name: str, least: int, most: int, unit: str = "") -> AfterValidator:
    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"{name} {value} is not in {least}..{most}{unit}")
        return value

    return AfterValidator(check)


def _quantity(value: Any, units: dict[str, float], example: str) -> float:
    """A number with its unit, such as `25gbit`, in the unit whose factor is 1."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([a-z]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"{describe(value)} is not a number with a unit ({', '.join(units)}), such as {example}")
    return round(float(match[1]) * units[match[2]], 9)


def parse_rate(value: Any) -> Any:
    rate = round(_quantity(value, RATE_UNITS, "100mbit"))
    if not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"rate {value} is not in 8kbit..800gbit")
    return rate


def parse_delay(value: Any) -> Any:
    delay = _quantity(value, TIME_UNITS, "50us")
    if delay > MAX_DELAY_S:
        raise ValueError(f"delay {value} is longer than {MAX_DELAY_S:g}s")
    return delay


def check_mac(value: str) -> str:
    mac = value.lower()
    if not re.fullmatch(_MAC, mac):
        raise ValueError(f"{describe(value)} is not a MAC address such as 02:00:00:00:0a:01")
    first = int(mac[:2], 16)
    if first & 1 or mac == "00:00:00:00:00:00":
        raise ValueError(f"{mac} is not a unicast MAC address")
    if first == 0x06:
        raise ValueError(f"{mac}: addresses that start with 06 are kept for what is made while a lab runs (pods)")
    return mac


def _ip(text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        family = "IPv6" if ":" in text else "IPv4"
        raise ValueError(f"{describe(text)} is not an {family} address") from None


def _of_interface(address: IPAddress) -> IPAddress:
    if address.version == 4:
        taken = address.is_reserved or address in IPv4Network("0.0.0.0/8")
    else:
        # Link-local addresses follow from the MAC; a mapped address is how RDMA writes an IPv4 one.
        taken = address.is_unspecified or address.is_link_local or address.ipv4_mapped is not None
    if taken or address.is_multicast or address.is_loopback:
        raise ValueError(f"{address} cannot be the address of an interface")
    return address


def parse_address(value: Any) -> Any:
    """`10.0.10.1/24` or `2001:db8:10::1/64`: an address with the length of its subnet's prefix."""
    if value is None or isinstance(value, IPInterface):
        return value
    if not isinstance(value, str):
        # Not a TypeError: pydantic takes ValueError only.
        raise ValueError(  # noqa: TRY004
            f"an address such as 10.0.10.1/24 is due here, not {describe(value)}"
        )
    text, slash, length = value.partition("/")
    address = _of_interface(_ip(text))
    if not slash:
        usual = 24 if address.version == 4 else 64
        raise ValueError(f"{describe(value)} lacks the length of its prefix; for example {value}/{usual}")
    longest = address.max_prefixlen - 1
    if not re.fullmatch(r"[0-9]{1,3}", length) or not 1 <= int(length) <= longest:
        raise ValueError(f"prefix length {length!r} of {describe(value)} is not in 1..{longest}")
    interface = ip_interface(f"{address}/{int(length)}")
    network = interface.network
    if network.prefixlen < longest:
        if network.version == 4 and address in {network.network_address, network.broadcast_address}:
            raise ValueError(
                f"{interface} is the network or broadcast address of {network}, not one a machine can have"
            )
        if address == network.network_address:
            raise ValueError(f"{interface} is the address of any router in {network} (RFC 4291), not one of a machine")
    return interface


def _of_family(family: Family) -> BeforeValidator:
    """The address under a key `ipv4` or `ipv6`."""

    def check(value: Any) -> Any:
        address = parse_address(value)
        if address is not None and address.version != family:
            raise ValueError(f"{address} is an IPv{address.version} address; write it under 'ipv{address.version}'")
        return address

    return BeforeValidator(check)


def parse_via(value: Any) -> Any:
    """One next hop, or a list of several between which the route balances."""
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
        raise ValueError(  # noqa: TRY004
            f"'via' is the next hop's address, such as 10.0.10.1, or a list of them, not {describe(value)}"
        )
    address = _ip(value)
    if address.version == 6 and address.is_link_local:
        raise ValueError(f"{address}: link-local next hops are not supported; give an address of one of its subnets")
    return _of_interface(address)


def _shown_via(hops: tuple[IPAddress, ...]) -> str | list[str]:
    return str(hops[0]) if len(hops) == 1 else [str(hop) for hop in hops]


def parse_destination(value: Any) -> Any:
    if isinstance(value, IPNetwork):
        return value
    if value == "default":
        return DEFAULT_ROUTE
    if not isinstance(value, str) or "/" not in value:
        raise ValueError(f"'to' is 'default' or a subnet such as 10.0.20.0/24, not {describe(value)}")
    try:
        return IPv6Network(value) if ":" in value else IPv4Network(value)
    except ValueError as error:
        raise ValueError(f"'to' is 'default' or a subnet such as 10.0.20.0/24: {error}") from None


def listed(value: Any) -> Any:
    """The addresses of an SVI, which may be written as none, one or a list."""
    if value is None:
        return []
    return value if isinstance(value, list | tuple) else [value]


def check_labels(value: dict[str, Any]) -> dict[str, Any]:
    for key, item in value.items():
        if not isinstance(item, str | int | float | bool):
            raise ValueError(f"label {quoted(key)} must be a string, a number or a boolean, not {describe(item)}")  # noqa: TRY004
    return value


def check_command(value: str) -> str:
    """One for `shlex`, as containerlab splits it: no shell sees it."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{describe(value)} is not a command: {str(error).lower()}") from None
    if not words:
        raise ValueError("a command is empty")
    return value


def check_env(value: dict[str, Any]) -> dict[str, str]:
    env = {}
    for name, item in value.items():
        if name.startswith("__"):
            raise ValueError(f"{quoted(name)} imports variables; testbed does not: a lab is the same everywhere")
        if not re.fullmatch(_VARIABLE, name):
            raise ValueError(f"{quoted(name)} is not the name of an environment variable")
        if not isinstance(item, str | int):
            raise ValueError(f"variable {quoted(name)} must be a string, not {describe(item)}; quote it")  # noqa: TRY004
        env[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return env


def parse_sysctls(value: Any) -> Any:
    """Sysctls of a network namespace by name, such as ``net.ipv4.ip_forward``, as paths below /proc/sys."""
    if not isinstance(value, dict):
        return value
    found: dict[str, str] = {}
    for name, item in value.items():
        shown = quoted(name)
        if not re.fullmatch(_SYSCTL, str(name)):
            raise ValueError(f"{shown} is not the name of a sysctl such as net.ipv4.ip_forward")
        # As sysctl(8): a name with slashes has its dots to itself, those of a VLAN's interface.
        path = str(name) if "/" in str(name) else str(name).replace(".", "/")
        if not path.startswith("net/"):
            raise ValueError(f"sysctl {shown} is the machine's and not a node's; a node has those of net")
        if isinstance(item, bool) or not isinstance(item, str | int) or not str(item).isprintable() or item == "":
            raise ValueError(f"sysctl {shown} must be a number or a string, not {describe(item)}")
        found[path] = str(item)
    return found


def named(value: Any) -> Any:
    """Nodes by name, where YAML takes the name for a number."""
    if not isinstance(value, dict):
        return value
    nodes = {str(name) if type(name) is int else name: node for name, node in value.items()}
    if len(nodes) < len(value):
        raise ValueError("a number and the same number in quotes are one name of a node")
    return nodes


def empty(kind: type) -> BeforeValidator:
    """Nothing behind a key is an empty mapping or list."""
    return BeforeValidator(lambda value: kind() if value is None else value)


def split_endpoint(value: Any) -> Any:
    """The brief format's "node:interface" in the shape of the extended format's mapping."""
    if not isinstance(value, str):
        return value
    node, colon, interface = value.partition(":")
    if not colon or ":" in interface:
        raise ValueError(f"{describe(value)} is not an endpoint such as 'leaf:e1' (node:interface)")
    return {"node": node, "interface": interface}


def _string(pattern: str, *examples: str) -> dict[str, Any]:
    """The JSON Schema of a string."""
    return {"type": "string", "pattern": f"^{pattern}$", **({"examples": list(examples)} if examples else {})}


def _mapping(pattern: str, *types: str) -> WithJsonSchema:
    """The JSON Schema of a mapping whose keys begin with, or are, what the pattern says."""
    values = {pattern: {"type": list(types)}}
    return WithJsonSchema({"type": "object", "patternProperties": values, "additionalProperties": False})


_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_EITHER = _string(f"{_ADDRESS}/[0-9]{{1,3}}", "10.0.10.1/24")
_NEXT_HOP = _string(_ADDRESS, "10.0.10.1")

Label = Annotated[str, AfterValidator(check_label), WithJsonSchema(_string(LABEL))]
InterfaceName = Annotated[str, AfterValidator(check_interface), WithJsonSchema(_string(INTERFACE))]
_VLANS = _between("VLAN", 1, 4094)
Vlan = Annotated[int, _VLANS, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 4094})]
VlanKey = Annotated[int, _VLANS, WithJsonSchema(_string(_VLAN))]
# 68: the smallest MTU that IPv4 allows (RFC 791), and the least a veth takes; 65535: the largest.
Mtu = Annotated[
    int, _between("MTU", 68, 65535, " bytes"), WithJsonSchema({"type": "integer", "minimum": 68, "maximum": 65535})
]
Rate = Annotated[
    int, BeforeValidator(parse_rate), WithJsonSchema(_string(f"{_NUMBER}({'|'.join(RATE_UNITS)})", "100mbit"))
]
Delay = Annotated[
    float, BeforeValidator(parse_delay), WithJsonSchema(_string(f"{_NUMBER}({'|'.join(TIME_UNITS)})", "50us"))
]
Packets = Annotated[int, Field(ge=1, le=1_000_000)]
Percent = Annotated[float, Field(ge=0, le=100)]
Mac = Annotated[str, AfterValidator(check_mac), WithJsonSchema(_string(_MAC))]
Address = Annotated[IPInterface, BeforeValidator(parse_address), PlainSerializer(str), WithJsonSchema(_EITHER)]
Address4 = Annotated[
    IPv4Interface,
    _of_family(4),
    PlainSerializer(str),
    WithJsonSchema(_string(f"{_IPV4}/[0-9]{{1,2}}", "10.0.10.1/24")),
]
Address6 = Annotated[
    IPv6Interface,
    _of_family(6),
    PlainSerializer(str),
    WithJsonSchema(_string(f"{_IPV6}/[0-9]{{1,3}}", "2001:db8:10::1/64")),
]
# For Python what a file may have; a list in the model, so that an error names the entry.
SviAddresses = Annotated[
    IPInterface | list[IPv4Interface | IPv6Interface] | None,
    GetPydanticSchema(lambda _, handler: handler(Annotated[list[Address], BeforeValidator(listed)])),
    WithJsonSchema({"anyOf": [_EITHER, {"type": "array", "items": _EITHER, "maxItems": 2}, {"type": "null"}]}),
]
# Other keys are errors; without this the schema would let them pass.
Vlans = Annotated[dict[VlanKey, SviAddresses], Field(json_schema_extra={"additionalProperties": False})]
Via = Annotated[
    tuple[IPAddress, ...],
    BeforeValidator(parse_via),
    PlainSerializer(_shown_via),
    WithJsonSchema({"anyOf": [_NEXT_HOP, {"type": "array", "items": _NEXT_HOP, "minItems": 1, "uniqueItems": True}]}),
]
Destination = Annotated[
    IPNetwork,
    BeforeValidator(parse_destination),
    PlainSerializer(str),
    WithJsonSchema(_string(f"(default|{_ADDRESS}/[0-9]{{1,3}})", "default")),
]
Labels = Annotated[
    dict[str, Any],
    AfterValidator(check_labels),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
Sysctls = Annotated[dict[str, str], BeforeValidator(parse_sysctls), _mapping(r"^net[./]", "string", "integer")]
Command = Annotated[str, AfterValidator(check_command)]
Env = Annotated[dict[str, Any], AfterValidator(check_env), _mapping(f"^{_VARIABLE}$", "string", "integer", "boolean")]
