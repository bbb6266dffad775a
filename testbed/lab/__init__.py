"""What a lab is while it runs: namespaces, links, RDMA devices, processes and captures."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing's own costs each CNI plugin of ours 14 ms
if TYPE_CHECKING:
    from typing import Any

    from testbed.lab.lab import Lab as Lab
    from testbed.lab.nodes import Bridge as Bridge
    from testbed.lab.nodes import Host as Host
    from testbed.lab.nodes import Node as Node
    from testbed.lab.nodes import Pod as Pod
    from testbed.lab.nodes import Switch as Switch

__all__ = ["Bridge", "Host", "Lab", "Node", "Pod", "Switch"]


def __getattr__(name: str) -> Any:
    """Imports on first use: a CNI plugin is a process of its own and needs the RDMA client only."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("testbed.lab.lab" if name == "Lab" else "testbed.lab.nodes"), name)
