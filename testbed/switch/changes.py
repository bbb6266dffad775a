"""The changes that a data plane reports to its control plane."""

from dataclasses import dataclass

from testbed.switch import fdb
from testbed.topology.plan import IPAddress, IPInterface, IPNetwork


@dataclass(frozen=True, slots=True)
class Miss:
    """A packet for an address without a neighbour entry."""

    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class FdbChange:
    """The bridge learned a MAC on `port`, or lost it (None)."""

    vlan: int
    mac: str
    port: str | None
    lost: fdb.Lost = "aged"
    vteps: tuple[str, ...] = ()
    """The far ends of the port, if it is a VXLAN network's."""
    synced: bool = False
    """True for an entry that the other switch of a pair has told (MLAG)."""
    comes: bool = True
    """False if no frames from the MAC come here; only of such an entry it is known."""


@dataclass(frozen=True, slots=True)
class FabricEntry:
    """EVPN has put an address of another switch into the table, or withdrawn it (None)."""

    vlan: int
    ip: IPAddress
    mac: str | None


@dataclass(frozen=True, slots=True)
class SegmentsChange:
    """Something has changed on which the Ethernet segments of the switch depend."""


@dataclass(frozen=True, slots=True)
class RouterChange:
    """The addresses of a virtual router, by its VLAN and MAC, for which the switch is master; none as a backup."""

    vlan: int
    mac: str
    addresses: tuple[IPAddress, ...]


@dataclass(frozen=True, slots=True)
class PortDown:
    """A port of the bridge has no link any more. The FDB loses its MACs before or after."""

    port: str


@dataclass(frozen=True, slots=True)
class PortUp:
    """A port of the bridge has a link."""

    port: str


@dataclass(frozen=True, slots=True)
class CarrierLost:
    """An SVI has lost its carrier: no port has a link, of the bridge or of its VLAN (`Profile.autostate`)."""

    vlan: int


@dataclass(frozen=True, slots=True)
class SviChange:
    """An SVI has another MAC or other addresses; none if it is gone."""

    vlan: int
    mac: str
    addresses: tuple[IPInterface, ...]


@dataclass(frozen=True, slots=True)
class Flushed:
    """The kernel has removed a neighbour entry by itself, as it does when an SVI goes down or loses its addresses."""

    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class RouteChange:
    """The ports of BGP's route to a subnet; none if the route is lost."""

    to: IPNetwork
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages or packets dropped while the control plane was late."""

    what: str
    number: int


Change = (
    RouterChange
    | Miss
    | FdbChange
    | FabricEntry
    | SegmentsChange
    | PortDown
    | PortUp
    | CarrierLost
    | SviChange
    | Flushed
    | RouteChange
    | Lost
)
