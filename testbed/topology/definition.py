"""The base of the models of a topology file, and what several kinds of nodes have in theirs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from testbed.topology.values import Destination, Via


class Definition(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class RouteDefinition(Definition):
    """A static route."""

    to: Destination
    """The destination: `default` (of the family of `via`), or a subnet such as `10.0.20.0/24`."""
    via: Via
    """
    The next hop: an address in a subnet that the node has an address in. Several in a list are of equal cost (ECMP):
    each flow takes one of them, by the hash of its addresses and ports.
    """


class RoutedKeys(Definition):
    routes: list[RouteDefinition] | None = None
    """
    Host, switch: its static routes. A host without this key has a default route via the SVI of its first interface's
    VLAN; with the key it has exactly what is listed (`[]`: none).
    """
