"""The comments of a fabric's file."""

from collections.abc import Sequence

from testbed.topology.fabrics.addresses import Families
from testbed.topology.fabrics.fabric import Fabric


def count(number: int, noun: str) -> str:
    plural = "leaves" if noun == "leaf" else noun + ("es" if noun.endswith("switch") else "s")
    return f"{number} {noun if number == 1 else plural}"


def span(names: Sequence[str]) -> str:
    """Return `leaf1`, `leaf1, leaf2` or `leaf1 … leaf8`."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"


def addressing(fabric: Fabric, first: str, second: str, top: str) -> list[str]:
    """Return comments on addresses. `first` and `second` are an address's parts, such as a rail and a leaf."""
    family = fabric.family
    if fabric.bridged:
        subnets = _either(family, "10.R.0.0/16", "2001:db8:R::/64")
        return [f"The hosts of rail R are in VLAN R0, one subnet {subnets} with {top} as gateway."]
    a, b = first[0].upper(), second[0].upper()
    vlan = f"VLAN {a}0" if first == "rail" else "VLAN 10"
    subnet = _either(family, f"10.{a}.{b}.0/24", f"2001:db8:{a}:{b}::/64")
    hosts = f"The hosts of {first} {a}, {second} {b} are in {vlan}, {subnet}, with their switch as gateway."
    if fabric.routing == "frr":
        found = "FRR finds the routes: BGP unnumbered, ECMP, BFD."
        return [hosts, f"A link between switches is routed and has no addresses. {found}"]
    link = f"A link between switches is a VLAN of its own and a {_either(family, '/31', '/127')}."
    return [hosts, f"{link} Routes are static; several next hops are ECMP."]


def _either(family: Families, four: str, six: str) -> str:
    return {4: four, 6: six, "dual": f"{four} and {six}"}[family]
