"""The configuration of `coordinator`: names and defaults are those of Spiderpool's SpiderCoordinator if it has them."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from testbed.cni.objects.kinds import Part
from testbed.cni.plugins.configuration import Seconds
from testbed.documents.text import describe

Step = Literal["mac", "conflict", "gateway", "announce", "rp_filter", "veth", "routes"]
STEPS: list[Step] = ["mac", "conflict", "gateway", "announce", "rp_filter", "veth", "routes"]
"""In the order that is right: who has the address is asked before anything claims it, with the MAC that stays."""


def _mac_prefix(value: str) -> str:
    prefix = value.lower()
    if prefix and not re.fullmatch("[0-9a-f][02468ace]:[0-9a-f]{2}", prefix):
        raise ValueError(f"{describe(value)} is not the first two bytes of a unicast MAC address, such as 0a:1b")
    return prefix


def _each_once(value: list[Step]) -> list[Step]:
    if twice := sorted({step for step in value if value.count(step) > 1}):
        raise ValueError(f"{', '.join(twice)} is there more than once")
    return value


def _network(value: Any) -> Any:
    try:
        return ip_network(value)
    except (ValueError, TypeError):
        raise ValueError(f"{describe(value)} is not a subnet such as 169.254.0.0/16") from None


def _link_address(value: Any) -> Any:
    try:
        return IPv4Address(value)
    except ValueError:
        raise ValueError(f"{describe(value)} is not an IPv4 address such as 169.254.100.1") from None


Subnet = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]


class DetectOptions(Part):
    retries: int = Field(default=0, ge=0)
    """Further requests to a gateway that does not answer."""
    interval: Seconds = 1.0
    """Between them."""
    timeout: Seconds = 0.1
    """The wait for an answer of the gateway, and of an owner with the method `spiderpool`."""
    ignoreGateway: bool = False  # noqa: N815 (as Spiderpool writes names)
    """Let the gateway answer for the address: it does so for all with proxy ARP."""


class Announce(Part):
    count: int = Field(default=1, ge=1)
    interval: Seconds = 1.0
    addresses: Literal["interface", "pod"] = "interface"
    """`pod`: those of all its interfaces, with the MAC of this one."""


class Configuration(Part):
    steps: Annotated[list[Step], AfterValidator(_each_once)] = Field(default=STEPS)
    mode: Literal["auto", "underlay", "overlay", "disable"] = "auto"
    detectIPConflict: Literal[False, True, "spiderpool", "rfc5227"] = False  # noqa: N815
    """True is `spiderpool`."""
    detectGateway: bool = False  # noqa: N815
    detectOptions: DetectOptions = Field(default_factory=DetectOptions)  # noqa: N815
    announce: Announce = Field(default_factory=Announce)
    podMACPrefix: Annotated[str, AfterValidator(_mac_prefix)] = ""  # noqa: N815
    podRPFilter: Literal[-1, 0, 1, 2] = 0  # noqa: N815
    tunePodRoutes: bool = True  # noqa: N815
    podDefaultRouteNIC: str = ""  # noqa: N815
    hostRuleTable: int = Field(default=500, ge=1, le=0xFFFFFFFF)  # noqa: N815
    hijackCIDR: list[Subnet] = Field(default=[IPv4Network("169.254.0.0/16")])  # noqa: N815
    vethLinkAddress: Annotated[IPv4Address, BeforeValidator(_link_address)] | None = None  # noqa: N815
