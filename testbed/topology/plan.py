"""The plan of a lab, down to the last address: the pure data that `lab` builds and `switch` runs.

Nothing here is decided at run time. Two labs planned from the same file are equal, so no MAC address must be read from
a kernel.
"""

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
CongestionControl = Literal["none", "dcqcn", "timely", "hpcc"]
Routing = Literal["static", "frr", "evpn"]
BondMode = Literal["802.3ad", "active-backup", "balance-xor"]
HashPolicy = Literal["layer2", "layer2+3", "layer3+4"]
RdmaMode = Literal["shared", "exclusive"]
"""The kernel's RDMA netns mode (`rdma system set netns`)."""
ETHERNET_MTU = 1500
"""Bytes in a frame of a link that has no other value."""
DEFAULT_QUEUE = 1000
"""The queue in packets, as Linux's txqueuelen: more than an rxe queue pair has in flight (65, behind an L3 hop 129)."""


@dataclass(frozen=True, slots=True)
class Quality:
    """One direction of a link. The default is a veth: no bound, no delay, no loss."""

    rate: int | None = None
    """Bits per second, Ethernet headers included."""
    delay: float = 0.0
    """The delay in seconds."""
    jitter: float = 0.0
    """The even variation of the delay in seconds; packets overtake each other."""
    loss: float = 0.0
    """The lost packets, in percent."""
    loss_burst: float = 1.0
    """The number of packets lost in a row, on average."""
    duplicate: float = 0.0
    """The duplicated packets, in percent."""
    reorder: float = 0.0
    """The packets that overtake those in delay, in percent; needs a delay."""
    corrupt: float = 0.0
    """The packets with one inverted bit, in percent."""
    queue: int | None = None
    """The maximum of packets that wait for the rate, else DEFAULT_QUEUE; further ones are dropped."""
    ecn: int | None = None
    """The queue length in packets above which ECN-capable packets are marked CE."""


CONTROL_PRIORITY, PAUSE_PRIORITY = 6, 7
"""The priorities that are served before all others: CNPs and routing protocols; pause frames."""
CONTROL_DSCP = 48
"""CS6, for CNPs and routing protocols."""


@dataclass(frozen=True, slots=True)
class Lossless:
    """The classes of a lab with priority flow control. Packets of no class have priority 0, and may be dropped."""

    priorities: tuple[int, ...]
    """The lossless priorities."""
    dscp: tuple[tuple[int, int], ...] = ()
    """(DSCP, priority)."""
    pcp: tuple[tuple[int, int], ...] = ()
    """(priority in the tag, priority); then ports trust the tag."""


@dataclass(frozen=True, slots=True)
class Qos:
    """The service of a port's queues, and its differences from its switch's profile."""

    weights: tuple[tuple[int, int], ...] = ()
    """(priority, its share of the port)."""
    strict: tuple[int, ...] = ()
    """The priorities that are served before all with a weight."""
    values: tuple[tuple[str, Any], ...] = ()
    """The profile's values, by name."""


@dataclass(frozen=True, slots=True)
class Bond:
    """Several links as one interface: a host's bond, a switch's port channel (Linux: networking/bonding.rst)."""

    mode: BondMode
    members: tuple[str, ...]
    hash: HashPolicy = "layer3+4"
    """What a flow's member follows from; of no effect in active-backup."""
    lacp_rate: Literal["slow", "fast"] = "slow"
    min_links: int = 0
    """The members that must carry traffic, or the bond has no carrier."""
    primary: str = ""
    """active-backup: the member that carries the traffic whenever it is up."""
    system: str = ""
    """802.3ad: the system's MAC in LACPDUs; empty for the bond's own."""
    broadcast_neighbor: bool = False
    """802.3ad: whether ARP and neighbour discovery are sent by all members."""
    es_id: int = 0
    """The local discriminator of its Ethernet segment, with `system` (RFC 7432, section 5, type 3); 0: it is none."""
    mlag: int = 0
    """The number that it has in common with the port channel of the other switch of a pair; 0: it has none."""


VXLAN_OVERHEAD = 50
"""Bytes that VXLAN adds to an IPv4 packet: inner Ethernet, outer IPv4, UDP and VXLAN headers (RFC 7348, section 5)."""


