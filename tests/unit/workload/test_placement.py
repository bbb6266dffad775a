"""Where the ranks of a job are, and what is refused before they start."""

from ipaddress import IPv4Interface
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.workload.jobs import placement

ADDRESS = IPv4Interface("10.0.0.1/24")


class Host(SimpleNamespace):
    """A host with one interface, as much of it as placement reads."""

    def __init__(self, device: str) -> None:
        nic = SimpleNamespace(rdma=device, addresses={4: ADDRESS}, address=lambda _: ADDRESS)
        super().__init__(namespace="ns", interfaces={"eth1": nic})

    def __getitem__(self, name: str) -> Any:
        return self.interfaces[name]

    def __str__(self) -> str:
        return "n0"


@pytest.fixture(autouse=True)
def _devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "open_device", lambda namespace, device: (namespace, device))
    monkeypatch.setattr(placement, "gid_index", lambda _, ip: 1 if ip == ADDRESS.ip else 0)


def place(device: str) -> placement.Rank:
    (rank,) = placement.place(SimpleNamespace(), [Host(device)], "eth1")  # type: ignore[arg-type, list-item]
    return rank


def test_ucx_finds_a_device_with_a_name_of_fifteen_characters() -> None:
    rank = place("123456789-net10")
    assert (rank.device, rank.gid) == ("123456789-net10", 1)


def test_a_device_with_a_longer_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"rank 0 on n0: UCX .* 0123456789-net10: .* keeps only 15 characters"):
        place("0123456789-net10")
