"""Hosts: a crash, wrong configuration."""

from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import IPv4Interface, IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from testbed.errors import InputError
from testbed.faults.fault import Address, Fault, Verified
from testbed.kernel import sysctl
from testbed.lab import Host, HostInterface, Lab
from testbed.topology import Family, IPAddress

GC_THRESH = "net/ipv4/neigh/default/gc_thresh"


class _HostFault(Fault):
    host: str
    """The host's name."""

    def _change_default_route(self, lab: Lab, family: Family, *via: IPAddress) -> Callable[[], None]:
        host = lab.host(self.host)
        if not default_gateways(host, family):
            raise InputError(f"fault {self}: {host} has no default route of IPv{family}")
        return host.routes.change_default(family, *via)


class HostCrash(_HostFault):
    """A host loses its power: its programs, pods and RDMA devices are gone, and its links have no carrier.

    At the recovery it boots: it has what the topology file says, and its pods start again.
    """

    name: ClassVar[str] = "host-crash"

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(lab.power_off(self.host))

    def verify(self, lab: Lab) -> Verified | None:
        return {"power": "off"} if lab.host(self.host).off else None


class WrongGateway(_HostFault):
    """The host's default route points to an address that is not a router, or that nobody has."""

    name: ClassVar[str] = "wrong-gateway"
    via: Address
    """The wrong gateway, in one of the host's subnets; its family selects the IPv4 or the IPv6 default route."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(self._change_default_route(lab, self.via.version, self.via))

    def verify(self, lab: Lab) -> Verified | None:
        via = default_gateways(lab.host(self.host), self.via.version)
        return {"default_via": via[0]} if via == [str(self.via)] else None


class MissingRoute(_HostFault):
    """The host has no default route."""

    name: ClassVar[str] = "missing-route"
    family: Family = 4
    """Selects the default route: 4 for IPv4, 6 for IPv6."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(self._change_default_route(lab, self.family))

    def verify(self, lab: Lab) -> Verified | None:
        return None if default_gateways(lab.host(self.host), self.family) else {"default_route": "none"}


class WrongMask(_HostFault):
    """The host has a prefix length that makes its subnet larger, or smaller, than it is.

    Too large: it sends ARP requests for addresses behind the gateway. Too small: it sends its neighbours' packets to
    the gateway.
    """

    name: ClassVar[str] = "wrong-mask"
    holds: ClassVar[bool] = False
    prefix: Annotated[int, Field(ge=1, le=31)]
    """The wrong prefix length."""
    interface: str = "eth1"
    """The host's interface."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nic = lab.host(self.host)[self.interface]
        right = IPv4Interface(nic.address())
        wrong = IPv4Interface(f"{right.ip}/{self.prefix}")
        # The kernel moves no route: the connected one is replaced, and the address keeps its GID.
        undo.callback(self._put_right, lab, right.network, wrong.network)
        self._connected(nic, wrong.network, right.network)

    def _put_right(self, lab: Lab, right: IPv4Network, wrong: IPv4Network) -> None:
        if self.verify(lab):  # a NIC that was down meanwhile has its connected route from the kernel again
            self._connected(lab.host(self.host)[self.interface], right, wrong)

    def _connected(self, nic: HostInterface, to: IPv4Network, instead_of: IPv4Network) -> None:
        own = ("dev", nic.name, "proto", "kernel", "scope", "link", "src", str(nic.address().ip))
        nic.node.use("ip", "route", "append", str(to), *own)  # beside that of another NIC in the subnet
        nic.node.use("ip", "route", "delete", str(instead_of), *own)

    def verify(self, lab: Lab) -> Verified | None:
        host = lab.host(self.host)
        wrong = IPv4Interface(f"{host[self.interface].address().ip}/{self.prefix}").network
        routes = [route for route in host.routes.shown(4) if route.get("dev") == self.interface]
        connected = [route["dst"] for route in routes if route.get("scope") == "link"]
        return {"connected": str(wrong)} if str(wrong) in connected else None


class ArpFlux(_HostFault):
    """A host has two NICs in one subnet, and each answers ARP for the address of the other.

    arp_ignore and arp_announce are 0. These are Linux's defaults: the host must have other values before, set by `exec`
    in the topology file for example.
    """

    name: ClassVar[str] = "arp-flux"

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host = lab.host(self.host)
        if not self._possible(host):
            raise InputError(f"fault {self}: {host} does not have two interfaces in one subnet")
        for path in self._paths(host):
            undo.callback(host.sysctl, path, host.read_sysctl(path))
            host.sysctl(path, 0)

    def verify(self, lab: Lab) -> Verified | None:
        host = lab.host(self.host)
        flux = self._possible(host) and all(host.read_sysctl(path) == "0" for path in self._paths(host))
        return {"arp_ignore": 0} if flux else None

    def _possible(self, host: Host) -> bool:
        subnets = [host[name].address().network for name in self._names(host)]
        return len(set(subnets)) < len(subnets)

    def _names(self, host: Host) -> list[str]:
        return [name for name, interface in host.interfaces.items() if 4 in interface.addresses]

    def _paths(self, host: Host) -> list[str]:
        """Return the sysctls of `all` and of each interface: the larger value applies."""
        where = ["all", *self._names(host)]
        return [f"net/ipv4/conf/{name}/{key}" for name in where for key in ("arp_ignore", "arp_announce")]


class StrictRpFilter(_HostFault):
    """The host drops packets that arrive at an interface over which it would not answer (rp_filter 1, RFC 3704).

    It matters on hosts with several interfaces. The filter applies to RoCE packets as to all UDP packets.
    """

    name: ClassVar[str] = "strict-rp-filter"
    interface: str = "eth1"
    """The host's interface."""
    mode: Literal[1, 2] = 1
    """1 is strict; 2 is loose: any route back is enough."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host = lab.host(self.host)[self.interface].node
        undo.callback(host.sysctl, self._path, host.read_sysctl(self._path))
        host.sysctl(self._path, self.mode)

    @property
    def _path(self) -> str:
        return f"net/ipv4/conf/{self.interface}/rp_filter"

    def verify(self, lab: Lab) -> Verified | None:
        now = lab.host(self.host)[self.interface].node.read_sysctl(self._path)
        return {"rp_filter": now} if now == str(self.mode) else None


class NeighbourTableFull(Fault):
    """The kernel's neighbour table is too small for its neighbours: "neighbour: arp_cache: neighbor table overflow!".

    A kernel has one gc_thresh3, so here all hosts of the lab share it; it does not limit the entries of switches, which
    are permanent, but it counts them.
    """

    name: ClassVar[str] = "neighbour-table-full"
    gc_thresh3: Annotated[int, Field(ge=1, le=1_000_000)]
    """Entries."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        for number in (1, 2, 3):
            path = f"{GC_THRESH}{number}"
            undo.callback(sysctl.write, path, sysctl.read(path))
            sysctl.write(path, self.gc_thresh3)

    def verify(self, lab: Lab) -> Verified | None:
        now = int(sysctl.read(f"{GC_THRESH}3"))
        return {"gc_thresh3": now} if now == self.gc_thresh3 else None


def default_gateways(host: Host, family: Family) -> list[str]:
    """The next hops of the host's default routes."""
    routes = [route for route in host.routes.shown(family) if route["dst"] == "default"]
    return [hop["gateway"] for route in routes for hop in route.get("nexthops", [route]) if "gateway" in hop]
