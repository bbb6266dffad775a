"""However a run ends, nothing of it is left: no process, no file, no lock."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import COMMAND

TEMPORARY = Path("/tmp")  # noqa: S108 - looked at, not written to


def processes_of(marker: str) -> list[str]:
    """Command lines of this machine's processes that have `marker` in their environment."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                if marker.encode() in (directory / "environ").read_bytes():
                    found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def wait_for(condition, within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
    ids=["INT", "TERM", "KILL"],
)
@pytest.mark.parametrize("moment", ["the machine starts", "the scenario runs"])
def test_a_signal_leaves_nothing(number, status, moment, tmp_path, misbehave):
    """A variant that would run for minutes is ended at two moments."""
    marker = f"TESTBED_TEST={tmp_path}"
    before = set(TEMPORARY.iterdir())
    process = subprocess.Popen(
        [*COMMAND, "run", str(misbehave), "--variant", "spins"],
        cwd=tmp_path,
        env={**os.environ, "TESTBED_TEST": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def reached() -> bool:
        running = any("qemu-system" in command for command in processes_of(marker))
        return running and (moment == "the machine starts" or bool(list(tmp_path.rglob("spins"))))

    assert wait_for(reached, 60)
    process.send_signal(number)
    assert process.wait(timeout=20) == status
    assert wait_for(lambda: not processes_of(marker), 10), processes_of(marker)
    left = {path.name for path in set(TEMPORARY.iterdir()) - before if path.name.startswith("testbed-")}
    assert not left
    assert not list((Path.home() / ".cache/testbed").rglob("making-*"))
