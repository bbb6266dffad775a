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

_CONTAINER = "a container of a lab is run without it"
_MANAGEMENT = "there is no management network"
_SYSTEM = "no network operating system is run"
_ORDER = "all nodes and links are there before the first command of 'exec' runs"
_CERTIFICATES = "no certificates are made"
_ANNOTATIONS = "labels only annotate"
_VARIABLES = "there are no configuration templates"


def _because(reason: str, keys: str) -> Reasons:
    return dict.fromkeys(keys.split(), reason)


TOP_NOTES = {
    "prefix": "the names of namespaces begin with the lab's name alone",
    "mgmt": _MANAGEMENT,
    "settings": _CERTIFICATES,
    "debug": "what a lab does is in its run directory",
}

TOPOLOGY_NOTES = {"settings": _CERTIFICATES}

NODE_NOTES = {
    "env-files": f"{_CONTAINER}: these variables are missing; 'env' sets them",
    "user": f"{_CONTAINER}: its programs are run by the user that the image names",
    **_because(
        _CONTAINER,
        "auto-remove cap-add cgroup-parent cgroupns-mode cpu cpu-set devices healthcheck image-pull-policy kernel "
        "memory restart-policy runtime sandbox shm-size",
    ),
    **_because(_MANAGEMENT, "aliases dns mgmt-ipv4 mgmt-ipv6 mgmt-net mgmt_ipv4 mgmt_ipv6 ports publish"),
    "network-mode": "each node has a network of its own",
    **_because(_CERTIFICATES, "certificate SANs"),
    **_because(
        _SYSTEM,
        "components config credentials enforce-startup-config extras license startup-config suppress-startup-config "
        "type",
    ),
    **_because(_ORDER, "stages startup-delay wait-for"),
    "position": "'testbed graph' finds the places of nodes by itself",
    "labels": _ANNOTATIONS,
}

LINK_NOTES = {"vars": _VARIABLES, "labels": _ANNOTATIONS}

ENDPOINT_NOTES = {"vars": _VARIABLES}

NODE_KEYS = {
    "network-mode": "the node would share the network of a container, and each node has one of its own",
    "stages": "commands of a stage are not run; put them into 'exec'",
}
"""The keys that are refused with the values that change the lab."""

_UNDERLAY = "a link is a cable between two nodes of the lab"

LINK_KEYS = {
    **_because(_UNDERLAY, "dst-port endpoint host-interface mode parent-interface remote src-port udp-port vni"),
    "impairment": "a link has 'delay', 'jitter', 'loss' and 'rate' of its own",
}

SPECIAL = {kind.special: name for name, kind in KINDS.items() if kind.special}
"""The special endpoints and their kinds of nodes: the machine that runs the containers, the management bridge."""

LINK_TYPES = {
    "bridge": "a bridge is a node here",
    "dummy": "it has one end; a command of 'exec' can make it: ip link add dummy1 type dummy",
    **_because(
        "it needs an interface of the machine that runs the containers, and a lab has none of these", "macvlan macvtap"
    ),
    **_because("its other end is outside the lab", "veth-stitch vxlan vxlan-stitch"),
}
"""The other types of the extended format; in the brief format some of them replace a node's name."""


def check_link_type(value: Any) -> Any:
    if value == "veth":
        return value
    name = quoted(value) if isinstance(value, str) else describe(value)
    if isinstance(value, str) and value in LINK_TYPES:
        raise ValueError(f"containerlab's link type {name} is not supported: {LINK_TYPES[value]}")
    types = ("veth", *SPECIAL)
    raise ValueError(f"link type {name} is not supported; supported: {choices(value, types)}")


def expand_special(value: Any) -> Any:
    """Return the extended format's link to a special endpoint in the shape of a link between two nodes."""
    if not isinstance(value, dict) or value.get("type") not in SPECIAL:
        return value
    special = value["type"]
    if missing := [key for key in ("endpoint", "host-interface") if value.get(key) is None]:
        raise ValueError(f"a link of type {special!r} lacks the key {missing[0]!r}")
    if "endpoints" in value:
        raise ValueError(f"a link of type {special!r} has one 'endpoint', and no 'endpoints'")
    rest = {key: item for key, item in value.items() if key not in ("type", "endpoint", "host-interface")}
    return {**rest, "endpoints": [value["endpoint"], {"node": special, "interface": value["host-interface"]}]}
