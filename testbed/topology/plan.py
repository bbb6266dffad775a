"""
The plan of a lab, down to the last address: the pure data that `lab` builds and `switch` runs.

Nothing here is decided at run time. Two labs planned from the same file are equal, so nobody has to read a MAC address
back from a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any, Literal, get_args

IPAddress = IPv4Address | IPv6Address
IPInterface = IPv4Interface | IPv6Interface
IPNetwork = IPv4Network | IPv6Network
Family = Literal[4, 6]
FAMILIES: tuple[Family, ...] = get_args(Family)

NicModel = Literal["hardware", "rxe"]
CongestionControl = Literal["none", "dcqcn", "timely"]
Routing = Literal["static", "frr"]
RdmaMode = Literal["shared", "exclusive"]
"""The kernel's RDMA netns mode (`rdma system set netns`)."""
DEFAULT_QUEUE = 1000
"""Packets, as Linux's txqueuelen: more than an rxe queue pair has under way (65, behind an L3 hop 129)."""


@dataclass(frozen=True, slots=True)
class Quality:
    """One direction of a link. Nothing of it set is a veth: no bound, no delay, no loss."""

    rate: int | None = None
    """Bits per second, Ethernet headers included."""
    delay: float = 0.0
    """Seconds."""
    jitter: float = 0.0
    """Seconds by which the delay varies, evenly; packets overtake each other."""
    loss: float = 0.0
    """Percent of the packets."""
    loss_burst: float = 1.0
    """Packets that are lost in a row, on average."""
    duplicate: float = 0.0
    """Percent."""
    reorder: float = 0.0
    """Percent of the packets that overtake those in delay; needs a delay."""
    corrupt: float = 0.0
    """Percent of the packets in which one bit is turned."""
    queue: int | None = None
    """Packets that wait for the rate at most, else DEFAULT_QUEUE; those that come then are dropped."""
    ecn: int | None = None
    """Packets in the queue from which on ECN-capable packets are marked CE."""


CONTROL_PRIORITY, PAUSE_PRIORITY = 6, 7
"""Served before all others: CNPs and routing protocols; pause frames."""
CONTROL_DSCP = 48
"""CS6, of CNPs and of routing protocols."""


@dataclass(frozen=True, slots=True)
class Lossless:
    """The classes of a lab with priority flow control. What is of no class is of priority 0, and may be dropped."""

    priorities: tuple[int, ...]
    """The lossless ones."""
    dscp: tuple[tuple[int, int], ...] = ()
    """(DSCP, priority)."""
    pcp: tuple[tuple[int, int], ...] = ()
    """(priority in the tag, priority); then ports trust the tag."""


@dataclass(frozen=True, slots=True)
class Qos:
    """How a port serves its queues, and what it does otherwise than its switch's profile."""

    weights: tuple[tuple[int, int], ...] = ()
    """(priority, its share beside others)."""
    strict: tuple[int, ...] = ()
    """Priorities that are served before all with a weight."""
    values: tuple[tuple[str, Any], ...] = ()
    """Of the profile, by name."""


class _Addressed:
    """An end with an address of each family, or none."""

    __slots__ = ()
    address: IPv4Interface | None
    address6: IPv6Interface | None

    @property
    def addresses(self) -> tuple[IPInterface, ...]:
        return tuple(address for address in (self.address, self.address6) if address is not None)


@dataclass(frozen=True, slots=True)
class Interface(_Addressed):
    """One end of a link. On a host it may carry an address and an RDMA device; on a switch or bridge it is a port."""

    node: str
    name: str
    mac: str
    mtu: int
    peer: tuple[str, str]
    """(node, interface) at the other end."""
    address: IPv4Interface | None = None
    rdma: str | None = None
    """Name of its RDMA device, None for none. Unique per kernel. A soft-RoCE device to be made on it, if not `nic`."""
    nic: str = ""
    """Host: the RDMA device of this machine whose interface it is, which is `rdma` then."""
    hardware: str = ""
    """The interface of this machine that it is; empty for a link that is made, and for a NIC."""
    vlan: int | None = None
    """Switch port: the untagged (access) VLAN."""
    trunk: tuple[int, ...] = ()
    """Switch port: the tagged VLANs."""
    gateway: IPv4Address | None = None
    """Host: the SVI's address in the subnet of `address`, if a switch has one there."""
    address6: IPv6Interface | None = None
    gateway6: IPv6Address | None = None
    """The same of IPv6."""
    sends: Quality = Quality()
    """The quality of the direction from here to the peer."""
    routed: bool = False
    """Switch port: a router's interface with a link-local address only, in no VLAN (`routing: frr`)."""
    lossless: bool = False
    """Whether the link has queues by class, and priority flow control."""
    pfc: bool | None = None
    """Whether it sends and honours pause frames; None: as its kind does."""
    qos: Qos = Qos()

    @property
    def is_hardware(self) -> bool:
        """Whether it is an interface that this machine has, at the end of a real cable."""
        return bool(self.nic or self.hardware)


