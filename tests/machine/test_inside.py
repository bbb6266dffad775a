"""The tests that run inside a machine, in a few machines that take about as long as each other."""

import json
from pathlib import Path

import pytest

LAB = Path(__file__).parents[1] / "lab"
SECONDS = json.loads((LAB / "seconds.json").read_text())
"""CPU seconds of each file, by record_seconds.py."""
NEW_S = 10.0
"""Those of a file that is not recorded yet."""
TORCH = {
    *("test_jobs.py", "test_job_shapes.py", "test_pod_jobs.py", "test_elastic_jobs.py"),
    *("test_parallel_training.py", "test_mpi_collectives.py", "test_sharded_training.py"),
}
"""Files that start jobs, for which torch is imported before."""
SLOW = TORCH | {
    *("test_frr_routing.py", "test_scale.py", "test_networks.py", "test_bench.py", "test_bonds.py"),
    *("test_conformance_plugins.py", "test_ippool.py", "test_inject.py", "test_ifacer.py", "test_fabrics.py"),
    *("test_own_devices.py", "test_tools.py", "test_dual_tor.py", "test_bfd.py", "test_evpn_segments.py"),
    "test_mlag.py",
    "test_vrrp.py",
    "test_tunnels.py",
}
"""Files for `make catalogue` alone."""
QUICK = ("-m", "not slow")
PLAIN = ("--assert=plain",)
"""Spares a machine a second per file, and says less of a failure."""
FILES = sorted(LAB.rglob("test_*.py"))


def needs_torch(file: Path) -> bool:
    return file.name in TORCH


def machines(files: list[Path], number: int) -> list[list[Path]]:
    """Divide files among machines, the longest first, each to the machine that has least to do so far."""
    found: list[list[Path]] = [[] for _ in range(number)]
    for file in sorted(files, key=seconds, reverse=True):
        min(found, key=lambda part: sum(map(seconds, part))).append(file)
    return found


def seconds(file: Path) -> float:
    return SECONDS.get(str(file.relative_to(LAB)), NEW_S)


def each(files: list[Path], number: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("files", machines(files, number), ids=lambda files: files[0].stem)


def check(testbed, files, chosen=(), training=()):
    """Failing tests are run again for their text alone: that they pass then does not help them."""
    words = ("pytest", *training, *files, "--", *chosen)
    done = testbed(*words, *PLAIN)
    if done.status:
        again = testbed(*words)
        pytest.fail(f"{done.out}{done.err}\nwith assertions rewritten:\n{again.out}{again.err}", pytrace=False)


@each([file for file in FILES if file.name not in SLOW], 4)
def test_the_tests_of_the_lab_pass(testbed, files):
    check(testbed, files, QUICK)


@pytest.mark.slow
@each([file for file in FILES if file.name in SLOW - TORCH], 2)
def test_the_slow_files_of_the_lab_pass(testbed, files):
    check(testbed, files)


@pytest.mark.slow
@each([file for file in FILES if file.name in TORCH], 2)
def test_the_tests_of_jobs_pass(testbed, files):
    check(testbed, files, training=("--training",))


@pytest.mark.slow
@each([file for file in FILES if file.name not in SLOW], 4)
def test_each_test_of_the_lab_passes_alone_in_a_drawn_order(testbed, files, request):
    """Those marked slow, too. No test passes only by what another one before it did to their lab."""
    check(testbed, files, ("--fresh-labs", request.config.getoption("--seed")))
