"""An errand to a micro-VM and back, with a function in the guest's place."""

import asyncio
import io
import json
import struct
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import MachineError
from testbed.machine import snapshot
from testbed.machine.parcel import BLOCK, END, ENTRY, PROGRESS_END, Errand, Outcome
from testbed.machine.qemu import Flavour
from testbed.machine.vm import VirtualMachine
from testbed.protocol import Job

JOB: Job = {"kind": "variant", "name": "story", "scenario": "scenario.py"}
Guest = Callable[[Errand, Outcome], None]


@dataclass
class Machine:
    """Does its errand when it is continued, and then pauses."""

    guest: Guest
    errand: Errand
    outcome: Outcome
    process = SimpleNamespace(pid=1)
    claim = None

    async def command(self, _: str) -> None:
        self.guest(self.errand, self.outcome)

    async def paused(self, look: Callable[[], Awaitable[None]], _: float) -> None:
        await look()


@pytest.fixture
def machine_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Guest], VirtualMachine]:
    def make(guest: Guest) -> VirtualMachine:
        @asynccontextmanager
        async def restored(_: Any, __: Any, ___: Any, errand: Errand, outcome: Outcome) -> AsyncIterator[Machine]:
            yield Machine(guest, errand, outcome)

        async def ensure(*_: Any, training: bool) -> None: ...

        monkeypatch.setattr(snapshot, "restored", restored)
        monkeypatch.setattr(snapshot, "ensure", ensure)
        return VirtualMachine(None, Flavour("virtual"), lambda _: None)  # type: ignore[arg-type]

    return make


def test_a_guest_whose_progress_is_damaged_is_one_error(
    machine_with: Callable[[Guest], VirtualMachine], tmp_path: Path
) -> None:
    def guest(_: Errand, outcome: Outcome) -> None:
        outcome.map[BLOCK : BLOCK + 4] = b"what"
        outcome.map[16:24] = struct.pack("<Q", 1 << 40)

    with pytest.raises(MachineError, match="progress is damaged"):
        asyncio.run(machine_with(guest).run(JOB, {}, tmp_path, lambda _: None, limit_s=60))


def finish(outcome: Outcome) -> None:
    """Hands back no file."""
    outcome.map[PROGRESS_END : PROGRESS_END + ENTRY.size] = ENTRY.pack(END, 0, 0)
    outcome.map[8:32] = struct.pack("<QQQ", ENTRY.size, 0, 1)


def test_no_file_of_the_user_takes_the_place_of_the_job(
    machine_with: Callable[[Guest], VirtualMachine], tmp_path: Path
) -> None:
    arrived: dict[str, bytes] = {}

    def guest(errand: Errand, outcome: Outcome) -> None:
        (length,) = struct.unpack("<Q", errand.map[8:16])
        with tarfile.open(fileobj=io.BytesIO(errand.map[BLOCK : BLOCK + length])) as tar:
            arrived.update({info.name: tar.extractfile(info).read() for info in tar})  # type: ignore[union-attr]
        finish(outcome)

    files = {"job.json": b"mine", "scenario.py": b"story"}
    asyncio.run(machine_with(guest).run(JOB, files, tmp_path, lambda _: None, limit_s=60))
    job = json.loads(arrived.pop("job.json"))
    below = Path(job["in"]).relative_to("/run/testbed/in")
    assert {str(Path(name).relative_to(below)): data for name, data in arrived.items()} == files
    assert job["scenario"] == "scenario.py"
