"""Topologies: pure data and planning, without the kernel. Of our code only `errors` and `documents` are imported."""

from testbed.topology.addressing import POOL as POOL
from testbed.topology.addressing import link_local as link_local
from testbed.topology.addressing import pod_mac as pod_mac
from testbed.topology.definition import RouteDefinition as RouteDefinition
from testbed.topology.models import Elements as Elements
from testbed.topology.models import EndpointDefinition as EndpointDefinition
from testbed.topology.models import LinkDefinition as LinkDefinition
from testbed.topology.models import NodeDefinition as NodeDefinition
from testbed.topology.plan import DEFAULT_QUEUE as DEFAULT_QUEUE
from testbed.topology.plan import CongestionControl as CongestionControl
from testbed.topology.plan import Container as Container
from testbed.topology.plan import Family as Family
from testbed.topology.plan import Interface as Interface
from testbed.topology.plan import IPAddress as IPAddress
from testbed.topology.plan import IPInterface as IPInterface
from testbed.topology.plan import IPNetwork as IPNetwork
from testbed.topology.plan import Lossless as Lossless
from testbed.topology.plan import NicModel as NicModel
from testbed.topology.plan import Node as Node
from testbed.topology.plan import Plan as Plan
from testbed.topology.plan import Quality as Quality
from testbed.topology.plan import RdmaMode as RdmaMode
from testbed.topology.plan import Route as Route
from testbed.topology.plan import Svi as Svi
from testbed.topology.topology import Topology as Topology
from testbed.topology.topology import json_schema as json_schema
