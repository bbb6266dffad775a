"""Names, numbers and addresses of a topology file: their types, their JSON Schema, and their error messages."""

import re
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from testbed.documents.text import describe, quoted
from testbed.topology.plan import Family, IPAddress, IPInterface

RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
MIN_RATE, MAX_RATE = 8_000, 800_000_000_000
MAX_DELAY_S = 100.0

LABEL = r"[A-Za-z0-9](([A-Za-z0-9_-]|\.(?=[A-Za-z0-9])){0,61}[A-Za-z0-9_])?"
INTERFACE = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,14}"
MAX_VNI = (1 << 24) - 1
"""The largest number of a VXLAN network (RFC 7348)."""
MAX_RDMA_NAME = 63
"""IB_DEVICE_NAME_MAX (64) of the kernel's rdma/rdma_netlink.h, less the final zero byte."""
RDMA = rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_RDMA_NAME - 1}}}"
_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_SYSCTL = r"[a-z0-9_]+([./][A-Za-z0-9_-][A-Za-z0-9._-]*){1,9}"
_MAC = r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}"
_VLAN = r"([1-9]|[1-9][0-9]{1,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-4])"
_IPV4 = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
_IPV6 = r"[0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*"
ADDRESS = f"({_IPV4}|{_IPV6})"

_TAKEN = frozenset({"lo", "all", "default"})
"""The loopback device, and the two directories of net.ipv4.conf that are no devices."""


def check_label(value: str) -> str:
    """Check a lab's or a node's name: it becomes a host name and a file in /run/netns, so it is a DNS name (RFC 1123)
    with the length of one label, plus the `_` that containerlab's users write."""
    if not re.fullmatch(LABEL, value):
        raise ValueError(
            f"{describe(value)} is not a usable name: letters, digits, '-', '_' and single '.', at most 63, "
            "a letter or a digit at either end"
        )
    return value


def check_interface(value: str) -> str:
    """Check a name of Linux: at most 15 bytes (IFNAMSIZ - 1), no '/', ':' or white space; '%' is a pattern to Linux."""
    if not re.fullmatch(INTERFACE, value):
        raise ValueError(
            f"{describe(value)} is not a usable interface name: letters, digits, '.', '_' and '-', at most 15"
        )
    if value in _TAKEN:
        raise ValueError(f"Linux uses the interface name {value!r} in every network namespace")
    return value


def check_rdma(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(RDMA, value):
        raise ValueError(f"{describe(value)} is not the name of an RDMA device such as 'mlx5_0'")
    return value


def _between(name: str, least: int, most: int, unit: str = "") -> AfterValidator:
    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"{name} {value} is not in {least}..{most}{unit}")
        return value

    return AfterValidator(check)


def _quantity(value: Any, units: dict[str, float], example: str) -> float:
    """Return a number with its unit, such as `25gbit`, in the unit whose factor is 1."""
    match = re.fullmatch(f"(?P<number>{_NUMBER})(?P<unit>[a-z]+)", value) if isinstance(value, str) else None
    if match is None or match["unit"] not in units:
        raise ValueError(f"{describe(value)} is not a number with a unit ({', '.join(units)}), such as {example}")
    return round(float(match["number"]) * units[match["unit"]], 9)


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
        raise ValueError(f"{mac}: addresses that start with 06 are reserved for pods")
    return mac


