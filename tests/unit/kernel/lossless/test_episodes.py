"""The ring of pauses that the programs write and Python reads."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.kernel.lossless.layout import constants, structures
from testbed.kernel.lossless.ports import Ports

SIZE = constants()["EPISODES"]


class Ring(Ports):
    """Ports without programs: a test writes what these would."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {
            "episodes": (structures()["episode"] * SIZE)(),
            "episodes_written": (structures()["counter"] * 1)(),
        }
        self._programs: Any = SimpleNamespace(arrays=self.arrays)
        self._read, self._ended = 0, []

    def write(self, number: int) -> None:
        written = self.arrays["episodes_written"][0]
        for _ in range(number):
            self.arrays["episodes"][written.value % SIZE].from_ns = written.value
            written.value += 1


def test_episodes_are_read_once_in_their_order() -> None:
    ring = Ring()
    ring.write(3)
    found, lost = ring.episodes()
    assert ([one.from_ns for one in found], lost) == ([0, 1, 2], 0)
    assert ring.episodes() == ([], 0)


@pytest.mark.parametrize("beyond", [0, 1, 500])
def test_episodes_that_were_overwritten_are_counted(beyond: int) -> None:
    ring = Ring()
    ring.write(3)
    ring.episodes()
    ring.write(SIZE + beyond)
    found, lost = ring.episodes()
    assert (found[0].from_ns, found[-1].from_ns, lost) == (3 + beyond, 3 + beyond + SIZE - 1, beyond)
    assert ring.episodes() == ([], 0)
