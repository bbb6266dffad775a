"""What CI of GitHub and GitLab runs for users, run here: the steps of the action, and the job of the template."""

import os
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from elsewhere import TEST, run

from testbed.machine import image_build

CHECKOUT = Path(__file__).parents[2]
ACTION = yaml.safe_load((CHECKOUT / "action.yml").read_text())
TEMPLATE = yaml.safe_load((CHECKOUT / ".gitlab/testbed.yml").read_text())[".testbed"]
INSTALLED = {*image_build.TOOLS.values(), "uidmap", "debian-archive-keyring", "python3-venv"} - {"apt"}


@pytest.fixture
def repository(tmp_path):
    """One that has a test with a lab. Its CI is not root: what it asks of sudo and apt-get is done already."""
    (tmp_path / "bin").mkdir()
    for name in "sudo", "apt-get":
        program = tmp_path / "bin" / name
        program.write_text('#!/bin/sh\necho "$0 $*" >>"${0%/bin/*}/asked"\n')
        program.chmod(0o755)
    place = tmp_path / "repository"
    place.mkdir()
    (place / "test_mine.py").write_text(TEST)
    return place


def shell(script, cwd, **environment):
    path = f"{cwd.parent}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    done = run("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script, cwd=cwd, PATH=path, **environment)
    assert done.returncode == 0, done.stderr


def expand(text, values):
    """The text with GitHub's expressions, as ${{ inputs.scenario }}, replaced."""
    return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: values[found[1]], text)


def passed(junit):
    cases = ET.parse(junit).iter("testcase")  # noqa: S314 - it is ours
    return [case.get("name") for case in cases if not {"failure", "error", "skipped"} & {part.tag for part in case}]


def test_tests_run_also_when_a_scenario_was_not_as_expected(tmp_path):
    """Of the action by its condition; of the job for GitLab by its lines, with programs that only report."""
    step = next(step for step in ACTION["runs"]["steps"] if step["name"] == "Run tests")
    assert "!cancelled()" in step["if"]
    assert "success()" not in step["if"]
    place = tmp_path / ".testbed/bin"
    place.mkdir(parents=True)
    for name, status in ("testbed", 1), ("pytest", 0), ("pip", 0):
        (place / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/called\nexit {status}\n')
        (place / name).chmod(0o755)
    lines = "set -e\n" + "\n".join(TEMPLATE["script"])
    given = {"SCENARIO": "x", "ARGS": "", "TESTS": "t", "REQUIREMENTS": "six", "CI_PROJECT_DIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", lines], env={**os.environ, **given}, cwd=tmp_path, check=False)
    assert done.returncode == 1
    called = [line.split()[0] for line in (tmp_path / "called").read_text().splitlines()]
    assert called == ["testbed", "pip", "pytest"]


@pytest.mark.slow
def test_the_steps_of_the_action_run_a_scenario_and_a_test(repository, tmp_path):
    inputs = {
        "scenario": "duplicate-ip",
        "tests": "test_mine.py",
        "requirements": "six",
        "args": "--variant fixed-mac",
        "out": "testbed-runs",
    }
    assert set(inputs) == set(ACTION["inputs"])
    values = {"github.action_path": str(CHECKOUT), **{f"inputs.{name}": value for name, value in inputs.items()}}
    files = {"GITHUB_PATH": str(tmp_path / "path"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    steps = [step for step in ACTION["runs"]["steps"] if "run" in step]
    assert [step["name"] for step in steps] == ["Install testbed", "Run scenarios", "Run tests"]
    for step in steps:
        given = {name: expand(value, values) for name, value in step["env"].items()}
        added = (tmp_path / "path").read_text().split() if (tmp_path / "path").exists() else []
        script = f"PATH={':'.join([*added, '$PATH'])}\n{step['run']}"
        shell(script, repository, RUNNER_TEMP=str(tmp_path / "temp"), **files, **given)
    assert re.fullmatch(r"image=[0-9a-f]{16}\n", (tmp_path / "output").read_text())
    assert passed(repository / "testbed-runs/scenarios.xml") == ["fixed-mac"]
    assert passed(repository / "testbed-runs/tests.xml") == ["test_a_lab"]
    assert set((tmp_path / "asked").read_text().split()) >= INSTALLED


@pytest.mark.slow
def test_the_job_of_the_template_runs_a_scenario_and_a_test(repository, tmp_path):
    chosen = {
        "TESTBED": str(CHECKOUT),
        "SCENARIO": "duplicate-ip",
        "ARGS": "--variant fixed-mac",
        "TESTS": "test_mine.py",
        "REQUIREMENTS": "six",
    }
    assert set(chosen) < set(TEMPLATE["variables"])
    lines = "\n".join([*TEMPLATE["before_script"], *TEMPLATE["script"]])
    shell(lines, repository, CI_PROJECT_DIR=str(repository), **chosen)
    assert passed(repository / "runs/scenarios.xml") == ["fixed-mac"]
    assert passed(repository / "runs/tests.xml") == ["test_a_lab"]
    assert set((tmp_path / "asked").read_text().split()) >= INSTALLED
