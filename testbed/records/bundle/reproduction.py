"""The lab of a real cluster: a topology file with its hosts, switches, cables, addresses and MACs, and with what was
wrong there as faults."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface

from testbed.records.bundle.bonded_links import BACKUP, LACP, Bond, Cable, Links
from testbed.records.bundle.bundle import Bundle, End
from testbed.records.bundle.model import Node

PROFILES = {"SONiC": "sonic", "EOS": "arista-eos", "NX-OS": "cisco-nxos", "Cumulus": "cumulus-3-4plus"}
LONGEST = 10
"""Characters of a host's name: UCX keeps 15 of an RDMA device's, NODE-eth1 or NODE-bond0."""
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
RESERVED = ("mgmt", "launcher", "yes", "no", "on", "off", "true", "false", "null", "y", "n")
"""Names that a lab has for itself, or that are no texts in YAML."""
FORMER = re.compile(r"former\d+")
FASTEST_MBIT = 100
"""Megabits per second that stand for the fastest link, where links have different rates."""
USUAL_MTU = 1500
GATEWAY_MAC = "02:00:00:00:00:fe"
"""The MAC of a gateway that is several switches, where the cluster does not say it."""
UNKNOWN_VLAN = 10
"""The VLAN of a port of which nothing says one."""


@dataclass
class _Names:
    """The lab's names of nodes and of the ends of their links."""

    bundle: Bundle
    links: Links
    nodes: dict[str, str] = field(default_factory=dict)
    ends: dict[End, str] = field(default_factory=dict)
    bonds: dict[tuple[str, End], str] = field(default_factory=dict)
    """Names of bonds and port channels, by node and the bond at the far end."""
    macs: set[str] = field(default_factory=set)
    """Those that an interface has already."""

    def node(self, name: str) -> str:
        if name not in self.nodes:
            switch = self.bundle.nodes[name].switch
            taken = {*self.nodes.values(), *RESERVED}
            longest = LONGEST - any(name == one.end[0] for one in self.links.bonds)
            plain = PLAIN.fullmatch(name) and (switch or len(name) <= longest) and name.lower() not in taken
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

    def interface(self, end: End) -> str:
        return self.end(end).partition(":")[2]

    def bond(self, node: str, one: Bond) -> str:
        """Return the name of a bond at a node."""
        number = sum(other == node for other, _ in self.bonds)
        name = f"po{number + 1}" if self.bundle.nodes[node].switch else f"bond{number}"
        return self.bonds.setdefault((node, one.end), name)

    def mac(self, given: str) -> str:
        """Return a MAC, empty if an interface has it already."""
        mac = "" if given in self.macs else given
        self.macs.add(given)
        return mac


def topology(bundle: Bundle) -> str:
    """Return the topology file. What is not known is left to testbed's plan; comments have the cluster's names."""
    links = Links(bundle)
    names, cables = _Names(bundle, links), links.cables
    used = sorted({end[0] for cable in cables for end in cable})
    switches = [bundle.nodes[name] for name in used if bundle.nodes[name].switch]
    hosts = [bundle.nodes[name] for name in used if not bundle.nodes[name].switch]
    left_out = sorted(set(bundle.nodes) - set(used))
    formers = list(_formers(names)) if switches else []
    lines = [
        "# The lab of a real cluster, made by `testbed diagnose --from`. Change what you like;",
        "# `testbed topology check FILE` says what it becomes.",
        *(f"# {_printed(name)} is left out: no cable of it is known." for name in left_out),
        "name: cluster",
        "topology:",
        *(["  routing: frr"] if any(map(links.routed, cables)) else []),
        "  defaults: {kind: host}",
        "  kinds:",
        "    host: {nic: hardware}",
        "  nodes:",
        *(line for node in switches for line in _switch(node, names)),
        *(line for node in hosts for line in _host(node, names)),
        *(line for one in formers for line in one.lines),
        "    # the management network, for what launches jobs",
        "    mgmt: {kind: bridge}",
        "    launcher:",
        "  links:",
        *(f"    - {_link(cable, names)}" for cable in cables),
        *(f"    - {one.link}" for one in formers),
    ]
    managed = [*(names.node(node.name) for node in hosts), "launcher"]
    lines += [
        f'    - {{endpoints: ["mgmt:e{number}", "{host}:mgmt0"], rdma: false}}'
        for number, host in enumerate(managed, 1)
    ]
    faults = list(_down(names))
    if faults:
        lines += ["  faults:", *(f"    - {fault}" for fault in faults)]
    return "\n".join(lines) + "\n"


