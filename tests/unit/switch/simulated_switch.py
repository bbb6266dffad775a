"""A switch in simulated time: what goes in is an ARP packet or a miss, what comes out is read from the effects."""

from ipaddress import IPv4Address, IPv4Interface

from testbed.protocol.events import named
from testbed.switch.control import ControlPlane
from testbed.switch.core import BlockLossless, DeleteNeighbour, Effect, Event, Heard, Send, SetNeighbour, SetPort
from testbed.switch.fdb import Lost
from testbed.switch.frames import NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.packets import Packet
from testbed.switch.profile import Profile, profile
from testbed.switch.timers import SECOND
from testbed.topology.plan import IPAddress, Svi

GATEWAY = IPv4Address("10.0.10.254")
OTHER_GATEWAY = IPv4Address("10.0.20.254")
X = IPv4Address("10.0.10.1")
"""The address in question: pod A had it, pod B has it now."""
Y = IPv4Address("10.0.10.2")
GATEWAY_MAC = "02:00:00:00:00:fe"
A = "02:00:00:00:00:0a"
B = "02:00:00:00:00:0b"


SVIS = (
    Svi(10, "vlan10", GATEWAY_MAC, IPv4Interface(f"{GATEWAY}/24")),
    Svi(20, "vlan20", GATEWAY_MAC, IPv4Interface(f"{OTHER_GATEWAY}/24")),
    Svi(30, "vlan30", GATEWAY_MAC, None),
)


class Switch:
    """Runs a control plane against a clock in seconds and keeps the data plane's neighbour table."""

    def __init__(self, of: Profile, svis: tuple[Svi, ...] = SVIS, *, paired: bool = False) -> None:
        self.drawn = 0.0
        """What it draws."""
        self.plane = ControlPlane("leaf", svis, of, lambda: self.drawn, paired=paired)
        self.now = 0.0
        self.neighbours: dict[tuple[int, IPAddress], str] = {}
        self.blocked: set[tuple[int, IPAddress]] = set()
        self.disabled: set[str] = set()
        self.sent: list[Send] = []
        self.heard: list[tuple[IPAddress, str]] = []
        """What the other switch of a pair has to know."""
        self.events: list[Event] = []
        self.forgotten: list[tuple[int, IPAddress]] = []
        self._apply(self.plane.start(0))

    def request(self, ip: IPv4Address, mac: str, target: IPv4Address = GATEWAY, vlan: int = 10) -> None:
        self.packet(vlan, Arp(REQUEST, mac, ip, NO_MAC, target))

    def reply(self, ip: IPv4Address, mac: str, vlan: int = 10) -> None:
        self.packet(vlan, Arp(REPLY, mac, ip, GATEWAY_MAC, GATEWAY))

    def garp(self, ip: IPv4Address, mac: str, op: int = REQUEST, vlan: int = 10) -> None:
        self.packet(vlan, Arp(op, mac, ip, NO_MAC, ip))

    def miss(self, ip: IPAddress, vlan: int = 10) -> None:
        self._apply(self.plane.on_miss(self._ns(), vlan, ip))

    def fdb(self, mac: str, port: str | None, vlan: int = 10, lost: Lost = "aged", vteps: tuple[str, ...] = ()) -> None:
        self._apply(self.plane.on_fdb(self._ns(), vlan, mac, port, lost, vteps))

    def fabric(self, ip: IPAddress, mac: str | None, vlan: int = 10) -> None:
        """EVPN puts another switch's address into the kernel's table, or withdraws it."""
        if mac is None:
            self.neighbours.pop((vlan, ip), None)
        else:
            self.neighbours[vlan, ip] = mac
        self._apply(self.plane.on_fabric(vlan, ip, mac))

    def told(self, ip: IPAddress, mac: str, vlan: int = 10) -> None:
        """The other switch of a pair has heard an address."""
        self._apply(self.plane.on_told(self._ns(), vlan, ip, mac))

    def port_down(self, port: str) -> None:
        self._apply(self.plane.on_port_down(self._ns(), port))

    def clear(self, ip: IPv4Address | None = None) -> None:
        self._apply(self.plane.clear(4, ip=ip))

    def set(self, **values: object) -> None:
        self._apply(self.plane.set_profile(self._ns(), self.plane.profile.replace(**values)))

    def resume(self, second: float) -> None:
        """The CPU did nothing from now until then."""
        self.plane.pause(self._ns())
        self.now = second
        self._apply(self.plane.resume(self._ns()))

    def restart(self) -> None:
        """A warm reboot is over."""
        self._apply(self.plane.restart(self._ns()))

    def wait_until(self, second: float) -> None:
        """Lets time pass, and runs the control plane exactly when it asks to be run."""
        while (due := self.plane.next_deadline) is not None and due <= second * SECOND:
            self.now = due / SECOND
            self._apply(self.plane.on_timer(due))
        self.now = second

    def mac(self, ip: IPAddress, vlan: int = 10) -> str | None:
        return self.neighbours.get((vlan, ip))

    def requests_for(self, ip: IPAddress) -> list[str]:
        """Destination MACs of the requests sent so far."""
        return [sent.dst for sent in self.sent if sent.packet.op == REQUEST and sent.packet.target_ip == ip]

    def kinds(self, prefix: str = "") -> list[str]:
        return [event.kind for event in self.events if event.kind.startswith(prefix)]

    def last(self, kind: str) -> dict[str, str | int]:
        return next(event.fields for event in reversed(self.events) if event.kind == kind)

    def packet(self, vlan: int, packet: Packet) -> None:
        self._apply(self.plane.on_packet(self._ns(), vlan, packet))

    def _ns(self) -> int:
        return round(self.now * SECOND)

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetNeighbour(vlan, ip, mac):
                    self.neighbours[vlan, ip] = mac
                case DeleteNeighbour(vlan, ip):
                    self.neighbours.pop((vlan, ip), None)
                    self.forgotten.append((vlan, ip))
                case BlockLossless(vlan, ip, blocked):
                    (self.blocked.add if blocked else self.blocked.discard)((vlan, ip))
                case SetPort(port, up):
                    (self.disabled.discard if up else self.disabled.add)(port)
                case Send():
                    self.sent.append(effect)
                case Heard(_, ip, mac):
                    self.heard.append((ip, mac))
                case Event(kind, fields):
                    self.events.append(effect)
                    assert named(kind, fields).sentence()


def switch(name: str, **values: object) -> Switch:
    """A switch with a profile of the file, single values changed."""
    return Switch(profile(name).replace(**values))
