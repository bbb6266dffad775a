"""What experiments are measured by: scenarios' notes, and tests inside a machine that leave their figures.

Two machines run at a time, which changes no figure: their clocks are virtual. Nothing is measured twice.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from made_from import SCENARIOS

INSIDE = Path(__file__).parent / "inside"
COMMAND = (sys.executable, "-P", "-m", "testbed")
SEEDS = range(1, 6)
"""Of experiments that are random: a seed decides which packets a switch marks, and which flows are drawn."""
Figures = dict[str, Any]
_machines = ThreadPoolExecutor(2)
_begun: dict[Hashable, Future[Figures]] = {}
_lock = Lock()


def testbed(*arguments: str) -> str:
    print(f"fidelity: {' '.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}fidelity: `testbed {' '.join(arguments)}` ended with status {done.returncode}")
    return done.stdout


def variant(scenario: str, name: str, seed: int = 1, **settings: float) -> Figures:
    """The notes of a variant that ended as expected."""
    return variants(scenario, name, [seed], **settings)[0]


def variants(scenario: str, name: str, seeds: Sequence[int] = SEEDS, **settings: float) -> list[Figures]:
    """The same with each seed."""
    if scenario not in SCENARIOS:
        raise ValueError(f"{scenario}: not in SCENARIOS of tests/fidelity/made_from.py")
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    what = (scenario, "--variant", name, *given)
    return _all(seeds, lambda seed: _noted(*what, "--seed", str(seed)), *what)


def figures(file: str, only: str = "") -> Figures:
    """The figures of a file of tests, by the names of its tests, or of those that `only` selects (pytest's -k)."""
    return seeded(file, only, [1])[0]


def seeded(file: str, only: str = "", seeds: Sequence[int] = SEEDS) -> list[Figures]:
    """The same with each seed."""
    return _all(seeds, lambda seed: _left(file, only, seed), file, only)


def kernel() -> str:
    """The guest's."""
    (line,) = (line for line in testbed("image", "info").splitlines() if line.startswith("kernel"))
    return line.split()[1]


def stop() -> None:
    """Begin nothing more."""
    _machines.shutdown(wait=False, cancel_futures=True)


def _all(seeds: Sequence[int], measure: Callable[[int], Figures], *names: str) -> list[Figures]:
    with _lock:
        for seed in seeds:
            if (*names, seed) not in _begun:
                _begun[*names, seed] = _machines.submit(measure, seed)
    return [_begun[*names, seed].result() for seed in seeds]


def _noted(*arguments: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="testbed-") as out:
        told = json.loads(testbed("run", *arguments, "--json", "--jobs", "1", "--out", out))
    (found,) = told["variants"]
    evidence: Figures = found["evidence"]
    return evidence


def _left(file: str, only: str, seed: int) -> Figures:
    """The machine gets no other file: to read it takes time, and the figures of one experiment are not to depend on the
    text of another."""
    with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
        alone, out = Path(directory, "inside"), Path(directory, "out")
        alone.mkdir()
        for name in file, "conftest.py":
            shutil.copy(INSIDE / name, alone)
        chosen = ["--", "-k", only] if only else []
        testbed("pytest", str(alone / file), "--seed", str(seed), "--out", str(out), *chosen)
        return {found.stem: json.loads(found.read_text()) for found in Path(out, "pytest", "latest").glob("*.json")}
