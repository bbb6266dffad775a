"""The configuration of `coordinator`: names and defaults are those of SpiderCoordinator if it has them."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from testbed.cni.objects.coordinator import LinkAddress, MacPrefix, Mode, RpFilter, RuleTable, Subnet
from testbed.cni.objects.kinds import Part
from testbed.cni.plugins.configuration import Seconds

Step = Literal["mac", "conflict", "gateway", "announce", "rp_filter", "veth", "routes"]
STEPS: list[Step] = ["mac", "conflict", "gateway", "announce", "rp_filter", "veth", "routes"]
"""The correct order: conflicts are detected before anything claims the address, and with the final MAC."""


def _each_once(value: list[Step]) -> list[Step]:
    if twice := sorted({step for step in value if value.count(step) > 1}):
        raise ValueError(f"{', '.join(twice)} is given more than once")
    return value


class DetectOptions(Part):
    retries: int = Field(default=0, ge=0)
    """Further requests to a gateway that does not answer."""
    interval: Seconds = 1.0
    """The time between requests."""
    timeout: Seconds = 0.1
    """The wait for an answer of the gateway, or of an owner with the method `spiderpool`."""
    ignoreGateway: bool = False  # noqa: N815 (as Spiderpool writes names)
    """True: an answer of the gateway is no conflict. With proxy ARP it answers for every address."""


class Announce(Part):
    count: int = Field(default=1, ge=1)
    interval: Seconds = 1.0
    addresses: Literal["interface", "pod"] = "interface"
    """`pod`: the addresses of all its interfaces, with the MAC of this one."""


class Configuration(Part):
    steps: Annotated[list[Step], AfterValidator(_each_once)] = Field(default=STEPS)
    mode: Mode = "auto"
    detectIPConflict: Literal[False, True, "spiderpool", "rfc5227"] = False  # noqa: N815
    """True means `spiderpool`."""
    detectGateway: bool = False  # noqa: N815
    detectOptions: DetectOptions = Field(default_factory=DetectOptions)  # noqa: N815
    announce: Announce = Field(default_factory=Announce)
    podMACPrefix: MacPrefix = ""  # noqa: N815
    podRPFilter: RpFilter = 0  # noqa: N815
    tunePodRoutes: bool = True  # noqa: N815
    podDefaultRouteNIC: str = ""  # noqa: N815
    hostRuleTable: RuleTable = 500  # noqa: N815
    hijackCIDR: list[Subnet] = Field(default=[IPv4Network("169.254.0.0/16")])  # noqa: N815
    vethLinkAddress: LinkAddress | None = None  # noqa: N815
