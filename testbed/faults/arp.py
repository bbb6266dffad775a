"""ARP, and neighbour discovery where addresses are IPv6: packets lost, forged, too many, answered by the wrong one."""

import itertools
from contextlib import ExitStack
from ipaddress import IPv4Address, ip_interface, ip_network
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from testbed.errors import InputError
from testbed.faults.congestion import counted
from testbed.faults.fault import Address, Fault, Mac, Verified
from testbed.faults.rule import Rule
from testbed.kernel.netns import LOOPBACK
from testbed.kernel.rtnetlink import MAIN
from testbed.lab import Host, HostInterface, Lab
from testbed.switch import nd, packets
from testbed.switch.frames import BROADCAST
from testbed.topology import Family, IPAddress, IPInterface

BURSTS = 100
"""Bursts per second of a storm."""
MOST_ASKED = 1 << 16
"""Maximum of a subnet's addresses that a storm requests."""
ND_TYPES = {"request": "nd-neighbor-solicit", "reply": "nd-neighbor-advert"}


class ArpDrop(Rule):
    """ARP packets from one end of a link are lost: all, gratuitous ones for an address, requests, or replies.

    For IPv6, solicitations count as requests, advertisements as replies, unsolicited advertisements as gratuitous.
    """

    name: ClassVar[str] = "arp-drop"
    announced: Address | None = None
    """Only gratuitous ARP for this address."""
    operation: Literal["request", "reply"] | None = None
    """Only `request` or `reply`."""
    family: Family = 4
    """4, or 6 for neighbour discovery."""

    @model_validator(mode="after")
    def _one_family(self) -> Self:
        if self.announced and self.announced.version != self.family:
            raise ValueError(f"{self.announced} is an IPv{self.announced.version} address")
        return self

    def chosen(self) -> str:
        if self.family == 6:
            types = ND_TYPES[self.operation] if self.operation else ", ".join(ND_TYPES.values())
            to_all = f"ip6 daddr {nd.ALL_NODES} icmpv6 taddr {self.announced}" if self.announced else ""
            return f"icmpv6 type {{ {types} }} {to_all}"
        # Not the Ethernet type, which is that of the VLAN tag where a frame has one.
        operation = f"arp operation {self.operation}" if self.operation else ""
        announced = f"arp saddr ip {self.announced} arp daddr ip {self.announced}" if self.announced else ""
        return f"meta protocol arp {operation} {announced}"

    def act(self) -> str:
        return "drop"


class _FromHost(Fault):
    host: str
    """The host that announces the address."""
    interface: str = "eth1"
    """Its interface."""

    def _nic(self, lab: Lab) -> HostInterface:
        return lab.host(self.host)[self.interface]


