"""A job for a micro-VM and back, with a function in the guest's place."""

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

import pytest

from testbed.errors import MachineError
from testbed.machine import making, snapshot
from testbed.machine.jobs import Job
from testbed.machine.memory_files import BLOCK, END, ENTRY, PROGRESS_END, Bundle, Outcome
from testbed.machine.qemu import Flavour
from testbed.machine.vm import VirtualMachine
from testbed.protocol import messages
from testbed.protocol.requests import Variant

REQUEST = Variant(scenario="scenario.py", lab={"topology": "lab.clab.yml", "profiles": {}})
Guest = Callable[[Bundle, Outcome], None]


@dataclass
class Machine:
    """Does its job when it is continued, and then pauses."""

    guest: Guest
    bundle: Bundle
    outcome: Outcome
    process = SimpleNamespace(pid=1)

    async def command(self, _: str) -> None:
        self.guest(self.bundle, self.outcome)

    async def paused(self, look: Callable[[], Awaitable[None]], _: Callable[[], float]) -> None:
        await look()


@pytest.fixture
def machine_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Guest], VirtualMachine]:
    def make(guest: Guest) -> VirtualMachine:
        @asynccontextmanager
        async def begun(*_: object) -> AsyncIterator[SimpleNamespace]:
            with Bundle() as bundle, Outcome() as outcome:
                yield SimpleNamespace(bundle=bundle, outcome=outcome, machine=Machine(guest, bundle, outcome))

        monkeypatch.setattr(making, "begun", begun)
        monkeypatch.setattr(snapshot, "stack", lambda *_, training: [None])
        return VirtualMachine(None, Flavour("virtual"), lambda _: None)  # type: ignore[arg-type]

    return make


def test_a_guest_whose_progress_is_damaged_is_one_error(
    machine_with: Callable[[Guest], VirtualMachine], tmp_path: Path
) -> None:
    def guest(_: Bundle, outcome: Outcome) -> None:
        outcome.map[BLOCK : BLOCK + 4] = b"what"
        outcome.map[16:24] = struct.pack("<Q", 1 << 40)

    with pytest.raises(MachineError, match="progress is damaged"):
        asyncio.run(machine_with(guest).run(Job([REQUEST], limit_s=60), tmp_path))


def finish(outcome: Outcome) -> None:
    """Hands back no file."""
    outcome.map[PROGRESS_END : PROGRESS_END + ENTRY.size] = ENTRY.pack(END, 0, 0)
    outcome.map[8:32] = struct.pack("<QQQ", ENTRY.size, 0, 1)


def test_no_file_of_the_user_takes_the_place_of_the_job(
    machine_with: Callable[[Guest], VirtualMachine], tmp_path: Path
) -> None:
    arrived: dict[str, bytes] = {}
    modes: dict[str, int] = {}

    def guest(bundle: Bundle, outcome: Outcome) -> None:
        (length,) = struct.unpack("<Q", bundle.map[8:16])
        with tarfile.open(fileobj=io.BytesIO(bundle.map[BLOCK : BLOCK + length])) as tar:
            for info in tar:
                arrived[info.name], modes[info.name] = tar.extractfile(info).read(), info.mode  # type: ignore[union-attr]
        finish(outcome)

    files = {"job.json": b"mine", "scenario.py": b"story"}
    asyncio.run(machine_with(guest).run(Job([REQUEST], files, ["scenario.py"], limit_s=60), tmp_path))
    job = json.loads(arrived.pop("job.json"))
    below = Path(job["files"]).relative_to("/run/testbed/in")
    assert {str(Path(name).relative_to(below)): data for name, data in arrived.items()} == files
    assert messages.parse(job["requests"][0]) == REQUEST
    assert modes == {"job.json": 0o644, f"{below}/job.json": 0o644, f"{below}/scenario.py": 0o755}


def test_each_job_asks_for_the_snapshot_which_others_may_have_displaced(
    machine_with: Callable[[Guest], VirtualMachine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_with(lambda _, outcome: finish(outcome))
    asked: list[bool] = []

    def stack(*_: object, training: bool) -> list[None]:
        asked.append(training)
        return [None]

    monkeypatch.setattr(snapshot, "stack", stack)
    for training in (False, False, True):
        asyncio.run(machine.run(Job([REQUEST], limit_s=60, training=training), tmp_path))
    assert asked == [False, False, True]
