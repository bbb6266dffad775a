"""The lab of a real cluster: a topology file with its hosts, switches, cables, addresses and MACs, and with what was
wrong there as faults."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface

from testbed.records.bundle.bundle import Bundle
from testbed.records.bundle.model import Interface, Node

End = tuple[str, str]
PROFILES = {"SONiC": "sonic", "EOS": "arista-eos", "NX-OS": "cisco-nxos", "Cumulus": "cumulus-3-4plus"}
LONGEST = 10
"""Characters of a host's name: UCX keeps 15 of an RDMA device's, NODE-eth1."""
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
RESERVED = ("mgmt", "launcher", "yes", "no", "on", "off", "true", "false", "null", "y", "n")
"""Names that a lab has for itself, or that are no texts in YAML."""
FORMER = re.compile(r"former\d+")
FASTEST_MBIT = 100
"""Megabits per second that stand for the fastest link, where links have different rates."""
USUAL_MTU = 1500
UNKNOWN_VLAN = 10
"""The VLAN of a port of which nothing says one."""


@dataclass
class _Names:
    """The lab's names of nodes and of the ends of their links."""

    bundle: Bundle
    nodes: dict[str, str] = field(default_factory=dict)
    ends: dict[End, str] = field(default_factory=dict)
    macs: set[str] = field(default_factory=set)
    """Those that a link has already: members of a bond have that of the bond."""

    def node(self, name: str) -> str:
        if name not in self.nodes:
            switch = self.bundle.nodes[name].switch
            taken = {*self.nodes.values(), *RESERVED}
            plain = PLAIN.fullmatch(name) and (switch or len(name) <= LONGEST) and name.lower() not in taken
            kind = "switch" if switch else "host"
            numbered = (f"{kind}{number}" for number in itertools.count(1))
            free = (one for one in numbered if one not in taken and one not in self.bundle.nodes)
            self.nodes[name] = name if plain and not FORMER.fullmatch(name) else next(free)
        return self.nodes[name]

    def end(self, end: End) -> str:
        if end not in self.ends:
            number = sum(other[0] == end[0] for other in self.ends) + 1
            self.ends[end] = f"{'e' if self.bundle.nodes[end[0]].switch else 'eth'}{number}"
        return f"{self.node(end[0])}:{self.ends[end]}"


def topology(bundle: Bundle) -> str:
    """Return the topology file. What is not known is left to testbed's plan; comments have the cluster's names."""
    names, cables = _Names(bundle), _cables(bundle)
    used = sorted({end[0] for cable in cables for end in cable})
    switches = [bundle.nodes[name] for name in used if bundle.nodes[name].switch]
    hosts = [bundle.nodes[name] for name in used if not bundle.nodes[name].switch]
    left_out = sorted(set(bundle.nodes) - set(used))
    formers = list(_formers(bundle, cables, names)) if switches else []
    lines = [
        "# The lab of a real cluster, made by `testbed diagnose --from`. Change what you like;",
        "# `testbed topology check FILE` says what it becomes.",
        *(f"# {_printed(name)} is left out: no cable of it is known." for name in left_out),
        "name: cluster",
        "topology:",
        *(["  routing: frr"] if len(switches) > 1 else []),
        "  defaults: {kind: host}",
        "  kinds:",
        "    host: {nic: hardware}",
        "  nodes:",
        *(line for node in switches for line in _switch(bundle, node, cables, names)),
        *(line for node in hosts for line in _host(node, names)),
        *(line for one in formers for line in one.lines),
        "    # the management network, for what launches jobs",
        "    mgmt: {kind: bridge}",
        "    launcher:",
        "  links:",
        *(f"    - {_link(bundle, cable, names)}" for cable in cables),
        *(f"    - {one.link}" for one in formers),
    ]
    managed = [*(names.node(node.name) for node in hosts), "launcher"]
    lines += [
        f'    - {{endpoints: ["mgmt:e{number}", "{host}:mgmt0"], rdma: false}}'
        for number, host in enumerate(managed, 1)
    ]
    faults = list(_down(bundle, cables, names))
    if faults:
        lines += ["  faults:", *(f"    - {fault}" for fault in faults)]
    return "\n".join(lines) + "\n"


def _host(node: Node, names: _Names) -> Iterator[str]:
    """Yield the lines of a host. One that knows its gateway for ever asks for it once, while no other has its
    address."""
    yield f"    {names.node(node.name)}:{_comment(node.name, names.node(node.name))}"
    known = {ip for (_, ip), entry in node.neighbours.items() if entry.permanent}
    gateways = [gateway for gateway in node.gateways if gateway in known]
    for number, gateway in enumerate(gateways):
        if not number:
            yield "      exec:"
        yield f"        - ping -c 1 -W 1 {gateway}"
        yield f"        - ip neighbour change {gateway} dev eth1 nud permanent"


def _comment(name: str, plain: str) -> str:
    return "" if name == plain else f"  # {_printed(name)}"


def _printed(name: str) -> str:
    """Return a name as a comment can have it."""
    return "".join(one if one.isprintable() else "?" for one in name[:60])


def _cables(bundle: Bundle) -> list[tuple[End, End]]:
    """Return the cables of which both ends are known, each once, that of a switch first."""
    found: dict[frozenset[End], tuple[End, End]] = {}
    for one, other in sorted(bundle.peers.items()):
        if one[0] in bundle.nodes and other[0] in bundle.nodes:
            pair = sorted((one, other), key=lambda end: (not bundle.nodes[end[0]].switch, end))
            found[frozenset((one, other))] = pair[0], pair[1]
    return list(found.values())


