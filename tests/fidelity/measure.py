"""What experiments are measured by: scenarios' notes, and tests inside a machine that leave their figures."""

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

INSIDE = Path(__file__).parent / "inside"
COMMAND = (sys.executable, "-P", "-m", "testbed")


def testbed(*arguments: str) -> str:
    print(f"fidelity: {' '.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}fidelity: `testbed {' '.join(arguments)}` ended with status {done.returncode}")
    return done.stdout


@functools.cache
def variant(scenario: str, name: str, **settings: float) -> dict[str, Any]:
    """The notes of a variant that ended as expected."""
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory(prefix="testbed-") as out:
        told = json.loads(testbed("run", scenario, "--variant", name, *given, "--json", "--jobs", "1", "--out", out))
    (found,) = told["variants"]
    evidence: dict[str, Any] = found["evidence"]
    return evidence


@functools.cache
def figures(file: str) -> dict[str, Any]:
    """The figures of a file of tests, by the names of its tests.

    The machine gets no other file: to read it takes time, and the figures of one experiment are not to depend on the
    text of another.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
        alone, out = Path(directory, "inside"), Path(directory, "out")
        alone.mkdir()
        for name in file, "conftest.py":
            shutil.copy(INSIDE / name, alone)
        testbed("pytest", str(alone / file), "--out", str(out))
        return {found.stem: json.loads(found.read_text()) for found in Path(out, "pytest", "latest").glob("*.json")}
