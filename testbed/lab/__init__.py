"""A running lab: nodes with interfaces, links, processes and captures."""

from testbed.lab.host_interface import HostInterface
from testbed.lab.interface import Interface
from testbed.lab.lab import Lab
from testbed.lab.node import Node
from testbed.lab.nodes.bridge_node import Bridge
from testbed.lab.nodes.host_node import Host, Pod, PodMetadata
from testbed.lab.nodes.switch_node import Switch

__all__ = ["Bridge", "Host", "HostInterface", "Interface", "Lab", "Node", "Pod", "PodMetadata", "Switch"]
