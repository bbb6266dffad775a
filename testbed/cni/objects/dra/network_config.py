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
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")
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
    known = [*NetworkConfig.model_fields, *InterfaceConfig.model_fields, *RouteConfig.model_fields]
    near = did_you_mean(detail["loc"][-1], known, aside=True)
    return f'failed to unmarshal strict JSON data: unknown field "{where}"{near}'


def _problems(config: NetworkConfig) -> Iterator[str]:
    own = config.interface
    if own.name and not _NAME.fullmatch(own.name):
        yield f"interface.name: {json.dumps(own.name)} is no name of an interface"
    for place, address in enumerate(own.addresses):
        if "/" not in address or not _is(ipaddress.ip_interface, address):
            yield f"interface.addresses[{place}]: invalid IP CIDR format '{address}'"
    if own.dhcp and own.addresses:
        yield "interface: dhcp and addresses are mutually exclusive"
    if own.hardwareAddr is not None and not _MAC.fullmatch(own.hardwareAddr):
        yield f"interface.hardwareAddress: invalid Hardware Address format '{own.hardwareAddr}'"
    for place, route in enumerate(config.routes):
        yield from _route_problems(route, f"routes[{place}]")
    for place, rule in enumerate(config.rules):
        for key, value in (("source", rule.source), ("destination", rule.destination)):
            if value and not _is(ipaddress.ip_interface, value):
                yield f"rules[{place}].{key}: invalid IP or CIDR format '{value}'"
    for place, one in enumerate(config.neighbors):
        if not _is(ipaddress.ip_address, one.destination):
            yield f"neighbors[{place}].destination: invalid IP address format '{one.destination}'"
        if not _MAC.fullmatch(one.hardwareAddr):
            yield f"neighbors[{place}].hardwareAddr: invalid MAC address format '{one.hardwareAddr}'"


def _route_problems(route: RouteConfig, where: str) -> Iterator[str]:
    if not route.destination:
        yield f"{where}.destination: cannot be empty"
    elif not _is(ipaddress.ip_interface, route.destination):
        yield f"{where}.destination: invalid IP or CIDR format '{route.destination}'"
    if route.scope not in (0, LINK):
        yield f"{where}.scope: invalid scope '{route.scope}', only Link ({LINK}) or Universe (0) allowed"
    if route.gateway and not _is(ipaddress.ip_address, route.gateway):
        yield f"{where}.gateway: invalid IP address format '{route.gateway}'"
    if not route.gateway and route.scope != LINK:
        yield f"{where}.gateway: must be specified for Universe scope routes"
    if route.source and not _is(ipaddress.ip_address, route.source):
        yield f"{where}.source: invalid IP address format '{route.source}'"


def _is(kind: Any, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
