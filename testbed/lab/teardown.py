"""Takes nodes down in the order the kernel needs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from testbed.lab.node import Node


def take_down(nodes: Sequence[Node[Any]]) -> None:
    """Ends the programs of all, then deletes the devices of all, then the namespaces. Every step is taken, whichever
    fails; the first failure is raised at the end."""
    with ExitStack() as steps:  # the last one entered is the first one taken
        for step in ("close", "delete_devices", "release"):
            for node in reversed(nodes):
                steps.callback(getattr(node, step))
