"""What a lab is while it runs: namespaces, links, RDMA devices, processes and captures."""

from testbed.lab.lab import Lab
from testbed.lab.nodes import Bridge, Host, Node, Pod, Switch

__all__ = ["Bridge", "Host", "Lab", "Node", "Pod", "Switch"]
