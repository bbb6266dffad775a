"""What lies in the working directory is data, whatever its name: no command imports it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
NAMES = ("asyncio", "click", "json", "pip", "pydantic", "pyroute2", "rich", "subprocess", "tarfile", "typing", "yaml")
SCENARIO = """
from testbed import Scenario, Variant
import theirs

class Tiny(Scenario):
    title = theirs.TITLE
    variants = (Variant("only", "healthy", "it works"),)
    def run(self, run, parameters): ...
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory of a user's scenario, full of names of modules that ours import."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('hijacked by {name}.py')")
    for name in ("pyverbs", "testbed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('hijacked by {name}')")
    (tmp_path / "scenario.py").write_text(SCENARIO)
    (tmp_path / "theirs.py").write_text("TITLE = 'of a module beside it'")
    (tmp_path / "topology.clab.yml").write_text("{name: tiny, topology: {nodes: {a: {kind: host}}}}")
    return tmp_path


def ends(hostile: Path, *command: str) -> str:
    """What a command prints that is run in there and ends well."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=hostile,
        env={**os.environ, "PYTHONPATH": str(TOP), "XDG_CACHE_HOME": str(hostile / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_and_the_processes_it_starts_see_their_own_modules(hostile: Path) -> None:
    assert "of a module beside it" in ends(hostile, "-P", "-m", "testbed", "describe", "--machine", "local", ".")


def test_as_a_module_without_p_only_the_name_testbed_itself_is_taken(hostile: Path) -> None:
    (hostile / "testbed" / "__init__.py").unlink()
    (hostile / "testbed").rmdir()
    for name in ("typing", "subprocess"):  # of what Python imports before it comes to us
        (hostile / f"{name}.py").unlink()
    assert "testbed" in ends(hostile, "-m", "testbed", "--version")
    assert ends(hostile, "-m", "testbed", "topology", "check", "topology.clab.yml") is not None
