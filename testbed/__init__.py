"""testbed: reproduce RoCE network failures of AI clusters without RDMA hardware.

What is named here is the public API; everything else is private by convention.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab import Lab as Lab
    from testbed.scenario.model import Parameters as Parameters
    from testbed.scenario.model import Scenario as Scenario
    from testbed.scenario.model import Variant as Variant
    from testbed.scenario.run import Run as Run
    from testbed.topology import Topology as Topology

_HOMES = {
    "Lab": "testbed.lab",
    "Parameters": "testbed.scenario.model",
    "Run": "testbed.scenario.run",
    "Scenario": "testbed.scenario.model",
    "Topology": "testbed.topology",
    "Variant": "testbed.scenario.model",
}
__all__ = ["Lab", "Parameters", "Run", "Scenario", "Topology", "Variant"]


def __getattr__(name: str) -> Any:
    """Imports on first use: the command's help and a scenario's description must not wait for netlink."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
