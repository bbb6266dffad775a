"""Hardware NICs (`nic: hardware`): the behaviour that soft-RoCE lacks.

A queue pair keeps its destination MAC of RTR for its whole life, where rxe looks up the neighbour table for each
packet. RoCE traffic uses neighbour entries without verifying them, where rxe's makes the kernel probe. ICMP messages
about its size are not for the kernel, which would limit rxe's packets for ten minutes: it sends them from a UDP socket,
and a NIC has none. docs/fidelity.md has the limits of this model.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from testbed.errors import InputError, TestbedError
from testbed.kernel import netns, nftables, rxe_devices, sysctl
from testbed.kernel.netns import turn
from testbed.nic.connections import Connection, Trace, arm
from testbed.topology import NicModel

NEVER_S = 1_000_000
"""Eleven days from the first use of an unconfirmed neighbour entry to its verification: no lab lives as long.

The kernel uses a stale entry's address for a queue pair without verifying it; only IP packets, which rxe's are, start
verification.
"""
Enter = Callable[[], AbstractContextManager[None]]
"""A function by which the calling thread enters a network namespace: `testbed.lab.Node.entered`, `netns.entered`."""
TABLE = """
table netdev {table} {{
    map pins {{ typeof ip daddr . udp sport . @th,104,24 : ether daddr; }}
    map pins6 {{ typeof ip6 daddr . udp sport . @th,104,24 : ether daddr; }}
    chain out {{
        type filter hook egress device "{interface}" priority 0;
        udp dport 4791 ether daddr set ip daddr . udp sport . @th,104,24 map @pins;
        udp dport 4791 ether daddr set ip6 daddr . udp sport . @th,104,24 map @pins6;
    }}
    chain in {{
        type filter hook ingress device "{interface}" priority 0;
        icmp type destination-unreachable icmp code frag-needed @th,136,8 17 @th,240,16 4791 drop;
        icmpv6 type packet-too-big @th,112,8 17 @th,400,16 4791 drop;
    }}
}}
"""
"""@th,104,24: the destination QP in the base transport header, 13 bytes after the start of UDP. ICRC covers no MAC.
@th,136,8 and @th,240,16: protocol and destination port of the packet that an ICMP message quotes, as the two of ICMPv6.
"""


def prepare() -> None:
    """Prepare this kernel for good, as the first `HardwareNics` would: only on a machine that just runs labs."""
    arm()
    nftables.library()


class HardwareNics:
    """The hardware NICs of a lab. They pin each queue pair that connects on one of them, of any program.

    A thread does so shortly after RTR, so the first packets of a third-party program may still follow the neighbour
    table. For exact results call `HardwareNic.pin` between RTR and RTS.
    """

    def __init__(self) -> None:
        self._nics: dict[str, HardwareNic] = {}
        self._trace = Trace()
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._follow, name="hardware-nics", daemon=True)
        self._thread.start()

    def add(self, enter: Enter, interface: str, device: str) -> HardwareNic:
        """Make `interface` in the namespace of `enter`, and its RDMA device, a hardware NIC until removed or closed."""
        nic = HardwareNic(self, enter, interface, device)
        with self._lock:
            self._nics[device] = nic
        return nic

    def remove(self, device: str) -> None:
        """Forget a NIC before its device or namespace is deleted."""
        with self._lock:
            self._nics.pop(device, None)

    def settle(self) -> None:
        """Return when each queue pair that is in RTR by now is pinned."""
        with self._lock:
            self._pin_new()
        self._raise_failure()

    def close(self) -> None:
        """End the thread; raise its failure if not raised yet: queue pairs may have followed the neighbour table."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        self._trace.close()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure:
            raise failure

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self._trace.fileno(), select.POLLIN)
        while True:
            ready = [handle for handle, _ in poll.poll()]
            if self._stop in ready:
                return
            with self._lock:
                try:
                    self._pin_new()
                except (OSError, TestbedError) as error:
                    self._failure = error  # `settle` raises it

    def _pin_new(self) -> None:
        new: dict[str, list[Connection]] = {}
        for connection in self._trace.read():
            if connection.device in self._nics:
                new.setdefault(connection.device, []).append(connection)
        for device, connections in new.items():
            self._nics[device].write(connections)


class HardwareNic:
    """One of `HardwareNics`. `pins` has the queue pairs pinned so far, by local number, including dead ones."""

    def __init__(self, nics: HardwareNics, enter: Enter, interface: str, device: str) -> None:
        self.device = device
        self.pins: dict[int, Connection] = {}
        self._nics = nics
        self._enter = enter
        with enter():
            self._table = f"nic{socket.if_nametoindex(interface)}"
            for family in "ipv4", "ipv6":
                sysctl.write(f"net/{family}/neigh/{interface}/delay_first_probe_time", NEVER_S)
            nftables.run(TABLE.format(table=self._table, interface=interface))

    def pin(self, qpn: int) -> Connection:
        """Return when the local queue pair `qpn`, which is in RTR, keeps its MAC."""
        self._nics.settle()
        if qpn not in self.pins:
            raise InputError(f"{self.device}: queue pair {qpn} has not been in RTR")
        return self.pins[qpn]

    def write(self, connections: Iterable[Connection]) -> None:
        """Enter connections into the map; the key is the peer, its QP and the source port."""
        commands = []
        for connection in connections:
            key = f"{connection.remote_ip} . {connection.sport} . {connection.remote_qpn}"
            element = f"element netdev {self._table} pins{'6' if connection.remote_ip.version == 6 else ''}"
            commands += [f"destroy {element} {{ {key} }}", f"add {element} {{ {key} : {connection.mac} }}"]
            self.pins[connection.qpn] = connection
        with self._enter():
            nftables.run("\n".join(commands))


class RdmaDevices:
    """The devices of a lab. With `nic: hardware` a device behaves like a hardware NIC."""

    def __init__(self) -> None:
        self._hardware: HardwareNics | None = None

    def adopt(self, namespace: str, interface: str, device: str, model: NicModel) -> HardwareNic | None:
        """Register the device of an interface; with `nic: hardware`, make it a hardware NIC."""
        if model != "hardware":
            return None
        if self._hardware is None:
            self._hardware = HardwareNics()
        return self._hardware.add(lambda: netns.entered(namespace), interface, device)

    def delete(self, namespace: str, names: Sequence[str]) -> None:
        """Delete devices; return when they are gone."""
        if self._hardware:
            for name in names:
                self._hardware.remove(name)
        with turn():
            rxe_devices.delete(namespace, names)

    def close(self) -> None:
        if self._hardware:
            hardware, self._hardware = self._hardware, None
            hardware.close()
