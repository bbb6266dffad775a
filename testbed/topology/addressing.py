"""
Addresses that are planned, never drawn: they follow from the order of the lab's file alone.

MAC addresses are locally administered (IEEE 802: bit 0x02 of the first byte), in three ranges that cannot meet:

====================  =========================================================================
02:NN:NN:00:II:II     interface I (counted from 1, in the order of the links) of node N (from 1)
02:NN:NN:01:00:00     the SVIs of node N: one MAC, as a router has
06:HH:HH:HH:HH:HH     something made while the lab runs, a pod for example: a hash of its name
====================  =========================================================================

That of a virtual router is the standard's, by its family and its id.

An interface with an IPv6 address has a link-local one too, which follows from its MAC.

Switch N of a fabric that BGP routes has the AS number 4200000000 + N (RFC 6996: 4200000000 to 4294967294 are for
private use) and the router ID 10.255.0.0 + N, which is the address of its VXLAN tunnels, too.
"""

import hashlib
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from testbed.topology.plan import Bgp, Family, IPAddress, IPNetwork, Plan

POOL = IPv4Network("198.18.0.0/15")
"""The addresses for segments without an address in the file: a range for labs by standard (RFC 2544, RFC 6890)."""
POOL_PREFIX = 24
"""The prefix length of a segment, also on a link between two hosts: space for pods. Shorter when its hosts need it."""


def interface_mac(node: int, interface: int) -> str:
    return _mac(2, node, 0, interface)


def svi_mac(node: int) -> str:
    """Return one MAC for all SVIs of a node: with several the bridge is promiscuous, and its stack gets every frame."""
    return _mac(2, node, 1, 0)


def virtual_mac(family: Family, router_id: int) -> str:
    """Return the MAC of a virtual router (RFC 9568 section 7.3)."""
    return f"00:00:5e:00:0{1 if family == 4 else 2}:{router_id:02x}"


def virtual_mac_of(plan: Plan, ip: IPAddress) -> str | None:
    """Return the MAC of the virtual router that has an address; None if none has."""
    routers = [router for node in plan.nodes.values() for _, router in node.virtual_routers]
    return next((virtual_mac(ip.version, router.id) for router in routers if ip in router.addresses), None)


def bgp(node: int, *, evpn: bool) -> Bgp:
    return Bgp(4_200_000_000 + node, IPv4Address("10.255.0.0") + node, evpn)


def pod_mac(lab_name: str, pod_name: str) -> str:
    """Return the MAC address of a pod: the same on every machine for two names, never one of a planned interface."""
    digest = hashlib.sha256(f"{lab_name}/{pod_name}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in b"\x06" + digest[:5])


def link_local(mac: str) -> IPv6Address:
    """Return the link-local address of a MAC: its modified EUI-64 (RFC 4291 appendix A), as in GID 0 of its device."""
    first, *others = bytes.fromhex(mac.replace(":", ""))
    return IPv6Address(bytes([0xFE, 0x80, *bytes(6), first ^ 2, *others[:2], 0xFF, 0xFE, *others[2:]]))


def _mac(first: int, node: int, group: int, number: int) -> str:
    return bytes([first, *node.to_bytes(2), group, *number.to_bytes(2)]).hex(":")


def usable(network: IPNetwork) -> int:
    """Return the number of usable host addresses. A /31 (RFC 3021) and a /127 (RFC 6164) have two; other subnets lose
    the first (the network's, in IPv6 the routers' anycast) and in IPv4 the last (broadcast)."""
    kept = 0 if network.max_prefixlen - network.prefixlen < 2 else 2 if network.version == 4 else 1
    return network.num_addresses - kept


def free_addresses(network: IPNetwork, taken: Iterable[IPAddress]) -> Iterator[IPAddress]:
    """Yield the subnet's host addresses that are not taken, ascending."""
    known = frozenset(taken)
    return (address for address in network.hosts() if address not in known)


class Pool:
    """The allocator of subnets of POOL, one after the other, which skips those in the file."""

    def __init__(self, named: Iterable[IPv4Network]) -> None:
        self._named = [network for network in named if network.overlaps(POOL)]
        self._next = int(POOL.network_address)

    def keep(self, network: IPv4Network, hosts: int) -> bool:
        """Take a subnet that a lab has for a segment. Return whether it is one of the pool, free, and large enough."""
        free = not any(network.overlaps(other) for other in self._named)
        if not (free and network.subnet_of(POOL) and usable(network) >= hosts):
            return False
        self._named.append(network)
        return True

    def allocate(self, hosts: int) -> IPv4Network | None:
        """Return a subnet for this many hosts, at least a /24; None when the pool is used up."""
        prefix = min(POOL_PREFIX, 32 - (hosts + 1).bit_length())
        size = 1 << 32 - prefix
        start = -(-self._next // size) * size
        while start + size <= int(POOL.broadcast_address) + 1:
            network = IPv4Network((start, prefix))
            if not any(network.overlaps(named) for named in self._named):
                self._next = start + size
                return network
            start += size
        return None
