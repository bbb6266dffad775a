"""The step `veth`: a veth between the pod and its node, and the routes over it.

A node cannot reach the macvlan children of its own interface, so kubelet's probes would fail. The first interface's ADD
makes the pair; the addresses of the others get routes over it. Only in mode underlay: a pod whose first interface is
made by bridge or ptp already reaches its node.
"""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from ipaddress import ip_interface, ip_network

from testbed.cni.plugins.contract import Call
from testbed.cni.plugins.coordinator.nic import FIRST, POD_VETH, Nic
from testbed.kernel import sysctl
from testbed.kernel.ipv6 import CONF
from testbed.kernel.link_readings import IFLA_ADDRESS
from testbed.kernel.links import End
from testbed.kernel.policy_routing import PolicyRouting, Route, Rule
from testbed.kernel.rtnetlink import LINK_SCOPE, MAIN
from testbed.topology import Family, IPAddress, IPInterface

PRIORITY = 1000
"""The priority of the node's rules."""
RULES: dict[Family, str] = {4: "0.0.0.0/0", 6: "::/0"}
"""The sources of the packets that use the node's table: all."""
NOT_THE_NODES = re.compile(r"docker|cbr|dummy|virbr|lxcbr|veth|lo$|cali|flannel|kube-ipvs|cni|vx-submariner|cilium")
"""The interfaces whose addresses Spiderpool does not count as the node's."""
_rule_turn = threading.Lock()
"""The lock for changes of the node's rules, which its pods share."""


def host_end(container: str) -> str:
    """Name the node's end of a pod's veth."""
    return f"veth{container[:11]}"


def connect(nic: Nic, undo: ExitStack) -> None:
    if not nic.underlay:
        return
    name, table = host_end(nic.asked.container), nic.settings.hostRuleTable
    undo.callback(disconnect, nic.host, nic.asked, table, nic.addresses)
    if nic.first:
        _make(nic, name)
    pod, _, pod_link = nic.kernel.read(POD_VETH)
    host, _, host_link = nic.host.read(name)
    if 6 in nic.families:
        sysctl.write(f"{CONF}/{POD_VETH}/disable_ipv6", 0)
        with nic.on_node():
            sysctl.write(f"{CONF}/{name}/disable_ipv6", 0)
    _route_from_pod(nic, undo, pod, host_link[IFLA_ADDRESS].hex(":"))
    _route_from_node(nic, host, pod_link[IFLA_ADDRESS].hex(":"))


def _make(nic: Nic, name: str) -> None:
    mtu = nic.settings.vethMTU
    nic.host.add_veth(0, End(name, "", mtu), End(POD_VETH, "", mtu), nic.namespace)
    index = nic.kernel.index(POD_VETH)
    for kernel, end in (nic.host, nic.host.index(name)), (nic.kernel, index):
        kernel.set_link(end, up=True)
    if link := nic.settings.vethLinkAddress:
        if link.version == 6:
            sysctl.write(f"{CONF}/{POD_VETH}/disable_ipv6", 0)
        nic.kernel.set_address(index, ip_interface((link, link.max_prefixlen)))


def _route_from_pod(nic: Nic, undo: ExitStack, index: int, mac: str) -> None:
    """Route packets from the pod to its node, and to hijackCIDR, over the veth."""
    tables = [MAIN, nic.table] if nic.first else [nic.table]
    wanted = []
    for family in nic.families:
        addresses = _addresses_of_node(nic, family)
        for ip in addresses:
            nic.kernel.set_neighbour(index, ip, mac)
            wanted += [(Route(ip_network(ip), index, scope=LINK_SCOPE), table) for table in tables]
        hijacked = [subnet for subnet in nic.settings.hijackCIDR if subnet.version == family and addresses]
        wanted += [(Route(subnet, index, gateway=addresses[0]), tables[0]) for subnet in hijacked]
    for route, table in wanted:
        nic.kernel.put_route(route, table)
        undo.callback(nic.kernel.take_route, route, table)


def _addresses_of_node(nic: Nic, family: Family) -> list[IPAddress]:
    """Return the node's addresses; the one that it uses towards the pod comes first."""
    with nic.on_node():
        names = dict(socket.if_nameindex())
    own = [address.ip for address in nic.addresses if address.version == family]
    first = [ip for ip in map(nic.host.source_to, own) if ip]
    others = [
        address.ip
        for index, address in nic.host.addresses()
        if address.version == family and not address.ip.is_link_local and not NOT_THE_NODES.match(names[index])
    ]
    return list(dict.fromkeys([*first, *others]))


def _route_from_node(nic: Nic, index: int, mac: str) -> None:
    """Route packets from the node to the pod over the veth; delete leftover routes of these addresses."""
    table = nic.settings.hostRuleTable
    for address in nic.addresses:
        to, family = ip_network(address.ip), address.version
        for neighbour in list(nic.host.neighbours(family)):
            if neighbour.ip == address.ip:
                nic.host.delete_neighbour(neighbour.index, neighbour.ip)
        nic.host.set_neighbour(index, address.ip, mac)
        for route in list(nic.host.routes_in(table, family)):
            if route.to == to:
                nic.host.take_route(route, table)
        nic.host.put_route(Route(to, index, scope=LINK_SCOPE), table)
        with _rule_turn:
            nic.host.put_rule(_rule(family, table))


def _rule(family: Family, table: int) -> Rule:
    return Rule(ip_network(RULES[family]), table, PRIORITY)


def disconnect(host: PolicyRouting, asked: Call, table: int, addresses: Sequence[IPInterface]) -> None:
    """Delete the node's objects for an interface: with the first one the veth, of others their routes."""
    with contextlib.suppress(OSError):  # no such interface, or it has gone with its namespace
        index = host.index(host_end(asked.container))
        if asked.interface == FIRST:
            host.delete_link(index)
        for address in addresses:
            host.take_route(Route(ip_network(address.ip), index), table)
            host.delete_neighbour(index, address.ip)
    with _rule_turn:
        for family in RULES:
            if not any(host.routes_in(table, family)):
                host.take_rule(_rule(family, table))


def check(nic: Nic) -> Iterator[str]:
    if not nic.underlay:
        return
    name, table = host_end(nic.asked.container), nic.settings.hostRuleTable
    try:
        index, _ = nic.host.index(name), nic.kernel.index(POD_VETH)
    except OSError:
        yield f"the veth from {POD_VETH} to the node's {name} is missing"
        return
    for address in nic.addresses:
        family = address.version
        found = [route.index for route in nic.host.routes_in(table, family) if route.to == ip_network(address.ip)]
        if found != [index]:
            yield f"the node has no route to {address.ip} over {name} in table {table}"
        if _rule(family, table) not in nic.host.rules(family):
            yield f"the node has no rule for table {table}"
        known = [entry.state for entry in nic.host.neighbours(family) if (entry.index, entry.ip) == (index, address.ip)]
        if known != ["PERMANENT"]:
            yield f"the node has no permanent neighbour entry for {address.ip} on {name}"
