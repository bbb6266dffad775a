"""How many vCPUs a guest has."""

import os

import pytest

from testbed.machine import qemu
from testbed.machine.qemu import Accelerator, Flavour
from testbed.protocol import Clock


@pytest.mark.parametrize(
    ("clock", "accelerator", "version", "cpus"),
    [
        ("virtual", "tcg", "10.0.2", 1),
        ("real", "tcg", "7.2.22", 1),
        ("real", "tcg", "8.0.4", 1),
        ("real", "tcg", "8.1.0", 4),
        ("real", "tcg", "10.0.2", 4),
        ("real", "kvm", "7.2.22", 4),
    ],
)
def test_more_vcpus_than_one_only_where_qemu_executes_them_right(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, accelerator: Accelerator, version: str, cpus: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(qemu, "version", lambda: version)
    assert Flavour(clock, accelerator).cpus == cpus