def _switch(bundle: Bundle, node: Node, cables: Sequence[tuple[End, End]], names: _Names) -> Iterator[str]:
    profile = PROFILES.get(node.system, "linux-default" if node.system == "Linux" else "sonic")
    yield f"    {names.node(node.name)}:{_comment(node.name, names.node(node.name))}"
    yield "      kind: switch"
    yield f"      profile: {profile}{'' if node.system in PROFILES else '  # its system is not known'}"
    vlans = {vlan for ends in cables if ends[0][0] == node.name and (vlan := _vlan(bundle, *ends)) is not None}
    if vlans:
        yield "      vlans:"
        for vlan in sorted(vlans):
            yield f"        {vlan}: {_gateway(bundle, node, cables, vlan) or 'null'}"


def _of(bundle: Bundle, end: End) -> Interface:
    return bundle.nodes[end[0]].interfaces.get(end[1]) or Interface(end[1])


def _vlan(bundle: Bundle, one: End, other: End) -> int | None:
    """Return the VLAN of a cable from a switch to a host: that of its port, or in which it has the host's MAC."""
    if bundle.nodes[other[0]].switch:
        return None
    mac = _of(bundle, other).mac
    known = (
        vlan for (vlan, found), port in bundle.nodes[one[0]].macs.items() if found == mac and port == one[1] and vlan
    )
    return _of(bundle, one).vlan or next(known, None) or UNKNOWN_VLAN


def _gateway(bundle: Bundle, node: Node, cables: Sequence[tuple[End, End]], vlan: int) -> str:
    """Return the address of a switch in a VLAN: its own, else the gateway of a host there."""
    for one in node.interfaces.values():
        if one.vlan == vlan and one.addresses:
            return one.addresses[0]
    for near, far in cables:
        if near[0] == node.name and _vlan(bundle, near, far) == vlan:
            for address in map(ip_interface, _of(bundle, far).addresses):
                for gateway in bundle.nodes[far[0]].gateways:
                    if ip_address(gateway) in address.network:
                        return f"{gateway}/{address.network.prefixlen}"
    return ""


def _link(bundle: Bundle, cable: tuple[End, End], names: _Names) -> str:
    near, far = cable
    ends = []
    for end in cable:
        own = _of(bundle, end)
        name, _, port = names.end(end).partition(":")
        four, six = (next((one for one in own.addresses if (":" in one) is of), "") for of in (False, True))
        mac = own.mac if own.mac not in names.macs else ""
        names.macs.add(own.mac)
        keys = [f"node: {name}", f"interface: {port}"]
        if not bundle.nodes[end[0]].switch:
            keys += [f'mac: "{mac}"'] if mac else []
            keys += [f"ipv4: {four}"] if four else []
            keys += [f'ipv6: "{six}"'] if six else []
        ends.append("{" + ", ".join(keys) + "}" if keys[2:] else f'"{name}:{port}"')
    keys = [f"endpoints: [{', '.join(ends)}]"]
    if (vlan := _vlan(bundle, near, far)) is not None:
        keys.append(f"vlan: {vlan}")
    mtus = {mtu for end in cable if (mtu := _of(bundle, end).mtu)}
    if len(mtus) == 1 and mtus != {USUAL_MTU}:
        keys.append(f"mtu: {mtus.pop()}")
    if (speed := _of(bundle, far).speed or _of(bundle, near).speed) and len(_speeds(bundle)) > 1:
        keys.append(f"rate: {max(1, speed * FASTEST_MBIT // max(_speeds(bundle)))}mbit")
    was = ", ".join(_printed(f"{end[0]} {end[1]}") for end in cable)
    return "{" + ", ".join(keys) + "}" + f"  # {was}"


def _speeds(bundle: Bundle) -> set[int]:
    return {one.speed for node in bundle.nodes.values() for one in node.interfaces.values() if one.speed and one.rdma}


@dataclass(frozen=True)
class _Former:
    """A host that had an address first, for which a switch still has its MAC."""

    host: str
    lines: Sequence[str]
    link: str


def _formers(bundle: Bundle, cables: Sequence[tuple[End, End]], names: _Names) -> Iterator[_Former]:
    owners = {
        str(ip_interface(address).ip): (one.mac, address)
        for node in bundle.nodes.values()
        for one in node.interfaces.values()
        if not node.switch
        for address in one.addresses
    }
    macs = {mac for mac, _ in owners.values()}
    for node in bundle.nodes.values():
        for vlan, ip, entry in node.entries() if node.switch else ():
            mac, address = owners.get(ip, (entry.mac, ""))
            gateway = _gateway(bundle, node, cables, vlan).partition("/")[0]
            if not entry.mac or entry.mac == mac or entry.mac in macs or not gateway or ":" in ip:
                continue
            port = names.end((node.name, f"former of {ip}"))
            host = f"former{port.rpartition(':e')[2]}"
            lines = [
                f"    {host}:  # had {ip} before",
                "      nic: rxe",
                "      exec:",
                f"        - ip address add {address} dev eth1",
                f"        - ping -c 1 -W 1 -I {ip} {gateway}",
                f"        - ip address delete {address} dev eth1",
            ]
            end = f'{{node: {host}, interface: eth1, mac: "{entry.mac}"}}'
            yield _Former(host, lines, f'{{endpoints: ["{port}", {end}], vlan: {vlan or UNKNOWN_VLAN}, rdma: false}}')


def _down(bundle: Bundle, cables: Sequence[tuple[End, End]], names: _Names) -> Iterator[str]:
    """Yield the faults of links that were down in the end."""
    lasting = bundle.lasting
    for cable in cables:
        last = [changes[-1] for end in cable if (changes := lasting.get(end))]
        if any(not one.up for one in last) or any(_of(bundle, end).carrier is False for end in cable):
            yield f'{{fault: link-down, end: "{names.end(cable[0])}"}}'
