"""A stable address for something that moves: a Service of Kubernetes, as a node has it."""

from ipaddress import IPv4Address

from testbed.errors import InputError
from testbed.kernel import nftables
from testbed.lab.namespace import Namespace
from testbed.protocol import events

PORTS = range(1, 1 << 16)


class Service:
    """An address and a TCP port that no host has, on one node: `forward` sends connections of the node's programs, and
    those that it routes, to a port of a host. The rule is DNAT of nftables, which kube-proxy has for a ClusterIP with
    one endpoint. RoCE does not pass it: a queue pair needs the address of a NIC."""

    def __init__(self, node: Namespace, address: IPv4Address, port: int) -> None:
        check(port)
        self.node = node
        self.address = address
        self.port = port
        self._table = f"service-{address}-{port}".replace(".", "-")
        self._there = False

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    def forward(self, to: IPv4Address, port: int) -> None:
        """Send new connections to `port` of `to` from now on. Existing ones stay: conntrack knows them, and kube-proxy
        deletes nothing there for TCP."""
        check(port)
        with self.node.entered():
            nftables.run(nftables.forwarding(self._table, (self.address, self.port), (to, port)))
        self._there = True
        there = events.SERVICE(address=str(self.address), port=self.port, to=str(to), to_port=port)
        self.node.context.emit(there, self.node.name, f"service {self} forwards to {to}:{port}")

    def connections(self) -> int:
        """Return the number of connections sent to the current destination."""
        with self.node.entered():
            return nftables.forwarded(self._table) if self._there else 0

    def withdraw(self) -> None:
        """Stop forwarding. A second call does nothing."""
        if self._there:
            with self.node.entered():
                nftables.run(f"delete table ip {self._table}")
            self._there = False
            gone = events.SERVICE(address=str(self.address), port=self.port)
            self.node.context.emit(gone, self.node.name, f"service {self} is withdrawn")


def check(port: int) -> None:
    if port not in PORTS:
        raise InputError(f"{port} is not a TCP port", hint=f"Ports are {PORTS[0]} to {PORTS[-1]}.")
