"""The help comes at once: it loads nothing that only a command needs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import testbed
from testbed.cli.main import COMMANDS, invoke

HEAVY = ("asyncio", "pydantic", "pyroute2", "pytest", "qemu", "rich", "yaml")
PROBE = f"""
import json, sys
from testbed.cli.main import invoke
status = invoke(sys.argv[1:])
print(json.dumps([status, [name for name in {HEAVY} if name in sys.modules]]))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["no-such-command"]])
def test_help_and_errors_of_usage_load_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True)
    status, loaded = json.loads(done.stdout.splitlines()[-1])
    assert (status, loaded) == (2 if arguments == ["no-such-command"] else 0, [])


def test_the_probe_would_see_what_a_command_loads() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, "run", "-h"], capture_output=True, text=True, check=True)
    _, loaded = json.loads(done.stdout.splitlines()[-1])
    assert {"asyncio", "rich"} <= set(loaded)


def test_a_checkout_says_its_own_version_installed_or_not(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "testbed"\nversion = "9.8.7"\n')
    (tmp_path / "testbed").symlink_to(Path(testbed.__file__).parent)
    command = [sys.executable, "-m", "testbed", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "testbed 9.8.7\n"


def test_the_help_lists_every_command_and_the_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--help"]) == 0
    said = capsys.readouterr().out
    listed = [line.split()[0] for line in said.splitlines() if re.match(r"  \S", line)]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
    assert "Exit status: 0 as expected, 1 not as expected, 2 wrong usage or input, 3" in " ".join(said.split())


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_stream_that_is_closed_is_done_without(closed: str) -> None:
    command = f"exec {sys.executable} -m testbed --version {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_list_is_there_and_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: testbed {command} ")


def test_no_line_of_the_help_of_topology_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
