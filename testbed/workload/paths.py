"""The links that flows take through a fabric, as its switches are asked for them."""

from collections import defaultdict
from collections.abc import Sequence

from testbed.errors import InputError
from testbed.lab import HostInterface, Interface, Switch


def paths(flows: Sequence[tuple[HostInterface, HostInterface, int]]) -> list[list[Interface]]:
    """Return the interfaces that send each flow's packets, in order: the sender's NIC, and a port of each switch.

    A flow is the NIC that sends, the one that receives, and the UDP source port (`Attributes.source_port`). Each switch
    is asked for the port of the MAC that the packet has there, and if it has none where it routes such a packet.
    InputError for a node on the way that is no switch, for a switch that knows neither, and for a loop."""
    macs = [_first_mac(source, target) for source, target, _ in flows]
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
            ports = {mac: port for mac, port in switch.fdb_table().items() if port in switch.interfaces}
            names = {number: ports[macs[number]] for number in numbers if macs[number] in ports}
            if routed := [number for number in numbers if number not in names]:
                asked = [(flows[n][0].address().ip, flows[n][1].address().ip, flows[n][2]) for n in routed]
                names |= zip(routed, switch.egress_ports(asked), strict=True)
                for number in routed:  # of an address behind another switch it has none
                    macs[number] = switch.neighbour(flows[number][1].address().ip) or ""
            for number, name in names.items():
                if switch[name] in found[number]:
                    raise InputError(f"the route to {flows[number][1]} is a loop: packets return to {switch}")
                found[number].append(switch[name])
        open_flows = [number for numbers in arrived.values() for number in numbers]
    return found


def _first_mac(source: HostInterface, target: HostInterface) -> str:
    """Return the MAC to which a NIC sends packets for another one, as it knows it; empty if it does not."""
    hop = source.next_hop(target.address().ip)
    return (hop and source.neighbour(hop)) or ""
