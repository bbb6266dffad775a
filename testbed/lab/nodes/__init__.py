"""The kinds of nodes that a topology may have, one a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.lab.node import Node
from testbed.lab.nodes.bridge import Bridge
from testbed.lab.nodes.host import Host
from testbed.lab.nodes.switch import Switch

KINDS: Mapping[str, type[Node[Any]]] = {"host": Host, "linux": Host, "switch": Switch, "bridge": Bridge}
