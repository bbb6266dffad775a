"""The values of `coordinator` in a SpiderCoordinator and in the plugin's configuration.

Source: Spiderpool 1.0, docs/reference/crd-spidercoordinator.md.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from testbed.cni.objects.kinds import Part, Spec
from testbed.documents.text import describe

Mode = Literal["auto", "underlay", "overlay", "disable"]
RpFilter = Literal[-1, 0, 1, 2]


def _mac_prefix(value: str) -> str:
    prefix = value.lower()
    if prefix and not re.fullmatch("[0-9a-f][02468ace]:[0-9a-f]{2}", prefix):
        raise ValueError(f"{describe(value)} is not the first two bytes of a unicast MAC address, such as 0a:1b")
    return prefix


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


MacPrefix = Annotated[str, AfterValidator(_mac_prefix)]
Subnet = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]
LinkAddress = Annotated[IPv4Address, BeforeValidator(_link_address)]
RuleTable = Annotated[int, Field(ge=1, le=0xFFFFFFFF)]


def _nothing(value: Any) -> Any:
    if value:
        raise ValueError(f"{describe(value)} is not supported: the lab's coordinator does not set it")
    return value


NotSet = Annotated[int | bool | None, AfterValidator(_nothing)]


class CoordinatorSpec(Part, Spec):
    """SpiderCoordinator, and the part `coordinator` of a SpiderMultusConfig. None: use the default."""

    mode: Mode | None = None
    detectIPConflict: bool | None = None  # noqa: N815 (Spiderpool's names, here and below)
    detectGateway: bool | None = None  # noqa: N815
    podMACPrefix: MacPrefix | None = None  # noqa: N815
    podRPFilter: RpFilter | None = None  # noqa: N815
    tunePodRoutes: bool | None = None  # noqa: N815
    podDefaultRouteNIC: str | None = None  # noqa: N815
    hostRuleTable: RuleTable | None = None  # noqa: N815
    hijackCIDR: list[Subnet] | None = None  # noqa: N815
    vethLinkAddress: Annotated[LinkAddress | None, BeforeValidator(lambda value: value or None)] = None  # noqa: N815
    podCIDRType: Literal["auto", "cluster", "calico", "cilium", "none"] | None = None  # noqa: N815
    """Accepted and ignored: a lab has no subnets of the cluster."""
    hostRPFilter: NotSet = None  # noqa: N815
    txQueueLen: NotSet = None  # noqa: N815
    enableVethLinkLocalAddress: NotSet = None  # noqa: N815

    def given(self) -> dict[str, Any]:
        """Return the keys of the plugin's configuration that are set."""
        unread = {"podCIDRType", "hostRPFilter", "txQueueLen", "enableVethLinkLocalAddress"}
        return self.model_dump(mode="json", exclude=unread, exclude_none=True)
