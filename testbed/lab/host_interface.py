"""An interface of a host or a pod: its addresses, its neighbours, its RDMA device."""

import errno
import json
import socket
from collections.abc import Callable, Mapping
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from typing import Any, Literal, SupportsBytes, overload

from testbed.errors import InputError
from testbed.kernel import ipv6, rxe_devices
from testbed.kernel.netlink import mac_bytes
from testbed.kernel.rdma import Rdma
from testbed.kernel.rtnetlink import Neighbour
from testbed.lab.host_routes import HostRoutes
from testbed.lab.interface import Interface
from testbed.lab.namespace import Namespace
from testbed.nic import HardwareNic
from testbed.nic.congestion_control import congestion
from testbed.protocol import events
from testbed.switch import packets
from testbed.topology import (
    AnAddress,
    AnInterface,
    CongestionControl,
    Family,
    IPAddress,
    IPInterface,
    NicModel,
    address_of,
    interface_of,
    mac_of,
)
from testbed.topology import Interface as InterfacePlan

ETHERNET = 14
"""Bytes of an Ethernet header."""
UNANSWERED = ("INCOMPLETE", "FAILED", "NONE")
"""State of a neighbour entry without a MAC."""
LOCAL_EXPERIMENTAL = b"\x88\xb5"
"""EtherType of IEEE 802, for experiments."""