class ArpPoison(_FromHost):
    """A host announces another host's address as its own; switches that believe it send the packets there.

    At recovery the owner announces its address.
    """

    name: ClassVar[str] = "arp-poison"
    holds: ClassVar[bool] = False
    ip: Address
    """The address of another host."""
    switch: str
    """The switch that should learn the address from it."""
    mac: Mac | None = None
    """The announced MAC. Default: the host's own."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nic, owner = self._nic(lab), owner_of(lab, self, self.ip)
        undo.callback(lab.scheduler.wait, lambda: self.verify(lab) is None, 1.0)
        undo.callback(owner.announce, self.ip.version)
        nic.send(packets.gratuitous(self._mac(lab), self.ip))
        lab.scheduler.wait(lambda: self.verify(lab) is not None, 1.0)

    def verify(self, lab: Lab) -> Verified | None:
        mac = lab.switch(self.switch).neighbour(self.ip)
        return {"switch_arp": mac} if mac == self._mac(lab) else None

    def _mac(self, lab: Lab) -> str:
        return self.mac or self._nic(lab).mac


class ArpStorm(_FromHost):
    """A host requests one address after the other, fast; the CPUs of switches must handle every request.

    It sends the requests in bursts, a hundred times a second.
    """

    name: ClassVar[str] = "arp-storm"
    holds: ClassVar[bool] = False
    pps: Annotated[int, Field(ge=100, le=1_000)]
    """Approximate requests a second; the agents of switches on an emulated processor cannot handle more."""
    family: Family = 4
    """4, or 6 for neighbour solicitations."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nic = self._nic(lab)
        address, mac, numbers = nic.address(self.family), nic.mac, itertools.count()
        bursts = itertools.count()
        others = max(1, min(address.network.num_addresses, MOST_ASKED) - 2)

        def burst() -> None:
            sent = next(bursts) * self.pps
            for number in itertools.islice(numbers, (sent + self.pps) // BURSTS - sent // BURSTS):
                asked = packets.request(mac, address.ip, address.network[1 + number % others])
                nic.send(packets.pack(BROADCAST, mac, asked))

        undo.callback(lab.scheduler.every(1 / BURSTS, burst))

    def verify(self, lab: Lab) -> Verified | None:
        """Count the requests that the interface sends in a twentieth of a second."""
        span = 0.05
        requests = "arp operation request" if self.family == 4 else "icmpv6 type nd-neighbor-solicit"
        (passed,) = counted(lab, self._nic(lab), "egress", [requests], span)
        pps = round(passed["packets"] / span)
        return {"pps": pps} if pps >= self.pps / 2 else None


class DuplicateIp(_FromHost):
    """A host has the address of another host, and answers for it.

    It answers at once; to delay the answers, add `link-delay` at its end of the link.
    """

    name: ClassVar[str] = "duplicate-ip"
    ip: Address
    """The address of another host in the same subnet."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nic = self._nic(lab)
        own = nic.address(self.ip.version)
        if self.ip not in own.network:
            raise InputError(f"fault {self}: {self.ip} is not in the subnet {own.network} of {nic.node}")
        undo.callback(self._take_back, lab, own)
        nic.node.kernel.set_address(nic.index, self._address(own))

    def _take_back(self, lab: Lab, own: IPInterface) -> None:
        if self.verify(lab):  # an IPv6 address goes with a NIC that is set down
            nic = self._nic(lab)
            nic.node.kernel.delete_address(nic.index, self._address(own))

    def _address(self, own: IPInterface) -> IPInterface:
        return ip_interface((self.ip, own.network.prefixlen))

    def verify(self, lab: Lab) -> Verified | None:
        nic = self._nic(lab)
        found = [(index, address.ip) for index, address in nic.node.kernel.addresses()]
        return {"second_owner": self.host} if (nic.index, self.ip) in found else None


class ProxyArp(_FromHost):
    """A host answers requests for addresses that are not its own, with its own MAC (Linux's proxy_arp).

    Linux answers for addresses with a route over another interface; the fault adds such a route, over `lo`.
    """

    name: ClassVar[str] = "proxy-arp"
    ip: IPv4Address
    """The address that the host answers for."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host = self._nic(lab).node
        path = f"net/ipv4/conf/{self.interface}/proxy_arp"
        for name in (path, "net/ipv4/ip_forward"):  # it answers for what it would forward
            undo.callback(host.sysctl, name, host.read_sysctl(name))
            host.sysctl(name, 1)
        to = ip_network(self.ip)
        host.kernel.set_route(to, MAIN, index=LOOPBACK)
        undo.callback(host.kernel.delete_route, to, MAIN, index=LOOPBACK)

    def verify(self, lab: Lab) -> Verified | None:
        host = lab.host(self.host)
        on = host.read_sysctl(f"net/ipv4/conf/{self.interface}/proxy_arp") == "1"
        elsewhere = any((route["dst"], route.get("dev")) == (str(self.ip), "lo") for route in host.routes.shown(4))
        return {"proxy_arp": self.host} if on and elsewhere else None


class DuplicateMac(_FromHost):
    """A host sends frames with another host's MAC; the switch learns that the MAC has moved to its port.

    It sends once, or every `period`; then the MAC flaps, because the owner sends, too.
    """

    name: ClassVar[str] = "duplicate-mac"
    holds: ClassVar[bool] = False
    of: str
    """The host that owns the MAC."""
    switch: str
    """The switch to which both hosts are attached."""
    of_interface: str = "eth1"
    """That host's interface."""
    period: Annotated[float, Field(gt=0, le=86400)] | None = None
    """Seconds between frames. Default: one frame only."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nic, owner = self._nic(lab), self._owner(lab)
        undo.callback(lab.scheduler.wait, lambda: self.verify(lab) is None, 1.0)
        undo.callback(owner.teach)
        nic.teach(owner.mac)
        if self.period:
            undo.callback(lab.scheduler.every(self.period, lambda: nic.teach(owner.mac)))
        lab.scheduler.wait(lambda: self.verify(lab) is not None, 1.0)

    def verify(self, lab: Lab) -> Verified | None:
        here = self._port(lab)
        return {"mac_on": here} if lab.switch(self.switch).fdb_table().get(self._owner(lab).mac) == here else None

    def _owner(self, lab: Lab) -> HostInterface:
        return lab.host(self.of)[self.of_interface]

    def _port(self, lab: Lab) -> str:
        nic = self._nic(lab)
        if nic.peer is None or nic.peer.node.name != self.switch:
            raise InputError(f"fault {self}: {nic} is not attached to {self.switch}")
        return nic.peer.name


def owner_of(lab: Lab, fault: Fault, ip: IPAddress) -> HostInterface:
    """The interface that has the address."""
    for host in [node for node in lab.nodes.values() if isinstance(node, Host)]:
        for interface in host.interfaces.values():
            if ip in [address.ip for address in interface.addresses.values()]:
                return interface
    raise InputError(f"fault {fault}: no host has the address {ip}")
