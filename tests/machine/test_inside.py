"""The tests that run inside a machine, each part in a machine of its own."""

from pathlib import Path

import pytest

LAB = Path(__file__).parents[1] / "lab"
SPLIT = ("cni", "workload")
"""Directories that are too long for one machine's limit: each file is a part."""
TOP = [path for path in LAB.iterdir() if path.name.startswith("test_") or list(path.glob("test_*"))]
PARTS = sorted(part for path in TOP for part in (path.glob("test_*") if path.name in SPLIT else [path]))
SLOW = (
    "test_frr_routing", "test_scale", "test_jobs", "test_job_shapes", "test_parallel_training", "test_mpi_collectives",
    "test_conformance_plugins", "test_coordinator", "test_ippool", "test_refusals",
)  # fmt: skip
"""Parts that take a minute or more."""


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(path, id=str(path.relative_to(LAB)), marks=[pytest.mark.slow] * (path.stem in SLOW))
        for path in PARTS
    ],
)
def test_the_tests_of_the_lab_pass(testbed, part):
    done = testbed("pytest", *(["--training"] if "workload" in part.relative_to(LAB).parts else []), part)
    assert done.status == 0, done.out + done.err
