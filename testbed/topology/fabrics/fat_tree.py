"""The fat tree of k-port switches (Al-Fares et al., SIGCOMM 2008)."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import InputError
from testbed.topology.fabrics import addresses, limits
from testbed.topology.fabrics.addresses import Families
from testbed.topology.fabrics.fabric import Fabric, Switch
from testbed.topology.fabrics.words import addressing, count, manner, span
from testbed.topology.plan import Routing

VLAN = addresses.vlan(1)


def fat_tree(
    k: int = 4, *, bridged: bool = False, family: Families = 4, routing: Routing = "static", management: bool = False
) -> Fabric:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores, k/2 hosts on each edge switch: k³/4 in all."""
    limits.check_routing(routing, bridged)
    if k < 2 or k % 2:
        raise InputError(f"k is {k}; it is an even number of ports: half of them go down, half up")
    limits.check_family(family)
    half = k // 2
    limits.at_most(addresses.MAX_PARTS, "each pod needs subnets", k=k)
    limits.check_links("k", k, k**3 // 2, bridged=bridged, routing=routing)
    names = [f"core{number}" for number in range(1, half**2 + 1)]
    if bridged:
        limits.check_tree(names, ["pod1-agg1", f"pod{k}-agg1"])
    about = [
        f"{count(k, 'pod')} of {count(half, 'edge switch')} and {count(half, 'aggregation switch')}, "
        f"{count(half**2, 'core')}, {count(k * half**2, 'host')}; {manner(bridged)}.",
        *addressing(bridged, family, routing, "pod", "edge switch", names[0]),
    ]
    fabric = Fabric("fat-tree", {"k": k}, bridged, family, about, routing)
    fabric.section(span(names))
    cores = [fabric.switch(name) for name in names]
    if bridged:
        for core in cores:
            core.add_vlan(VLAN, fabric.each(addresses.bridged_svi, 1), "the hosts")
    for number in range(1, k + 1):
        _build(fabric, _Pod(number, k), cores)
    if management:
        fabric.add_management()
    return fabric


@dataclass(frozen=True, slots=True)
class _Pod:
    number: int
    k: int

    @property
    def half(self) -> int:
        return self.k // 2

    def switches(self, tier: str) -> list[str]:
        return [f"pod{self.number}-{tier}{number}" for number in range(1, self.half + 1)]

    def hosts(self, edge: int) -> list[str]:
        before = ((self.number - 1) * self.half + edge - 1) * self.half
        return [f"host{before + number}" for number in range(1, self.half + 1)]


def _build(fabric: Fabric, pod: _Pod, cores: list[Switch]) -> None:
    fabric.section(span(pod.switches("agg")))
    aggs = [fabric.switch(name) for name in pod.switches("agg")]
    for agg in aggs:
        if fabric.bridged:
            agg.add_vlan(VLAN, {}, "the hosts")
    for number, name in enumerate(pod.switches("edge"), start=1):
        hosts = pod.hosts(number)
        fabric.section(f"{name} and {span(hosts)}")
        edge = fabric.switch(name)
        svi = {} if fabric.bridged else fabric.each(addresses.svi, pod.number, number)
        edge.add_vlan(VLAN, svi, "the hosts")
        for host in hosts:
            fabric.attach(fabric.host(host), edge, VLAN)
        if fabric.bridged:
            fabric.trunks(edge, aggs, VLAN)
        else:
            hops = fabric.join(edge, aggs, fabric.each(addresses.subnet, pod.number, number))
            edge.add_routes(fabric.anywhere(), hops)
    for number, agg in enumerate(aggs):
        above = cores[number * pod.half : (number + 1) * pod.half]
        fabric.section(f"{agg.name} to {span([core.name for core in above])}")
        if fabric.bridged:
            fabric.trunks(agg, above, VLAN)
            continue
        hops = fabric.join(agg, above, fabric.each(addresses.subnets, pod.number))
        # Not a default route: what no edge switch of the pod has would go up and down until its time to live ends.
        for other in range(1, pod.k + 1):
            if other != pod.number:
                agg.add_routes(fabric.each(addresses.subnets, other), hops, f"pod{other}")
