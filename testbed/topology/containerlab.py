"""
Keys and kinds of links that containerlab knows and testbed does not: what is passed over with a note, and what is
refused, each with the reason.

A key that says how containers are run and managed is noted: the network of the lab is what it would be without it, and
the note says what is missing. A key that changes what the lab is (who shares a network with whom, which commands are
run, where a link ends) is refused.

Source: containerlab's manual (Topology definition, Nodes), types/node_definition.go and links/link.go, 0.70 to 0.75.
"""

from __future__ import annotations

Reasons = dict[str, str]
"""The reasons why keys have no place here, or no effect, by their names."""

_CONTAINER = "no container is run"
_MANAGEMENT = "there is no management network"
_SYSTEM = "no network operating system is run"
_ORDER = "all nodes and links are there before the first command of 'exec' runs"
_VARIABLES = "there are no configuration templates"


def _because(reason: str, keys: str) -> Reasons:
    return dict.fromkeys(keys.split(), reason)


TOP_NOTES = {
    **_because("the names of namespaces begin with the lab's name alone", "prefix"),
    **_because(_MANAGEMENT, "mgmt"),
    **_because("no certificates are made", "settings"),
    **_because("what a lab does is in its run directory", "debug"),
}

TOPOLOGY_NOTES = _because("no certificates are made", "settings")

NODE_NOTES = {
    **_because(
        "no container is run: the daemons and files of the image are missing, programs are those of the lab's machine",
        "image",
    ),
    **_because("no container is run: what it would start is missing; 'exec' can start it", "cmd entrypoint"),
    **_because("no container is run: these files are missing", "binds"),
    **_because("no container is run: these variables are missing; 'env' sets them", "env-files"),
    **_because("no container is run: commands of 'exec' are run by root", "user"),
    **_because(
        _CONTAINER,
        "auto-remove cap-add cgroup-parent cgroupns-mode cpu cpu-set devices healthcheck image-pull-policy kernel "
        "memory restart-policy runtime sandbox shm-size",
    ),
    **_because(_MANAGEMENT, "aliases dns mgmt-ipv4 mgmt-ipv6 mgmt-net mgmt_ipv4 mgmt_ipv6 ports publish"),
    **_because("each node has a network of its own", "network-mode"),
    **_because("no certificates are made", "certificate SANs"),
    **_because(
        _SYSTEM,
        "components config credentials enforce-startup-config extras license startup-config suppress-startup-config "
        "type",
    ),
    **_because(_ORDER, "stages startup-delay wait-for"),
    **_because("'testbed graph' finds the places of nodes by itself", "position"),
    **_because("labels only annotate", "labels"),
}

LINK_NOTES = {
    **_because(_VARIABLES, "vars"),
    **_because("labels only annotate", "labels"),
}

ENDPOINT_NOTES = _because(_VARIABLES, "vars")

NODE_KEYS = {
    "network-mode": "the node would share the network of a container, and each node has one of its own",
    "stages": "commands of a stage are not run; put them into 'exec'",
}
"""Refused with the values that change what the lab is."""

_UNDERLAY = "a link is a cable between two nodes of the lab"

LINK_KEYS = {
    **_because(_UNDERLAY, "dst-port endpoint host-interface mode parent-interface remote src-port udp-port vni"),
    **_because("a link has 'delay', 'jitter', 'loss' and 'rate' of its own", "impairment"),
}

SPECIAL: dict[str, str] = {"host": "host", "mgmt-net": "bridge"}
"""Special endpoints that a lab has, and the kind of node that stands for each: the machine that runs the containers,
and the bridge of the management network."""

LINK_TYPES = {
    "bridge": "a bridge is a node here",
    "dummy": "it has one end; a command of 'exec' can make it: ip link add dummy1 type dummy",
    "macvlan": "it needs an interface of the machine that runs the containers, and a lab has none of these",
    "macvtap": "it needs an interface of the machine that runs the containers, and a lab has none of these",
    "veth-stitch": "its other end is outside the lab",
    "vxlan": "its other end is outside the lab",
    "vxlan-stitch": "its other end is outside the lab",
}
"""The other types of the extended format; in the brief format some of them stand in the place of a node's name."""
