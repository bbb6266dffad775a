"""
Fabrics with one tier of switches over the leaves, or none: single, two-tier, leaf-spine, rail-optimized.

All but `single` are one pattern: hosts stand in groups, a group has a leaf for each rail, NIC r of each host of the
group is on leaf r, and each leaf has one link to each switch of the upper tier.
"""

from __future__ import annotations

import re
from typing import Unpack

from testbed.errors import InputError
from testbed.topology.fabrics import addresses, limits
from testbed.topology.fabrics.fabric import Fabric, Manner, Node, RoutedManner
from testbed.topology.fabrics.words import addressing, count, span
from testbed.topology.plan import Family


def single(hosts: int = 4, **manner: Unpack[Manner]) -> Fabric:
    """One switch and its hosts in one VLAN. Bridged, their subnet is larger; nothing else differs."""
    fabric = Fabric("single", {"hosts": hosts}, manner)
    limits.at_least_one(hosts=hosts)
    limits.check_hosts(hosts, hosts, bridged=fabric.bridged)
    fabric.about = [f"One switch and {count(hosts, 'host')} in one VLAN."]
    fabric.section("leaf1")
    (leaf,) = fabric.switches(["leaf1"])
    svi = fabric.each(addresses.bridged_svi, 1) if fabric.bridged else fabric.each(addresses.svi, 1, 1)
    leaf.add_vlan(addresses.vlan(1), svi, "the hosts")
    fabric.attach(fabric.hosts(f"host{number}" for number in range(1, hosts + 1)), leaf, addresses.vlan(1))
    return fabric.finish()


def two_tier(switches: int = 2, hosts: int = 4, **manner: Unpack[RoutedManner]) -> Fabric:
    """Access switches with `hosts` each, under one core."""
    fabric = Fabric("two-tier", {"switches": switches, "hosts": hosts}, manner)
    limits.at_least_one(switches=switches, hosts=hosts)
    limits.at_most(addresses.MAX_PARTS, "each has a number in an address", switches=switches)
    limits.check_hosts(hosts, hosts * switches if fabric.bridged else hosts, bridged=fabric.bridged)
    fabric.about = [
        f"{count(switches, 'access switch')} under one core, {count(hosts, 'host')} on each; {fabric.manner}.",
        *addressing(fabric, "rail", "access switch", "core1"),
    ]
    return _build(fabric, ["core1"], [[f"access{number}"] for number in range(1, switches + 1)], hosts)


