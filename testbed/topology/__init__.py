"""Topologies: pure data and planning, without the kernel. Of ours only `errors` and `documents` are imported."""

from testbed.topology.addressing import POOL, link_local, pod_mac
from testbed.topology.definition import RouteDefinition
from testbed.topology.models import (
    Elements,
    EndpointDefinition,
    LinkDefinition,
    NodeDefinition,
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
