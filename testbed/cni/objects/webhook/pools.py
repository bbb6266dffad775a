"""SpiderIPPool, SpiderSubnet and SpiderReservedIP.

Sources: pkg/ippoolmanager/ippool_validate.go, ippool_subnet_validate.go and ippool_mutate.go,
pkg/subnetmanager/subnet_validate.go, pkg/reservedipmanager/reservedip_validate.go, pkg/ip.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from testbed.cni.ipam.pool import Address, Network, Span, subtracted
from testbed.cni.objects.autopools import POOL, SUBNET, is_auto
from testbed.cni.objects.kinds import Addresses, IPPool, ReservedIP
from testbed.cni.objects.manifests import Object, is_terminating
from testbed.cni.objects.subnet import SubnetSpec
from testbed.cni.objects.webhook.review import Denied, Review, Rule, forbidden, invalid
from testbed.cni.objects.webhook.selectors import check_selector
from testbed.documents.text import Path
from testbed.errors import InputError

SPEC: Path = ("spec",)
JOINTLY = "are jointly determined by 'spec.ips' and 'spec.excludeIPs'"
AUTO_AFFINITIES = frozenset(
    f"ipam.spidernet.io/app-{key}" for key in ("api-group", "api-version", "kind", "namespace", "name")
)
_PREFIX = re.compile(r"[^/]+/\d+")


def _parsed(text: str) -> Address | None:
    """Return the address as Go's net.ParseIP does, which knows no zones."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def _cidr(text: str) -> Network | None:
    """Return the subnet as Go's net.ParseCIDR does, whatever its host bits."""
    try:
        return ipaddress.ip_interface(text).network if _PREFIX.fullmatch(text) and "%" not in text else None
    except ValueError:
        return None


def _addresses(one: Object) -> Addresses:
    return (IPPool if one.kind == POOL else SubnetSpec).model_validate(one.spec)


def _family(spec: Addresses) -> int:
    """Return the family, which the mutating webhook sets from the subnet."""
    return spec.ipVersion or spec.family


def _network(spec: Addresses) -> Network:
    found = _cidr(spec.subnet)
    assert found, "the rule `subnet_is_a_cidr` comes first"
    return found


def subnet_is_a_cidr(review: Review) -> None:
    """validateIPPoolCIDR, validateSubnetCIDR: IsCIDR, IsFormatCIDR."""
    spec, path = _addresses(review.new), (*SPEC, "subnet")
    network = _cidr(spec.subnet)
    if not network or network.version != _family(spec):
        invalid(path, spec.subnet, f"invalid CIDR format in IPv{_family(spec)} '{spec.subnet}'")
    if str(network) != spec.subnet:
        invalid(path, spec.subnet, f"unformatted subnet {spec.subnet}, please change it to {network}")


def a_terminating_pool_stays(review: Review) -> None:
    """ippool_webhook.go: ValidateUpdate."""
    if review.old and is_terminating(review.old):
        raise Denied((), "Forbidden: cannot update a terminating IPPool", complete=True)


def subnet_and_version_stay(review: Review) -> None:
    """validateIPPoolShouldNotBeChanged, validateSubnetShouldNotBeChanged."""
    if review.old:
        before, now = _addresses(review.old), _addresses(review.new)
        if now.ipVersion and before.ipVersion and now.ipVersion != before.ipVersion:
            forbidden((*SPEC, "ipVersion"), "is not changeable")
        if now.subnet != before.subnet:
            forbidden((*SPEC, "subnet"), "is not changeable")


def _deny_overlap(review: Review, kind: str, *, but_equal: bool, word: str) -> None:
    spec = _addresses(review.new)
    for other in [] if review.old else review.of_kind(kind):
        there = _addresses(other)
        if _family(there) != _family(spec) or (but_equal and there.subnet == spec.subnet):
            continue
        if _network(spec).overlaps(_network(there)):
            wrong = f"overlap with {word} {other.name} which 'spec.subnet' is {there.subnet}"
            invalid((*SPEC, "subnet"), spec.subnet, wrong)


def pools_have_one_subnet_or_disjoint_ones(review: Review) -> None:
    """validateIPPoolCIDR: IsCIDROverlap, when a pool is created."""
    _deny_overlap(review, POOL, but_equal=True, word="IPPool")


