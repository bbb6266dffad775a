"""What a lab should be: pure data and planning. No kernel is called, and of ours only `testbed.errors` is imported."""

from testbed.topology.addressing import POOL, link_local, pod_mac
from testbed.topology.models import (
    Elements,
    EndpointDefinition,
    LinkDefinition,
    NodeDefinition,
    RouteDefinition,
)
from testbed.topology.plan import (
    DEFAULT_QUEUE,
    Bgp,
    Family,
    Interface,
    IPAddress,
    IPInterface,
    IPNetwork,
    NicModel,
    Node,
    NodeKind,
    Plan,
    Quality,
    RdmaMode,
    Route,
    Routing,
    Svi,
)
from testbed.topology.topology import Topology, json_schema

__all__ = [
    "DEFAULT_QUEUE",
    "POOL",
    "Bgp",
    "Elements",
    "EndpointDefinition",
    "Family",
    "IPAddress",
    "IPInterface",
    "IPNetwork",
    "Interface",
    "LinkDefinition",
    "NicModel",
    "Node",
    "NodeDefinition",
    "NodeKind",
    "Plan",
    "Quality",
    "RdmaMode",
    "Route",
    "RouteDefinition",
    "Routing",
    "Svi",
    "Topology",
    "json_schema",
    "link_local",
    "pod_mac",
]
