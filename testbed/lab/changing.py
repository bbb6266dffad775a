"""A lab that is up becomes its edited file. What the file does not change is not touched."""

import errno
from collections.abc import Collection, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.kernel import rxe_devices
from testbed.lab import beginning
from testbed.lab.lab import Lab, make_link, time_of_links
from testbed.lab.node import Node, take_down
from testbed.lab.nodes import KINDS
from testbed.lab.nodes.host_node import Host, Pod
from testbed.lab.nodes.switch_node import Switch
from testbed.topology import Plan
from testbed.topology.changes import Changes, Link
from testbed.topology.plan import Interface


def check(lab: Lab, changes: Changes) -> None:
    """Raise TestbedError, before anything is changed, for names that pods and commands have taken, and for an RDMA
    device that goes while a program uses it: the kernel deletes it when the program has ended. Programs of nodes that
    go are ended."""
    gone = {node.name for node in changes.nodes_gone}
    _check_names(lab, changes, gone)
    for link in changes.links_gone:
        for end in link:
            node = lab.nodes.get(end.node)
            if end.node in gone or not isinstance(node, Host) or end.name not in node.interfaces:
                continue
            device = node.interfaces[end.name].rdma
            used = rxe_devices.queue_pairs(device, node.namespace) if device else []
            programs = sorted({Path(f"/proc/{pair.pid}/comm").read_text().strip() for pair in used if pair.pid})
            if programs:
                wrong = f"{end.node}:{end.name} is to go, and {', '.join(programs)} has queue pairs on it"
                raise TestbedError(wrong, hint="End the program first.")


def _check_names(lab: Lab, changes: Changes, gone: Collection[str]) -> None:
    for planned in changes.nodes_new:
        if planned.name in lab.nodes.keys() - gone:
            raise InputError(f"{planned.name} is to come, and a pod has this name", hint="Delete the pod first.")
    going = {(end.node, end.name) for link in changes.links_gone for end in link}
    for end in (end for link in changes.links_new for end in link):
        node = lab.nodes.get(end.node)
        names = [link.name for link in node.now().links.values()] if node and end.node not in gone else []
        if end.name in names and (end.node, end.name) not in going:
            wrong = f"{end.node}:{end.name} is to come, and a command has made an interface of this name"
            raise InputError(wrong, hint=f"testbed exec {end.node} -- ip link del {end.name}")


def change(lab: Lab, plan: Plan, changes: Changes) -> None:
    """Carry out the changes, in the order that the kernel needs."""
    gone = [lab.nodes[node.name] for node in changes.nodes_gone]
    for pod in [pod for pod in lab.nodes.values() if isinstance(pod, Pod) and pod.host in gone]:
        pod.delete()
    for node in gone:  # programs first: they hold devices of links
        node.release()
    for node in gone:
        if isinstance(node, Switch):
            lab.control_planes.forget(node)
    lab.control_planes.release(changes.links_gone)
    for link in changes.links_gone:
        _disconnect(lab, link)
    take_down(gone)
    for node in gone:
        del lab.nodes[node.name]
    new = _make_nodes(lab, plan, changes)
    for name, node in lab.nodes.items():
        if name in plan.nodes:
            _take(node, plan)
    _connect(lab, changes.links_new, new)
    for one, now in changes.ends:
        node = lab.nodes[now.node]
        node.change_end(node.interfaces[now.name], one, now)
    for before, after in changes.nodes:
        lab.nodes[after.name].change(before, after)
    _fit_svis(lab, plan)
    lab.control_planes.change(plan)
    for node in new:
        lab.view.watch(node)
    beginning.begin(new, lab.scheduler, there=[node for node in lab.nodes.values() if node not in new])
    for before, after in changes.nodes:
        lab.nodes[after.name].execute([command for command in after.exec if command not in before.exec])
    lab.plan = plan


def _fit_svis(lab: Lab, plan: Plan) -> None:
    for name, planned in plan.nodes.items():
        node = lab.nodes[name]
        if isinstance(node, Switch) and name in lab.plan.nodes:
            node.fit_svis(lab.plan.nodes[name], planned)


def _disconnect(lab: Lab, link: Link) -> None:
    """Take away a link: its RDMA devices, its qdiscs, its interfaces."""
    ends = [(lab.nodes[end.node], end.name) for end in link]
    for node, name in ends:
        interface = node.interfaces.get(name)
        if interface is None:
            continue
        if isinstance(node, Host):
            node.delete_rdma(node.interfaces[name])
        if not interface.gone:
            interface.disconnect()
    for node, name in ends:
        interface = node.interfaces.pop(name, None)
        if interface and not interface.gone:
            try:
                node.kernel.delete_link(interface.index)  # with its other end
            except OSError as error:
                if error.errno != errno.ENODEV:  # it went with the other end, of which there is no notice yet
                    raise
    lab.view.drain()


def _make_nodes(lab: Lab, plan: Plan, changes: Changes) -> list[Node[Any]]:
    """Make the new nodes, and have all in the order of the file."""
    made = []
    for planned in changes.nodes_new:
        node = lab.nodes[planned.name] = KINDS[planned.kind](lab.context, planned.name, planned)
        node.prepare()
        made.append(node)
    order = [*plan.nodes, *(name for name in lab.nodes if name not in plan.nodes)]
    nodes = {name: lab.nodes[name] for name in order}
    lab.nodes.clear()
    lab.nodes.update(nodes)
    return made


def _connect(lab: Lab, links: Iterable[Link], new: list[Node[Any]]) -> None:
    """Make links and start the new nodes; return when their links carry frames."""
    links = list(links)
    for left, right in links:
        make_link(lab.nodes[left.node], left, lab.nodes[right.node], right, late=True)
    for node in new:
        node.configure()
    lab.control_planes.start(new)
    late = [(lab.nodes[end.node], end) for link in links for end in link if lab.nodes[end.node] not in new]
    for node, end in late:
        node.join(node.interfaces[end.name])
    nodes = {lab.nodes[end.node]: None for link in links for end in link}
    for node in nodes:
        node.pair_bonds()
    within = time_of_links(links, nodes)
    if not lab.scheduler.wait_quietly(lambda: all(node.links_work() for node in nodes), within):
        raise DeadlineError(f"the new links of {lab.plan.name} did not come up within {within:g} s")
    lab.await_bonds(nodes)
    for node in new:
        node.complete()
    for node, end in late:
        node.complete_end(node.interfaces[end.name])
    lab.view.drain()


def _take(node: Node[Any], plan: Plan) -> None:
    """Have the parts of the new plan everywhere: gateways and peers may be others."""
    node.plan = planned = plan.nodes[node.name]
    if isinstance(node, Switch):
        node.planned = planned
    for end in planned.interfaces:
        if interface := node.interfaces.get(end.name):
            interface.plan = end


def held(lab: Lab, before: Interface, now: Interface) -> str:
    """Return in words the values that an end has in place of those that its plan changes to: a fault or a command holds
    them."""
    has = lab.nodes[now.node].interfaces[now.name].sends.quality
    names = [one.name for one in fields(has) if getattr(before.sends, one.name) != getattr(now.sends, one.name)]
    return ", ".join(f"{name} {getattr(has, name)}" for name in names if getattr(has, name) != getattr(now.sends, name))
