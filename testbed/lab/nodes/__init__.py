"""The kinds of nodes in a lab. `testbed.topology.kinds` registers them."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from testbed.lab.node import Node
from testbed.topology import kinds

KINDS: Mapping[str, type[Node[Any]]] = {
    name: resolve_name(f"{__name__}.{kind.lab_class}") for name, kind in kinds.KINDS.items()
}
