"""A user's pytest files on any machine: what they write is shown, how they end is a status."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import MachineError
from testbed.machine import pytests
from testbed.machine.local import Listener
from testbed.protocol import Job


@dataclass
class FakeMachine:
    """Tells `record`, and leaves `status` in status.json unless it is None."""

    record: Any
    status: str | None

    async def run(self, job: Job, files: Mapping[str, bytes], out: Path, listen: Listener, *, limit_s: float) -> float:
        listen(self.record)
        if self.status is not None:
            (out / "status.json").write_text(self.status)
        return 0.1


def run(tmp_path: Path, record: Any, status: str | None) -> tuple[int, str]:
    """The status, and what was shown."""
    tests, shown = tmp_path / "tests", []
    for directory in (tests, tmp_path / "out"):
        directory.mkdir()
    machine = FakeMachine(record, status)
    running = pytests.run([tests], [], seed=1, training=False, machine=machine, out=tmp_path / "out", show=shown.append)
    return asyncio.run(running), "".join(shown)


@pytest.mark.parametrize(("left", "status"), [("0", 0), ("1", 1), ("2", 2), ("3", 2), ("4", 2), ("5", 2)])
def test_what_tests_write_is_shown_and_their_status_is_ours(tmp_path: Path, left: str, status: int) -> None:
    assert run(tmp_path, {"write": "1 passed\n"}, left) == (status, "1 passed\n")


@pytest.mark.parametrize(
    ("record", "status", "said"),
    [
        ({"event": {}}, "0", "a line of progress is no output: "),
        ({"write": 1}, "0", "a line of progress is no output: "),
        ({"write": ""}, "{", "the job left a damaged status.json: "),
        ({"write": ""}, '"0"', "the tests' code ended its process before pytest was done"),
        ({"write": ""}, None, "the tests' code ended its process before pytest was done"),
    ],
)
def test_what_is_damaged_is_one_error(tmp_path: Path, record: Any, status: str | None, said: str) -> None:
    with pytest.raises(MachineError, match=said):
        run(tmp_path, record, status)


def test_the_conftest_files_above_the_tests_come_along(tmp_path: Path) -> None:
    below = tmp_path / "suite" / "part" / "deep"
    below.mkdir(parents=True)
    for directory in (below, below.parent, below.parent.parent):
        (directory / "conftest.py").touch()
    (below / "test_one.py").touch()
    assert pytests.place([below]) == (tmp_path / "suite", ["part/deep"])
    assert pytests.place([Path(f"{below}/test_one.py::test_it")]) == (
        tmp_path / "suite",
        ["part/deep/test_one.py::test_it"],
    )