def vxlan_port(vni: int) -> str:
    """Return the name of a VXLAN network's interface."""
    return f"vni{vni}"


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
    """One end of a link. On a host it may carry an address and an RDMA device; on a switch or bridge it is a port. A
    bond is one, too: its peer is that of its first member."""

    node: str
    name: str
    mac: str
    mtu: int
    peer: tuple[str, str]
    """(node, interface) at the other end."""
    address: IPv4Interface | None = None
    rdma: str | None = None
    """The name of its RDMA device, unique per kernel; None for none. Without `nic` it is a soft-RoCE device to make."""
    nic: str = ""
    """Host: the RDMA device of this machine whose interface it is; `rdma` is the same then."""
    hardware: str = ""
    """The interface of this machine; empty for a link that is made, and for a NIC."""
    vlan: int | None = None
    """Switch port: the untagged (access) VLAN."""
    trunk: tuple[int, ...] = ()
    """Switch port: the tagged VLANs."""
    gateway: IPv4Address | None = None
    """Host: in the subnet of `address` the address of a virtual router, else that of an SVI, if a switch has one."""
    address6: IPv6Interface | None = None
    gateway6: IPv6Address | None = None
    """Host: the same in the subnet of `address6`."""
    sends: Quality = Quality()
    """The quality of the direction from here to the peer."""
    routed: bool = False
    """Switch port: a router's interface with a link-local address only, in no VLAN (`routing: frr`)."""
    lossless: bool = False
    """True if the link has queues by class, and priority flow control."""
    pfc: bool | None = None
    """True if it sends and honours pause frames; None: as its kind does."""
    qos: Qos = Qos()
    number: int = 0
    """The position in its node, from which its MAC follows."""
    bond: Bond | None = None
    master: str = ""
    """The bond of which it is a member. It has no address, no RDMA device and no VLAN then."""

    @property
    def is_hardware(self) -> bool:
        """Return whether it is an interface of this machine, at the end of a real cable."""
        return bool(self.nic or self.hardware)


@dataclass(frozen=True, slots=True)
class VirtualRouter:
    """A virtual router of VRRP in the VLAN of an SVI (RFC 9568). Each family elects its own master."""

    id: int
    address: IPv4Address | None
    address6: IPv6Address | None = None
    priority: int = 100
    interval_ms: int = 1000
    """Milliseconds from one advertisement of the master to the next."""
    preempt: bool = True
    """True if it takes over from a master of lower priority."""

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        return tuple(address for address in (self.address, self.address6) if address is not None)


@dataclass(frozen=True, slots=True)
class Svi(_Addressed):
    """A switch's own interface in a VLAN; without an address the switch only bridges there."""

    vlan: int
    name: str
    mac: str
    address: IPv4Interface | None
    address6: IPv6Interface | None = None
    proxy_arp: bool = False
    """True if it answers for all other addresses of its subnets."""
    vni: int = 0
    """The VXLAN network of its VLAN; 0 for none."""
    vrrp: VirtualRouter | None = None

    @property
    def network(self) -> str:
        """Return the name of the port of its VXLAN network; empty without one."""
        return vxlan_port(self.vni) if self.vni else ""


@dataclass(frozen=True, slots=True)
class Route:
    """A static route. All addresses are of one family."""

    destination: IPNetwork
    via: tuple[IPAddress, ...]
    """The next hops, of equal cost: each flow takes one of them."""


@dataclass(frozen=True, slots=True)
class Bgp:
    """A switch as a BGP speaker."""

    asn: int
    router_id: IPv4Address
    evpn: bool = False
    """True if it speaks EVPN, too."""


@dataclass(frozen=True, slots=True)
class Mlag:
    """A switch's part in a pair that is one LACP system to hosts."""

    peer: str
    """The other switch."""
    peer_link: str
    """The port to it."""
    talks_by: str
    """The port by which the two talk: the peer link, or that of a link of its own."""
    system: str
    """The MAC of the pair in LACPDUs."""
    timeout_s: int
    """Seconds without a message after which the other switch counts as lost."""


ABSOLUTE = ".absolute"
"""The directory beside a lab's topology file for files that the file names by absolute paths."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or directory that a container has at `target`."""

    source: str
    """Its path as in the file: from the directory of the topology file, from the root or from a home directory."""
    target: str
    read_only: bool

    @property
    def beside(self) -> str:
        """Return its path from the directory of the topology file in a lab."""
        return f"{ABSOLUTE}/{self.source.lstrip('/')}" if self.source.startswith(("/", "~")) else self.source


StageName = Literal["create", "create-links", "configure", "healthy", "exit"]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""The stages of a node's start, in their order."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a node's start: the stages of other nodes that must be over before, and its commands."""

    name: StageName
    waits: tuple[tuple[str, StageName], ...] = ()
    on_enter: tuple[tuple[str, ...], ...] = ()
    on_exit: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a node that does not begin with all others."""

    delay_s: float
    stages: tuple[Stage, ...]
    """All stages, in their order."""


@dataclass(frozen=True, slots=True)
class Health:
    """A container's own test: a command that ends with status 0 once it is healthy."""

    test: tuple[str, ...]
    interval_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Dummy(_Addressed):
    """An interface without a peer, of Linux' type `dummy`."""

    name: str
    mac: str
    address: IPv4Interface | None = None
    address6: IPv6Interface | None = None
    number: int = 0
    """The position in its node."""


@dataclass(frozen=True, slots=True)
class Container:
    """The definition of a node's container. An empty `cmd` or `entrypoint` is the image's own."""

    image: str
    cmd: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    network: str = ""
    """The node whose network it shares, in the place of its own."""
    health: Health | None = None
    directory: str = ""
    """Its working directory; empty for that of the image."""
    ends: bool = False
    """True if its command may end, as a pod's may."""


