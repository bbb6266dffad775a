"""The interface of a call, with the kernels of its pod and of the node, and the configuration of `coordinator`."""

import contextlib
import functools
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, model_validator

from testbed.cni.objects.coordinator import COORDINATOR, DEFAULT_ROUTE, RuleTable
from testbed.cni.objects.database import OBJECTS
from testbed.cni.objects.database import Store as Objects
from testbed.cni.objects.kinds import Part
from testbed.cni.plugins.contract import Call, Refusal, Seconds
from testbed.cni.spec import CONFIG, OWN
from testbed.documents.text import describe
from testbed.kernel import netns
from testbed.kernel.link_readings import IFLA_ADDRESS
from testbed.kernel.policy_routing import PolicyRouting
from testbed.kernel.syscalls import closing_fd
from testbed.topology import Family, IPAddress, IPInterface

FIRST = "eth0"
"""The first interface of a pod (Spiderpool's podDefaultCniNic)."""
POD_VETH = "veth0"
FIRST_TABLE = 100
"""The routing table of the first interface; those of the others follow."""

StepName = Literal["mac", "conflict", "gateway", "announce", "queue", "rp_filter", "veth", "routes", "policy_routes"]
STEPS: list[StepName] = [
    "mac",
    "conflict",
    "gateway",
    "announce",
    "queue",
    "rp_filter",
    "veth",
    "routes",
    "policy_routes",
]
"""The correct order: conflicts are detected before anything claims the address, and with the final MAC."""


def _each_once(value: list[StepName]) -> list[StepName]:
    if twice := sorted({step for step in value if value.count(step) > 1}):
        raise ValueError(f"{', '.join(twice)} is given more than once")
    return value


def _mac_prefix(value: str) -> str:
    prefix = value.lower()
    if prefix and not re.fullmatch("[0-9a-f][02468ace]:[0-9a-f]{2}", prefix):
        raise ValueError(f"{describe(value)} is not the first two bytes of a unicast MAC address, such as 0a:1b")
    return prefix


def _network(value: Any) -> Any:
    if not isinstance(value, str) or "/" not in value:
        raise ValueError(f"{describe(value)} is not a subnet such as 169.254.0.0/16")
    return _of_one_or_more(value)


def _of_one_or_more(value: Any) -> Any:
    try:
        return ip_network(value, strict=False)
    except (ValueError, TypeError):
        raise ValueError(f"{describe(value)} is no address and no subnet") from None


def _address(value: Any) -> Any:
    try:
        return ip_address(value)
    except (ValueError, TypeError):
        raise ValueError(f"{describe(value)} is not an IP address") from None


Subnet = IPv4Network | IPv6Network
Address = Annotated[IPv4Address | IPv6Address, BeforeValidator(_address)]


class PolicyRoute(Part):
    """A route of the interface's own table."""

    dst: Annotated[Subnet, BeforeValidator(_of_one_or_more)]
    gw: Address

    @model_validator(mode="after")
    def _is_of_one_family(self) -> Self:
        if self.dst.version != self.gw.version:
            raise ValueError(f'route dst "{self.dst}" and gw "{self.gw}" must use the same IP family')
        return self


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
    """Names and defaults are those of SpiderCoordinator if it has them."""

    steps: Annotated[list[StepName], AfterValidator(_each_once)] = Field(default=STEPS)
    mode: Literal["auto", "underlay", "overlay", "disable"] = "auto"
    detectIPConflict: Literal[False, True, "spiderpool", "rfc5227"] = False  # noqa: N815
    """True means `spiderpool`."""
    detectGateway: bool = False  # noqa: N815
    detectOptions: DetectOptions = Field(default_factory=DetectOptions)  # noqa: N815
    announce: Announce = Field(default_factory=Announce)
    podMACPrefix: Annotated[str, AfterValidator(_mac_prefix)] = ""  # noqa: N815
    podRPFilter: Annotated[int, Field(le=2)] = 0  # noqa: N815
    """Negative: as it is."""
    txQueueLen: Annotated[int, Field(ge=0)] = 0  # noqa: N815
    """0: as it is."""
    tunePodRoutes: bool = True  # noqa: N815
    default_route_nic: Annotated[
        str, Field(validation_alias=AliasChoices("podDefaultRouteNIC", "podDefaultRouteNic"))
    ] = ""
    """The first spelling is that of the objects, the second that of the plugin."""
    hostRuleTable: RuleTable = 500  # noqa: N815
    hijackCIDR: list[Annotated[Subnet, BeforeValidator(_network)]] = Field(default=[IPv4Network("169.254.0.0/16")])  # noqa: N815
    policyRoutes: list[PolicyRoute] = Field(default_factory=list)  # noqa: N815
    vethLinkAddress: Annotated[Address | None, BeforeValidator(lambda value: value or None)] = None  # noqa: N815
    vethMTU: Annotated[int, Field(ge=1)] = 1500  # noqa: N815


