"""However we end, nothing is left."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.machine import child_processes

KILLED = """
import os, signal, sys
from pathlib import Path
from testbed.machine import child_processes

real = Path.mkdir

def mkdir_and_die(path, *arguments):
    real(path, *arguments)
    print(path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

Path.mkdir = mkdir_and_die
with child_processes.scratch(parent=Path(sys.argv[1])):
    pass
"""


def test_a_child_that_signals_its_process_group_does_not_reach_ours():
    """As mmdebstrap does when the disk is full."""
    with child_processes.child(["sleep", "infinity"]) as child:
        assert os.getpgid(child.pid) == child.pid
        os.killpg(child.pid, signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM


def test_a_child_that_still_runs_at_the_end_ends_with_its_own_children():
    with child_processes.child(["sh", "-c", "sleep 1000 & echo begun; wait"], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"begun\n"
    assert child.returncode == -signal.SIGTERM
    assert select.select([child.stdout], [], [], 30)[0], "nobody has the pipe any more"
    child.stdout.close()


def test_a_child_whose_parent_is_gone_before_it_begins_does_not_begin():
    """The words name this process; the shell between is another parent, as init is."""
    words = [*child_processes.dying("KILL"), "echo", "begun"]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b"begun\n"
    between = subprocess.run(["sh", "-c", '"$@"; true', "sh", *words], capture_output=True, check=True)
    assert between.stdout == b""


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
    with pytest.raises(FileNotFoundError), child_processes.scratch(parent=tmp_path / "absent"):
        pass


def test_what_is_left_when_the_remover_was_killed_too_is_swept_by_the_next_one(tmp_path):
    """As a CI runner ends a job: all processes at once."""
    orphan = tmp_path / "testbed.0123456789abcdef"
    (orphan / "deep").mkdir(parents=True)
    (orphan / "deep" / "file").write_text("x")
    with child_processes.scratch(tmp_path) as ours:
        assert list(tmp_path.iterdir()) == [ours]


def test_a_directory_that_a_living_process_has_is_not_swept(tmp_path):
    with child_processes.scratch(tmp_path) as first, child_processes.scratch(tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["testbed.mine", "testbed.0123456789abcdeg", "other-0123456789abcdef"])
def test_what_has_another_name_is_not_swept(tmp_path, name):
    (tmp_path / name).mkdir()
    child_processes.sweep(tmp_path)
    assert (tmp_path / name).is_dir()


def test_a_link_with_such_a_name_is_not_followed(tmp_path):
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "file").write_text("x")
    (tmp_path / "testbed.0123456789abcdef").symlink_to("user")
    child_processes.sweep(tmp_path)
    assert (tmp_path / "user" / "file").exists()


def test_a_directory_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """Another command sweeps in the moment between."""
    real, made = Path.mkdir, []

    def mkdir(path, *arguments):
        real(path, *arguments)
        made.append(path)
        if len(made) == 1:
            child_processes.sweep(tmp_path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with child_processes.scratch(tmp_path) as path:
        assert path.is_dir()
        assert made[1:] == [path]