@dataclass(frozen=True, slots=True)
class Reordering:
    """How a NIC puts packets in order: how many of a queue pair wait at most, and for how long. None: see the key."""

    packets: int | None = None
    bytes: int | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    kind: str
    interfaces: tuple[Interface, ...]
    """The ends of its links."""
    nic: NicModel = "rxe"
    congestion_control: CongestionControl = "none"
    """Hosts: the pacing of queue pairs by their NICs on lossless links."""
    congestion_values: tuple[tuple[str, Any], ...] = ()
    """Hosts: values that replace the algorithm's own."""
    reorder: Reordering | None = None
    """Hosts: the NICs on lossless links put the packets of a queue pair in order."""
    profile: str = ""
    """Switches: the name of the ARP/FDB profile."""
    profile_values: tuple[tuple[str, Any], ...] = ()
    """Switches: values that replace the profile's own."""
    svis: tuple[Svi, ...] = ()
    routes: tuple[Route, ...] = ()
    exec: tuple[tuple[str, ...], ...] = ()
    """Hosts: commands to run when the lab is up, as lists of words."""
    env: tuple[tuple[str, str], ...] = ()
    """Hosts: environment variables of programs."""
    sysctls: tuple[tuple[str, str], ...] = ()
    """Hosts, switches: paths below /proc/sys with their values, to be set before the interfaces come up."""
    ipv6: bool = False
    """Hosts: true if IPv6 is on at every interface, as in a container; else it is on with a planned address."""
    bgp: Bgp | None = None
    """Switches with routed ports."""
    stp: bool = False
    """Switches, bridges: true if they run spanning tree."""
    host_routes: bool = False
    """Switches: true if BGP announces each neighbour as a host route."""
    container: Container | None = None
    """Hosts that are containers."""
    dummies: tuple[Dummy, ...] = ()
    """Hosts: interfaces without a peer."""
    start: Start | None = None
    """Hosts: the order of its start among others; None: all at once."""
    number: int = 0
    """The number from which its MACs and its AS number follow: its position in the file, as long as that is not edited
    for a lab that lives."""
    bonds: tuple[Interface, ...] = ()
    ecmp_seed: int = 0
    """Switches: the key of the hash between next hops of equal cost; 0: one made of the name."""
    vtep: IPv4Address | None = None
    """Switches: the address of its end of VXLAN tunnels; None for a switch that has none."""
    l3vni: int = 0
    """Switches: the VXLAN network between the VRFs of VTEPs; 0 for none."""
    multihoming: bool = False
    """Switches with a VTEP: true if some port channels of the lab are Ethernet segments."""
    anycast: bool = False
    """Switches: true if the MAC of its SVIs may be that of other switches, too."""
    mlag: Mlag | None = None
    """Switches: its part in a pair that is one LACP system."""

    def interface(self, name: str) -> Interface:
        return next(i for i in (*self.interfaces, *self.bonds) if i.name == name)

    @property
    def ports(self) -> list[Interface]:
        """Return what carries its traffic: the ends of its links, and bonds in the place of their members."""
        return [*(interface for interface in self.interfaces if not interface.master), *self.bonds]

    @property
    def routed_ports(self) -> list[Interface]:
        return [port for port in self.ports if port.routed]

    def mtu_in(self, vlan: int) -> int:
        """Return the MTU of an SVI: the smallest of the ports in its VLAN, and without such ports the largest of all
        ports that bridge. 1500 without any."""
        bridging = [port for port in self.ports if not port.routed]
        in_vlan = [port.mtu for port in bridging if vlan in (port.vlan, *port.trunk)]
        return min(in_vlan) if in_vlan else max((port.mtu for port in bridging), default=ETHERNET_MTU)

    @property
    def virtual_routers(self) -> list[tuple[Svi, VirtualRouter]]:
        return [(svi, svi.vrrp) for svi in self.svis if svi.vrrp]


@dataclass(frozen=True, slots=True)
class Plan:
    """`nodes` in the order of the file; `links` as pairs of interfaces in the order of the file."""

    name: str
    nodes: dict[str, Node]
    links: tuple[tuple[Interface, Interface], ...]
    faults: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """The faults from the start: names and parameters."""
    rdma_mode: RdmaMode | None = None
    """None: the lab chooses by its size."""
    lossless: Lossless | None = None
    last_number: int = 0
    """The highest number of a node, also of those that have gone."""

    @property
    def images(self) -> list[str]:
        """Return the images of its containers, as written in the file."""
        return sorted({node.container.image for node in self.nodes.values() if node.container})

    @property
    def binds(self) -> dict[str, str]:
        """Return the files and directories that its containers mount: their paths from the directory of the topology
        file in a lab, by their names in the topology file."""
        containers = [node.container for node in self.nodes.values() if node.container]
        found = {bind.source: bind.beside for container in containers for bind in container.binds}
        return dict(sorted(found.items()))


def by_family(addresses: Mapping[Family, Any], name: str = "address") -> dict[str, Any]:
    """Return addresses under the plan's names, such as `address` and `address6`."""
    return {name: addresses.get(4), f"{name}6": addresses.get(6)}