def _host(node: Node, names: _Names) -> Iterator[str]:
    """Yield the lines of a host. One that knows its gateway for ever asks for it once, while no other has its
    address."""
    yield f"    {names.node(node.name)}:{_comment(node.name, names.node(node.name))}"
    bonds = [one for one in names.links.bonds if one.end[0] == node.name]
    if bonds:
        yield "      bonds:"
        yield from (f"        {_bond(one, names)}" for one in bonds)
    known = {ip for (_, ip), entry in node.neighbours.items() if entry.permanent}
    gateways = [gateway for gateway in node.gateways if gateway in known]
    device = names.bond(node.name, bonds[0]) if bonds else "eth1"
    for number, gateway in enumerate(gateways):
        if not number:
            yield "      exec:"
        yield f"        - ping -c 1 -W 1 {gateway}"
        yield f"        - ip neighbour change {gateway} dev {device} nud permanent"


def _bond(one: Bond, names: _Names) -> str:
    """Return a host's bond, with its addresses."""
    own, links = names.links.interface(one.end), names.links
    name = names.bond(one.end[0], one)
    keys = [_members(names, [far for _, far in one.cables])]
    keys += [f"mode: {one.mode}"] if one.mode != LACP else []
    keys += _addresses(names, one.end)
    notes = [_printed(f"{one.end[0]} {own.name}")]
    if one.mode == LACP and len(one.switches) > 1 and not links.peer_links(links.together(one.switches[0])):
        keys.append("broadcast_neighbor: true")
    if not one.given:
        notes.append("its mode is not known")
    elif one.given != one.mode:
        notes.append(f"its mode is {_printed(one.given)}")
    if one.guessed:
        notes.append("which member ends where is not known")
    return f"{name}: {{{', '.join(keys)}}}  # {'; '.join(notes)}"


def _members(names: _Names, ends: Iterable[End]) -> str:
    return f"members: [{', '.join(map(names.interface, ends))}]"


def _addresses(names: _Names, end: End) -> list[str]:
    """Return the MAC and the addresses of a host's interface, as keys of the file."""
    own = names.links.owner(end)
    four, six = (next((one for one in own.addresses if (":" in one) is of), "") for of in (False, True))
    mac = names.mac(own.mac)
    keys = [f'mac: "{mac}"'] if mac else []
    keys += [f"ipv4: {four}"] if four else []
    return keys + ([f'ipv6: "{six}"'] if six else [])


def _comment(name: str, plain: str) -> str:
    return "" if name == plain else f"  # {_printed(name)}"


def _printed(name: str) -> str:
    """Return a name as a comment can have it."""
    return "".join(one if one.isprintable() else "?" for one in name[:60])


def _switch(node: Node, names: _Names) -> Iterator[str]:
    links = names.links
    profile = PROFILES.get(node.system, "linux-default" if node.system == "Linux" else "sonic")
    channels = list(_channels(node, names))
    yield f"    {names.node(node.name)}:{_comment(node.name, names.node(node.name))}"
    yield "      kind: switch"
    yield f"      profile: {profile}{'' if node.system in PROFILES else '  # its system is not known'}"
    vlans = _vlans(names, [node.name])
    if vlans:
        yield "      vlans:"
        for vlan in vlans:
            yield f"        {vlan}: {_gateway(names, node, vlan) or 'null'}"
    together = links.together(node.name)
    if together[1:]:
        yield from _of_several(node, together, names)
    if channels:
        yield "      bonds:"
        yield from (f"        {line}" for line in channels)


