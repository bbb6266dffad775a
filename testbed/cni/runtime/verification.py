"""Verification of a network's result against the rules of addressing and the kernel of the pod.

libcni accepts any result: with a wrong one the pod starts, and nobody can reach it.
"""

import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_interface
from typing import Any, NamedTuple

from testbed.cni.spec import CONFIG, DECODE, Result
from testbed.cni.spec.conflist import Attachment, Conflist, called_by
from testbed.kernel import netns
from testbed.kernel.policy_routing import PolicyRouting
from testbed.kernel.rtnetlink import POINT_TO_POINT, TENTATIVE
from testbed.topology import IPAddress, IPInterface, IPNetwork

POINT_TO_POINT6 = 127
"""From this prefix length on an IPv6 subnet has no anycast address of its routers (RFC 6164)."""


class Given(NamedTuple):
    """An address of a result, with the pod's interface that has it."""

    interface: str
    address: IPInterface
    gateway: IPAddress | None


class Problem(NamedTuple):
    code: int
    """The error code of CNI."""
    plugin: str
    """The type of the plugin with the wrong answer."""
    text: str


def interfaces(attachment: Attachment, result: Result) -> dict[str, str]:
    """Return the names and MACs of the pod's interfaces in a result. ValueError if it is malformed."""
    found = {}
    for entry in result.get("interfaces", []):
        if entry.get("sandbox") == attachment.netns:
            name, mac = entry.get("name"), entry.get("mac", "")
            if not isinstance(name, str) or not isinstance(mac, str):
                raise ValueError("the name and the MAC of an interface must be strings")
            found[name] = mac.lower()
    return found


def addresses(attachment: Attachment, result: Result) -> list[Given]:
    """Return the addresses of a result. One without an interface is the attachment's. ValueError if it is malformed."""
    there, found = result.get("interfaces", []), []
    for entry in result.get("ips", []):
        number, gateway = entry.get("interface"), entry.get("gateway")
        name = attachment.interface
        if number is not None:
            if not isinstance(number, int) or not 0 <= number < len(there):
                raise ValueError(f"ips names interface {number!r} of {len(there)}")
            name = str(there[number].get("name"))
            if there[number].get("sandbox") != attachment.netns:
                raise ValueError(f"ips names interface {name}, which is not in the pod")
        address = ip_interface(str(entry.get("address")))
        found.append(Given(name, address, ip_address(str(gateway)) if gateway else None))
    return found


def problem(conflist: Conflist, attachment: Attachment, results: Sequence[Result]) -> Problem | None:
    """Return the first problem in the last of `results`, those of ADD of each plugin of the conflist.

    Addresses are host addresses of their subnets, the pod has the interfaces and addresses, gateways are on the link.
    The plugin is the first one whose result has the problem; for the decisions of an IPAM plugin it is that plugin.
    """
    result = results[-1]
    for kind, each in zip(conflist.types, results, strict=True):
        try:
            ends, given = interfaces(attachment, each), addresses(attachment, each)
        except ValueError as error:
            return Problem(DECODE, kind, f"its result is malformed: {error}")
    origins = [called_by(conflist.plugins[_first(results, "ips", entry)]) for entry in result.get("ips", [])]
    for one, (*_, ipam) in zip(given, origins, strict=True):
        if reason := not_of_a_host(one.address):
            return Problem(CONFIG, ipam, f"it gave {one.address}, {reason}")
    if not ends:
        return _left_out(conflist, attachment)
    with netns.entered(attachment.netns), PolicyRouting() as kernel:
        indices = {name: index for index, name in socket.if_nameindex()}
        for entry in result["interfaces"]:
            if entry.get("sandbox") == attachment.netns and (name := entry["name"]) not in indices:
                kind = conflist.types[_first(results, "interfaces", entry)]
                return Problem(CONFIG, kind, f"its result has an interface {name}, which the pod does not have")
        for one, callers in zip(given, origins, strict=True):
            if wrong := _problem_in_pod(kernel, indices.get(one.interface, 0), one, callers):
                return wrong
    return None


def _left_out(conflist: Conflist, attachment: Attachment) -> Problem | None:
    """Return the problem of a result without interfaces: one of an IPAM plugin, and nothing is made, or of a plugin
    that leaves out what it made."""
    with netns.entered(attachment.netns), PolicyRouting() as kernel:
        reason = _unusable(kernel, _kernels(kernel, attachment))
    return Problem(CONFIG, conflist.types[-1], f"the pod has {reason}") if reason else None


