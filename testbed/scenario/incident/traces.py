"""What others did to a cluster before: harmless changes that mislead, and fixes that were tried and break something."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from testbed.scenario.incident import pod_traces
from testbed.scenario.incident.site import OTHERS, RANKS, Place, uplink
from testbed.scenario.incident.trouble import PKILL, Set, Trace, Typed


def storage_address(r: Random) -> Trace:
    at = Place(r.choice(["store1", "store2"]))
    return Trace(
        f"The storage team gave {at.host} a second address today, 10.77.0.{at.number}. We suspect that.",
        [Typed(at.host, f"ip address add 10.77.0.{at.number}/24 dev eth1")],
    )


def narrow_web(r: Random) -> Trace:
    at = Place(r.choice(["web1", "web2"]))
    return Trace(
        f"The MTU of {at.host} was lowered to 1400 for a tunnel this morning. It began soon after.",
        [Typed(at.host, "ip link set eth1 mtu 1400")],
    )


def drill(r: Random) -> Trace:
    spine = r.choice(["spine1", "spine2"])
    return Trace(
        f"{spine} has routes that drop packets since the DDoS drill; they were never taken out.",
        [Typed(spine, f"ip route add blackhole 10.66.{number}.0/24") for number in (1, 2)],
    )


def old_entry(r: Random) -> Trace:
    at = Place(r.choice(OTHERS))
    return Trace(
        f"There was an ARP problem on {at.leaf} last week. Perhaps it is that again.",
        [Typed(at.leaf, f"ip neigh replace {at.network}.200 lladdr 02:00:00:00:77:01 nud permanent dev {at.vlan}")],
    )


def firmware(r: Random) -> Trace:
    switch = r.choice(["leaf1", "leaf2", "spine1", "spine2"])
    return Trace(f"{switch} got new firmware last night. Everybody says that it is {switch}.", [])


def firewall(r: Random) -> Trace:
    at = Place(r.choice(OTHERS))
    rules = "add table inet audit; add chain inet audit input { type filter hook input priority 0; }; "
    rules += "add rule inet audit input udp dport 4791 counter"
    return Trace(
        f"Security rolled out rules on {at.host} today. Can they have to do with it?",
        [Typed(at.host, f"nft '{rules}'")],
    )


def not_suppressed(r: Random) -> Trace:
    leaf, vlan = r.choice(["leaf1", "leaf2"]), r.choice([10, 20])
    return Trace(
        f"ARP suppression of VLAN {vlan} was switched off on {leaf} this morning, as the vendor told us. Is that it?",
        [Typed(leaf, f"bridge link set dev vni{10000 + vlan} neigh_suppress off")],
    )


def watchdog_times(r: Random) -> Trace:
    leaf = r.choice(["leaf1", "leaf2"])
    return Trace(
        f"The restoration time of the PFC watchdog on {leaf} was raised to 2 s today. The watchdog itself is off.",
        [Set(leaf, {"pfc_watchdog_restoration": 2.0})],
    )


def marks_of_spine(r: Random) -> Trace:
    spine = r.choice(["spine1", "spine2"])
    return Trace(
        f"ecn_probability of {spine} has been 20 instead of 10 since this morning. Is that it?",
        [Set(spine, {"ecn_probability": 20})],
    )


def marked_web(r: Random) -> Trace:
    at = Place(r.choice(["web1", "web2"]))
    rules = "add table inet qos; add chain inet qos out { type filter hook postrouting priority 0; }; "
    rules += "add rule inet qos out ip dscp set cs1"
    return Trace(
        f"{at.host} marks all that it sends with DSCP 8 since today. The network team was not asked.",
        [Typed(at.host, f"nft '{rules}'")],
    )


MISLEADING: Mapping[str, Sequence[Callable[[Random], Trace]]] = {
    "cluster": [storage_address, narrow_web, drill, old_entry, firmware, firewall],
    "pods": [storage_address, narrow_web, old_entry, firewall, *pod_traces.MISLEADING],
    "evpn": [storage_address, narrow_web, drill, firmware, firewall, not_suppressed],
    "lossless": [storage_address, old_entry, firmware, watchdog_times, marks_of_spine, marked_web],
}
"""Harmless changes, by the cluster in which they are."""


def restarted(at: Place) -> list[Typed]:
    """Return what has the job start again: connections that are there keep their MACs."""
    return [Typed(at.host, f"sh -c '{PKILL} -KILL'")]


def shrunk(r: Random) -> Trace:
    at = Place(r.choice(RANKS))
    port = at.port.partition(":")[2]
    return Trace(
        f"The night shift set the MTU of {at.port} to 1500, to rule out large packets. It did not help, and is "
        "still so.",
        [Typed(at.leaf, f"ip link set {port} mtu 1500")],
        [f"exec {at.leaf} -- ip link set {port} mtu 9000"],
        at.part,
    )


def detoured(r: Random) -> Trace:
    at = Place(r.choice(RANKS))
    far = Place(r.choice([rank for rank in RANKS if Place(rank).leaf != at.leaf]))
    by = at.store.ip
    return Trace(
        f"The night shift gave {at.host} a route of its own to {far.host} ({far.ip}), by way of {by}. They restarted "
        "the job. It did not help, and is still there.",
        [Typed(at.host, f"ip route add {far.ip}/32 via {by} dev eth1"), *restarted(at)],
        [f"exec {at.host} -- ip route del {far.ip}/32"],
        at.part | far.part,
    )


def pinned(r: Random) -> Trace:
    at = Place(r.choice(RANKS))
    mate = Place(next(rank for rank in RANKS if Place(rank).leaf == at.leaf and rank != at.host))
    mac = "02:00:00:00:88:01"
    return Trace(
        f"The night shift pinned the MAC of {mate.ip} on {at.host} to the one in the inventory, {mac}. It did not "
        "help, and is still there.",
        [Typed(at.host, f"ip neigh replace {mate.ip} lladdr {mac} nud permanent dev eth1"), *restarted(at)],
        [f"exec {at.host} -- ip neigh del {mate.ip} dev eth1"],
        at.part | mate.part,
    )


def drained(r: Random) -> Trace:
    """The uplinks of a leaf were taken out, and the gateway with them."""
    leaf = r.choice(["leaf1", "leaf2"])
    near = [uplink(leaf, number)[0] for number in (1, 2)]
    return Trace(
        f"The night shift took both uplinks of {leaf} out, {near[0]} and {near[1]}, to look at the optics. They are "
        "still down.",
        [Typed(leaf, f"ip link set {end.partition(':')[2]} down") for end in near],
        [f"exec {leaf} -- ip link set {end.partition(':')[2]} up" for end in near],
        frozenset({"uplinks", leaf}),
    )


def isolated(r: Random) -> Trace:
    """A host's port was taken out of its VLAN."""
    at = Place(r.choice(RANKS))
    port = at.port.partition(":")[2]
    vlan = 10 if at.number == 1 else 20
    return Trace(
        f"The night shift put {at.port} into VLAN 999, as {at.host} might flood. It does not, and is still there.",
        [
            Typed(at.leaf, f"bridge vlan del dev {port} vid {vlan}"),
            Typed(at.leaf, f"bridge vlan add dev {port} vid 999 pvid untagged"),
        ],
        [
            f"exec {at.leaf} -- bridge vlan del dev {port} vid 999",
            f"exec {at.leaf} -- bridge vlan add dev {port} vid {vlan} pvid untagged",
        ],
        at.part,
    )


def narrow_classes(r: Random) -> Trace:
    """Less headroom, and no marks before it is used up."""
    leaf = r.choice(["leaf1", "leaf2"])
    return Trace(
        f"The night shift set pfc_headroom of {leaf} to 10000, to have more of its buffer for all. It did not help, "
        "and is still so. It was 40000.",
        [Set(leaf, {"pfc_headroom": 10000})],
        [f"profile set {leaf} pfc_headroom=40000"],
        frozenset({f"profile of {leaf}"}),
    )


TRIED: Mapping[str, Sequence[Callable[[Random], Trace]]] = {
    "cluster": [shrunk, detoured, pinned, drained],
    "pods": pod_traces.TRIED,
    "evpn": [shrunk, drained, isolated],
    "lossless": [shrunk, pinned, drained, narrow_classes],
}
"""Fixes that were tried, by the cluster."""