def subnets_are_disjoint(review: Review) -> None:
    """validateSubnetCIDR: IsCIDROverlap, when a subnet is created."""
    _deny_overlap(review, SUBNET, but_equal=False, word="Subnet")


def _span(text: str) -> tuple[Address, Address] | None:
    """Return the ends of a range, None if it is none. Its end may be before its start."""
    ends = [_parsed(end) for end in text.split("-")]
    if len(ends) > 2 or not all(ends):
        return None
    first, last = ends[0], ends[-1]
    assert first
    assert last
    return (first, last) if first.version == last.version else None


def is_range(text: str, family: int) -> bool:
    """IsIPRange."""
    span = _span(text)
    return span is not None and span[0].version == family and int(span[0]) <= int(span[1])


def _ends(path: Path, text: str, spec: Addresses) -> Span:
    """CIDR.parse: the ends of a range of a pool. Denied."""

    def deny(why: str) -> NoReturn:
        raise Denied(path, f'Invalid value: "{spec.subnet}": {why}')

    parts = text.split("-")
    if len(parts) > 2 or (len(parts) == 1 and "/" in text):
        deny(f"invalid range: {text}")
    ends = []
    for part in parts:
        address = _parsed(part)
        if not address:
            deny(f"invalid IP address: {part}")
        if address not in _network(spec):
            deny(f"not match base subnet: {part}")
        ends.append(int(address))
    return ends[0], ends[-1]


def ranges_are_of_the_subnet(review: Review) -> None:
    """validateIPPoolAvailableIPs: NewCIDR. Ranges may overlap: the mutating webhook merges them if all are right."""
    spec = _addresses(review.new)
    wanted = [(text, _ends((*SPEC, "ips", number), text, spec)) for number, text in enumerate(spec.ips)]
    for number, text in enumerate(spec.excludeIPs):
        _ends((*SPEC, "excludeIPs", number), text, spec)
    if all(first <= last for _, (first, last) in wanted):
        return
    for number, (text, span) in enumerate(wanted):
        for other, there in wanted[:number]:
            if max(min(span), min(there)) <= min(max(span), max(there)):
                invalid((*SPEC, "ips", number), spec.subnet, f"range {text} overlaps with {other}")


def ranges_are_in_order(review: Review) -> None:
    """validateSubnetIPs, validateSubnetExcludeIPs: ContainsIPRange."""
    spec = _addresses(review.new)
    for key, texts in (("ips", spec.ips), ("excludeIPs", spec.excludeIPs)):
        for number, text in enumerate(texts):
            path = (*SPEC, key, number)
            if not is_range(text, _family(spec)):
                invalid(path, text, f"invalid IP range format in IPv{_family(spec)} '{text}'")
            if not all(end in _network(spec) for end in _span(text) or ()):
                invalid(path, text, f"not pertains to the 'spec.subnet' {spec.subnet} of IPPool")


def _spans(spec: Addresses) -> list[Span]:
    """Return what a pool has, in the words of NewCIDR: a range whose end comes first is turned round."""

    def ordered(texts: Sequence[str]) -> list[Span]:
        found = [span for text in texts if (span := _span(text))]
        return [(min(map(int, span)), max(map(int, span))) for span in found]

    return subtracted(ordered(spec.ips), ordered(spec.excludeIPs))


def an_address_is_of_one_pool(review: Review) -> None:
    """validateIPPoolAvailableIPs: IsOverlapIPRanges, among pools of the same subnet."""
    spec = _addresses(review.new)
    for other in review.of_kind(POOL):
        there = _addresses(other)
        if there.subnet != spec.subnet:
            continue
        both = [text for text in there.ips if _common(_spans(spec), _spans(there.model_copy(update={"ips": [text]})))]
        if both:
            wrong = f"overlap with IPPool {other.name} in IP ranges [{' '.join(both)}], total IP addresses of an IPPool"
            forbidden((*SPEC, "ips"), f"{wrong} {JOINTLY}")