def parse_ip(text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        family = "IPv6" if ":" in text else "IPv4"
        raise ValueError(f"{describe(text)} is not an {family} address") from None


def of_interface(address: IPAddress) -> IPAddress:
    if address.version == 4:
        taken = address.is_reserved or address in IPv4Network("0.0.0.0/8")
    else:
        if address.is_link_local:
            raise ValueError(f"{address} is link-local: such an address follows from the MAC here; give another one")
        taken = address.is_unspecified or address.ipv4_mapped is not None  # mapped: how RDMA writes an IPv4 address
    if taken or address.is_multicast or address.is_loopback:
        raise ValueError(f"{address} cannot be the address of an interface")
    return address


def parse_address(value: Any, *, alone: bool = False) -> Any:
    """Read `10.0.10.1/24` or `2001:db8:10::1/64`: an address with the prefix length of its subnet. With `alone` it may
    be the only one there, as on a dummy interface."""
    if value is None or isinstance(value, IPInterface):
        return value
    if not isinstance(value, str):  # pydantic takes a ValueError, and no TypeError
        raise ValueError(f"expected an address such as 10.0.10.1/24, not {describe(value)}")  # noqa: TRY004
    text, slash, length = value.partition("/")
    address = of_interface(parse_ip(text))
    if not slash:
        usual = 24 if address.version == 4 else 64
        raise ValueError(f"{describe(value)} lacks the length of its prefix; for example {value}/{usual}")
    longest = address.max_prefixlen - (not alone)
    if not re.fullmatch(r"[0-9]{1,3}", length) or not 1 <= int(length) <= longest:
        raise ValueError(f"prefix length {length!r} of {describe(value)} is not in 1..{longest}")
    interface = ip_interface(f"{address}/{int(length)}")
    network = interface.network
    if network.prefixlen < address.max_prefixlen - 1:
        if network.version == 4 and address in {network.network_address, network.broadcast_address}:
            raise ValueError(f"{interface} is the network or broadcast address of {network}: a machine cannot have it")
        if address == network.network_address:
            raise ValueError(
                f"{interface} is the routers' anycast address in {network} (RFC 4291): a machine cannot have it"
            )
    return interface


def _of_family(family: Family) -> BeforeValidator:

    def check(value: Any) -> Any:
        address = parse_address(value, alone=True)
        if address is not None and address.version != family:
            raise ValueError(f"{address} is an IPv{address.version} address; write it under 'ipv{address.version}'")
        return address

    return BeforeValidator(check)


def string_schema(pattern: str, *examples: str) -> dict[str, Any]:
    """Return the JSON Schema of a string."""
    return {"type": "string", "pattern": f"^{pattern}$", **({"examples": list(examples)} if examples else {})}


def _matching(pattern: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema(string_schema(pattern, *examples))


def empty(kind: type) -> BeforeValidator:
    """Read a key without a value as an empty mapping or list."""
    return BeforeValidator(lambda value: kind() if value is None else value)


Label = Annotated[str, AfterValidator(check_label), _matching(LABEL)]
InterfaceName = Annotated[str, AfterValidator(check_interface), _matching(INTERFACE)]
_VLANS = _between("VLAN", 1, 4094)
Vlan = Annotated[int, _VLANS, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 4094})]
Vni = Annotated[int, _between("VNI", 1, MAX_VNI), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_VNI})]
VlanKey = Annotated[int, _VLANS, _matching(_VLAN)]
# 68: the smallest MTU of IPv4 (RFC 791), and of a veth; 65535: the largest.
Mtu = Annotated[
    int, _between("MTU", 68, 65535, " bytes"), WithJsonSchema({"type": "integer", "minimum": 68, "maximum": 65535})
]
Rate = Annotated[int, BeforeValidator(parse_rate), _matching(f"{_NUMBER}({'|'.join(RATE_UNITS)})", "100mbit")]
Delay = Annotated[float, BeforeValidator(parse_delay), _matching(f"{_NUMBER}({'|'.join(TIME_UNITS)})", "50us")]
Packets = Annotated[int, Field(ge=1, le=1_000_000)]
Percent = Annotated[float, Field(ge=0, le=100)]
Mac = Annotated[str, AfterValidator(check_mac), _matching(_MAC)]
ADDRESS_SCHEMA = string_schema(f"{ADDRESS}/[0-9]{{1,3}}", "10.0.10.1/24")
Address = Annotated[IPInterface, BeforeValidator(parse_address), PlainSerializer(str), WithJsonSchema(ADDRESS_SCHEMA)]
Address4 = Annotated[
    IPv4Interface, _of_family(4), PlainSerializer(str), _matching(f"{_IPV4}/[0-9]{{1,2}}", "10.0.10.1/24")
]
Address6 = Annotated[
    IPv6Interface, _of_family(6), PlainSerializer(str), _matching(f"{_IPV6}/[0-9]{{1,3}}", "2001:db8:10::1/64")
]


def mapping_schema(pattern: str, *types: str) -> WithJsonSchema:
    """Return the JSON Schema of a mapping whose keys match the pattern."""
    values = {pattern: {"type": list(types)}}
    return WithJsonSchema({"type": "object", "patternProperties": values, "additionalProperties": False})


def parse_sysctls(value: Any) -> Any:
    """Return sysctls of a network namespace such as ``net.ipv4.ip_forward`` as paths below /proc/sys."""
    if not isinstance(value, dict):
        return value
    found: dict[str, str] = {}
    for key, item in value.items():
        name, shown = str(key), quoted(key)
        if not re.fullmatch(_SYSCTL, name):
            raise ValueError(f"{shown} is not the name of a sysctl such as net.ipv4.ip_forward")
        # As in sysctl(8): in a name with slashes dots are literal, those of a VLAN's interface.
        path = name if "/" in name else name.replace(".", "/")
        if not path.startswith("net/"):
            raise ValueError(f"sysctl {shown} belongs to the machine, not to a node; a node has only sysctls of net")
        if isinstance(item, bool) or not isinstance(item, str | int) or not str(item).isprintable() or item == "":
            raise ValueError(f"sysctl {shown} must be a number or a string, not {describe(item)}")
        found[path] = str(item)
    return found


Sysctls = Annotated[dict[str, str], BeforeValidator(parse_sysctls), mapping_schema(r"^net[./]", "string", "integer")]


def _alone(family: Family) -> BeforeValidator:
    """Read an address without a prefix length."""

    def check(value: Any) -> Any:
        if value is None or isinstance(value, IPAddress):
            return value
        if not isinstance(value, str) or "/" in value:
            raise ValueError(f"expected an address without a prefix length, not {describe(value)}")
        address = of_interface(parse_ip(value))
        if address.version != family:
            raise ValueError(f"{address} is an IPv{address.version} address, not an IPv{family} one")
        return address

    return BeforeValidator(check)


Alone4 = Annotated[IPv4Address, _alone(4), PlainSerializer(str), _matching(_IPV4, "10.0.10.1")]
Alone6 = Annotated[IPv6Address, _alone(6), PlainSerializer(str), _matching(_IPV6, "2001:db8:10::1")]
