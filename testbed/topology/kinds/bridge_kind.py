"""Unmanaged layer-2 segments."""

from typing import ClassVar

from testbed.documents.problems import Problems
from testbed.topology.definition import BridgeKeys, Definition
from testbed.topology.kinds.kind import Kind, Shape
from testbed.topology.plan import Interface, Node
from testbed.topology.resolved import ResolvedNode


class Bridge(Kind):
    name = "bridge"
    lab_class = "bridge_node:Bridge"
    about = "an unmanaged layer-2 segment"
    shape = Shape(("{{", "}}"), "hexagon", "fill: #fff; stroke: #475569; stroke-dasharray: 5 3")
    keys: ClassVar[type[Definition]] = BridgeKeys
    containerlab = "bridge"
    special = "mgmt-net"
    planned_as = name

    def complete(self, node: ResolvedNode, problems: Problems) -> None:
        node.stp = bool(node.keys.stp)

    def plan(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> Node:
        return Node(node.name, self.planned_as, interfaces, stp=node.stp)


class OvsBridge(Bridge):
    """A bridge of Open vSwitch in containerlab's files. Without flows of its own it learns as any bridge."""

    name = "ovs-bridge"
    about = "containerlab's bridge of Open vSwitch: a `bridge`, without OpenFlow"
    special = ""