def _of_several(node: Node, together: Sequence[str], names: _Names) -> Iterator[str]:
    """Yield what a switch is with others to which hosts have bonds: a pair, where both print that, else one of several
    that tell each other nothing."""
    links = names.links
    yield f'      svi_mac: "{_gateway_mac(names, together)}"'
    if peer_links := links.peer_links(together):
        system = next((mac for name in together if (mac := names.bundle.nodes[name].pair)), _system(names, together))
        end = next(end for end in peer_links[0] if end[0] == node.name)
        bond = links.bond(end)
        port = names.bond(node.name, bond) if bond else names.interface(end)
        yield f'      mlag: {{peer_link: {port}, system: "{system}"}}'
        return
    said = "it is of a pair (MLAG, vPC), and its peer link is not known" if node.peer_link or node.pair else (
        "how these switches share hosts is not known (MLAG, EVPN)"
    )  # fmt: skip
    yield f"      # {said}: here they tell each other nothing"
    yield "      profile_values: {port_down: purge}"
    if any(node.name in (near[0], far[0]) and links.routed((near, far)) for near, far in links.cables):
        yield "      host_routes: true"


def _channels(node: Node, names: _Names) -> Iterator[str]:
    """Yield the port channels of a switch."""
    links = names.links
    for number, one in enumerate([*links.bonds, *links.trunks], 1):
        ends = [end for cable in one.cables for end in cable if end[0] == node.name]
        if not ends or one.mode == BACKUP:
            continue
        trunk = one in links.trunks
        was = names.bundle.master(ends[0]) if trunk else links.channel(one, node.name)
        keys = [_members(names, ends)]
        keys += [f"mode: {one.mode}"] if one.mode != LACP else []
        if not trunk and len(one.switches) > 1:
            together = links.together(node.name)
            system = links.interface(one.end).partner or _system(names, together)
            keys.append(f"mlag: {number}" if links.peer_links(together) else f'system: "{system}"')
        note = _printed(f"{node.name} {was}") if was else "that these ports are a port channel is not known"
        yield f"{names.bond(node.name, one)}: {{{', '.join(keys)}}}  # {note}"


def _system(names: _Names, together: Sequence[str]) -> str:
    """Return the LACP system of several switches: that of a partner of hosts, else one of the lab's own."""
    known = (names.links.interface(one.end).partner for one in names.links.bonds if one.switches[0] in together)
    number = sorted(names.bundle.nodes).index(together[0])
    return next(filter(None, known), f"02:00:00:fa:{number >> 8 & 0xFF:02x}:{number & 0xFF:02x}")


def _gateway_mac(names: _Names, together: Sequence[str]) -> str:
    """Return the MAC of the gateway that several switches are: as hosts have it, else as the switches have it."""
    nodes = names.bundle.nodes
    hosts = [node for node in nodes.values() if not node.switch]
    taken = {one.mac for node in hosts for one in node.interfaces.values()}
    own = [nodes[one.end[0]] for one in names.links.bonds if one.switches[0] in together]
    known = [entry.mac for node in own for (_, ip), entry in node.neighbours.items() if ip in node.gateways]
    svis = [{one.mac for one in nodes[name].interfaces.values() if one.vlan and one.addresses} for name in together]
    found = (mac for mac in (*known, *sorted(set.intersection(*svis))) if mac and mac not in taken)
    return next((mac for mac in found if not int(mac[:2], 16) & 1), GATEWAY_MAC)


def _vlans(names: _Names, switches: Sequence[str]) -> list[int]:
    """Return the VLANs of hosts at switches."""
    cables = (cable for cable in names.links.cables if cable[0][0] in switches)
    return sorted({vlan for cable in cables if (vlan := _vlan(names, cable)) is not None})


def _vlan(names: _Names, cable: Cable) -> int | None:
    """Return the VLAN of a cable from a switch to a host: that of its port, or in which it has the host's MAC; one for
    all cables of a bond."""
    bundle, links = names.bundle, names.links
    if bundle.nodes[cable[1][0]].switch:
        return None
    for near, far in links.cables_of(cable):
        mac, ports = links.owner(far).mac, (near[1], bundle.master(near))
        macs = bundle.nodes[near[0]].macs.items()
        known = (vlan for (vlan, found), port in macs if found == mac and port in ports and vlan)
        if vlan := links.interface(near).vlan or links.owner(near).vlan or next(known, None):
            return vlan
    return UNKNOWN_VLAN


