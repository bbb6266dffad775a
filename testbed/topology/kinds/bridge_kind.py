"""Unmanaged layer-2 segments."""

from testbed.topology.kinds.kind import Kind, Shape


class Bridge(Kind):
    name = "bridge"
    lab_class = "bridge_node:Bridge"
    about = "an unmanaged layer-2 segment"
    shape = Shape(("{{", "}}"), "hexagon", "fill: #fff; stroke: #475569; stroke-dasharray: 5 3")
    containerlab = "bridge"
    special = "mgmt-net"
    planned_as = name


class OvsBridge(Bridge):
    """A bridge of Open vSwitch in containerlab's files. Without flows of its own it learns as any bridge."""

    name = "ovs-bridge"
    about = "containerlab's bridge of Open vSwitch: a `bridge`, without OpenFlow"
    special = ""
