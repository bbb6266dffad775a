"""Hosts of a job: its ranks, their NICs, firewalls and routes."""

from random import Random

from testbed.scenario.incident.site import RANKS, Place
from testbed.scenario.incident.trouble import OFF_S, ON_S, PKILL, Left, Trouble, Typed

FILTER = "add table inet hardening; add chain inet hardening input { type filter hook input priority 0; }; "
FILTER += "add rule inet hardening input udp dport 4791 drop"
UNFILTER = "delete table inet hardening"


def stopped_rank(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    return Trouble(
        ["rank-hangs", "rank-stopped"],
        at.names,
        f"a debugger stopped the rank on {at.host} (SIGSTOP), and was left",
        [Typed(at.host, f"sh -c '{PKILL} -STOP'")],
        [f"exec {at.host} -- pkill -CONT -f job.py"],
        [f"announce {at.host}:eth1", f"exec {at.host} -- ip neigh flush dev eth1"],
        ("The network is well: `rdma write` and `probe` work.", "Look at the states of processes."),
        at.part,
        by_restart=True,
    )


def firewalled(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    return Trouble(
        ["firewall", "silent-drop", "lossy-link"],
        at.names,
        f"a hardening script on {at.host} drops UDP port 4791 (RoCE)",
        [Typed(at.host, f"nft '{FILTER}'")],
        [f"exec {at.host} -- nft {UNFILTER}"],
        [f"announce {at.host}:eth1", f"exec {at.leaf} -- ip neigh flush dev {at.vlan}"],
        ("TCP to it works, RDMA does not.", "Look at what the host does with packets that arrive."),
        at.part,
    )


def narrow_port(r: Random) -> Trouble:
    """Of a leaf: a NIC's own MTU a job adapts to when it starts again."""
    at = Place(r.choice(RANKS))
    port = at.port.partition(":")[2]
    return Trouble(
        ["mtu-mismatch", "mtu"],
        [*at.names, at.leaf],
        f"the MTU of {at.port} was set to 1500: full packets do not fit through",
        [Typed(at.leaf, f"ip link set {port} mtu 1500")],
        [f"exec {at.leaf} -- ip link set {port} mtu 9000"],
        [f"announce {at.host}:eth1", f"exec {at.host} -- ip neigh flush dev eth1"],
        ("Small messages arrive.", "Compare the MTUs of both ends of links."),
        at.part,
    )


def wrong_gateway(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    other = f"{at.network}.99"
    return Trouble(
        ["no-route", "wrong-gateway"],
        at.names,
        f"the default route of {at.host} leads to {other}, which nobody has",
        [Typed(at.host, f"ip route replace default via {other} dev eth1")],
        [f"exec {at.host} -- ip route replace default via {at.gateway} dev eth1"],
        [f"announce {at.host}:eth1", f"exec {at.host} -- ip neigh flush dev eth1"],
        ("One host reaches its own rack, and nothing else.", "Compare routes of hosts."),
        at.part,
    )


def missing_route(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    return Trouble(
        ["no-route", "missing-route"],
        at.names,
        f"{at.host} has lost its default route",
        [Typed(at.host, "ip route del default")],
        [f"exec {at.host} -- ip route add default via {at.gateway} dev eth1"],
        [f"announce {at.host}:eth1", f"exec {at.leaf} -- ip neigh flush dev {at.vlan}"],
        ("One host reaches its own rack, and nothing else.", "Compare routes of hosts."),
        at.part,
    )


def profiled(r: Random) -> Trouble:
    """A profiler stops a rank again and again."""
    at, name = Place(r.choice(RANKS)), "stack-sampler"
    loop = f"while :; do {PKILL} -STOP; sleep {ON_S}; {PKILL} -CONT; sleep {OFF_S}; done"
    return Trouble(
        ["rank-hangs", "rank-stopped"],
        at.names,
        f"{name} on {at.host} stops the rank there for {ON_S} s, lets it go on for {OFF_S} s, and so on",
        [Left(at.host, name, loop)],
        [f"exec {at.host} -- pkill -f {name}", f"exec {at.host} -- pkill -CONT -f job.py"],
        [f"exec {at.host} -- pkill -CONT -f job.py", f"announce {at.host}:eth1"],
        ("The network is well: `rdma write` and `probe` work.", "Look at what runs on the ranks' hosts."),
        at.part,
    )


def filtered_again(r: Random) -> Trouble:
    """An agent of a configuration management and another one do not agree."""
    at, name = Place(r.choice(RANKS)), "cfg-agent"
    loop = f"while :; do nft '{FILTER}'; sleep {ON_S}; nft {UNFILTER}; sleep {OFF_S}; done"
    return Trouble(
        ["firewall", "silent-drop", "lossy-link"],
        at.names,
        f"{name} on {at.host} drops UDP port 4791 (RoCE) for {ON_S} s, takes that back for {OFF_S} s, and so on",
        [Left(at.host, name, loop)],
        [f"exec {at.host} -- pkill -f {name}", f"exec {at.host} -- sh -c 'nft {UNFILTER}; true'"],
        [f"exec {at.host} -- sh -c 'nft {UNFILTER}; true'", f"announce {at.host}:eth1"],
        ("TCP to it works, RDMA does not, and not all the time.", "Look at what runs on the ranks' hosts."),
        at.part,
    )


STEADY = [stopped_rank, firewalled, narrow_port, wrong_gateway, missing_route]
RETURNING = [profiled, filtered_again]