def settles(attachment: Attachment, results: Sequence[Result]) -> bool:
    """Return whether duplicate address detection goes on for an address of ADD's result."""
    try:
        given = [one.address for one in addresses(attachment, results[-1])]
    except ValueError:
        return False  # `problem` says so
    with netns.entered(attachment.netns), PolicyRouting() as kernel:
        given += _kernels(kernel, attachment)
        if all(address.version == 4 for address in given):
            return False
        return any(reason == TENTATIVE for address, reason in kernel.unusable_addresses() if address in given)


def unusable(attachment: Attachment, result: Result) -> str:
    """Return the first address of a result that the kernel has and does not use, with the reason; else empty."""
    with netns.entered(attachment.netns), PolicyRouting() as kernel:
        given = [given.address for given in addresses(attachment, result)]
        return _unusable(kernel, [*given, *_kernels(kernel, attachment)])


def _kernels(kernel: PolicyRouting, attachment: Attachment) -> list[IPInterface]:
    """Return the addresses that the kernel has on an attachment's interface, which a result may leave out; without the
    link-local one of IPv6."""
    index = next((index for index, name in socket.if_nameindex() if name == attachment.interface), 0)
    found = [address for at, address in kernel.addresses() if at == index]
    return [address for address in found if address.version == 4 or not address.is_link_local]


def _unusable(kernel: PolicyRouting, given: Sequence[IPInterface]) -> str:
    reasons = dict(kernel.unusable_addresses())
    return next((f"{address} {reasons[address]}" for address in given if address in reasons), "")


def not_of_a_host(address: IPInterface) -> str:
    """Return the reason why no host can have an address, or an empty string."""
    subnet, ip = address.network, address.ip
    if ip.is_multicast or ip.is_unspecified:
        return "which is not a unicast address"
    if subnet.prefixlen >= (POINT_TO_POINT if ip.version == 4 else POINT_TO_POINT6):
        return ""
    if ip == subnet.network_address:
        return f"the {'network address' if ip.version == 4 else 'anycast address of the routers'} of {subnet}"
    if ip.version == 4 and ip == subnet.broadcast_address:
        return f"the broadcast address of {subnet}"
    return ""


def _problem_in_pod(kernel: PolicyRouting, index: int, given: Given, callers: Sequence[str]) -> Problem | None:
    """Return an address's problem. `callers`: the plugin that gave it and, if there is one, its IPAM plugin."""
    family = given.address.version
    there = [address for at, address in kernel.addresses() if at == index and address.version == family]
    if given.address not in there:
        instead = ", ".join(str(address) for address in there if not address.is_link_local) or "none"
        wrong = f"its result has {given.address} on {given.interface}, but the kernel has {instead}"
        return Problem(CONFIG, callers[0], wrong)
    if reason := _unusable(kernel, [given.address]):
        return Problem(CONFIG, callers[0], f"it gave {reason}")
    if given.gateway and not _is_on_link(kernel, index, given.address.network, given.gateway):
        wrong = f"it gave {given.address} with the gateway {given.gateway}, which is not in {given.address.network}"
        return Problem(CONFIG, callers[-1], f"{wrong}, and to which {given.interface} has no route")
    return None


def _is_on_link(kernel: PolicyRouting, index: int, subnet: IPNetwork, gateway: IPAddress) -> bool:
    """Return whether a gateway is in the subnet, link-local, of an address without a subnet (Calico's 169.254.1.1), or
    the target or next hop of a route over the interface, as with the plugin ptp."""
    if gateway in subnet or gateway.is_link_local or subnet.num_addresses == 1:
        return True
    over = [route for _, route in kernel.all_routes(gateway.version) if route.index == index]
    return any(gateway in route.to if route.gateway is None else gateway == route.gateway for route in over)


def _first(results: Sequence[Result], key: str, entry: Mapping[str, Any]) -> int:
    """Return the number of the first result from which on all have an entry."""
    number = len(results) - 1
    while number and any(_identity(one) == _identity(entry) for one in results[number - 1].get(key, [])):
        number -= 1
    return number


def _identity(entry: Mapping[str, Any]) -> list[Any]:
    return [entry.get(key) for key in ("name", "sandbox", "address", "gateway")]
