"""A running lab: nodes with interfaces, links, processes and captures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab.host_interface import HostInterface as HostInterface
    from testbed.lab.interface import Interface as Interface
    from testbed.lab.lab import Lab as Lab
    from testbed.lab.node import Node as Node
    from testbed.lab.nodes.bridge import Bridge as Bridge
    from testbed.lab.nodes.host import Host as Host
    from testbed.lab.nodes.host import Pod as Pod
    from testbed.lab.nodes.switch import Switch as Switch

_HOMES = {
    "Bridge": "testbed.lab.nodes.bridge",
    "Host": "testbed.lab.nodes.host",
    "HostInterface": "testbed.lab.host_interface",
    "Interface": "testbed.lab.interface",
    "Lab": "testbed.lab.lab",
    "Node": "testbed.lab.node",
    "Pod": "testbed.lab.nodes.host",
    "Switch": "testbed.lab.nodes.switch",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Imports on first use: the CNI plugin `rxe` is a program that needs the RDMA client only."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
