"""The kinds of trouble of incidents: what is done to the lab, what is wrong then, and what mends it.

What a person or a program did wrong is done by commands, which leave what they would leave on a cluster, and can be
undone as there. What is broken in hardware are faults, which nobody in the lab can mend: the link is taken out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from testbed.protocol import IncidentArea

Command = Sequence[str]
"""A command on a node: its name first."""
RANKS = ("gpu1", "gpu2", "gpu3", "gpu4")
IPS = {
    "gpu1": "10.0.10.2", "gpu2": "10.0.10.3", "store1": "10.0.10.4",
    "gpu3": "10.0.20.2", "gpu4": "10.0.20.3", "store2": "10.0.20.4",
}  # fmt: skip
PORTS = {
    "gpu1": "leaf1:e1", "gpu2": "leaf1:e2", "store1": "leaf1:e3",
    "gpu3": "leaf2:e1", "gpu4": "leaf2:e2", "store2": "leaf2:e3",
}  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """What is wrong in a lab. `causes` are those that an answer may name, the first one is the usual word; `places` the
    nodes, links and ranks of which it has to name one. `mend` are the commands of the solution, as `testbed` takes them
    after its name; `wrong` are fixes that are often tried and do not help."""

    causes: Sequence[str]
    places: Sequence[str]
    story: str
    """What happened, for the solution."""
    mend: Sequence[str]
    wrong: Sequence[str] = ()
    commands: Sequence[Command] = ()
    faults: Sequence[tuple[str, Mapping[str, Any]]] = ()
    hints: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Place:
    """The place of a trouble that is drawn: a host with a rank."""

    host: str

    @property
    def ip(self) -> str:
        return IPS[self.host]

    @property
    def port(self) -> str:
        return PORTS[self.host]

    @property
    def leaf(self) -> str:
        return self.port.partition(":")[0]

    @property
    def gateway(self) -> str:
        return f"{self.ip.rpartition('.')[0]}.1"

    @property
    def vlan(self) -> str:
        return f"vlan{self.ip.split('.')[2]}"

    @property
    def store(self) -> str:
        return f"store{self.leaf[-1]}"

    @property
    def link(self) -> str:
        return f"{self.port} - {self.host}:eth1"

    @property
    def names(self) -> list[str]:
        return [self.host, self.link, self.port, f"rank {RANKS.index(self.host)}"]


def uplink(leaf: str, number: int) -> tuple[str, str]:
    """Return both ends of a leaf's uplink."""
    return f"{leaf}:u{number}", f"spine{number}:d{leaf[-1]}"


def stale_entry(r: Random) -> Trouble:
    """Another host's announcement has the leaf send a rank's packets to it: the switch keeps the wrong MAC."""
    at = Place(r.choice(RANKS))
    return Trouble(
        ["stale-neighbour", "arp-poison"],
        [*at.names, at.leaf],
        f"{at.store} announced {at.ip}, which is {at.host}'s, and {at.leaf} keeps its MAC for the address",
        [f"announce {at.host}:eth1"],
        [f"exec {at.store} -- ip neigh flush all", "advance 60s", f"link set {at.port} down"],
        faults=[("arp-poison", {"host": at.store, "ip": at.ip, "switch": at.leaf})],
        hints=["Its link is up, and its packets go out. Do answers come back?", "Compare `tables` with MACs."],
    )


def duplicate_address(r: Random) -> Trouble:
    """A storage node got a rank's address, and announced it."""
    at = Place(r.choice(RANKS))
    add = f"ip address add {at.ip}/24 dev eth1".split()
    claim = f"arping -A -c 3 -I eth1 {at.ip}".split()
    return Trouble(
        ["duplicate-ip"],
        [*at.names, at.store, at.leaf],
        f"{at.store} got the address {at.ip} of {at.host}, and announced it",
        [f"exec {at.store} -- ip address del {at.ip}/24 dev eth1", f"announce {at.host}:eth1"],
        [f"announce {at.store}:eth1", f"exec {at.store} -- ip neigh flush all"],
        commands=[(at.store, *add), (at.store, *claim)],
        hints=["Two may answer for one address.", "Look at all addresses in the rank's VLAN."],
    )