@dataclass
class Nic:
    """A call's interface. The thread is in the pod's network namespace; `kernel` is its kernel, `host` the node's."""

    asked: Call
    settings: Configuration
    result: Mapping[str, Any]
    kernel: PolicyRouting
    host: PolicyRouting
    node: str
    """The path of the node's network namespace."""
    index: int
    mac: str
    shared: Path | None = None
    """The directory that all nodes share, with the objects."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, asked: Call, settings: Configuration, shared: Path | None) -> Iterator[Self]:
        """Enter the pod's namespace from the node's for the block. Refusal if the previous result, the namespace or the
        interface is missing and needed."""
        result = asked.chained("coordinator")
        with ExitStack() as stack:
            node = stack.enter_context(closing_fd(os.open("/proc/thread-self/ns/net", os.O_RDONLY)))
            host = stack.enter_context(PolicyRouting())
            stack.enter_context(netns.entered(asked.namespace))
            kernel = stack.enter_context(PolicyRouting())
            try:
                index, _, link = kernel.read(asked.interface)
            except OSError:
                raise Refusal(OWN, f"the pod has no interface {asked.interface}") from None
            mac = link[IFLA_ADDRESS].hex(":")
            yield cls(asked, settings, result, kernel, host, f"/proc/self/fd/{node}", index, mac, shared)

    @property
    def name(self) -> str:
        return self.asked.interface

    def on_node(self) -> AbstractContextManager[None]:
        """Run the block in the node's network namespace."""
        return netns.entered(self.node)

    @functools.cached_property
    def addresses(self) -> list[IPInterface]:
        """Return the interface's own addresses, as the plugins before report them."""
        return addresses_in(self.result, self.name)

    @functools.cached_property
    def families(self) -> list[Family]:
        return sorted({address.version for address in self.addresses})

    @functools.cached_property
    def gateways(self) -> list[tuple[IPAddress, IPAddress]]:
        """Return (own address, gateway) for each address with a gateway."""
        entries = [entry for entry in _entries(self.result, self.name) if entry.get("gateway")]
        return [(ip_interface(entry["address"]).ip, ip_address(entry["gateway"])) for entry in entries]

    def has(self, interface: str) -> bool:
        """Return whether the pod has an interface of this name."""
        return any(name == interface for _, name in socket.if_nameindex())

    @functools.cached_property
    def underlay(self) -> bool:
        """Return whether a veth of this plugin connects the pod to the node. Refusal if `mode` does not fit."""
        mode, veth = self.settings.mode, self.has(POD_VETH)
        if mode == "auto":
            return self.name == FIRST or veth
        if mode == "overlay" and (self.name == FIRST or veth):
            there = f"{self.name} is the pod's first interface" if self.name == FIRST else f"the pod has {POD_VETH}"
            raise Refusal(OWN, f"{self.name}: mode overlay is impossible, because {there}")
        if mode == "underlay" and self.name != FIRST and not veth and "veth" in self.settings.steps:
            hint = f"the network of {FIRST} needs coordinator, too"
            raise Refusal(OWN, f"{self.name}: mode underlay is impossible, because the pod has no {POD_VETH}", hint)
        return mode == "underlay"

    @property
    def first(self) -> bool:
        """Return whether the ADD of this interface makes the veth."""
        return self.underlay and self.name == FIRST

    @functools.cached_property
    def table(self) -> int:
        """Return the number of its routing table."""
        if self.name == FIRST:
            return FIRST_TABLE
        mine = {address.ip for address in self.addresses}
        for family in self.families:
            for rule in self.kernel.rules(family):
                if rule.source.num_addresses == 1 and rule.source.network_address in mine:
                    return rule.table
        return self.kernel.free_table(FIRST_TABLE + 1, self.families)

    @functools.cached_property
    def default_route_nic(self) -> str:
        """Return the interface that keeps the default route: of the configuration, the pod's annotation, or the
        SpiderCoordinator, as in Spiderpool (cmd/spiderpool-agent/cmd/coordinator.go)."""
        if self.settings.default_route_nic or not self.shared:
            return self.settings.default_route_nic
        name, namespace = (self.asked.arguments.get(f"K8S_POD_{key}", "") for key in ("NAME", "NAMESPACE"))
        with Objects(self.shared / OBJECTS) as objects:
            pod = objects.get("Pod", name, namespace)
            if pod and DEFAULT_ROUTE in pod.annotations:
                return pod.annotations[DEFAULT_ROUTE]
            return next((str(one.spec.get("podDefaultRouteNIC") or "") for one in objects.all(COORDINATOR)), "")

    @property
    def namespace(self) -> Path:
        return Path(self.asked.namespace)


def addresses_in(result: Mapping[str, Any], interface: str) -> list[IPInterface]:
    """Return the addresses of one of the pod's interfaces in a result."""
    return [ip_interface(entry["address"]) for entry in _entries(result, interface)]


def _entries(result: Mapping[str, Any], interface: str) -> list[Mapping[str, Any]]:
    interfaces = result.get("interfaces", [])
    try:
        return [
            entry
            for entry in result.get("ips", [])
            if "interface" not in entry or interfaces[entry["interface"]]["name"] == interface
        ]
    except (LookupError, TypeError):
        raise Refusal(CONFIG, "prevResult.ips names an interface that is not in prevResult.interfaces") from None
