"""Sweeps with machines: a run is the same wherever it was carried out, and what fails is found, repeated and shrunk."""

import json
import os
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from distributed import LocalCluster

BRITTLE = Path(__file__).parent / "scenarios" / "brittle"


def rows(file):
    with closing(sqlite3.connect(file)) as database:
        found = database.execute("SELECT settings ->> 'writes', seed, trace FROM runs").fetchall()
    return {(writes, seed): trace for writes, seed, trace in found}


@pytest.mark.slow
def test_a_run_that_fails_is_found_repeated_and_shrunk(testbed, tmp_path):
    """The second fault is needed, and two WRITEs, for it comes before the second one."""
    found = testbed("sweep", BRITTLE, "--seeds", "1", "--over", "writes=1,3", "--set", "size=100", "--json")
    assert found.status == 1, found.err
    first = found.json["first_unexpected"]
    again = testbed(*shlex.split(first["command"])[1:], "--json")
    assert again.status == 1, again.err
    assert again.json["variants"][0]["trace"] == rows(tmp_path / "runs/brittle/sweep.sqlite")["3", 1]
    small = testbed("shrink", first["directory"], "--json")
    assert small.status == 0, small.err
    assert (small.json["settings"], small.json["without_faults"]) == ({"writes": "2"}, [1])
    assert {part["part"] for part in small.json["parts"] if part["matters"]} == {
        "writes=3",
        "fault 2: link-down end=sw:e2",
    }
    result = json.loads((tmp_path / small.json["directory"] / "result.json").read_text())
    assert result["variants"][0]["without_faults"] == [1]


@pytest.mark.slow
def test_a_run_on_a_cluster_is_the_same_as_here(testbed, tmp_path):
    """The worker has the code that was sent, and the image of its own cache; one process there has all runs."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster:
        engine = cluster.scheduler_address.replace("tcp://", "dask://")
        words = ["sweep", BRITTLE, "--seeds", "1,2", "--over", "writes=1"]
        there = testbed(*words, "--results", "there.sqlite", "--engine", engine)
    assert there.status == 0, there.err
    assert testbed(*words, "--results", "here.sqlite").status == 0
    assert rows(tmp_path / "there.sqlite") == rows(tmp_path / "here.sqlite")
    assert os.listdir(tmp_path / "runs" / "brittle") == []