def wrong_gateway(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    other = f"{at.gateway[:-1]}99"
    route = f"ip route replace default via {other} dev eth1".split()
    return Trouble(
        ["no-route", "wrong-gateway"],
        at.names,
        f"the default route of {at.host} leads to {other}, which nobody has",
        [f"exec {at.host} -- ip route replace default via {at.gateway} dev eth1"],
        [f"announce {at.host}:eth1", f"link set {at.port} down"],
        commands=[(at.host, *route)],
        hints=["One host reaches its own rack, and nothing else.", "Compare routes of hosts."],
    )


def missing_route(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    return Trouble(
        ["no-route", "missing-route"],
        at.names,
        f"{at.host} has lost its default route",
        [f"exec {at.host} -- ip route add default via {at.gateway} dev eth1"],
        [f"announce {at.host}:eth1", f"exec {at.leaf} -- ip neigh flush dev {at.vlan}"],
        commands=[(at.host, *["ip", "route", "del", "default"])],
        hints=["One host reaches its own rack, and nothing else.", "Compare routes of hosts."],
    )


def blackhole(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    other = "leaf2" if at.leaf == "leaf1" else "leaf1"
    return Trouble(
        ["no-route", "blackhole"],
        [other, *at.names],
        f"{other} has a route that drops what is for {at.ip}, of {at.host}",
        [f"exec {other} -- ip route del blackhole {at.ip}/32"],
        [f"announce {at.host}:eth1", f"link set {at.port} down"],
        commands=[(other, *f"ip route add blackhole {at.ip}/32".split())],
        hints=["It is one address, and only from the other rack.", "Follow its packets from leaf to leaf."],
    )


def spine_drops(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    network = f"10.0.{leaf[-1]}0.0/24"
    return Trouble(
        ["no-route", "blackhole"],
        [f"spine{number}", leaf],
        f"spine{number} has a route that drops what is for {network}, the rack of {leaf}",
        [f"exec spine{number} -- ip route del unreachable {network}"],
        [f"exec {leaf} -- ip neigh flush dev vlan{leaf[-1]}0"],
        commands=[(f"spine{number}", *f"ip route add unreachable {network}".split())],
        hints=["Some flows between the racks work, and others do not.", "One of two spines."],
    )


def gateway_down(r: Random) -> Trouble:
    leaf = r.choice(["leaf1", "leaf2"])
    vlan = f"vlan{leaf[-1]}0"
    return Trouble(
        ["no-route", "gateway-down"],
        [leaf, f"{leaf}:{vlan}"],
        f"somebody set {vlan} of {leaf} down, the gateway of its rack",
        [f"exec {leaf} -- ip link set {vlan} up"],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush dev {vlan}"],
        commands=[(leaf, *f"ip link set {vlan} down".split())],
        hints=["A whole rack reaches nothing outside of it.", "Its links are up."],
    )


def lossy_uplink(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    near, far = uplink(leaf, number)
    end, loss = r.choice([near, far]), r.choice([30, 50])
    other, _ = uplink(leaf, 3 - number)
    return Trouble(
        ["lossy-link", "silent-drop", "link-loss", "lost-probes"],
        [near, far, f"{near} - {far}"],
        f"{end} loses {loss} % of the packets that it sends",
        [f"link set {near} down"],
        [f"link set {other} down", f"announce {RANKS[0]}:eth1"],
        faults=[("link-loss", {"end": end, "loss": loss})],
        hints=["All links are up, and counters of errors are 0.", "`testbed probe` takes all paths."],
    )


def corrupting_uplink(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    near, far = uplink(leaf, number)
    end = r.choice([near, far])
    other, _ = uplink(leaf, 3 - number)
    return Trouble(
        ["corruption", "link-corrupt", "lossy-link"],
        [near, far, f"{near} - {far}"],
        f"{end} damages packets that it sends",
        [f"link set {near} down"],
        [f"link set {other} down"],
        faults=[("link-corrupt", {"end": end, "corrupt": 30})],
        hints=["Packets arrive, and RDMA does not take them.", "Take one uplink after the other out."],
    )


def narrow_uplinks(r: Random) -> Trouble:
    leaf = r.choice(["leaf1", "leaf2"])
    ends = [end.split(":") for number in (1, 2) for end in uplink(leaf, number)]
    links = [" - ".join(uplink(leaf, number)) for number in (1, 2)]
    return Trouble(
        ["mtu-mismatch", "mtu"],
        [*(":".join(end) for end in ends), *links, leaf],
        f"the MTU of the uplinks of {leaf} was set to 1000 at both ends: full packets do not fit through",
        [f"exec {node} -- ip link set {port} mtu 1500" for node, port in ends],
        [f"link set {uplink(leaf, 1)[0]} down"],
        commands=[(node, *f"ip link set {port} mtu 1000".split()) for node, port in ends],
        hints=["ping works.", "ping -s 1400 -M do does not, from one rack to the other."],
    )


def stopped_rank(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    return Trouble(
        ["rank-hangs", "rank-stopped"],
        at.names,
        f"a debugger stopped the rank on {at.host} (SIGSTOP), and was left",
        [f"exec {at.host} -- pkill -CONT -f job.py"],
        [f"link set {at.port} down", f"announce {at.host}:eth1"],
        commands=[(at.host, "pkill", "-STOP", "-f", "job.py")],
        hints=["The network is well: `rdma write` and `probe` work.", "Look at the states of processes."],
    )


def firewalled(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    rules = "add table inet hardening; add chain inet hardening input { type filter hook input priority 0; }; "
    rules += "add rule inet hardening input udp dport 4791 drop"
    return Trouble(
        ["firewall", "silent-drop", "lossy-link"],
        at.names,
        f"a hardening script on {at.host} drops UDP port 4791 (RoCE)",
        [f"exec {at.host} -- nft delete table inet hardening"],
        [f"announce {at.host}:eth1", f"link set {at.port} down"],
        commands=[(at.host, "nft", rules)],
        hints=["TCP to it works, RDMA does not.", "Look at what the host does with packets that arrive."],
    )


def narrow_host(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    return Trouble(
        ["mtu-mismatch", "mtu"],
        at.names,
        f"the MTU of {at.host}:eth1 was set to 600",
        [f"exec {at.host} -- ip link set eth1 mtu 1500"],
        [f"announce {at.host}:eth1"],
        commands=[(at.host, *["ip", "link", "set", "eth1", "mtu", "600"])],
        hints=["Small messages arrive.", "Compare MTUs."],
    )


def port_down(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    node, port = at.port.split(":")
    return Trouble(
        ["link-down"],
        at.names,
        f"somebody set {at.port} down",
        [f"exec {node} -- ip link set {port} up"],
        [f"announce {at.host}:eth1", f"exec {node} -- ip neigh flush dev {at.vlan}"],
        commands=[(node, *f"ip link set {port} down".split())],
        hints=["It is one host.", "`inspect` shows links."],
    )


KINDS: Mapping[IncidentArea, Sequence[Callable[[Random], Trouble]]] = {
    "arp": [stale_entry, duplicate_address],
    "fabric": [blackhole, spine_drops, gateway_down, lossy_uplink, corrupting_uplink, narrow_uplinks, port_down],
    "training": [stopped_rank, firewalled, narrow_host, wrong_gateway, missing_route],
}
