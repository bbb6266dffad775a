"""The building of a lab from its plan, in one pass."""

from collections.abc import Callable, Mapping
from typing import Any

from testbed.errors import DeadlineError
from testbed.kernel import borrowed_nics, netns
from testbed.kernel.links import End
from testbed.lab.context import Context
from testbed.lab.control_planes import ControlPlanes
from testbed.lab.node import Node
from testbed.lab.nodes import KINDS
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Plan

LINKS_S = 10.0
CABLES_S = 60.0
"""Seconds for the links of hardware, whose ends negotiate and train."""


def require_hardware(plan: Plan) -> None:
    """Raise UnsupportedError if this machine does not have the hardware of the plan, or uses it."""
    for link in plan.links:
        for end in link:
            if end.is_hardware:
                borrowed_nics.require(end.hardware, end.nic)


def make_nodes(context: Context, plan: Plan, nodes: dict[str, Node[Any]]) -> None:
    """Add the nodes of the plan to `nodes`, each as soon as there is something of it to take down."""
    for node_plan in plan.nodes.values():
        node = nodes[node_plan.name] = KINDS[node_plan.kind](context, node_plan.name, node_plan)
        node.prepare()


def connect_nodes(
    context: Context,
    plan: Plan,
    nodes: Mapping[str, Node[Any]],
    control_planes: ControlPlanes,
    attach: Callable[[], None],
) -> None:
    """Make the links, start all nodes and services, and return when the lab is up. Before any frame is sent, `attach`
    gives ports what they have beside their kind's own."""
    for left, right in plan.links:
        _make_link(nodes[left.node], left, nodes[right.node], right)
    for node in nodes.values():
        node.configure()
    attach()
    control_planes.start()
    within = CABLES_S if any(end.is_hardware for link in plan.links for end in link) else LINKS_S
    if not context.scheduler.wait_quietly(lambda: all(node.links_work() for node in nodes.values()), within):
        raise DeadlineError(f"the links of {plan.name} did not come up within {within:g} s")
    control_planes.links_work()
    for node in nodes.values():
        node.complete()
    control_planes.complete()
    for node in nodes.values():
        node.begin()
    for node in nodes.values():
        node.execute(node.plan.exec if node.plan else ())


def _make_link(near: Node[Any], left: InterfacePlan, far: Node[Any], right: InterfacePlan) -> None:
    """Make a veth pair, each end born in its namespace with its planned MAC. Use hardware as it is cabled."""
    peer, end = far.expect(right), near.expect(left)
    end.peer, peer.peer = peer, end
    if left.is_hardware:
        near.borrow(end, left)
        far.borrow(peer, right)
        return
    ends = End(end.name, end.mac, left.mtu), End(peer.name, peer.mac, right.mtu)
    near.kernel.add_veth(end.index, *ends, netns.path(far.namespace))
