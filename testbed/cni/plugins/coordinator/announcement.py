"""The step `announce`: gratuitous ARP and unsolicited neighbour advertisements of the pod's addresses."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address

from testbed.cni.plugins.coordinator.detection import Wire
from testbed.cni.plugins.coordinator.nic import Nic
from testbed.switch import frames, packets
from testbed.switch.frames import BROADCAST, REQUEST, Arp
from testbed.topology import IPAddress


def frame(mac: str, ip: IPAddress) -> bytes:
    """Return the frame that announces `ip` at `mac`. In ARP the target MAC is all ones, as in Spiderpool."""
    if isinstance(ip, IPv4Address):
        return frames.pack(BROADCAST, mac, Arp(REQUEST, mac, ip, BROADCAST, ip))
    return packets.gratuitous(mac, ip)


def announce(nic: Nic, _: ExitStack) -> None:
    settings = nic.settings.announce
    with contextlib.ExitStack() as wires:
        families = {family: wires.enter_context(contextlib.closing(Wire(nic, family))) for family in (4, 6)}
        for number in range(settings.count):
            if number:
                time.sleep(settings.interval)
            for ip in _addresses(nic):
                families[ip.version].send(frame(nic.mac, ip))


def _addresses(nic: Nic) -> Iterator[IPAddress]:
    if nic.settings.announce.addresses == "interface":
        yield from (address.ip for address in nic.addresses)
    else:
        found = (address.ip for _, address in nic.kernel.addresses())
        yield from (ip for ip in found if not ip.is_loopback and not ip.is_link_local)
