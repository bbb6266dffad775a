"""
Fabrics with one tier of switches over the leaves, or none: single, two-tier, leaf-spine, rail-optimized. And the fat
tree of k-port switches (Al-Fares et al., SIGCOMM 2008).

All but `single` and the fat tree are one pattern: hosts stand in groups, a group has a leaf for each rail, NIC r of
each host of the group is on leaf r, and each leaf has one link to each switch of the upper tier. With two leaves for
each rail, a host has a bond of two links in the place of each NIC.
"""

import re
from typing import Unpack

from testbed.errors import InputError
from testbed.topology.fabrics import addresses
from testbed.topology.fabrics.fabric import (
    Fabric,
    Manner,
    Node,
    RoutedManner,
    addressing,
    at_least_one,
    at_most,
    bonding,
    count,
    span,
)

PLANE = "rail{rail}-"
"""The beginning of the name of a rail's own spine."""


def single(hosts: int = 4, **manner: Unpack[Manner]) -> Fabric:
    """Make one switch and its hosts in one VLAN. Bridged, their subnet is larger; nothing else differs."""
    fabric = Fabric("single", {"hosts": hosts}, manner)
    at_least_one(hosts=hosts)
    fabric.check_hosts(hosts, hosts)
    fabric.about = [f"One switch and {count(hosts, 'host')} in one VLAN."]
    fabric.section("leaf1")
    (leaf,) = fabric.add("switch", ["leaf1"])
    leaf.add_vlan(addresses.vlan(1), fabric.svi(1, 1), "the hosts")
    fabric.attach(fabric.add("host", [f"host{number}" for number in range(1, hosts + 1)]), leaf, addresses.vlan(1))
    return fabric.finish()


def two_tier(switches: int = 2, hosts: int = 4, **manner: Unpack[RoutedManner]) -> Fabric:
    """Make access switches with `hosts` each, under one core."""
    fabric = Fabric("two-tier", {"switches": switches, "hosts": hosts}, manner)
    at_least_one(switches=switches, hosts=hosts)
    at_most(addresses.MAX_PARTS, "each has a number in an address", switches=switches)
    fabric.check_hosts(hosts, hosts * switches if fabric.one_subnet else hosts)
    fabric.about = [
        f"{count(switches, 'access switch')} under one core, {count(hosts, 'host')} on each; {fabric.manner}.",
        *addressing(fabric, "rail", "access switch", "core1"),
    ]
    return _build(fabric, [["core1"]], [[f"access{number}"] for number in range(1, switches + 1)], hosts)


