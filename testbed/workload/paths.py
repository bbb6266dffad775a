"""The links that flows take through a fabric, as its switches are asked for them."""

from collections import defaultdict
from collections.abc import Sequence

from testbed.errors import InputError
from testbed.lab import HostInterface, Interface, Switch


def paths(flows: Sequence[tuple[HostInterface, HostInterface, int]]) -> list[list[Interface]]:
    """Return the interfaces that send each flow's packets, in order: the sender's NIC, and a port of each switch.

    A flow is the NIC that sends, the one that receives, and the UDP source port (`Attributes.source_port`). Each switch
    is asked where it routes such a packet. InputError for a node on the way that is no switch, and for a loop."""
    found: list[list[Interface]] = [[source] for source, _, _ in flows]
    open_flows = list(range(len(flows)))
    while open_flows:
        arrived: dict[Switch, list[int]] = defaultdict(list)
        for number in open_flows:
            source, target, _ = flows[number]
            last = found[number][-1]
            node = last.peer.node if last.peer else None
            if not isinstance(node, Switch):
                raise InputError(f"no path from {source} to {target}: the node behind {last} is not a switch")
            if target.peer and node is target.peer.node:
                found[number].append(target.peer)
            else:
                arrived[node].append(number)
        for switch, numbers in arrived.items():
            asked = [(flows[n][0].address().ip, flows[n][1].address().ip, flows[n][2]) for n in numbers]
            for number, name in zip(numbers, switch.egress_ports(asked), strict=True):
                if switch[name] in found[number]:
                    raise InputError(f"the route to {flows[number][1]} is a loop: packets return to {switch}")
                found[number].append(switch[name])
        open_flows = [number for numbers in arrived.values() for number in numbers]
    return found