@dataclass(frozen=True, slots=True)
class Svi(_Addressed):
    """A switch's own interface in a VLAN; without an address the switch only bridges there."""

    vlan: int
    name: str
    mac: str
    address: IPv4Interface | None
    address6: IPv6Interface | None = None
    proxy_arp: bool = False
    """Whether it answers for all other addresses of its subnets."""


@dataclass(frozen=True, slots=True)
class Route:
    """All of one family."""

    destination: IPNetwork
    via: tuple[IPAddress, ...]
    """The next hops, of equal cost: each flow takes one of them."""


@dataclass(frozen=True, slots=True)
class Bgp:
    """A switch as a BGP speaker."""

    asn: int
    router_id: IPv4Address


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or directory that a container has at `target`; `source` is its path beside the topology file."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Container:
    """What a node's container is made of. An empty `cmd` or `entrypoint` is the image's own."""

    image: str
    cmd: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    kind: str
    interfaces: tuple[Interface, ...]
    nic: NicModel = "rxe"
    congestion_control: CongestionControl = "none"
    """Hosts: how their NICs on lossless links pace queue pairs."""
    congestion_values: tuple[tuple[str, Any], ...] = ()
    """Hosts: values in the place of the algorithm's own."""
    profile: str = ""
    """Switches: name of the ARP/FDB profile."""
    profile_values: tuple[tuple[str, Any], ...] = ()
    """Switches: values in the place of the profile's own."""
    svis: tuple[Svi, ...] = ()
    routes: tuple[Route, ...] = ()
    exec: tuple[tuple[str, ...], ...] = ()
    """Hosts: commands to run when the lab is up, as lists of words."""
    env: tuple[tuple[str, str], ...] = ()
    """Hosts: environment variables of programs."""
    sysctls: tuple[tuple[str, str], ...] = ()
    """Hosts: paths below /proc/sys with their values, to be set before the interfaces come up."""
    ipv6: bool = False
    """Hosts: whether IPv6 is on at every interface, as in a container; elsewhere it is with a planned address."""
    bgp: Bgp | None = None
    """Switches with routed ports."""
    host_routes: bool = False
    """Switches: whether BGP announces each neighbour as a host route."""
    container: Container | None = None
    """Hosts that are containers."""

    def interface(self, name: str) -> Interface:
        return next(i for i in self.interfaces if i.name == name)

    @property
    def routed_ports(self) -> list[Interface]:
        return [interface for interface in self.interfaces if interface.routed]


@dataclass(frozen=True, slots=True)
class Plan:
    """`nodes` in the order of the file; `links` as pairs of interfaces in the order of the file."""

    name: str
    nodes: dict[str, Node]
    links: tuple[tuple[Interface, Interface], ...]
    faults: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Faults from the start: names and parameters."""
    rdma_mode: RdmaMode | None = None
    """None: the lab chooses by its size."""
    lossless: Lossless | None = None

    @property
    def images(self) -> list[str]:
        """The images of its containers, as the file names them."""
        return sorted({node.container.image for node in self.nodes.values() if node.container})

    @property
    def binds(self) -> list[str]:
        """Paths beside the topology file of what its containers have from there."""
        containers = [node.container for node in self.nodes.values() if node.container]
        return sorted({bind.source for container in containers for bind in container.binds})


def by_family(addresses: Mapping[Family, Any], name: str = "address") -> dict[str, Any]:
    """Addresses as the plan has them, such as `address` and `address6`."""
    return {name: addresses.get(4), f"{name}6": addresses.get(6)}
