"""However we end, nothing is left; and which CPU a machine gets."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.machine import processes

KILLED = """
import os, signal, sys
from pathlib import Path
from testbed.machine import processes

real = Path.mkdir

def mkdir_and_die(path, *arguments):
    real(path, *arguments)
    print(path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

Path.mkdir = mkdir_and_die
with processes.scratch(parent=Path(sys.argv[1])):
    pass
"""


def test_a_scratch_directory_is_removed_even_when_we_are_killed_as_soon_as_it_is_there(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    made, _ = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert Path(made.strip()).parent == tmp_path
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_scratch_directory_that_cannot_be_made_is_the_caller_s_error(tmp_path):
    with pytest.raises(FileNotFoundError), processes.scratch(parent=tmp_path / "absent"):
        pass


HOLDS = """
import os
from testbed.machine import processes

os.sched_getaffinity = lambda pid: {70003, 70004}
with processes.cpu() as number:
    print(number, flush=True)
    input()
"""


def test_machines_side_by_side_have_cpus_of_their_own_while_there_are_enough(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {70001, 70002})
    with processes.cpu() as first, processes.cpu() as second, processes.cpu() as third:
        assert [first, second, third] == [70001, 70002, 70001]
    with processes.cpu() as again:
        assert again == 70001


def test_another_process_has_another_cpu_until_it_is_killed(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {70003, 70004})
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "70003\n"
    with processes.cpu() as ours:
        assert ours == 70004
    holder.kill()
    holder.communicate()
    with processes.cpu() as ours:
        assert ours == 70003