class HostInterface(Interface):
    """An interface of a host or a pod: `addresses` by family, `rdma` its device's name, `nic` its hardware NIC."""

    queues_at_peer = True

    def __init__(
        self,
        node: Namespace,
        name: str,
        index: int,
        mac: str,
        plan: InterfacePlan | None,
        model: NicModel,
        routes: HostRoutes,
    ) -> None:
        """`model` is how the NIC behaves, `routes` are those of the host."""
        super().__init__(node, name, index, mac, plan)
        self._model = model
        self._routes = routes
        self._lost: list[IPInterface] = []
        """IPv6 addresses that it loses while it is held down."""
        self._given: dict[Family, IPInterface] = {}
        """The address of each family that it was given last. Whether it has it is the kernel's to say."""
        self._at_last: list[IPInterface] = []
        self.rdma: str | None = None
        self.nic: HardwareNic | None = None

    # Addresses

    @property
    def all_addresses(self) -> list[IPInterface]:
        """Return its addresses as the kernel has them, without those of the link; of a pod that has gone those that it
        had before."""
        if self.node.gone:
            return [*self._at_last]
        return [*self.node.now().addresses.get(self.index, [])]

    @property
    def addresses(self) -> dict[Family, IPInterface]:
        """Return the one of each family that it was given last by `add_address` or a plugin, else the first one."""
        there = self.all_addresses
        given = {family: address for family, address in self._given.items() if address in there}
        return {**{address.version: address for address in reversed(there)}, **given}

    def take_addresses(self) -> None:
        """Take the addresses that the kernel has now for those that it was given."""
        self._given = self.addresses

    def keep_addresses(self) -> None:
        """Remember its addresses: its pod is about to go."""
        self._at_last = self.all_addresses

    @overload
    def address(self, family: Literal[4] = 4) -> IPv4Interface: ...

    @overload
    def address(self, family: Literal[6]) -> IPv6Interface: ...

    @overload
    def address(self, family: Family) -> IPInterface: ...

    def address(self, family: Family = 4) -> IPInterface:
        """Return its address of a family; InputError if it has none."""
        found = self.addresses.get(family)
        if found is None:
            raise InputError(f"{self.name} of {self.node} has no IPv{family} address")
        return found

    def gateway(self, family: Family = 4) -> IPAddress:
        """Return the planned gateway of its subnet; InputError if there is none. A pod's is not planned."""
        gateway = (self.plan.gateway if family == 4 else self.plan.gateway6) if self.plan else None
        if gateway is None:
            raise InputError(f"{self.name} of {self.node} has no IPv{family} gateway")
        return gateway

    def add_address(self, address: AnInterface) -> None:
        """Add an address with its prefix length, such as 10.0.10.2/24."""
        address = interface_of(address)
        if isinstance(address, IPv6Interface):
            with self.node.entered():
                ipv6.enable(self.node.kernel, self.name, self.mac)
        self.node.kernel.set_address(self.index, address)
        self._given[address.version] = address
        self.node.context.view.drain()

    def remove_address(self, which: Family | AnAddress | AnInterface = 4) -> IPInterface:
        """Remove an address, such as 10.0.10.2, or with its prefix length, or the first one of a family, and return it.
        InputError if it has none."""
        address = self.address(which) if isinstance(which, int) else self._own(which)
        self.node.kernel.delete_address(self.index, address)
        self.node.context.view.drain()
        return address

    def _own(self, which: AnAddress | AnInterface) -> IPInterface:
        """Return its address that this is: with a prefix length that very one, without one the first with this IP."""
        if whole := isinstance(which, IPv4Interface | IPv6Interface) or (isinstance(which, str) and "/" in which):
            wanted: object = interface_of(which)
        else:
            wanted = address_of(which)
        found = self.all_addresses
        for address in found:
            if wanted == (address if whole else address.ip):
                return address
        raise InputError(f"{self} has no address {which}", hint=f"It has: {', '.join(map(str, found)) or 'none'}.")

    def set_mac(self, mac: str) -> None:
        """Change its MAC. InputError if it has an RDMA device, whose queue pairs would break for good."""
        if self.rdma:
            raise InputError(
                f"{self.name} of {self.node} has an RDMA device, which does not survive a change of the MAC",
                hint="Set `rdma: false` for the host, and call `add_rdma` after the change.",
            )
        self.node.kernel.set_link(self.index, mac=mac)
        self.node.context.view.drain()

    def hold_down(self) -> Callable[[], None]:
        """Set the NIC down, which removes its IPv6 address and its routes. The returned function restores all of that,
        if nobody else holds it down."""
        self._routes.go(self.name)
        self._lost += [address for address in self.all_addresses if address.version == 6]
        release = super().hold_down()

        def bring_back() -> None:
            release()
            if self.is_up:
                while self._lost:
                    self.add_address(self._lost.pop(0))
                self._routes.come_back()

        return bring_back

    # RDMA

    def add_rdma(self, device: str) -> None:
        """Create its soft-RoCE device."""
        rxe_devices.add(self.node.namespace, self.name, device)
        self.adopt_rdma(device)

    def adopt_rdma(self, device: str) -> None:
        """Register an RDMA device that it has. InputError if it has no such one."""
        with self.node.entered(), Rdma() as here:
            if here.links().get(self.name_now) != device:
                raise InputError(f"{self} has no RDMA device {device}")
        self.nic = self.node.context.devices.adopt(self.node.namespace, self.name, device, self._model)
        self.rdma = device

    @property
    def device(self) -> str:
        """Return the name of its RDMA device; InputError if it has none."""
        if self.rdma is None:
            raise InputError(f"{self.name} of {self.node} has no RDMA device")
        return self.rdma

    def rdma_counters(self) -> dict[str, int]:
        """Return the counters of its RDMA device by the kernel's names: sent_pkts, completer_retry_err, …; with ``nic:
        hardware`` also by mlx5's names that differ: out_of_sequence, packet_seq_err, …"""
        return self.named(rxe_devices.counters(self.device, self.node.namespace))

    def named(self, counters: Mapping[str, int]) -> dict[str, int]:
        """Return counters of its RDMA device under the names that its kind of NIC has."""
        return with_hardware_names(counters) if self._model == "hardware" else dict(counters)

    def control_congestion(self, algorithm: CongestionControl, **values: float) -> None:
        """Make the NIC of a lossless link pace its queue pairs: by ``dcqcn`` or ``timely`` with these values in place
        of the published ones (docs/lossless.md), or ``none``. InputError for an invalid value."""
        self.lossless.control_congestion(congestion(algorithm, values, str(self.node)))

    # Neighbours

    def set_neighbour(self, ip: AnAddress, mac: str) -> None:
        """Set a static neighbour entry, as ``ip neigh replace … nud permanent``."""
        self.node.kernel.set_neighbour(self.index, address_of(ip), mac_of(mac))

    def neighbour(self, ip: AnAddress) -> str | None:
        """Return the MAC that the host has for `ip` here, None if it has none."""
        entry = self._neighbour(ip)
        return entry.mac if entry else None

    def neighbour_state(self, ip: AnAddress) -> str | None:
        """Return the entry's state as ``ip neigh`` shows it, such as STALE; None if there is no entry."""
        entry = self._neighbour(ip)
        return entry.state if entry else None

    def _neighbour(self, ip: AnAddress) -> Neighbour | None:
        ip = address_of(ip)
        found = self.node.kernel.neighbours(ip.version)
        return next((entry for entry in found if (entry.index, entry.ip) == (self.index, ip)), None)

    def ping_gateway(self, within: float = 1) -> bool:
        """Return whether its IPv4 gateway answers a ping; `within` in seconds. Both know each other's MAC then."""
        return self.node.ping(self.gateway(), within=within)

    def next_hop(self, ip: AnAddress) -> IPAddress | None:
        """Return the gateway by which the kernel sends to `ip` from here, `ip` itself if it is on the link, None if
        there is no route."""
        route = self._route(address_of(ip))
        if route is None:
            return None
        return address_of(route["gateway"]) if "gateway" in route else address_of(ip)

    def unreached(self, ip: AnAddress) -> str:
        """Return the reason why packets from here do not reach `ip`, from the kernel's current state: no route, or a
        next hop that does not answer. Empty if it knows of no obstacle."""
        ip = address_of(ip)
        hop = self.next_hop(ip)
        if hop is None or (hop == ip and not self._has_route(ip)):
            return f"no route to {ip}"  # of IPv4 the kernel takes any address for a neighbour, asked for one interface
        if (self.neighbour_state(hop) or "NONE") in UNANSWERED:
            return f"no answer from {hop} on {self.name}"
        return ""

    def _route(self, ip: IPAddress) -> Mapping[str, Any] | None:
        source = self.addresses.get(ip.version)
        command = ["ip", "-j", f"-{ip.version}", "route", "get", str(ip), "oif", self.name_now]
        command += ["from", str(source.ip)] if source else []
        found = self.node.use(*command, check=False)
        routes = json.loads(found.stdout) if found.returncode == 0 and found.stdout.strip() else []
        return routes[0] if routes and routes[0].get("type", "unicast") == "unicast" else None

    def _has_route(self, ip: IPAddress) -> bool:
        for route in self._routes.shown(ip.version):
            over = [hop.get("dev") for hop in route.get("nexthops", [route])]
            if self.name in over and (route["dst"] == "default" or ip in ip_network(route["dst"])):
                return True
        return False

    # Frames

    def announce(self, family: Family = 4, *, ip: AnAddress | None = None) -> None:
        """Broadcast a gratuitous ARP request for its address, as ``arping -U`` does; for an IPv6 address multicast an
        unsolicited neighbour advertisement. `ip` replaces its own address of the family."""
        ip = address_of(ip) if ip is not None else self.address(family).ip
        self.send(packets.gratuitous(self.mac, ip))
        kind = events.GARP if ip.version == 4 else events.NA
        self.emit(kind(interface=self.name, ip=str(ip), mac=self.mac), f"announces {ip} at {self.mac}")

    def send(self, frame: bytes | SupportsBytes) -> None:
        """Send any Ethernet frame on the wire: its bytes, or a packet of scapy's. InputError for a frame that has no
        Ethernet header."""
        data = bytes(frame) if isinstance(frame, SupportsBytes | bytearray) else b""
        if len(data) < ETHERNET:
            raise InputError(f"a frame has {ETHERNET} bytes or more, with its MACs and its type")
        with self.node.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((self.name_now, 0))
            wire.send(data)

    def teach(self, mac: str = "") -> None:
        """Broadcast a frame that no protocol uses, from its MAC or another: bridges learn where it is. Over a link that
        is down nothing is sent: a switch may have disabled the port."""
        source = mac_of(mac) if mac else self.mac
        try:
            self.send(b"\xff" * 6 + mac_bytes(source) + LOCAL_EXPERIMENTAL + bytes(46))
        except OSError as error:
            if error.errno not in (errno.ENOBUFS, errno.ENETDOWN):  # without a carrier; set down
                raise


OF_SOFT_ROCE = {
    "out_of_sequence": "out_of_seq_request",
    "packet_seq_err": "rcvd_seq_err",
    "out_of_buffer": "send_rnr_err",
    "rnr_nak_retry_err": "rcvd_rnr_err",
    "req_transport_retries_exceeded": "retry_exceeded_err",
}
"""Counters of the same events. mlx5's `local_ack_timeout_err` has none: soft-RoCE counts retries of all causes."""


def with_hardware_names(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters, with both names where hardware has another."""
    return {**counters, **{name: counters[own] for name, own in OF_SOFT_ROCE.items() if own in counters}}
