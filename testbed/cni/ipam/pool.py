"""A pool of addresses, with the keys of a SpiderIPPool (Spiderpool, docs/reference/crd-spiderippool.md)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from testbed.errors import InputError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
LARGEST = 1 << 16
"""The maximum number of addresses of a pool: searches are linear."""


@dataclass(frozen=True)
class Route:
    """`dst` is ``10.0.0.0/16``, `gw` an address."""

    dst: str
    gw: str


@dataclass(frozen=True)
class Pool:
    """The properties common to all addresses of a pool."""

    name: str
    subnet: Network
    gateway: Address | None = None
    routes: tuple[Route, ...] = ()

    @property
    def family(self) -> int:
        return self.subnet.version


def make(
    name: str,
    subnet: str,
    ranges: Sequence[str],
    excluded: Sequence[str] = (),
    gateway: str = "",
    routes: Iterable[Route] = (),
) -> tuple[Pool, list[Address]]:
    """Return a pool as a user writes it, and its addresses. A range is ``10.0.10.100-10.0.10.109`` or ``10.0.10.7``.

    Without ranges all addresses of the subnet but its first and last (of IPv4) and the gateway. Raises InputError.
    """
    where = f"pool {name}"
    network = _network(subnet, where)
    router = _address(gateway, network, where, "gateway") if gateway else None
    without = {address for part in excluded for address in _range(part, network, where)}
    if router:
        without.add(router)
    wanted = dict.fromkeys(address for part in ranges for address in _range(part, network, where))
    if not ranges:
        if network.num_addresses > LARGEST:
            raise InputError(f"{network} has more than {LARGEST} addresses: list the ones to use in `ips`", where=where)
        wanted = dict.fromkeys(network.hosts())
    found = sorted(wanted.keys() - without, key=int)
    if not found:
        raise InputError("no address is left in it", where=where)
    return Pool(name, network, router, tuple(routes)), found


def _network(text: str, where: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InputError(f"subnet: {error}", where=where) from None


def _address(text: str, network: Network, where: str, what: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}", where=where) from None
    if address not in network:
        raise InputError(f"{what}: {address} is not in {network}", where=where)
    return address


def _range(text: str, network: Network, where: str) -> Iterator[Address]:
    try:
        found = range_of(text)
    except InputError as error:
        raise InputError(f"ips: {error.message}", where=where) from None
    for address in (found[0], found[-1]):
        if address not in network:
            raise InputError(f"ips: {address} is not in {network}", where=where)
    return iter(found)


def range_of(text: str) -> list[Address]:
    """Return the addresses of ``10.0.10.100-10.0.10.109``, or the one of ``10.0.10.7``. InputError."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    try:
        low = ip_address(first)
        high = ip_address(last) if dash else low
    except ValueError as error:
        raise InputError(str(error)) from None
    if high.version != low.version or int(high) < int(low):
        raise InputError(f"{text}: the end is before the start")
    if int(high) - int(low) >= LARGEST:
        raise InputError(f"{text} has more than {LARGEST} addresses")
    return [type(low)(number) for number in range(int(low), int(high) + 1)]
