"""Hosts with RDMA NICs."""

from __future__ import annotations

import shlex

from testbed.documents.problems import Problems
from testbed.topology.definition import RoutedKeys
from testbed.topology.kinds.kind import Kind, Shape, static_routes
from testbed.topology.plan import Interface, NicModel, Node, Route
from testbed.topology.resolved import Port, ResolvedNode
from testbed.topology.values import DEFAULT_ROUTE, DEFAULT_ROUTE6, Command, Env, Sysctls


class HostKeys(RoutedKeys):
    nic: NicModel | None = None
    """Host: `hardware` keeps a QP's destination MAC and sends no ARP, as real NICs do; `rxe` (default) is soft-RoCE."""
    rdma: bool | None = None
    """Host: whether each of its interfaces gets a soft-RoCE device, named `<node>-<interface>`. Default true."""
    exec: list[Command] | None = None
    """
    Host, linux: commands that are run on the node when the lab is up, in this order and without a shell. All levels of
    the file add theirs. One that fails is an error; their output is in the run directory.
    """
    env: Env | None = None
    """Host, linux: environment variables of programs on the node. Merged by name over the levels of the file."""
    sysctls: Sysctls | None = None
    """
    Host, linux: sysctls of its network namespace by name, such as `net.ipv4.ip_forward: 1`, set before its interfaces
    come up. Merged by name over the levels of the file.
    """


class Host(Kind):
    name = "host"
    about = "a machine with RDMA NICs"
    keys = HostKeys
    shape = Shape(("([", "])"), "ellipse")
    is_host = True

    def check_port(self, port: Port, problems: Problems) -> None:
        """Any name will do."""

    def check_addresses(self, port: Port, problems: Problems) -> None:
        """Any address will do."""

    def untagged(self, port: Port) -> str | int | None:
        return port.name

    def plan(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> Node:
        return Node(
            node.name,
            Host.name,
            interfaces,
            node.nic,
            routes=self._routes(node, interfaces, problems),
            exec=tuple(tuple(shlex.split(command)) for command in node.exec),
            env=tuple(node.env.items()),
            sysctls=tuple(node.sysctls.items()),
            ipv6=not node.planned,
        )

    def _routes(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> tuple[Route, ...]:
        if node.routes is not None:
            own = [address for interface in interfaces for address in interface.addresses]
            return static_routes(node, own, problems)
        first = {family: ip for port in reversed(node.ports.values()) for family, ip in port.gateways.items()}
        return tuple(
            Route(to, (first[family],)) for family, to in ((4, DEFAULT_ROUTE), (6, DEFAULT_ROUTE6)) if family in first
        )


class LinuxKeys(HostKeys):
    image: str | None = None
    """Linux: not used. No container is run; the programs are those of the lab's machine."""


class Linux(Host):
    """A host of containerlab's files: it has the addresses that the file gives, and a container's IPv6."""

    name = "linux"
    about = (
        "containerlab's, here a host whose interfaces have the addresses that the file gives them, and no others but "
        "IPv6's link-local ones"
    )
    keys = LinuxKeys
    plans_addresses = False
