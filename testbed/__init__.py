"""testbed: reproduce RoCE network failures of AI clusters without RDMA hardware.

The public API is what this module, `testbed.faults`, `testbed.workload`, `testbed.session` and `testbed.errors` export
(docs/api.md).
Everything else is private by convention.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import Field as Field

    from testbed.lab import Host as Host
    from testbed.lab import HostInterface as HostInterface
    from testbed.lab import Interface as Interface
    from testbed.lab import Lab as Lab
    from testbed.lab import Node as Node
    from testbed.lab import Pod as Pod
    from testbed.lab import PodMetadata as PodMetadata
    from testbed.lab import Switch as Switch
    from testbed.lab.capture import Capture as Capture
    from testbed.lab.capture import Frame as Frame
    from testbed.lab.nodes.host_node import Service as Service
    from testbed.lab.pods import Caller as Caller
    from testbed.lab.pods import Objects as Objects
    from testbed.lab.pods import PodRequest as PodRequest
    from testbed.lab.pods import Pods as Pods
    from testbed.lab.pods import Rollout as Rollout
    from testbed.lab.pods import kubelet as kubelet
    from testbed.lab.port import Port as Port
    from testbed.lab.port import PriorityGroup as PriorityGroup
    from testbed.lab.port import Queue as Queue
    from testbed.lab.processes import Process as Process
    from testbed.lab.routing import Routing as Routing
    from testbed.lab.scheduler import Scheduler as Scheduler
    from testbed.scenario.event_log import EventLog as EventLog
    from testbed.scenario.model import Parameters as Parameters
    from testbed.scenario.model import Scenario as Scenario
    from testbed.scenario.run import Connection as Connection
    from testbed.scenario.run import Run as Run
    from testbed.scenario.run import Variant as Variant
    from testbed.scenario.run import owner_of as owner_of
    from testbed.switch.profile import Profile as Profile
    from testbed.switch.profile import ProfileName as ProfileName
    from testbed.switch.profile import profile as profile
    from testbed.topology import Container as Container
    from testbed.topology import IPAddress as IPAddress
    from testbed.topology import Topology as Topology

_HOMES = {
    "pydantic": "Field",
    "testbed.lab": "Host HostInterface Interface Lab Node Pod PodMetadata Switch",
    "testbed.lab.capture": "Capture Frame",
    "testbed.lab.pods": "Caller Objects PodRequest Pods Rollout kubelet",
    "testbed.lab.port": "Port PriorityGroup Queue",
    "testbed.lab.processes": "Process",
    "testbed.lab.routing": "Routing",
    "testbed.lab.scheduler": "Scheduler",
    "testbed.lab.nodes.host_node": "Service",
    "testbed.scenario.event_log": "EventLog",
    "testbed.scenario.model": "Parameters Scenario",
    "testbed.scenario.run": "Connection Run Variant owner_of",
    "testbed.switch.profile": "Profile ProfileName profile",
    "testbed.topology": "Container IPAddress Topology",
}
__all__ = [name for names in _HOMES.values() for name in names.split()]


def __getattr__(name: str) -> Any:
    """Import on first use: the command's help and a scenario's description do not wait for netlink."""
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
