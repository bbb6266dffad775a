"""
Names that containerlab knows and testbed does not, each with the reason, so that an error can say more than "unknown".

Source: containerlab's manual (Topology definition, Nodes), types/node_definition.go and links/link.go, 0.70 to 0.75.
`labels` are not here: they only annotate, so they are accepted and have no effect.
"""

Reasons = dict[str, str]
"""Why a key has no place here, by its name."""

_CONTAINER = "no container is run, a node is a network namespace of the lab's machine"
_MANAGEMENT = "there is no management network"
_SYSTEM = "no network operating system is run"
_ORDER = "all nodes and links are there before the first command of 'exec' runs"
_VARIABLES = "there are no configuration templates"
_UNDERLAY = "a link is a cable between two nodes of the lab"


def _because(reason: str, keys: str) -> Reasons:
    return dict.fromkeys(keys.split(), reason)


TOP_KEYS = {
    **_because(_CONTAINER, "prefix settings"),
    **_because(_MANAGEMENT, "mgmt"),
    **_because("what a lab does is in its run directory", "debug"),
}

NODE_KEYS = {
    **_because(
        _CONTAINER,
        "auto-remove binds cap-add cgroupns-mode cmd cpu cpu-set devices entrypoint env-files healthcheck "
        "image-pull-policy kernel memory restart-policy runtime sandbox shm-size user",
    ),
    **_because(_MANAGEMENT, "aliases certificate dns mgmt-ipv4 mgmt-ipv6 network-mode ports publish"),
    **_because(
        _SYSTEM,
        "components config credentials enforce-startup-config extras license startup-config "
        "suppress-startup-config type",
    ),
    **_because(_ORDER, "stages startup-delay"),
    **_because("set them by a command of 'exec', such as sysctl -w net.ipv4.ip_forward=1", "sysctls"),
    **_because("'testbed graph' finds the places of nodes by itself", "position"),
}

LINK_KEYS = {
    **_because(_UNDERLAY, "dst-port endpoint host-interface mode parent-interface remote src-port udp-port vni"),
    **_because("a link has 'delay', 'jitter', 'loss' and 'rate' of its own", "impairment"),
    **_because(_VARIABLES, "vars"),
}

ENDPOINT_KEYS = _because(_VARIABLES, "vars")

LINK_TYPES = frozenset({"bridge", "dummy", "host", "macvlan", "mgmt-net", "veth-stitch", "vxlan", "vxlan-stitch"})
"""Types of the extended format; in the brief format some of them stand in the place of a node's name."""
