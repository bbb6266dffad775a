"""
Names that containerlab knows and testbed does not, so that an error can say "not supported" instead of "unknown".

Source: containerlab's manual (Topology definition, Nodes), types/node_definition.go and links/link.go, 0.70 to 0.75.
`labels` and `group` are not here: they only sort and annotate, so they are accepted and have no effect.
"""

TOP_KEYS = frozenset({"prefix", "mgmt", "settings", "debug"})

TOPOLOGY_KEYS = frozenset({"groups"})

# fmt: off
NODE_KEYS = frozenset({
    "aliases", "auto-remove", "binds", "cap-add", "certificate", "cmd", "components", "config", "cpu", "cpu-set",
    "devices", "dns", "enforce-startup-config", "entrypoint", "env", "env-files", "exec", "extras", "healthcheck",
    "image", "image-pull-policy", "kernel", "license", "memory", "mgmt-ipv4", "mgmt-ipv6", "network-mode", "ports",
    "position", "publish", "restart-policy", "runtime", "sandbox", "shm-size", "stages", "startup-config",
    "startup-delay", "suppress-startup-config", "sysctls", "type", "user",
})

LINK_KEYS = frozenset({
    "dst-port", "endpoint", "host-interface", "ipv6", "mode", "parent-interface", "remote", "src-port", "udp-port",
    "vars", "vni",
})
# fmt: on

ENDPOINT_KEYS = frozenset({"ipv6", "vars"})

LINK_TYPES = frozenset({"bridge", "dummy", "host", "macvlan", "mgmt-net", "veth-stitch", "vxlan", "vxlan-stitch"})
"""Types of the extended format; in the brief format some of them stand in the place of a node's name."""
