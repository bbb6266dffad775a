"""Twenty labs at once, each in a machine of its own."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live import Live, wait_for

LABS = 20
MEMORY = 24 << 30
"""Bytes of the machine on which so many have to fit."""


def pss(pid: int) -> int:
    """Bytes of memory of a process, with its share of what others have, too."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) << 10


@pytest.mark.slow
def test_twenty_labs_at_once_and_the_death_of_one_is_no_other_s(own: Live) -> None:
    names = [f"lab{number}" for number in range(LABS)]
    with ThreadPoolExecutor(4) as commands:
        ups = list(commands.map(lambda name: own("up", own.file, "--name", name), names))
        assert [done.err for done in ups if done.status] == []
        used = sum(map(pss, own.processes()))
        assert used < MEMORY / 2, f"{used >> 20} MiB"

        os.kill(own.machine("lab7"), signal.SIGKILL)
        assert wait_for(lambda: own.record("lab7")["state"] == "dead")
        others = [name for name in names if name != "lab7"]
        rows = {row["name"]: row["state"] for row in own("ps", "-f", "json").json}
        assert rows == {**dict.fromkeys(others, "up"), "lab7": "dead"}

        def mark(name: str) -> str:
            own("exec", "h1", "--", "sh", "-c", f"echo {name} > /root/mark", lab=name)
            return own("exec", "h1", "--", "cat", "/root/mark", lab=name).out.strip()

        assert list(commands.map(mark, others)) == others
    assert own("down", "--all").status == 0
    assert wait_for(lambda: not own.processes(), 30)
    assert not list(own.labs.iterdir())
