"""Two switches as one LACP system (MLAG): the keys of each."""

from pydantic import Field

from testbed.topology.definition import Definition
from testbed.topology.plan import Mlag
from testbed.topology.resolved import Port, ResolvedNode
from testbed.topology.values import InterfaceName, Mac


class MlagDefinition(Definition):
    """A switch's part in a pair that is one LACP system to hosts, with synchronised tables (MLAG)."""

    peer_link: InterfaceName
    """The port, or port channel, to the other switch of the pair: it carries what a port channel that is down cannot,
    and what orphan ports need."""
    system: Mac
    """The system's MAC in the LACPDUs of port channels with `mlag`; the same on both switches."""
    keepalive: InterfaceName | None = None
    """The port of a second link to the other switch, by which the two talk then: the session survives the peer link.
    Default: they talk over the peer link."""
    session_timeout: int = Field(15, ge=3, le=3600)
    """Seconds without a message after which the other switch counts as lost; one is sent each second."""


class MlagKeys(Definition):
    mlag: MlagDefinition | None = None
    """
    Switch: its part in a pair that is one LACP system to hosts (MLAG), such as `{peer_link: e9, system:
    "44:38:39:be:ef:aa"}`. Both switches have the key; port channels of one host have a common `mlag` in `bonds`.
    """


def port_of(node: ResolvedNode, name: str) -> Port | None:
    """Return a port or a port channel of a switch by its name; None if it has none, or for a member of one."""
    port = node.bonds.get(name) or node.ports.get(name)
    return None if port is None or port.bond else port


def peer_of(node: ResolvedNode) -> ResolvedNode | None:
    """Return the switch at the other end of a peer link, if that has one."""
    port = port_of(node, node.keys.mlag.peer_link)
    return port.peer.carrier.node if port else None


def plan(node: ResolvedNode) -> Mlag | None:
    keys = node.keys.mlag
    peer = peer_of(node) if keys else None
    if peer is None:
        return None
    talks_by = keys.keepalive or keys.peer_link
    return Mlag(peer.name, keys.peer_link, talks_by, keys.system, keys.session_timeout)