def _gateway(names: _Names, node: Node, vlan: int) -> str:
    """Return the address of a switch in a VLAN: its own, else the gateway of a host there; of several switches that
    are one gateway first the latter."""
    together = names.links.together(node.name)
    own, of_hosts = _own(names, together, vlan), _of_hosts(names, together, vlan)
    return next(itertools.chain(of_hosts, own) if together[1:] else itertools.chain(own, of_hosts), "")


def _own(names: _Names, switches: Sequence[str], vlan: int) -> Iterator[str]:
    for name in switches:
        for one in names.bundle.nodes[name].interfaces.values():
            if one.vlan == vlan and one.addresses:
                yield one.addresses[0]


def _of_hosts(names: _Names, switches: Sequence[str], vlan: int) -> Iterator[str]:
    for near, far in names.links.cables:
        if near[0] in switches and _vlan(names, (near, far)) == vlan:
            for address in map(ip_interface, names.links.owner(far).addresses):
                for gateway in names.bundle.nodes[far[0]].gateways:
                    if ip_address(gateway) in address.network:
                        yield f"{gateway}/{address.network.prefixlen}"


def _link(cable: Cable, names: _Names) -> str:
    bundle, links = names.bundle, names.links
    near, far = cable
    ends = []
    for end in cable:
        name, _, port = names.end(end).partition(":")
        own = [] if bundle.nodes[end[0]].switch or links.bond(end) else _addresses(names, end)
        keys = [f"node: {name}", f"interface: {port}", *own]
        ends.append("{" + ", ".join(keys) + "}" if own else f'"{name}:{port}"')
    keys = [f"endpoints: [{', '.join(ends)}]"]
    if (vlan := _vlan(names, cable)) is not None:
        keys.append(f"vlan: {vlan}")
    elif not links.routed(cable):
        keys.append(f"trunk: {_vlans(names, links.together(near[0]))}")
    all_ends = [end for each in links.cables_of(cable) for end in each]
    mtus = {one.mtu for end in all_ends for one in links.interfaces(end) if one.mtu}
    if not mtus and bundle.nodes[far[0]].switch and links.largest_mtu:
        mtus = {links.largest_mtu}  # packets of hosts pass where nothing says that they do not
    if len(mtus) == 1 and mtus != {USUAL_MTU}:
        keys.append(f"mtu: {mtus.pop()}")
    if (speed := links.interface(far).speed or links.interface(near).speed) and len(links.speeds) > 1:
        keys.append(f"rate: {max(1, speed * FASTEST_MBIT // max(links.speeds))}mbit")
    was = ", ".join(_printed(f"{end[0]} {end[1]}") for end in cable)
    bond = far[0], bundle.master(far)
    if bond in links.alone:
        was += f"; of {_printed(bond[1])} only this cable is known"
    return "{" + ", ".join(keys) + "}" + f"  # {was}"


@dataclass(frozen=True)
class _Former:
    """A host that had an address first, for which a switch still has its MAC."""

    host: str
    lines: Sequence[str]
    link: str


def _formers(names: _Names) -> Iterator[_Former]:
    owners = {
        str(ip_interface(address).ip): (one.mac, address)
        for node in names.bundle.nodes.values()
        for one in node.interfaces.values()
        if not node.switch
        for address in one.addresses
    }
    macs = {mac for mac, _ in owners.values()}
    for node in names.bundle.nodes.values():
        for vlan, ip, entry in node.entries() if node.switch else ():
            mac, address = owners.get(ip, (entry.mac, ""))
            gateway = _gateway(names, node, vlan).partition("/")[0]
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


def _down(names: _Names) -> Iterator[str]:
    """Yield the faults of links that were down in the end."""
    lasting = names.bundle.lasting
    for cable in names.links.cables:
        last = [changes[-1] for end in cable if (changes := lasting.get(end))]
        if any(not one.up for one in last) or any(names.links.interface(end).carrier is False for end in cable):
            yield f'{{fault: link-down, end: "{names.end(cable[0])}"}}'
