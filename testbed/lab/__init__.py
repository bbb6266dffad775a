"""What a lab is while it runs: namespaces, links, RDMA devices, processes and captures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab.lab import Lab as Lab
    from testbed.lab.nodes import Bridge as Bridge
    from testbed.lab.nodes import Host as Host
    from testbed.lab.nodes import Node as Node
    from testbed.lab.nodes import Pod as Pod
    from testbed.lab.nodes import Switch as Switch

__all__ = ["Bridge", "Host", "Lab", "Node", "Pod", "Switch"]


def __getattr__(name: str) -> Any:
    """Imports on first use: the CNI plugin `rxe` is a program that needs the RDMA client only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("testbed.lab.lab" if name == "Lab" else "testbed.lab.nodes"), name)
