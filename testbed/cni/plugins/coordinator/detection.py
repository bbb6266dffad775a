"""The steps `conflict` and `gateway`: an owner of the pod's address, and a gateway without an answer.

Two methods look for an owner. `spiderpool` is Spiderpool's (ipam_detection.go): one probe; without an answer within the
timeout there is no owner. `rfc5227` is RFC 5227's for IPv4 and RFC 4862's for IPv6: probes at random intervals; a probe
of another machine for the same address is a conflict too.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from random import SystemRandom

from testbed.cni.plugins.contract import Refusal
from testbed.cni.plugins.coordinator.nic import Nic
from testbed.cni.spec import OWN
from testbed.kernel import sysctl
from testbed.kernel.packet_socket import PacketSocket
from testbed.kernel.syscalls import readable_until
from testbed.switch import frames, nd, packets
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.nd import Nd
from testbed.switch.packets import Packet
from testbed.topology import Family, IPAddress

CONFLICT, UNREACHABLE = OWN + 1, OWN + 2
ETHERTYPES: dict[Family, int] = {4: frames.ETH_P_ARP, 6: nd.ETH_P_IPV6}
BUFFER = 1 << 20
NEVER = 8
"""The value of arp_ignore for: answer for no address."""


@dataclass(frozen=True)
class Schedule:
    """The times of probes, in seconds. `first` and `between` are the bounds of random times."""

    probes: int
    first: tuple[float, float]
    between: tuple[float, float]
    last: float
    """The wait for an answer to the last probe."""

    def waits(self, count: int) -> float:
        """Return how long to listen when `count` probes have been sent."""
        if count == self.probes:
            return self.last
        return SystemRandom().uniform(*(self.between if count else self.first))


RFC: dict[Family, Schedule] = {
    4: Schedule(3, (0, 1), (1, 2), 2),  # RFC 5227 section 1.1: PROBE_NUM, PROBE_WAIT, PROBE_MIN and _MAX, ANNOUNCE_WAIT
    6: Schedule(1, (0, 1), (0, 0), 1),  # RFC 4862: MAX_RTR_SOLICITATION_DELAY, DupAddrDetectTransmits, RetransTimer
}


def probe(mac: str, ip: IPAddress) -> bytes:
    """Return the frame that asks for the owner of `ip`, without a sender address. In ARP the target MAC is all ones, as
    in Spiderpool; RFC 5227 recommends zeros, but no receiver reads it."""
    if isinstance(ip, IPv4Address):
        return frames.pack(BROADCAST, mac, Arp(REQUEST, mac, frames.NO_IP, BROADCAST, ip))
    return nd.pack(BROADCAST, mac, Nd(REQUEST, NO_MAC, nd.NO_IP, ip))


def answers(packet: Packet, ip: IPAddress) -> bool:
    return packet.op == REPLY and packet.sender_ip == ip


def claims(packet: Packet, ip: IPAddress) -> bool:
    """Return whether a packet of another machine is a conflict: it claims `ip`, or probes for it."""
    return packet.sender_ip == ip or (packet.op == REQUEST and packet.probe and packet.target_ip == ip)


class Wire:
    """The ARP or neighbour discovery packets that an interface receives from now on and sends."""

    def __init__(self, nic: Nic, family: Family) -> None:
        self._nic, self._family = nic, family
        self._socket = PacketSocket(ETHERTYPES[family], BUFFER)

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.send(self._nic.name, frame)

    def packets(self, within: float) -> Iterator[tuple[str, Packet]]:
        """Yield (sender's MAC, packet) of all packets of others within these seconds."""
        until = time.monotonic() + within
        while readable_until([self._socket], until):
            for interface, _, frame in self._socket.frames():
                packet = self._parsed(frame) if interface == self._nic.name else None
                if packet:
                    sender = frame[6:12].hex(":") if packet.sender_mac == NO_MAC else packet.sender_mac
                    if sender != self._nic.mac:
                        yield sender, packet

    def _parsed(self, frame: bytes) -> Packet | None:
        if self._family == 4:
            return frames.parse(frame)
        found = nd.parse(frame)
        return found[1] if found else None


def conflict(nic: Nic, _: ExitStack) -> None:
    """Refuse the pod if another machine has one of its addresses."""
    method = nic.settings.detectIPConflict
    if not method:
        return
    options = nic.settings.detectOptions
    nic.kernel.set_link(nic.index, up=True)
    with _silent(nic):
        for address in nic.addresses:
            strict = method == "rfc5227"
            schedule = RFC[address.version] if strict else Schedule(1, (0, 0), (0, 0), options.timeout)
            with contextlib.closing(Wire(nic, address.version)) as wire:
                ignored = _gateway_macs(nic, wire, address.version) if options.ignoreGateway else set()
                owner = _owner(nic, wire, address.ip, schedule, claims if strict else answers, ignored)
            if owner:
                raise Refusal(CONFLICT, f"{nic.name}: address {address.ip} is in use by {owner}")


@contextlib.contextmanager
def _silent(nic: Nic) -> Iterator[None]:
    """Keep the pod's kernel from answering for its addresses, which must not be used before the conflict check."""
    path = f"net/ipv4/conf/{nic.name}/arp_ignore"
    before = sysctl.read(path)
    sysctl.write(path, NEVER)
    try:
        yield
    finally:
        sysctl.write(path, before)


def _owner(
    nic: Nic, wire: Wire, ip: IPAddress, times: Schedule, found: Callable[[Packet, IPAddress], bool], ignored: set[str]
) -> str | None:
    """Return the MAC of another machine that has `ip`; None if the probes find none."""
    for count in range(times.probes + 1):
        if count:
            wire.send(probe(nic.mac, ip))
        for mac, packet in wire.packets(times.waits(count)):
            if found(packet, ip) and mac not in ignored:
                return mac
    return None


def _gateway_macs(nic: Nic, wire: Wire, family: Family) -> set[str]:
    """Ask for the gateway with a probe, which does not reveal the pod's address, and return the MACs that answer."""
    macs = set()
    for _, gateway in nic.gateways:
        if gateway.version == family:
            wire.send(probe(nic.mac, gateway))
            answered = wire.packets(nic.settings.detectOptions.timeout)
            macs |= {mac for mac, packet in answered if answers(packet, gateway)}
    return macs


def gateway(nic: Nic, _: ExitStack) -> None:
    """Refuse the pod if a gateway of its addresses does not answer. The request gives the gateway the pod's MAC."""
    if not nic.settings.detectGateway:
        return
    options = nic.settings.detectOptions
    nic.kernel.set_link(nic.index, up=True)
    for own, ip in nic.gateways:
        with contextlib.closing(Wire(nic, ip.version)) as wire:
            for attempt in range(1 + options.retries):
                if attempt:
                    time.sleep(options.interval)
                wire.send(packets.pack(BROADCAST, nic.mac, packets.request(nic.mac, own, ip)))
                if any(answers(packet, ip) for _, packet in wire.packets(options.timeout)):
                    break
            else:
                tried = f"{1 + options.retries} requests, {options.timeout:g} s for each"
                raise Refusal(UNREACHABLE, f"{nic.name}: gateway {ip} does not answer", tried)
