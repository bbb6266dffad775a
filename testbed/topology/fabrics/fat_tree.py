"""The fat tree of k-port switches (Al-Fares et al., SIGCOMM 2008)."""

from typing import Unpack

from testbed.errors import InputError
from testbed.topology.fabrics import addresses
from testbed.topology.fabrics.fabric import Fabric, Node, RoutedManner, addressing, at_most, count, span

VLAN = addresses.vlan(1)


def fat_tree(k: int = 4, **manner: Unpack[RoutedManner]) -> Fabric:
    """Make k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores, k/2 hosts on each edge switch: k³/4 hosts."""
    fabric = Fabric("fat-tree", {"k": k}, manner)
    if k < 2 or k % 2:
        raise InputError(f"k is {k}; it must be an even number of ports: half of them lead down, half up")
    half = k // 2
    at_most(addresses.MAX_PARTS, "each pod needs subnets", k=k)
    fabric.check_links("k", k, k**3 // 2)
    names = [f"core{number}" for number in range(1, half**2 + 1)]
    fabric.check_tree(names, ["pod1-agg1", f"pod{k}-agg1"])
    fabric.about = [
        f"{count(k, 'pod')} of {count(half, 'edge switch')} and {count(half, 'aggregation switch')}, "
        f"{count(half**2, 'core')}, {count(k * half**2, 'host')}; {fabric.manner}.",
        *addressing(fabric, "pod", "edge switch", names[0]),
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
    for number in range(1, half + 1):
        first = ((pod - 1) * half + number - 1) * half + 1
        hosts = [f"host{host}" for host in range(first, first + half)]
        name = f"pod{pod}-edge{number}"
        fabric.section(f"{name} and {span(hosts)}")
        (edge,) = fabric.add("switch", [name])
        fabric.add_leaf(edge, fabric.add("host", hosts), aggs, VLAN, "the hosts", (pod, number))
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