def leaf_spine(
    leaves: int = 4,
    spines: int = 2,
    hosts: int = 4,
    rails: int = 1,
    parallel: int = 1,
    dual_tor: bool = False,
    **manner: Unpack[RoutedManner],
) -> Fabric:
    """Make `leaves` times `hosts` hosts with `rails` NICs each; every leaf has `parallel` links to every spine.

    With several rails the leaves form groups of that size: NIC r of each host of a group is on leaf r of the group.
    With `dual_tor` a group has two leaves for each rail, and a host a bond to both, by LACP: half as many hosts.
    """
    options = {"leaves": leaves, "spines": spines, "hosts": hosts, "rails": rails}
    chosen: dict[str, int | str] = {"parallel": parallel} if parallel > 1 else {}
    if dual_tor:
        chosen["dual-tor"] = ""
    fabric = Fabric("leaf-spine", {**options, **chosen}, manner)
    at_least_one(**options, parallel=parallel)
    fabric.parallel = parallel
    at_most(addresses.MAX_RAILS, "each needs a VLAN", rails=rails)
    tors = 2 if dual_tor else 1
    size = rails * tors
    at_most(addresses.MAX_PARTS * size, "each has a number in an address", leaves=leaves)
    if leaves < rails:
        raise InputError(f"rails is {rails} and leaves is {leaves}: rail {leaves + 1} has no leaf")
    if leaves % size:
        missing, each = ("second leaf", "two leaves") if dual_tor else ("leaf", "one leaf")
        raise InputError(
            f"leaves is {leaves} and rails is {rails}: the last group would have no {missing} of rail {rails}",
            hint=f"Leaves form groups with {each} for each rail: choose a multiple of {size}.",
        )
    fabric.check_hosts(hosts, hosts * (leaves // size if fabric.one_subnet else 1) * rails)
    fabric.check_links("leaves", leaves, leaves * spines * parallel)
    nics = "bond" if dual_tor else "NIC"
    fabric.about = [
        f"{count(leaves, 'leaf')}, {count(spines, 'spine')}, {count(leaves // tors * hosts, 'host')} with "
        f"{count(rails, nics)} each; {fabric.manner}.",
        *bonding(fabric),
        *addressing(fabric, "rail", "leaf" if size == 1 else "group of leaves", "spine1"),
    ]
    names = [[f"leaf{first + number}" for number in range(1, size + 1)] for first in range(0, leaves, size)]
    return _build(fabric, [_spines(spines)], names, hosts * rails)


def rail_optimized(
    pods: int = 2,
    hosts: int = 4,
    rails: int = 4,
    oversubscription: str = "1:1",
    spines: int = 0,
    rail_only: bool = False,
    dual_tor: bool = False,
    **manner: Unpack[RoutedManner],
) -> Fabric:
    """Make pods of `hosts` hosts with a leaf for each rail, with `dual_tor` two, and a host has a bond to both by LACP.

    `oversubscription` is that of a leaf, downlinks to uplinks. Its uplinks are spread evenly over `spines`, by default
    one spine each. `rail_only` gives each rail its own spines: nothing joins two rails.
    """
    options = {"pods": pods, "hosts": hosts, "rails": rails}
    chosen: dict[str, int | str] = {"spines": spines} if spines else {}
    if rail_only:
        chosen["rail-only"] = ""
    if dual_tor:
        chosen["dual-tor"] = ""
    fabric = Fabric("rail-optimized", {**options, "oversubscription": oversubscription, **chosen}, manner)
    at_least_one(**options)
    at_most(addresses.MAX_RAILS, "each needs a VLAN", rails=rails)
    at_most(addresses.MAX_PARTS, "each has a number in an address", pods=pods)
    fabric.check_hosts(hosts, hosts * pods if fabric.one_subnet else hosts)
    uplinks = _uplinks(hosts, oversubscription)
    spines = spines or uplinks
    if spines < 0 or uplinks % spines:
        raise InputError(f"spines is {spines}: the {uplinks} uplinks of a leaf cannot be divided evenly among them")
    fabric.parallel = uplinks // spines
    tors = ["a", "b"] if dual_tor else [""]
    fabric.check_links("pods", pods, pods * rails * len(tors) * uplinks)
    each = f"{fabric.parallel} to each spine" if fabric.parallel > 1 else "to a spine each"
    fabric.about = [
        f"{count(pods, 'pod')} of {count(hosts, 'host')} with {count(rails, 'bond' if dual_tor else 'NIC')} each: "
        f"{'the bond of rail R is on leaves Ra and Rb' if dual_tor else 'NIC R of a host is on leaf R'} of its pod.",
        f"A leaf has {count(hosts, 'downlink')} and {count(uplinks, 'uplink')}, {each} ({oversubscription}); "
        f"{fabric.manner}.",
        *(["Each rail has spines of its own: nothing joins two rails."] if rail_only else []),
        *bonding(fabric),
        *addressing(fabric, "rail", "pod", f"{PLANE.format(rail=1) if rail_only else ''}spine1"),
    ]
    names = [
        [f"pod{pod}-leaf{rail}{tor}" for rail in range(1, rails + 1) for tor in tors] for pod in range(1, pods + 1)
    ]
    planes = (
        [_spines(spines, PLANE.format(rail=rail)) for rail in range(1, rails + 1)] if rail_only else [_spines(spines)]
    )
    return _build(fabric, planes, names, hosts)


def _uplinks(hosts: int, oversubscription: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,3}):([1-9][0-9]{0,3})", oversubscription)
    if match is None:
        raise InputError(f"oversubscription is {oversubscription!r}; expected downlinks:uplinks, such as 1:1 or 7:1")
    down, up = int(match[1]), int(match[2])
    if hosts * up % down:
        raise InputError(
            f"oversubscription is {oversubscription} and hosts is {hosts}: {hosts * up / down:.3g} uplinks for a leaf",
            hint=f"Choose a multiple, for example hosts={-(-hosts // down) * down}.",
        )
    return hosts * up // down


def _spines(number: int, before: str = "") -> list[str]:
    return [f"{before}spine{spine}" for spine in range(1, number + 1)]


def _build(fabric: Fabric, planes: list[list[str]], groups: list[list[str]], hosts_each: int) -> Fabric:
    """Build the fabric. `planes` has the names of the switches over each rail, or one list for all; `groups` has the
    names of the leaves of each group, by rail, with two leaves for each one after the other."""
    for names in planes:
        fabric.check_tree(names, [leaves[0] for leaves in groups])
    fabric.section(span([name for names in planes for name in names]))
    above = [fabric.add("switch", names) for names in planes]
    tors = 2 if fabric.dual_tor else 1
    rails = len(groups[0]) // tors
    uppers_of = above if len(above) == rails else above * rails
    notes = [f"rail {rail}" for rail in range(1, rails + 1)] if rails > 1 else ["the hosts"]
    if fabric.bridged:  # a rail is one VLAN, and the first switch above it is its gateway
        for rail, (note, uppers) in enumerate(zip(notes, uppers_of, strict=True), start=1):
            for upper in uppers:
                upper.add_vlan(addresses.vlan(rail), fabric.svi(rail, 0) if upper is uppers[0] else {}, note)
    for group, names in enumerate(groups, start=1):
        host_names = [f"host{number}" for number in range((group - 1) * hosts_each + 1, group * hosts_each + 1)]
        fabric.section(f"{span(names)} and {span(host_names)}")
        leaves, hosts = fabric.add("switch", names), fabric.add("host", host_names)
        if rails > 1:
            # One default route over all rails: what is bound to a NIC, as RoCE is, takes the next hop on that NIC.
            subnets = [fabric.subnet(rail, group) for rail in range(1, rails + 1)]
            gateways = {family: [str(each[family][1]) for each in subnets] for family in subnets[0]}
            for host in hosts:
                host.add_routes(fabric.anywhere(), gateways)
        for rail, uppers in enumerate(uppers_of, start=1):
            own = leaves[(rail - 1) * tors : rail * tors]
            for leaf in own:
                fabric.section(f"{leaf.name} to {span(host_names)} and to {span([upper.name for upper in uppers])}")
                fabric.add_leaf(leaf, hosts, uppers, addresses.vlan(rail), notes[rail - 1], (rail, group))
            if fabric.dual_tor:
                fabric.bond(hosts, own, (rail, group))
    return fabric.finish()


VLAN = addresses.vlan(1)


def fat_tree(k: int = 4, dual_tor: bool = False, **manner: Unpack[RoutedManner]) -> Fabric:
    """Make k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores, k/2 hosts on each edge switch: k³/4 hosts.

    With `dual_tor` two edge switches have the same hosts, each with a bond to both by LACP: half as many hosts.
    """
    chosen: dict[str, int | str] = {"dual-tor": ""} if dual_tor else {}
    fabric = Fabric("fat-tree", {"k": k, **chosen}, manner)
    if k < 2 or k % 2:
        raise InputError(f"k is {k}; it must be an even number of ports: half of them lead down, half up")
    half, tors = k // 2, 2 if dual_tor else 1
    if half % tors:
        raise InputError(f"k is {k}: the {half} edge switches of a pod are no pairs", hint="Choose a multiple of 4.")
    at_most(addresses.MAX_PARTS, "each pod needs subnets", k=k)
    fabric.check_links("k", k, k**3 // 2)
    names = [f"core{number}" for number in range(1, half**2 + 1)]
    fabric.check_tree(names, ["pod1-agg1", f"pod{k}-agg1"])
    fabric.about = [
        f"{count(k, 'pod')} of {count(half, 'edge switch')} and {count(half, 'aggregation switch')}, "
        f"{count(half**2, 'core')}, {count(k * half**2 // tors, 'host')}{' with a bond each' * dual_tor}; "
        f"{fabric.manner}.",
        *bonding(fabric),
        *addressing(fabric, "pod", "rack" if dual_tor else "edge switch", names[0]),
    ]
    fabric.section(span(names))
    cores = fabric.add("switch", names)
    if fabric.bridged:
        for core in cores:
            core.add_vlan(VLAN, fabric.svi(1, 0), "the hosts")
    for pod in range(1, k + 1):
        aggs = _lower_half(fabric, pod, half)
        for number, agg in enumerate(aggs):
            _upper_half(fabric, pod, k, agg, cores[number * half : (number + 1) * half])
    return fabric.finish()


def _lower_half(fabric: Fabric, pod: int, half: int) -> list[Node]:
    names = [f"pod{pod}-agg{number}" for number in range(1, half + 1)]
    fabric.section(span(names))
    aggs = fabric.add("switch", names)
    if fabric.bridged:
        for agg in aggs:
            agg.add_vlan(VLAN, {}, "the hosts")
    tors = 2 if fabric.dual_tor else 1
    racks = half // tors
    for rack in range(1, racks + 1):
        first = ((pod - 1) * racks + rack - 1) * half + 1
        names = [f"pod{pod}-edge{(rack - 1) * tors + number}" for number in range(1, tors + 1)]
        host_names = [f"host{host}" for host in range(first, first + half)]
        fabric.section(f"{span(names)} and {span(host_names)}")
        edges, hosts = fabric.add("switch", names), fabric.add("host", host_names)
        for edge in edges:
            fabric.add_leaf(edge, hosts, aggs, VLAN, "the hosts", (pod, rack))
        if fabric.dual_tor:
            fabric.bond(hosts, edges, (pod, rack))
    return aggs


def _upper_half(fabric: Fabric, pod: int, pods: int, agg: Node, cores: list[Node]) -> None:
    fabric.section(f"{agg.name} to {span([core.name for core in cores])}")
    if fabric.bridged:
        fabric.trunks(agg, cores, VLAN)
        return
    below = [{family: addresses.subnets(other, family) for family in fabric.anywhere()} for other in range(1, pods + 1)]
    hops = fabric.join(agg, cores, below[pod - 1])
    # Not a default route: packets to a subnet that no edge switch of the pod has would loop until their TTL ends.
    for other, to in enumerate(below, start=1):
        if other != pod:
            agg.add_routes(to, hops, f"pod{other}")
