"""What is remembered of KVM: for which machine, and for how long. No guest is booted."""

import asyncio
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.machine import emulator, kvm
from testbed.machine.emulator import Emulator

Boots = Callable[[bool], list[bool]]


@pytest.fixture(autouse=True)
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /dev/kvm that may be used, on a machine with a QEMU."""
    path = tmp_path / "kvm"
    path.touch()
    monkeypatch.setattr(kvm, "DEVICE", path)
    monkeypatch.setattr(emulator, "emulator", lambda: Emulator(("qemu",), "qemu", ""))
    return path


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> Boots:
    """Decides how boots end; the list gets an entry for each."""

    def decide(well: bool) -> list[bool]:
        tried: list[bool] = []

        async def boot(_: object) -> bool:
            tried.append(well)
            return well

        monkeypatch.setattr(kvm, "_boots", boot)
        return tried

    return decide


def works() -> bool:
    return asyncio.run(kvm.flavour(None, "real")).accelerator == "kvm"  # type: ignore[arg-type]


@pytest.mark.parametrize("well", [True, False])
def test_one_boot_tells_for_the_next_runs(boots: Boots, well: bool) -> None:
    tried = boots(well)
    assert kvm.answer() is None
    assert [works(), works(), kvm.answer()] == [well, well, well]
    assert len(tried) == 1


def test_without_the_device_nothing_is_tried(boots: Boots, device: Path) -> None:
    tried = boots(True)
    device.unlink()
    assert not works()
    assert not tried


def age(cache_root: Path) -> None:
    (memory,) = (cache_root / "kvm").iterdir()
    then = time.time() - kvm.RETRY_S - 60
    os.utime(memory, (then, then))


def test_a_boot_that_failed_is_tried_again_after_a_day(boots: Boots, cache_root: Path) -> None:
    boots(False)
    assert not works()
    age(cache_root)
    boots(True)
    assert kvm.answer() is None
    assert works()
    assert kvm.answer()


def test_a_boot_that_went_well_tells_for_ever(boots: Boots, cache_root: Path) -> None:
    boots(True)
    assert works()
    age(cache_root)
    assert kvm.answer()


def test_machines_without_an_id_that_share_a_cache_are_told_apart_by_their_names(
    boots: Boots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boots(True)
    (tmp_path / "machine-id").write_text("\n")
    monkeypatch.setattr(kvm, "MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr(platform, "node", lambda: "one")
    assert works()
    monkeypatch.setattr(platform, "node", lambda: "other")
    assert kvm.answer() is None


def test_two_first_runs_at_once_do_not_disturb_each_other(
    boots: Boots, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run writes its answer between the two steps in which this one does."""
    boots(True)
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        with ThreadPoolExecutor() as other:
            assert other.submit(works).result()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert works()
    assert len(list((cache_root / "kvm").iterdir())) == 1
