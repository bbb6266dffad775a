"""The choice of each segment's subnet, and of the address and gateway of each of its hosts."""

from ipaddress import IPv4Network, ip_interface

from testbed.documents.problems import Problems
from testbed.documents.text import Path
from testbed.topology.addressing import Pool, free_addresses, usable
from testbed.topology.plan import FAMILIES, Family, IPInterface, IPNetwork
from testbed.topology.resolved import Given, Port
from testbed.topology.segments import Segment

_Owner = tuple[IPNetwork, Segment, Path]


def choose(segments: list[Segment], problems: Problems) -> None:
    """Give each segment its subnets, and each of its ports addresses and gateways."""
    _choose_networks(segments, problems)
    problems.stop()
    for segment in segments:
        for family, network in segment.networks.items():
            _choose_addresses(segment, family, network, problems)
        _choose_gateways(segment)
    problems.stop()


def _choose_networks(segments: list[Segment], problems: Problems) -> None:
    """Choose the subnet of a segment: that of its first SVI, else of its first address in the file, one for each family
    with addresses. A segment without addresses gets one of the pool."""
    owners: dict[Family, list[_Owner]] = {family: [] for family in FAMILIES}
    for segment in segments:
        for family in FAMILIES:
            _choose_network(segment, family, owners[family], problems)
        _check_virtual_routers(segment, problems)
    for found in owners.values():
        _check_overlaps(found, problems)
    pool = Pool(network for network, _, _ in owners[4] if isinstance(network, IPv4Network))
    unnamed = [segment for segment in segments if not segment.networks]
    for segment in unnamed:
        if (network := _kept(segment)) and pool.keep(network, len(segment.ports)):
            segment.networks[4] = network
    for segment in unnamed:
        if segment.networks:
            continue
        if network := pool.allocate(len(segment.ports)):
            segment.networks[4] = network
        else:
            problems.add(segment.path, f"the pool has no subnet left for {segment.name}; give its hosts addresses")


def _kept(segment: Segment) -> IPv4Network | None:
    """Return the subnet of its first interface that has a planned one in the lab."""
    found = (port.kept.address for port in segment.ports if port.kept and port.kept.address)
    return next((address.network for address in found), None)


def _choose_network(segment: Segment, family: Family, owners: list[_Owner], problems: Problems) -> None:
    given = segment.given(family)
    if not given:
        return
    network = segment.networks[family] = given[0].address.network
    if segment.free:
        return
    owners.append((network, segment, given[0].path))
    for number, this in enumerate(given):
        if this.address.network != network:
            inside = "has another prefix length than" if this.address.ip in network else "is outside"
            message = f"{this.address} of {this.owner} {inside} {network}, the subnet of {segment.name}"
            problems.add(this.path, message)
        if (first := next((other for other in given[:number] if other.clashes(this)), None)) is not None:
            also = f"is also that of {first.owner}, in {problems.place(first.path)}"
            problems.add(this.path, f"{this.address.ip} of {this.owner} {also}{_cure(this, first)}")


def _cure(this: Given, first: Given) -> str:
    """Return how two owners may have one address, if they may."""
    if this.virtual is not None and first.virtual is not None:
        return "; the switches of one virtual router have the same 'id'"
    if this.virtual is not None and first.domain is not None:
        return "; the SVIs of a virtual router have addresses of their own"
    if this.domain is not None and first.domain is not None:
        return "; an anycast gateway has 'svi_mac' on each of its switches"
    return ""


def _check_virtual_routers(segment: Segment, problems: Problems) -> None:
    """Check that switches with one id of a virtual router in a broadcast domain have one address for it."""
    first: dict[tuple[object, int | None, Family], Given] = {}
    for given in (svi.given for svi in segment.svis if svi.given.virtual is not None):
        key = given.domain, given.virtual, given.address.version
        if (other := first.setdefault(key, given)).address.ip != given.address.ip:
            differs = f"{given.owner} has the address {given.address.ip}, {other.owner} has {other.address.ip}"
            problems.add(given.path, f"{differs}, in {problems.place(other.path)}: with one id they are one")


def _check_overlaps(owners: list[_Owner], problems: Problems) -> None:
    """Check overlaps. Parts of the lab that no link joins may have the same subnets, unless a switch has an address
    there."""
    routed = [owner for owner in owners if owner[1].svis]
    for part in dict.fromkeys(segment.part for _, segment, _ in owners):
        own = [owner for owner in owners if owner[1].part == part and not owner[1].svis]
        _check_part(routed + own, owners, problems)


def _check_part(part: list[_Owner], owners: list[_Owner], problems: Problems) -> None:
    """Check the subnets of a part. A family's subnets are nested or disjoint: in order, the widest one before is
    enough."""
    widest: _Owner | None = None
    for owner in sorted(part, key=lambda owner: (owner[0].network_address, owner[0].prefixlen)):
        if widest is not None and owner[0].overlaps(widest[0]):
            # The file reads downwards: report the later of the two.
            (other, of, there), (network, segment, path) = sorted((owner, widest), key=owners.index)
            also = f"{other} of {of.name}, in {problems.place(there)}"
            why = "segments without a link between them need separate subnets"
            problems.add(path, f"{network} of {segment.name} overlaps {also}: {why}")
        else:
            widest = owner


def _choose_addresses(segment: Segment, family: Family, network: IPNetwork, problems: Problems) -> None:
    """Assign the addresses of the file first; then the lowest free ones, in the order of the links."""
    taken = {given.address.ip for given in segment.given(family)}
    ports = [port for port in segment.ports if port.node.planned or family in port.given]
    svis = [svi.given for svi in segment.svis if svi.given.address.version == family]
    needed = 0 if segment.free else len({given.address.ip for given in svis}) + len(ports)
    if needed > usable(network):
        path = svis[0].path if svis else segment.path
        problems.add(path, f"{network} of {segment.name} has {usable(network)} usable addresses, but needs {needed}")
        return
    for port in ports:
        if found := port.given.get(family):
            port.addresses[family] = found.address
        elif (kept := _address(port, family)) and kept.network == network and kept.ip not in taken:
            taken.add(kept.ip)
            port.addresses[family] = kept
    free = free_addresses(network, taken)
    for port in ports:
        if family not in port.addresses:
            port.addresses[family] = ip_interface((next(free), network.prefixlen))


def _address(port: Port, family: Family) -> IPInterface | None:
    """Return its address in the lab."""
    if port.kept is None:
        return None
    return port.kept.address if family == 4 else port.kept.address6


def _choose_gateways(segment: Segment) -> None:
    """Choose each host's gateway: a virtual router's address if there is one, else an SVI's; that of the switch it is
    attached to, else the segment's first one."""
    for port in segment.ports:
        here = port.peer.node, port.peer.access
        for svi in sorted(segment.svis, key=lambda svi: (svi.given.virtual is None, (svi.switch, svi.vlan) != here)):
            port.gateways.setdefault(svi.given.address.version, svi.given.address.ip)
