"""What cannot be made, said before anything is made: one error that names the value."""

from __future__ import annotations

from typing import Any, get_args

from testbed.errors import InputError
from testbed.topology.document import MAX_NODES
from testbed.topology.fabrics import addresses
from testbed.topology.fabrics.fabric import Fabric
from testbed.topology.plan import Routing

ROUTINGS: tuple[str, ...] = get_args(Routing)


def at_least_one(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InputError(f"{name} is {value}; at least 1 is needed")


def at_most(most: int, why: str, **options: int) -> None:
    for name, value in options.items():
        if value > most:
            raise InputError(f"{name} is {value}; {why}", hint=f"At most {most}.")


def check_family(family: object) -> None:
    if family not in addresses.FAMILIES:
        raise InputError(f"family is {family!r}; it is 4, 6 or dual")


def check_hosts(name: str, value: int, per_subnet: int, *, bridged: bool) -> None:
    """`value` of the option `name` puts `per_subnet` hosts into one subnet."""
    most, prefix = (addresses.MAX_HOSTS_BRIDGED, 16) if bridged else (addresses.MAX_HOSTS, 24)
    if per_subnet > most:
        raise InputError(
            f"{name} is {value}: {per_subnet} hosts in a subnet, and a /{prefix} has addresses for {most} and a gateway"
        )


def check_links(name: str, value: int, links: int, *, bridged: bool, routing: Routing) -> None:
    """`value` of the option `name` makes so many links between switches: with static routes each has a VLAN."""
    if not bridged and routing == "static" and links > (most := addresses.MAX_LINKS):
        raise InputError(f"{name} is {value}, which makes {links} links between switches; there are VLANs for {most}")


def check_size(fabric: Fabric) -> None:
    """A topology file has a limit of its own."""
    if (values := _values(fabric.document())) > MAX_NODES:
        raise InputError(
            f"`{fabric.command}` would write {values} values; the limit for a topology is {MAX_NODES}",
            hint="Choose smaller numbers.",
        )


def check_routing(routing: str, bridged: bool) -> None:
    if routing not in ROUTINGS:
        raise InputError(f"routing is {routing!r}; it is {' or '.join(ROUTINGS)}")
    if bridged and routing != "static":
        raise InputError(f"bridged, there is nothing to route: routing is {routing}", hint="Make it routed.")


def check_tree(uppers: list[str], lowers: list[str]) -> None:
    """Bridged switches may form a tree only; here each lower one is joined with each upper one."""
    if len(uppers) > 1 and len(lowers) > 1:
        loop = " – ".join([lowers[0], uppers[0], lowers[-1], uppers[-1], lowers[0]])
        raise InputError(
            f"bridged, {loop} is a layer-2 loop, and the bridges of a lab run no spanning tree",
            hint="Make it routed, or leave one switch in the upper tier.",
        )


def _values(data: Any) -> int:
    """Keys and values, as the reader of the file counts them."""
    if isinstance(data, dict):
        return 1 + sum(1 + _values(value) for value in data.values())
    if isinstance(data, list):
        return 1 + sum(map(_values, data))
    return 1
