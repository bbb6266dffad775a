"""Hosts that reboot. What the topology file has of them is there again after the boot; all else is gone.

Gone are programs, pods, RDMA devices, VFs, addresses, routes, neighbour entries, rules, and interfaces that commands or
plugins made. /var/lib stays: the state that CNI plugins and libcni have there. Sysctls that commands set stay, too.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from testbed.errors import DeadlineError, InputError
from testbed.kernel import netns, tcp_orphans
from testbed.kernel.netns import LOOPBACK
from testbed.kernel.syscalls import at_once
from testbed.lab import beginning, processes
from testbed.lab.host_interface import HostInterface
from testbed.lab.node import Node
from testbed.lab.nodes.host_node import Host
from testbed.lab.scheduler import Scheduler
from testbed.protocol import events

RULES = (0, 32766, 32767)
"""The priorities of the policy rules that a kernel has from its start."""
LINKS_S = 60.0


def cut(hosts: Sequence[Host], namespaces: Iterable[str]) -> None:
    """Take the power from hosts, with their pods' `namespaces`: nothing there does or sends any more."""
    with at_once():
        for end in (end for host in hosts for end in _cables(host).values() if not end.gone):
            end.down()  # a NIC that a pod has loses its carrier when it comes back
        processes.end_all(*(host.namespace for host in hosts), *namespaces)


def _cables(host: Host) -> dict[int, HostInterface]:
    """Return the ends of a host's links by their indexes."""
    return {end.index: end for end in host.interfaces.values() if end.plan and not end.plan.bond}


def power_off(host: Host) -> None:
    """End all that runs on a host, and what its kernel has; its links lose their carrier."""
    if lost := [str(end) for end in host.interfaces.values() if end.plan and end.gone]:
        raise InputError(f"{lost[0]} is gone: a command has deleted it", hint="`testbed down`, then `testbed up`.")
    host.context.emit(events.REBOOT(state="off"), host.name, f"{host.name} goes down")
    host.off = True
    host.boots += 1
    host.end_programs()
    processes.end_all(host.namespace)
    for interface in host.interfaces.values():
        host.delete_rdma(interface)
    cables = _cables(host)
    for end in cables.values():
        end.down()
    host.forget_vfs()
    for index in host.now().links:
        if index not in (*cables, LOOPBACK):
            with suppress(OSError):  # it has gone with the one below it, or it is a device of the kernel
                host.kernel.delete_link(index)
    for end in cables.values():
        for address in end.all_addresses:
            end.remove_address(address)
    for name in [name for name, end in host.interfaces.items() if end.index not in cables]:
        del host.interfaces[name]
    host.use("ip", "address", "flush", "dev", "lo", "scope", "global", check=False)
    host.use("nft", "flush", "ruleset", check=False)
    for family in ("-4", "-6"):
        for rule in json.loads(host.use("ip", family, "-j", "rule", check=False).stdout or "[]"):
            if rule["priority"] not in RULES:
                host.use("ip", family, "rule", "delete", "priority", str(rule["priority"]), check=False)
    with netns.entered(host.namespace):
        tcp_orphans.destroy()  # or they would close their connections after the boot
    host.context.view.drain()


def power_on(
    hosts: Sequence[Host],
    nodes: Iterable[Node[Any]],
    scheduler: Scheduler,
    await_bonds: Callable[[Iterable[Node[Any]]], None],
) -> None:
    """Boot hosts; return when their links carry frames and their containers have begun. `nodes` are all of the lab."""
    for host in hosts:
        host.prepare()
        host.configure()
    for node in nodes:
        node.pair_bonds()
    for host in hosts:
        for interface in host.interfaces.values():
            interface.hold_again()
    held = {end.index for host in hosts for end in host.interfaces.values() if not end.is_up}
    if not held and not scheduler.wait_quietly(lambda: all(host.links_work() for host in hosts), LINKS_S):
        names = ", ".join(host.name for host in hosts if not host.links_work())
        raise DeadlineError(f"{names} came up, and the links did not within {LINKS_S:g} s")
    await_bonds(hosts)
    for host in hosts:
        host.complete()
        host.off = False
        host.context.emit(events.REBOOT(state="on"), host.name, f"{host.name} is up again")
    beginning.begin(hosts, scheduler, there=[node for node in nodes if node not in hosts])
