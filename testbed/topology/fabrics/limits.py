"""Limits of fabrics, checked before anything is made: one error that names the value."""

from __future__ import annotations

from testbed.errors import InputError
from testbed.topology.fabrics import addresses
from testbed.topology.fabrics.fabric import Fabric


def at_least_one(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InputError(f"{name} is {value}; at least 1 is needed")


def at_most(most: int, why: str, **options: int) -> None:
    for name, value in options.items():
        if value > most:
            raise InputError(f"{name} is {value}; {why}", hint=f"At most {most}.")


def check_hosts(fabric: Fabric, hosts: int, per_subnet: int) -> None:
    """The option `hosts` puts `per_subnet` hosts into one subnet."""
    most, prefix = (addresses.MAX_HOSTS_BRIDGED, 16) if fabric.bridged else (addresses.MAX_HOSTS, 24)
    if per_subnet > most:
        raise InputError(
            f"hosts is {hosts}: {per_subnet} hosts in a subnet, and a /{prefix} has addresses for {most} and a gateway"
        )


def check_links(fabric: Fabric, name: str, value: int, links: int) -> None:
    """`value` of the option `name` makes so many links between switches: with static routes each has a VLAN."""
    if not fabric.bridged and fabric.routing == "static" and links > (most := addresses.MAX_LINKS):
        raise InputError(f"{name} is {value}, which makes {links} links between switches; there are VLANs for {most}")


def check_tree(fabric: Fabric, uppers: list[str], lowers: list[str]) -> None:
    """Bridged switches may form a tree only; here each lower one is joined with each upper one."""
    if fabric.bridged and len(uppers) > 1 and len(lowers) > 1:
        loop = " – ".join([lowers[0], uppers[0], lowers[-1], uppers[-1], lowers[0]])
        raise InputError(
            f"bridged, {loop} is a layer-2 loop, and the bridges of a lab run no spanning tree",
            hint="Make it routed, or leave one switch in the upper tier.",
        )
