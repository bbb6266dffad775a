"""Whose the entries of a switch's kernel are: EVPN's, a command's, the control plane's."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, ip_address
from unittest.mock import Mock

import pytest

from testbed.kernel import rtnetlink as rt
from testbed.kernel.rtnetlink import FdbEntry, Neighbour
from testbed.switch.changes import FabricEntry, FdbChange
from testbed.switch.kernel_neighbours import NOTHING, KernelNeighbours
from testbed.switch.tunnels import Tunnels
from testbed.topology.plan import Svi

X = IPv4Address("10.0.10.100")
REMOTE, OTHER = "02:00:00:00:00:0b", "02:00:00:00:00:99"
NETWORK, SVI = 12, 7
VTEP = ip_address("10.255.0.4")


@pytest.fixture
def neighbours() -> KernelNeighbours:
    node, svis = Mock(host_routes=False, svis=()), Mock()
    svis.index.return_value = SVI
    return KernelNeighbours(node, svis, Mock())


@pytest.fixture
def tunnels() -> Tunnels:
    made = Tunnels()
    made.add(NETWORK, Svi(10, "vlan10", OTHER, None, vni=10010))
    made.bridged(rt.RTM_NEWNEIGH, FdbEntry(NETWORK, 2, rt.NUD_NOARP, 10, REMOTE, 0))
    return made


def of_zebra(mac: str | None, *, external: bool = True, state: str = "NOARP") -> Neighbour:
    return Neighbour(SVI, X, state, mac, rt.ZEBRA, external=external)


def behind(*, external: bool) -> FdbEntry:
    return FdbEntry(NETWORK, 0, rt.NUD_PERMANENT, 0, REMOTE, 0, behind=VTEP, external=external)


def test_an_entry_that_a_command_has_changed_is_no_longer_evpns(neighbours: KernelNeighbours) -> None:
    """The kernel leaves zebra as its protocol."""
    assert neighbours.follow(rt.RTM_NEWNEIGH, 10, of_zebra(REMOTE)) == FabricEntry(10, X, REMOTE)
    changed = of_zebra(OTHER, external=False, state="PERMANENT")
    assert neighbours.follow(rt.RTM_NEWNEIGH, 10, changed) is None
    assert neighbours.by_hand == {(10, X): OTHER}
    assert neighbours.follow(rt.RTM_NEWNEIGH, 10, of_zebra(REMOTE)) == FabricEntry(10, X, REMOTE)
    assert neighbours.by_hand == {}


@pytest.mark.parametrize("protocol", [rt.ZEBRA, rt.STATIC])
def test_without_its_entry_by_hand_nothing_is_left_of_an_address_of_evpn(
    neighbours: KernelNeighbours, protocol: int
) -> None:
    neighbours.follow(rt.RTM_NEWNEIGH, 10, of_zebra(REMOTE))
    neighbours.follow(rt.RTM_NEWNEIGH, 10, Neighbour(SVI, X, "PERMANENT", OTHER, protocol))
    gone = Neighbour(SVI, X, "FAILED", None, protocol)
    assert neighbours.follow(rt.RTM_DELNEIGH, 10, gone) == FabricEntry(10, X, None)
    assert neighbours.by_hand == {}


def test_a_withdrawal_has_lost_its_flag(neighbours: KernelNeighbours) -> None:
    """neigh_delete in net/core/neighbour.c clears it before the entry goes."""
    neighbours.follow(rt.RTM_NEWNEIGH, 10, of_zebra(REMOTE))
    gone = of_zebra(None, external=False, state="FAILED")
    assert neighbours.follow(rt.RTM_DELNEIGH, 10, gone) == FabricEntry(10, X, None)


def test_an_entry_that_the_control_plane_takes_over_is_its_own(neighbours: KernelNeighbours) -> None:
    neighbours.follow(rt.RTM_NEWNEIGH, 10, of_zebra(REMOTE))
    neighbours.set(10, X, OTHER)
    assert neighbours.follow(rt.RTM_NEWNEIGH, 10, Neighbour(SVI, X, "PERMANENT", OTHER, rt.STATIC)) is None
    assert neighbours.by_hand == {}
    assert [*neighbours.forget_all_but({(10, X)})] == []


@pytest.mark.parametrize("again", [KernelNeighbours.set, lambda at, vlan, ip, _: at.delete(vlan, ip)])
def test_an_entry_of_the_control_plane_that_a_command_has_deleted_is_known_to_be_missing(
    neighbours: KernelNeighbours, again: Callable[[KernelNeighbours, int, IPv4Address, str], None]
) -> None:
    own = Neighbour(SVI, X, "PERMANENT", OTHER)
    neighbours.set(10, X, OTHER)
    neighbours.follow(rt.RTM_NEWNEIGH, 10, own)
    assert neighbours.follow(rt.RTM_DELNEIGH, 10, replace(own, state="FAILED", mac=None)) is None
    assert neighbours.by_hand == {(10, X): NOTHING}
    again(neighbours, 10, X, OTHER)
    if again is KernelNeighbours.set:
        neighbours.follow(rt.RTM_NEWNEIGH, 10, own)
    assert neighbours.by_hand == {}


def test_a_far_end_that_zebra_has_not_set_is_a_commands(tunnels: Tunnels) -> None:
    expected = FdbChange(10, REMOTE, "vni10010", vteps=(str(VTEP),))
    assert tunnels.far_end(rt.RTM_NEWNEIGH, behind(external=False), Mock()) == expected
    assert tunnels.by_hand == {(10, REMOTE)}
    assert tunnels.far_end(rt.RTM_NEWNEIGH, behind(external=True), Mock()) == expected
    assert tunnels.by_hand == set()
