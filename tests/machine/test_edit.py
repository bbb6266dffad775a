"""After an edit of the code that runs in machines the first run makes the snapshot and goes on from there."""

import os
import shutil
import time
from pathlib import Path

import pytest

from testbed.machine import cache, making, snapshot
from testbed.machine.shipped import LOCK

SCENARIO = Path(__file__).parents[2] / "scenarios" / "ip-reuse"


@pytest.mark.slow
def test_the_first_run_after_an_edit_is_any_other_run_and_one_file_is_compiled(testbed, tmp_path):
    run = ("run", SCENARIO, "--variant", "garp", "--json")
    testbed(*run)
    shutil.copytree(snapshot.PACKAGE, tmp_path / "testbed", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(LOCK, tmp_path)
    with (tmp_path / "testbed" / "switch" / "profile.py").open("a") as file:
        file.write(f"# edited {time.time_ns()}\n")
    compiled = set(os.listdir(cache.root() / making.BYTECODE))
    edited, warm = (testbed(*run, env={"PYTHONPATH": str(tmp_path)}) for _ in range(2))
    assert edited.status == warm.status == 0, edited.err
    assert "load this version of testbed into it" in edited.err
    assert "load the packages below labs into it" not in edited.err
    assert "load this version of testbed into it" not in warm.err
    assert edited.json["trace"] == warm.json["trace"]
    assert len(set(os.listdir(cache.root() / making.BYTECODE)) - compiled) == 1
