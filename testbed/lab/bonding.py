"""The kernel's bonds: the numbers of a plan's words (include/uapi/linux/if_bonding.h), and the making of a bond."""

from testbed.kernel.links import Links
from testbed.topology import Bond
from testbed.topology import Interface as InterfacePlan

LACP = "802.3ad"
MODES = {"active-backup": 1, "balance-xor": 2, LACP: 4}
HASHES = {"layer2": 0, "layer3+4": 1, "layer2+3": 2}
MII_MS = 100
"""Milliseconds between two looks at the carriers of a bond's members."""


def make(kernel: Links, plan: InterfacePlan, bond: Bond, *, lacp_strict: bool) -> int:
    """Make a bond without members, and return its index. With `lacp_strict` it is down while LACP has no partner;
    without, it has its first member as a link without LACP."""
    index = kernel.add_bond(plan.name, MODES[bond.mode], _options(bond, lacp_strict), bond.system)
    kernel.set_link(index, mac=plan.mac, mtu=plan.mtu)
    return index


def join(kernel: Links, member: int, name: str, index: int, bond: Bond) -> None:
    """Put an interface into a bond, which sets it up."""
    kernel.join_bond(member, index)
    if bond.primary == name:
        kernel.set_primary(index, member)


def _options(bond: Bond, lacp_strict: bool) -> dict[str, int]:
    found = {"miimon": MII_MS, "min_links": bond.min_links}
    if bond.mode != "active-backup":
        found["xmit_hash_policy"] = HASHES[bond.hash]
    if bond.mode == LACP:
        found["lacp_rate"] = int(bond.lacp_rate == "fast")
        if lacp_strict:  # with a minimum of 0 the kernel has a carrier all the same
            found |= {"lacp_strict": 1, "min_links": max(1, bond.min_links)}
        if bond.broadcast_neighbor:
            found["broadcast_neighbor"] = 1
    return found
