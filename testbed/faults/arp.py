"""ARP: packets that are lost, forged, too many, answered by the wrong one."""

from __future__ import annotations

from contextlib import ExitStack
from ipaddress import IPv4Address, IPv4Interface
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Seen
from testbed.faults.packet import TABLE, bridge_chain, equal, field, port_of, rules
from testbed.lab import Host, Lab
from testbed.switch import frames
from testbed.switch.frames import Arp

Mac = Annotated[str, Field(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]


class ArpDrop(Fault):
    """ARP packets from one end of a link are lost: all, or gratuitous ones for an address, or requests, or replies."""

    name: ClassVar[str] = "arp-drop"
    end: End
    announced: IPv4Address | None = None
    """Only gratuitous ARP for this address."""
    operation: Literal["request", "reply"] | None = None
    """Only `request` or `reply`."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        chosen = [equal(field("ether", "type"), "arp")]
        if self.operation:
            chosen.append(equal(field("arp", "operation"), self.operation))
        if self.announced:
            chosen += [equal(field("arp", f"{who} ip"), str(self.announced)) for who in ("saddr", "daddr")]
        counted = {"counter": {"packets": 0, "bytes": 0}}
        bridge_chain(lab, self, self.end, [*chosen, counted, {"drop": None}], undo)

    def seen(self, lab: Lab) -> Seen | None:
        node, _, _ = port_of(lab, self, self.end)
        for rule in rules(node, TABLE):
            if rule["chain"] == self.chain():
                return {"hits": next(part["counter"]["packets"] for part in rule["expr"] if "counter" in part)}
        return None

    def hits(self, lab: Lab) -> int:
        """How many packets were lost so far."""
        seen = self.seen(lab)
        return seen["hits"] if seen else 0

    def chain(self) -> str:
        return f"arp-{self.end}-{self.operation}-{self.announced}".replace(":", ".").lower()


class _FromHost(Fault):
    host: str
    """The host that does it."""
    interface: str = "eth1"
    """Its interface."""

    def _host(self, lab: Lab) -> Host:
        host = lab.host(self.host)
        host.index(self.interface)
        return host


class ArpPoison(_FromHost):
    """A host announces somebody else's address as its own; who listens sends the packets there.

    Taken back, the address's owner announces itself.
    """

    name: ClassVar[str] = "arp-poison"
    ip: IPv4Address
    """The address of another host."""
    switch: str
    """The switch that is to believe it."""
    mac: Mac | None = None
    """What is announced; without it, the host's own MAC."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host, (owner, interface) = self._host(lab), owner_of(lab, self, self.ip)
        undo.callback(self._restored, lab)
        undo.callback(owner.announce, interface)
        host.send(self.interface, frames.gratuitous_arp(self._mac(lab), self.ip))
        lab.wait(lambda: self.seen(lab) is not None, 1.0)

    def _restored(self, lab: Lab) -> None:
        lab.wait(lambda: self.seen(lab) is None, 1.0)

    def seen(self, lab: Lab) -> Seen | None:
        mac = lab.switch(self.switch).arp_table().get(str(self.ip))
        return {"switch_arp": mac} if mac == self._mac(lab) else None

    def _mac(self, lab: Lab) -> str:
        return self.mac or self._host(lab).macs[self.interface]


class ArpStorm(_FromHost):
    """A host asks for one address after the other, fast; the CPUs of switches have to hear it all.

    The requests go out in bursts, a hundred times a second.
    """

    name: ClassVar[str] = "arp-storm"
    pps: Annotated[int, Field(ge=100, le=100_000)]
    """Requests a second."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host = self._host(lab)
        address = host.addresses[self.interface]
        mac, targets = host.macs[self.interface], list(address.network.hosts())
        state, sent = ExitStack(), [0]
        undo.callback(state.close)

        def burst() -> None:
            for _ in range(self.pps // 100):
                target = targets[sent[0] % len(targets)]
                sent[0] += 1
                arp = Arp(frames.REQUEST, mac, address.ip, frames.NO_MAC, target)
                host.send(self.interface, frames.pack(frames.BROADCAST, mac, arp))
            state.pop_all()
            state.callback(lab.after(0.01, burst))

        burst()

    def seen(self, lab: Lab) -> Seen | None:
        """What the interface sends in a twentieth of a second."""
        host, span = self._host(lab), 0.05
        before = host.statistics(self.interface)["tx_packets"]
        lab.sleep(span)
        pps = round((host.statistics(self.interface)["tx_packets"] - before) / span)
        return {"pps": pps} if pps >= self.pps / 2 else None


class DuplicateIp(_FromHost):
    """A host has an address that another one has, too, and answers for it."""

    name: ClassVar[str] = "duplicate-ip"
    ip: IPv4Address
    """The address of another host in the same subnet."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host = self._host(lab)
        own = host.addresses[self.interface]
        if self.ip not in own.network:
            raise InputError(f"fault {self}: {self.ip} is not in {host}'s subnet {own.network}")
        address = IPv4Interface(f"{self.ip}/{own.network.prefixlen}")
        undo.callback(self._change, host, "delete", address)
        self._change(host, "add", address)

    def _change(self, host: Host, what: str, address: IPv4Interface) -> None:
        host.ip.addr(
            what, index=host.index(self.interface), address=str(address.ip), prefixlen=address.network.prefixlen
        )

    def seen(self, lab: Lab) -> Seen | None:
        host = self._host(lab)
        found = [entry.get_attr("IFA_ADDRESS") for entry in host.ip.get_addr(index=host.index(self.interface))]
        return {"second_owner": host.name} if str(self.ip) in found else None


class ProxyArp(_FromHost):
    """A host answers requests for addresses that are not its own, with its own MAC (Linux's proxy_arp).

    It does so for what it has a route to over another interface; the fault adds one, over `lo`.
    """

    name: ClassVar[str] = "proxy-arp"
    ip: IPv4Address
    """The address that it answers for."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host = self._host(lab)
        path = f"net/ipv4/conf/{self.interface}/proxy_arp"
        for name in (path, "net/ipv4/ip_forward"):  # it answers for what it would forward
            undo.callback(host.sysctl, name, host.read_sysctl(name))
            host.sysctl(name, 1)
        undo.callback(host.ip.route, "delete", dst=f"{self.ip}/32", oif=1)
        host.ip.route("add", dst=f"{self.ip}/32", oif=1)

    def seen(self, lab: Lab) -> Seen | None:
        host = self._host(lab)
        on = host.read_sysctl(f"net/ipv4/conf/{self.interface}/proxy_arp") == "1"
        return {"proxy_arp": self.host} if on else None


class DuplicateMac(_FromHost):
    """A host sends frames with another host's MAC; the switch takes the MAC to have moved to its port.

    Once, or every `period`; then it flaps, for the owner sends as well.
    """

    name: ClassVar[str] = "duplicate-mac"
    of: str
    """The host whose MAC it is."""
    switch: str
    """The switch that both are attached to."""
    of_interface: str = "eth1"
    """That host's interface."""
    period: Annotated[float, Field(gt=0, le=86400)] | None = None
    """Seconds between frames; without it there is one."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        host, owner = self._host(lab), lab.host(self.of)
        mac, state = owner.macs[self.of_interface], ExitStack()
        undo.callback(lab.wait, lambda: self.seen(lab) is None, 1.0)
        undo.callback(owner.teach, self.of_interface)
        undo.callback(state.close)

        def send() -> None:
            host.teach(self.interface, mac)
            if self.period:
                state.pop_all()
                state.callback(lab.after(self.period, send))

        send()
        lab.wait(lambda: self.seen(lab) is not None, 1.0)

    def seen(self, lab: Lab) -> Seen | None:
        here = self._port(lab)
        mac = lab.host(self.of).macs[self.of_interface]
        return {"mac_on": here} if lab.switch(self.switch).fdb_table().get(mac) == here else None

    def _port(self, lab: Lab) -> str:
        end = lab.interface(f"{self.host}:{self.interface}")
        if end.peer[0] != self.switch:
            raise InputError(f"fault {self}: {self.host}:{self.interface} is not attached to {self.switch}")
        return end.peer[1]


def owner_of(lab: Lab, fault: Fault, ip: IPv4Address) -> tuple[Host, str]:
    """The host that has the address, and its interface."""
    for node in lab.nodes.values():
        if isinstance(node, Host):
            for interface, address in node.addresses.items():
                if address.ip == ip:
                    return node, interface
    raise InputError(f"fault {fault}: no host has the address {ip}")