def _common(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(first <= end and start <= last for first, last in some for start, end in others)


def _contains(path: Path, spec: Addresses, text: str) -> Address:
    """ValidateContainsIP. Denied."""
    address = _parsed(text)
    if not address or address.version != _family(spec):
        invalid(path, text, f"invalid IP format in IPv{_family(spec)} '{text}'")
    if address not in _network(spec):
        invalid(path, text, f"not pertains to the 'spec.subnet' {spec.subnet} of IPPool")
    return address


def the_gateway_is_nobody_elses(review: Review) -> None:
    """validateIPPoolGateway, validateSubnetGateway."""
    spec = _addresses(review.new)
    if spec.gateway is None:
        return
    gateway = _contains((*SPEC, "gateway"), spec, spec.gateway)

    def has(text: str) -> bool:
        span = _span(text)
        return span is not None and int(span[0]) <= int(gateway) <= int(span[1])

    if any(map(has, spec.excludeIPs)):
        return
    for number, text in enumerate(spec.ips):
        if has(text):
            wrong = f"conflicts with 'spec.gateway' {spec.gateway}, add the gateway IP address to 'spec.excludeIPs' or"
            invalid((*SPEC, "ips", number), text, f"{wrong} remove it from 'spec.ips'")


def routes_are_of_the_subnet(review: Review) -> None:
    """validateIPPoolRoutes, validateSubnetRoutes."""
    spec, known = _addresses(review.new), set()
    for number, route in enumerate(spec.routes or ()):
        path = (*SPEC, "routes", number, "dst")
        if route.dst == ("0.0.0.0/0" if _family(spec) == 4 else "::/0"):
            invalid(path, route.dst, "please specify 'spec.gateway' to configure the default route")
        if route.dst in known:
            invalid(path, route.dst, "duplicate route with the same dst")
        known.add(route.dst)
        target = _cidr(route.dst)
        if not target or target.version != _family(spec):
            invalid(path, route.dst, f"invalid CIDR format in IPv{_family(spec)} '{route.dst}'")
        _contains((*SPEC, "routes", number, "gw"), spec, route.gw)


def pod_affinity_selects(review: Review) -> None:
    """validateIPPoolPodAffinity. Spiderpool validates no other affinity."""
    affinity, path = IPPool.model_validate(review.new.spec).podAffinity, (*SPEC, "podAffinity")
    if affinity is None:
        return
    if is_auto(review.new):
        if affinity.matchLabels.keys() - AUTO_AFFINITIES:
            invalid(path, None, "it's invalid to add additional podAffinity matchLabels for auto-created SpiderIPPool")
        if affinity.matchExpressions:
            wrong = "it's invalid to add additional podAffinity matchExpressions for auto-created SpiderIPPool"
            invalid(path, None, wrong)
        return
    check_selector(path, affinity)
    if not affinity.matchLabels and not affinity.matchExpressions:
        invalid(path, {}, "empty podAffinity is invalid for SpiderIPPool")


def addresses_of_pods_stay(review: Review) -> None:
    """validateIPPoolIPInUse."""
    if not review.old:
        return
    spans = _spans(_addresses(review.new))
    for address, pod in review.held.get(review.new.name, {}).items():
        if not _common(spans, [(int(address), int(address))]):
            wrong = f"remove an IP address {address} that is being used by Pod {pod}, total IP addresses of an IPPool"
            forbidden((*SPEC, "ips"), f"{wrong} {JOINTLY}")


def _outside(some: Addresses, whole: Addresses) -> list[str]:
    """Return the ranges of some addresses that are not of the whole."""
    family = ipaddress.IPv6Address if _family(some) == 6 else ipaddress.IPv4Address
    left = subtracted(_spans(some), _spans(whole))
    return [f"{family(first)}-{family(last)}" if first < last else str(family(first)) for first, last in left]


def pools_are_of_their_subnet(review: Review) -> None:
    """validateSubnetTotalIPsContainsIPPoolTotalIPs, with the owner that setControllerSubnet gives a pool."""
    spec = _addresses(review.new)
    for owner in review.of_kind(SUBNET):
        whole = _addresses(owner)
        if whole.subnet == spec.subnet and (outside := _outside(spec, whole)):
            wrong = f"add some IP ranges [{' '.join(outside)}] that are not contained in controller Subnet {owner.name}"
            forbidden((*SPEC, "ips"), f"{wrong}, total IP addresses of an IPPool {JOINTLY}")


def pools_that_are_there_fit_in(review: Review) -> None:
    """validateOrphanIPPool, when a subnet is created."""
    spec = _addresses(review.new)
    for other in [] if review.old else review.of_kind(POOL):
        there = _addresses(other)
        if _family(there) != _family(spec):
            continue
        if there.subnet == spec.subnet:
            if _outside(there, spec):
                wrong = (
                    f"SpiderIPPool '{other.name}' owns some IP addresses that SpiderSubnet '{review.new.name}' can't"
                )
                invalid((*SPEC, "ips"), spec.ips, f"{wrong} control")
        elif _network(there).overlaps(_network(spec)):
            wrong = f"overlap with SpiderIPPool '{other.name}' resource 'spec.subnet' {there.subnet}"
            invalid((*SPEC, "subnet"), spec.subnet, wrong)


def addresses_of_pools_stay(review: Review) -> None:
    """validateSubnetIPInUse."""
    if not review.old:
        return
    spec = _addresses(review.new)
    for other in review.of_kind(POOL):
        there = _addresses(other)
        if there.subnet == spec.subnet and (outside := _outside(there, spec)):
            wrong = f"remove some IP ranges [{' '.join(outside)}] that is being used by IPPool {other.name}"
            forbidden((*SPEC, "ips"), f"{wrong}, total IP addresses of an Subnet {JOINTLY}")


def _reserved_family(spec: ReservedIP) -> int | None:
    """Return the family, which the mutating webhook sets from the first range."""
    return spec.ipVersion or next((family for family in (4, 6) if spec.ips and is_range(spec.ips[0], family)), None)


def reserved_addresses_have_a_version(review: Review) -> None:
    """validateReservedIPIPVersion, validateReservedIPShouldNotBeChanged."""
    spec = ReservedIP.model_validate(review.new.spec)
    if review.old:
        before = ReservedIP.model_validate(review.old.spec)
        if spec.ipVersion and before.ipVersion and spec.ipVersion != before.ipVersion:
            forbidden((*SPEC, "ipVersion"), "is not changeable")
    if not _reserved_family(spec):
        wrong = "is not generated correctly, 'spec.ips' is empty or 'spec.ips[0]' may be invalid"
        invalid((*SPEC, "ipVersion"), None, wrong)


def reserved_addresses_are_ranges(review: Review) -> None:
    """validateReservedIPs."""
    spec = ReservedIP.model_validate(review.new.spec)
    family = _reserved_family(spec)
    assert family
    for number, text in enumerate(spec.ips):
        if not is_range(text, family):
            invalid((*SPEC, "ips", number), text, f"invalid IP range format in IPv{family} '{text}'")


def a_lab_holds_them(review: Review) -> None:
    """Not Spiderpool's: the number of addresses that a pool of a lab may have."""
    try:
        if review.new.kind == "SpiderReservedIP":
            ReservedIP.model_validate(review.new.spec).addresses()
        else:
            _addresses(review.new).made(review.new.name)
    except InputError as error:
        raise Denied((*SPEC, "ips"), error.message) from None


OF_POOLS: Sequence[Rule] = (
    a_terminating_pool_stays,
    subnet_and_version_stay,
    subnet_is_a_cidr,
    pools_have_one_subnet_or_disjoint_ones,
    ranges_are_of_the_subnet,
    an_address_is_of_one_pool,
    the_gateway_is_nobody_elses,
    routes_are_of_the_subnet,
    pod_affinity_selects,
    addresses_of_pods_stay,
    pools_are_of_their_subnet,
    a_lab_holds_them,
)
OF_SUBNETS: Sequence[Rule] = (
    subnet_and_version_stay,
    subnet_is_a_cidr,
    subnets_are_disjoint,
    pools_that_are_there_fit_in,
    ranges_are_in_order,
    the_gateway_is_nobody_elses,
    routes_are_of_the_subnet,
    addresses_of_pools_stay,
    a_lab_holds_them,
)
OF_RESERVED: Sequence[Rule] = (reserved_addresses_have_a_version, reserved_addresses_are_ranges, a_lab_holds_them)


def inheriting(spec: dict[str, Any], subnet: SubnetSpec) -> dict[str, Any]:
    """InheritSubnetProperties of ippool_mutate.go: a pool without gateway or routes has its subnet's."""
    given = {"gateway": subnet.gateway, "routes": [route.model_dump() for route in subnet.routes or ()]}
    return {**{key: value for key, value in given.items() if value}, **spec}
