"""Two hosts with a soft-RoCE device each on a switch that only learns: the least on which RDMA does something."""

from __future__ import annotations

import socket
import subprocess
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from testbed.kernel import netns, rdma
from testbed.nic import HardwareNic
from testbed.workload.verbs import Endpoint

SWITCH = "wire"
ETH_P_ALL = 3


@dataclass(frozen=True)
class Frame:
    """What a host sent, as its switch port saw it."""

    dst: str
    kind: str
    dest_qpn: int | None = None


class Sniffer:
    """Sees what comes into a switch port."""

    def __init__(self, port: str) -> None:
        with netns.entered(SWITCH):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            self._socket.bind((port, ETH_P_ALL))
        self._socket.setblocking(False)

    def frames(self) -> list[Frame]:
        """Those since the last call."""
        found = []
        while True:
            try:
                data, (_, _, direction, *_) = self._socket.recvfrom(4096)
            except BlockingIOError:
                return found
            if direction != socket.PACKET_OUTGOING:
                found.append(_frame(data))

    def close(self) -> None:
        self._socket.close()


def _frame(data: bytes) -> Frame:
    dst = data[:6].hex(":")
    if data[12:14] == b"\x08\x06":
        return Frame(dst, "arp")
    if data[12:14] == b"\x08\x00" and data[23] == 17 and int.from_bytes(data[36:38]) == 4791:
        return Frame(dst, "roce", int.from_bytes(data[47:50]))
    return Frame(dst, "other")


@dataclass(frozen=True)
class Host:
    """`namespace` is its name too; the port of the switch it hangs on is called so as well."""

    namespace: str
    ip: IPv4Address
    mac: str

    interface = "eth1"

    @property
    def device(self) -> str:
        return f"{self.namespace}-eth1"

    def endpoint(self, nic: HardwareNic | None = None, **options: Any) -> Endpoint:
        return Endpoint(self.device, self.namespace, self.ip, nic=nic, **options)

    def entered(self) -> AbstractContextManager[None]:
        return netns.entered(self.namespace)

    def command(self, *words: str) -> str:
        with self.entered():
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def set_neighbour(self, ip: IPv4Address, mac: str) -> None:
        self.command("ip", "neigh", "replace", str(ip), "lladdr", mac, "nud", "reachable", "dev", self.interface)


LEFT = Host("left", IPv4Address("10.0.0.1"), "02:00:00:00:00:01")
RIGHT = Host("right", IPv4Address("10.0.0.2"), "02:00:00:00:00:02")


class Wire:
    left, right = LEFT, RIGHT

    def __init__(self, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._undo = ExitStack()

    def __enter__(self) -> Wire:
        with rdma.Rdma() as system:
            system.set_exclusive(self._exclusive)
        for namespace in SWITCH, LEFT.namespace, RIGHT.namespace:
            netns.create(namespace)
            self._undo.callback(_delete, namespace)
        links = ["link add br0 type bridge", "link set br0 up"]
        for host in LEFT, RIGHT:
            name = host.namespace
            links += [
                f"link add {name} type veth peer name eth1 address {host.mac} netns {name}",
                f"link set {name} up master br0",
            ]
        _ip(SWITCH, links)
        for host in LEFT, RIGHT:
            lines = ["link set lo up", "link set eth1 up", f"address add {host.ip}/24 dev eth1"]
            _ip(host.namespace, lines)
            with host.entered(), rdma.Rdma() as here:
                here.add(host.device, host.interface)
            if self._exclusive:
                with rdma.Rdma() as system:
                    system.move(host.device, netns.path(host.namespace))
            self._undo.callback(_delete_device, host)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def sniff(self, host: Host) -> Sniffer:
        sniffer = Sniffer(host.namespace)
        self._undo.callback(sniffer.close)
        return sniffer

    def block(self, host: Host) -> None:
        """Has the switch lose whatever goes to a host."""
        with netns.entered(SWITCH):
            words = f"tc qdisc add dev {host.namespace} root netem loss 100%"
            subprocess.run(words.split(), check=True)


def _ip(namespace: str, lines: list[str]) -> None:
    with netns.entered(namespace):
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _delete(namespace: str) -> None:
    if netns.path(namespace).exists():
        netns.delete(namespace)


def _delete_device(host: Host) -> None:
    if netns.path(host.namespace).exists():
        with host.entered(), rdma.Rdma() as here:
            here.delete(host.device)
            here.wait_gone([host.device])
