"""A pool of addresses, with the keys of a SpiderIPPool (Spiderpool, docs/reference/crd-spiderippool.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from testbed.errors import InputError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Span = tuple[int, int]
"""The first and the last of some addresses, as numbers."""
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
    """Return a pool as a user writes it, and its addresses: none if `ranges` are empty, or `excluded` has them all.

    A range is ``10.0.10.100-10.0.10.109`` or ``10.0.10.7``. One that ends before it starts has no addresses, and with
    such an exception no address of the pool can be had, as in Spiderpool. Raises InputError.
    """
    where = f"pool {name}"
    network = _network(subnet, where)
    router = _inside(gateway, network, where, "gateway") if gateway else None
    wanted = [_range(text, network, where, "ips") for text in ranges]
    without = [_range(text, network, where, "excludeIPs") for text in excluded]
    if any(first > last for first, last in without):
        return Pool(name, network, router, tuple(routes)), []
    spans = subtracted(wanted, [*without, *([(int(router), int(router))] if router else [])])
    if sum(last - first + 1 for first, last in spans) > LARGEST:
        raise InputError(f"it has more than {LARGEST} addresses, the most that a pool of a lab may have", where=where)
    of_family = IPv4Address if network.version == 4 else IPv6Address
    found = sorted({number for first, last in spans for number in range(first, last + 1)})
    return Pool(name, network, router, tuple(routes)), [of_family(number) for number in found]


def _network(text: str, where: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InputError(f"subnet: {error}", where=where) from None


def subtracted(spans: Iterable[Span], excluded: Iterable[Span]) -> list[Span]:
    """Return what is left of spans of addresses; one whose end is before its start has nothing."""
    left = [span for span in spans if span[0] <= span[1]]
    for low, high in excluded:
        parts = [part for first, last in left for part in ((first, min(last, low - 1)), (max(first, high + 1), last))]
        left = [part for part in parts if part[0] <= part[1]]
    return left


def _inside(text: str, network: Network, where: str, what: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}", where=where) from None
    if address not in network:
        raise InputError(f"{what}: {address} is not in {network}", where=where)
    return address


def _range(text: str, network: Network, where: str, what: str) -> Span:
    first, dash, last = text.partition("-")
    ends = [_inside(end, network, where, what) for end in (first, last if dash else first)]
    return int(ends[0]), int(ends[1])


def range_of(text: str) -> list[Address]:
    """Return the addresses of ``10.0.10.100-10.0.10.109``, or the one of ``10.0.10.7``. InputError."""
    first, dash, last = text.partition("-")
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
