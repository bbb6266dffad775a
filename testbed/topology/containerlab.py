"""Keys and kinds of links that containerlab knows and testbed does not: some are ignored with a note, some are refused,
each with the reason.

A key for running and managing containers is noted: it does not change the lab's network, and the note names what is
missing. A key that changes the lab (shared networks, the commands that run, the ends of a link) is refused.

Source: containerlab's manual (Topology definition, Nodes), types/node_definition.go and links/link.go, 0.70 to 0.75.
"""

from typing import Any

from testbed.documents.text import choices, describe, quoted
from testbed.topology.kinds import KINDS

Reasons = dict[str, str]
"""The reasons why keys are not supported, or have no effect, by key."""

_CONTAINER = "a container of a lab runs without it"
_MANAGEMENT = "the management network of a lab ends in the lab"
_SYSTEM = "a lab runs no network operating system"
_CERTIFICATES = "a lab creates no certificates"
_ANNOTATIONS = "labels only annotate"
_VARIABLES = "a lab has no configuration templates"


def _because(reason: str, keys: str) -> Reasons:
    return dict.fromkeys(keys.split(), reason)


TOP_NOTES = {
    "prefix": "the names of namespaces begin with the lab's name only",
    "settings": _CERTIFICATES,
    "debug": "the run directory has the output of a lab",
}

TOPOLOGY_NOTES = {"settings": _CERTIFICATES}

RENAMED = {
    "mgmt_ipv4": "mgmt-ipv4",
    "mgmt_ipv6": "mgmt-ipv6",
    "ipv4_subnet": "ipv4-subnet",
    "ipv6_subnet": "ipv6-subnet",
}
"""Keys of older versions, which containerlab still reads."""

MANAGEMENT_NOTES = {
    **_because(_MANAGEMENT, "bridge driver driver-opts external-access ipv4-gw ipv4-range ipv6-gw ipv6-range network"),
    **_because(_MANAGEMENT, "macvlan-aux macvlan-mode macvlan-parent"),
    "mtu": "the MTU of the management network is 1500",
}

NODE_NOTES = {
    "env-files": f"{_CONTAINER}: these variables are missing; 'env' sets them",
    "user": f"{_CONTAINER}: its programs run as the user that the image names",
    **_because(
        _CONTAINER,
        "auto-remove cap-add cgroup-parent cgroupns-mode cpu cpu-set devices image-pull-policy kernel memory "
        "restart-policy runtime sandbox shm-size",
    ),
    **_because(_MANAGEMENT, "aliases dns mgmt-net ports publish"),
    "network-mode": "the node has its own network, and not that of the machine that runs the containers",
    **_because(_CERTIFICATES, "certificate SANs"),
    **_because(
        _SYSTEM,
        "components config credentials enforce-startup-config extras license startup-config suppress-startup-config "
        "type",
    ),
    "position": "'testbed graph' places nodes by itself",
    "labels": _ANNOTATIONS,
}

LINK_NOTES = {"vars": _VARIABLES, "labels": _ANNOTATIONS}

ENDPOINT_NOTES = {"vars": _VARIABLES}

_UNDERLAY = "a link is a cable between two nodes of the lab"

LINK_KEYS = {
    **_because(_UNDERLAY, "dst-port endpoint host-interface mode parent-interface remote src-port udp-port vni"),
    "impairment": "a link has 'delay', 'jitter', 'loss' and 'rate' of its own",
}

DUMMY = "dummy"
"""The type of a link with one end, and the special endpoint at the other end of it in the brief format."""

SPECIAL = {kind.special: name for name, kind in KINDS.items() if kind.special}
"""The special endpoints and their kinds of nodes: the machine that runs the containers, the management bridge."""

LINK_TYPES = {
    "bridge": "a bridge is a node here",
    **_because(
        "it needs an interface of the machine that runs the containers, which a lab does not have", "macvlan macvtap"
    ),
    **_because("its other end is outside the lab", "veth-stitch vxlan vxlan-stitch"),
}
"""The other types of the extended format; in the brief format some of them replace a node's name."""


def check_link_type(value: Any) -> Any:
    if value in ("veth", DUMMY):
        return value
    name = quoted(value) if isinstance(value, str) else describe(value)
    if isinstance(value, str) and value in LINK_TYPES:
        raise ValueError(f"containerlab's link type {name} is not supported: {LINK_TYPES[value]}")
    types = ("veth", DUMMY, *SPECIAL)
    raise ValueError(f"link type {name} is not supported; supported: {choices(value, types)}")


def expand_special(value: Any) -> Any:
    """Return the extended format's link to a special endpoint in the shape of a link between two nodes."""
    if not isinstance(value, dict):
        return value
    special = value.get("type")
    if special == DUMMY and value.get("endpoint") is not None and "endpoints" not in value:
        return {**_without(value, "endpoint"), "endpoints": [value["endpoint"], {"node": DUMMY, "interface": DUMMY}]}
    if special == DUMMY:
        raise ValueError("a link of type 'dummy' must have one 'endpoint' and no 'endpoints'")
    if special not in SPECIAL:
        return value
    if missing := [key for key in ("endpoint", "host-interface") if value.get(key) is None]:
        raise ValueError(f"a link of type {special!r} lacks the key {missing[0]!r}")
    if "endpoints" in value:
        raise ValueError(f"a link of type {special!r} must have one 'endpoint' and no 'endpoints'")
    rest = _without(value, "type", "endpoint", "host-interface")
    return {**rest, "endpoints": [value["endpoint"], {"node": special, "interface": value["host-interface"]}]}


def _without(value: dict[Any, Any], *keys: str) -> dict[Any, Any]:
    return {key: item for key, item in value.items() if key not in keys}
