"""SpiderCoordinator, and `coordinator` of a SpiderMultusConfig.

Source: pkg/coordinatormanager/coordinator_validate.go.
"""

import ipaddress
import re
from collections.abc import Sequence

from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.webhook.review import Review, Rule, invalid, not_supported
from testbed.documents.text import Path

POD_CIDR_TYPES = ("auto", "cluster", "calico", "cilium", "none")
SPEC: Path = ("spec",)
_PREFIX = re.compile(r"[0-9a-fA-F]{2}:[0-9a-fA-F]{2}")


def check_spec(path: Path, spec: CoordinatorSpec, *, of_cluster: bool) -> None:
    """ValidateCoordinatorSpec. Denied."""
    if of_cluster and spec.podCIDRType is None:
        not_supported((*path, "podCIDRType"), "", POD_CIDR_TYPES)
    for number, text in enumerate(spec.hijackCIDR or ()):
        if not _is_address_or_prefix(text):
            invalid((*path, "hijackCIDR", number), text, "unable to parse IP")
    _check_mac_prefix((*path, "podMACPrefix"), spec.podMACPrefix or "")
    if spec.txQueueLen is not None and spec.txQueueLen < 0:
        invalid((*path, "txQueueLen"), spec.txQueueLen, "txQueueLen can't be less than 0")
    if spec.podRPFilter is not None and spec.podRPFilter > 2:
        not_supported((*path, "podRPFilter"), spec.podRPFilter, ("0", "1", "2"))
    for number, route in enumerate(spec.policyRoutes or ()):  # since 1.2
        at = (*path, "policyRoutes", number)
        if not _is_address_or_prefix(route.dst):
            invalid((*at, "dst"), route.dst, "unable to parse IP")
        if not _is_address(route.gw):
            invalid((*at, "gw"), route.gw, "gw is an invalid IP address")
        if (":" in route.dst) != (":" in route.gw):
            invalid(at, route.model_dump(), "dst and gw must use the same IP family")
    if spec.vethLinkAddress and not _is_address(spec.vethLinkAddress):
        invalid((*path, "vethLinkAddress"), spec.vethLinkAddress, "vethLinkAddress is an invalid IP address")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_address_or_prefix(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not _is_address(address) or (slash and (not length.isdigit() or "%" in address)):
        return False
    return not slash or int(length) <= ipaddress.ip_address(address).max_prefixlen


def _check_mac_prefix(path: Path, text: str) -> None:
    if text and not _PREFIX.fullmatch(text):
        invalid(path, text, "not a valid MAC prefix")
    if text and int(text[:2], 16) & 1:
        invalid(path, text, "not a unicast MAC: the lowest bit of the first byte must be 0")


def values_are_right(review: Review) -> None:
    """validateCreateCoordinator, validateUpdateCoordinator."""
    check_spec(SPEC, CoordinatorSpec.model_validate(review.new.spec), of_cluster=True)


OF_COORDINATORS: Sequence[Rule] = (values_are_right,)