def leaf_spine(
    leaves: int = 4, spines: int = 2, hosts: int = 4, rails: int = 1, **manner: Unpack[RoutedManner]
) -> Fabric:
    """
    `leaves` times `hosts` hosts with `rails` NICs each; every leaf has a link to every spine.

    With several rails the leaves stand in groups of as many: NIC r of each host of a group is on leaf r of the group.
    """
    options = {"leaves": leaves, "spines": spines, "hosts": hosts, "rails": rails}
    fabric = Fabric("leaf-spine", options, manner)
    limits.at_least_one(**options)
    limits.at_most(addresses.MAX_RAILS, "each needs a VLAN", rails=rails)
    limits.at_most(addresses.MAX_PARTS * rails, "each has a number in an address", leaves=leaves)
    if leaves < rails:
        raise InputError(f"rails is {rails} and leaves is {leaves}: rail {leaves + 1} has no leaf")
    if leaves % rails:
        raise InputError(
            f"leaves is {leaves} and rails is {rails}: the last group would have no leaf of rail {rails}",
            hint=f"Leaves stand in groups of one a rail: choose a multiple of {rails}.",
        )
    limits.check_hosts(hosts, hosts * (leaves // rails if fabric.bridged else 1) * rails, bridged=fabric.bridged)
    limits.check_links("leaves", leaves, leaves * spines, bridged=fabric.bridged, routing=fabric.routing)
    fabric.about = [
        f"{count(leaves, 'leaf')}, {count(spines, 'spine')}, {count(leaves * hosts, 'host')} with "
        f"{count(rails, 'NIC')} each; {fabric.manner}.",
        *addressing(fabric, "rail", "leaf" if rails == 1 else "group of leaves", "spine1"),
    ]
    names = [[f"leaf{first + rail}" for rail in range(1, rails + 1)] for first in range(0, leaves, rails)]
    return _build(fabric, _spines(spines), names, hosts * rails)


def rail_optimized(
    pods: int = 2, hosts: int = 4, rails: int = 4, oversubscription: str = "1:1", **manner: Unpack[RoutedManner]
) -> Fabric:
    """
    Pods of `hosts` hosts with a leaf for each rail.

    `oversubscription` is that of a leaf, downlinks to uplinks. Each uplink goes to a spine of its own, so it decides
    how many spines there are.
    """
    options = {"pods": pods, "hosts": hosts, "rails": rails}
    fabric = Fabric("rail-optimized", {**options, "oversubscription": oversubscription}, manner)
    limits.at_least_one(**options)
    limits.at_most(addresses.MAX_RAILS, "each needs a VLAN", rails=rails)
    limits.at_most(addresses.MAX_PARTS, "each has a number in an address", pods=pods)
    limits.check_hosts(hosts, hosts * pods if fabric.bridged else hosts, bridged=fabric.bridged)
    spines = _uplinks(hosts, oversubscription)
    limits.check_links("pods", pods, pods * rails * spines, bridged=fabric.bridged, routing=fabric.routing)
    fabric.about = [
        f"{count(pods, 'pod')} of {count(hosts, 'host')} with {count(rails, 'NIC')} each: NIC R of a host is on leaf R "
        "of its pod.",
        f"A leaf has {count(hosts, 'downlink')} and {count(spines, 'uplink')}, to a spine each ({oversubscription}); "
        f"{fabric.manner}.",
        *addressing(fabric, "rail", "pod", "spine1"),
    ]
    names = [[f"pod{pod}-leaf{rail}" for rail in range(1, rails + 1)] for pod in range(1, pods + 1)]
    return _build(fabric, _spines(spines), names, hosts)


def _uplinks(hosts: int, oversubscription: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,3}):([1-9][0-9]{0,3})", oversubscription)
    if match is None:
        raise InputError(f"oversubscription is {oversubscription!r}; it is downlinks:uplinks, such as 1:1 or 7:1")
    down, up = int(match[1]), int(match[2])
    if hosts * up % down:
        raise InputError(
            f"oversubscription is {oversubscription} and hosts is {hosts}: {hosts * up / down:.3g} uplinks for a leaf",
            hint=f"Choose hosts so that it divides, for example {-(-hosts // down) * down}.",
        )
    return hosts * up // down


def _spines(number: int) -> list[str]:
    return [f"spine{spine}" for spine in range(1, number + 1)]


def _build(fabric: Fabric, names_above: list[str], groups: list[list[str]], hosts_each: int) -> Fabric:
    """`groups` has the names of the leaves of each group, by rail."""
    if fabric.bridged:
        limits.check_tree(names_above, [leaves[0] for leaves in groups])
    fabric.section(span(names_above))
    uppers = fabric.switches(names_above)
    for group, names in enumerate(groups, start=1):
        host_names = [f"host{number}" for number in range((group - 1) * hosts_each + 1, group * hosts_each + 1)]
        fabric.section(f"{span(names)} and {span(host_names)}")
        leaves, hosts = fabric.switches(names), fabric.hosts(host_names)
        if len(leaves) > 1:
            # One default route over all rails: what is bound to a NIC, as RoCE is, takes the next hop on that NIC.
            gateways = [_gateways(fabric, rail, group) for rail in range(1, len(leaves) + 1)]
            for host in hosts:
                host.add_routes(fabric.anywhere(), {f: [each[f] for each in gateways] for f in gateways[0]})
        for rail, leaf in enumerate(leaves, start=1):
            fabric.section(f"{leaf.name} to {span(host_names)} and to {span(names_above)}")
            fabric.attach(hosts, leaf, addresses.vlan(rail))
            note = f"rail {rail}" if len(leaves) > 1 else "the hosts"
            (_bridge if fabric.bridged else _route)(fabric, leaf, uppers, (rail, group, note))
    return fabric.finish()


def _gateways(fabric: Fabric, rail: int, group: int) -> dict[Family, str]:
    return (
        fabric.each(addresses.bridged_gateway, rail) if fabric.bridged else fabric.each(addresses.gateway, rail, group)
    )


def _route(fabric: Fabric, leaf: Node, uppers: list[Node], place: tuple[int, int, str]) -> None:
    """The leaf is the gateway of its hosts, and each upper switch knows where they are."""
    rail, group, note = place
    leaf.add_vlan(addresses.vlan(rail), fabric.each(addresses.svi, rail, group), note)
    leaf.add_routes(fabric.anywhere(), fabric.join(leaf, uppers, fabric.each(addresses.subnet, rail, group)))


def _bridge(fabric: Fabric, leaf: Node, uppers: list[Node], place: tuple[int, int, str]) -> None:
    """The rail is one VLAN, and the first upper switch is the gateway."""
    rail, _, note = place
    leaf.add_vlan(addresses.vlan(rail), {}, note)
    for upper in uppers:
        svi = fabric.each(addresses.bridged_svi, rail) if upper is uppers[0] else {}
        upper.add_vlan(addresses.vlan(rail), svi, note)
    fabric.trunks(leaf, uppers, addresses.vlan(rail))
