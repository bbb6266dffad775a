"""The parameters of a claim for the driver dra.net: what a NIC has in the pod.

Source: DraNet, pkg/apis/types.go and validation.go.
"""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from testbed.cni.objects.kinds import Part
from testbed.documents.problems import dotted, wrong_value
from testbed.errors import InputError, did_you_mean

DRIVER = "dra.net"
LINK = 253
"""The scope of routes to neighbours (RT_SCOPE_LINK)."""
_NAME = re.compile(r"(?!\.{1,2}$)[\w.-]{1,15}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(\.[0-9A-Fa-f]{4}){2}")
_PREFIX = re.compile(r"[0-9A-Fa-f.:]+/[0-9]{1,3}")
LAST_PRIORITY = 32767
NOT_HERE = ("arpAnnounce", "arpIgnore", "forwarding", "profile", "vrf")
"""Keys that DraNet has, and this does not."""
Positive = Annotated[int, Field(gt=0)]


class InterfaceConfig(Part):
    name: str = ""
    addresses: list[str] = Field(default_factory=list)
    dhcp: bool | None = None
    mtu: Annotated[int, Field(ge=68)] | None = None
    hardwareAddr: str | None = None  # noqa: N815 (DraNet's names, here and below)
    gsoMaxSize: Positive | None = None  # noqa: N815
    groMaxSize: Positive | None = None  # noqa: N815
    gsoIPv4MaxSize: Positive | None = None  # noqa: N815
    groIPv4MaxSize: Positive | None = None  # noqa: N815
    disableEbpfPrograms: bool | None = None  # noqa: N815


class RouteConfig(Part):
    destination: str = ""
    gateway: str = ""
    source: str = ""
    scope: int = 0
    table: Annotated[int, Field(ge=0)] = 0


class RuleConfig(Part):
    priority: Annotated[int, Field(ge=0)] = 0
    source: str = ""
    destination: str = ""
    table: Annotated[int, Field(ge=0)] = 0


class NeighborConfig(Part):
    destination: str = ""
    hardwareAddr: str = ""  # noqa: N815


class EthtoolConfig(Part):
    features: dict[str, bool] = Field(default_factory=dict)
    privateFlags: dict[str, bool] = Field(default_factory=dict)  # noqa: N815


class NetworkConfig(Part):
    interface: InterfaceConfig = InterfaceConfig()
    routes: list[RouteConfig] = Field(default_factory=list)
    rules: list[RuleConfig] = Field(default_factory=list)
    neighbors: list[NeighborConfig] = Field(default_factory=list)
    ethtool: EthtoolConfig | None = None


def read(parameters: Mapping[str, Any]) -> NetworkConfig:
    """Return the configuration. InputError with all that is wrong in it."""
    try:
        found = NetworkConfig.model_validate(parameters)
    except ValidationError as error:
        wrong = "; ".join(_said(detail) for detail in error.errors(include_url=False))
        raise InputError(wrong) from None
    if problems := list(_problems(found)):
        raise InputError("; ".join(problems))
    return found


def _said(detail: Any) -> str:
    where = dotted(detail["loc"])
    if detail["type"] != "extra_forbidden":
        return wrong_value(detail, where)
    if detail["loc"][-1] in NOT_HERE:
        return f"{where}: a lab's driver does not have it"
    known = [*NetworkConfig.model_fields, *InterfaceConfig.model_fields, *RouteConfig.model_fields]
    near = did_you_mean(detail["loc"][-1], known, aside=True)
    return f'failed to unmarshal strict JSON data: unknown field "{where}"{near}'


def _problems(config: NetworkConfig) -> Iterator[str]:
    own = config.interface
    if own.name and not _NAME.fullmatch(own.name):
        yield f"interface.name: {json.dumps(own.name)} is no name of an interface"
    for place, address in enumerate(own.addresses):
        if not _is_prefix(address):
            yield f"interface.addresses[{place}]: invalid IP CIDR format '{address}'"
    if own.dhcp and own.addresses:
        yield "interface: dhcp and addresses are mutually exclusive"
    if own.hardwareAddr is not None and not _MAC.fullmatch(own.hardwareAddr):
        yield f"interface.hardwareAddress: invalid Hardware Address format '{own.hardwareAddr}'"
    for place, route in enumerate(config.routes):
        yield from _route_problems(route, f"routes[{place}]")
    for place, rule in enumerate(config.rules):
        yield from _rule_problems(rule, f"rules[{place}]")
    for place, one in enumerate(config.neighbors):
        if not _is(ipaddress.ip_address, one.destination):
            yield f"neighbors[{place}].destination: invalid IP address format '{one.destination}'"
        if not _MAC.fullmatch(one.hardwareAddr):
            yield f"neighbors[{place}].hardwareAddress: invalid MAC address format '{one.hardwareAddr}'"


def _rule_problems(rule: RuleConfig, where: str) -> Iterator[str]:
    given = {"source": rule.source, "destination": rule.destination}
    for key, value in given.items():
        if value and not _is_prefix(value):
            yield f"{where}.{key}: invalid CIDR format '{value}'"
    if rule.priority > LAST_PRIORITY:
        yield f"{where}.priority: must be between 0 and {LAST_PRIORITY}, got {rule.priority}"
    if all(given.values()) and (":" in rule.source) != (":" in rule.destination):
        yield f"{where}: source and destination must be of the same IP family"


def _route_problems(route: RouteConfig, where: str) -> Iterator[str]:
    if not route.destination:
        yield f"{where}.destination: cannot be empty"
    elif not _is_prefix(route.destination):
        yield f"{where}.destination: invalid CIDR format '{route.destination}' (host routes use /32 or /128)"
    if route.scope not in (0, LINK):
        yield f"{where}.scope: invalid scope '{route.scope}', only Link ({LINK}) or Universe (0) allowed"
    for key, value in (("gateway", route.gateway), ("source", route.source)):
        if value and not _is(ipaddress.ip_address, value):
            yield f"{where}.{key}: invalid IP address format '{value}'"
        elif value and (":" in value) != (":" in route.destination):
            yield f"{where}.{key}: must be of the same IP family as the destination"
    if not route.gateway and route.scope != LINK:
        yield f"{where}.gateway: must be specified for Universe scope routes"


def _is_prefix(text: str) -> bool:
    """Return whether it is an address with the length of its prefix, as Go's netip.ParsePrefix has it."""
    return bool(_PREFIX.fullmatch(text)) and _is(ipaddress.ip_interface, text)


def _is(kind: Any, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
