"""Members of bonds in `testbed inspect`: what the kernel has them do."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from testbed.cli.live.lab_tables import interface_cells
from testbed.executor.live.inspecting import in_bond
from testbed.kernel.link_readings import LinkState
from testbed.lab import Node

BOND, BRIDGE, MEMBER = 3, 4, 7


def member(master: int, active: bool | None, *, gone: bool = False) -> Any:
    link = LinkState("e1", "02:00:00:00:00:01", 1500, up=True, carrier=True, master=master, active=active)
    node = Mock(spec=Node, interfaces={"po1": SimpleNamespace(index=BOND)})
    node.now.return_value = SimpleNamespace(links={} if gone else {MEMBER: link})
    return SimpleNamespace(node=node, index=MEMBER, plan=SimpleNamespace(master="po1"))


@pytest.mark.parametrize(
    ("interface", "does"),
    [
        (member(BOND, True), "carries"),
        (member(BOND, False), "idle"),
        (member(BRIDGE, None), "out"),
        (member(0, None), "out"),
        (member(BOND, True, gone=True), "out"),
    ],
)
def test_a_member_is_in_its_bond_as_the_kernel_has_it(interface: Any, does: str) -> None:
    assert in_bond(interface) == does


@pytest.mark.parametrize(
    ("in_bond", "carrier", "state"),
    [("carries", True, ""), ("idle", False, "no carrier, no traffic"), ("out", True, "not in its bond")],
)
def test_inspect_shows_what_a_member_does_and_both_ends_of_a_bond(in_bond: str, carrier: bool, state: str) -> None:
    row = {
        **{"interface": "gpu:eth1", "peer": "tor1:e1", "peers": [], "in_bond": in_bond, "up": True, "gone": False},
        **{"carrier": carrier, "quality": {}, "addresses": [], "unusable": {}, "mac": "", "rdma": None},
    }
    assert interface_cells(row)[-1] == state
    bond = {**row, "in_bond": "", "carrier": True, "peer": "tor1:po1", "peers": ["tor1:po1", "tor2:po1"]}
    assert interface_cells(bond)[-2:] == ["tor1:po1, tor2:po1", ""]
