"""Plain pytest in a repository of the user's own, whose tests with the fixture `lab` run in a machine."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LIMIT_S

TOPOLOGY = """\
name: pair
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
"""
TESTS = """\
import logging
import os

import pytest

from own import ADDRESS

pytestmark = pytest.mark.topology("pair.clab.yml")


def test_plain(request):
    assert request.config.pluginmanager.hasplugin("cacheprovider")


@pytest.mark.parametrize("host", ["a", "b"])
def test_hosts_reach_the_gateway(lab, host):
    assert lab.host(host).ping(ADDRESS, within=1)


def test_that_fails(lab):
    assert sorted(lab.host("a").interfaces) == ["eth1", "eth2"]


def test_hours_pass(lab, log, caplog):
    lab.scheduler.sleep(4 * 3600)
    logging.getLogger("mine").warning("four hours")
    assert caplog.messages == ["four hours"]
    assert os.geteuid() == 0
"""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    for name, text in (
        ("pyproject.toml", '[tool.pytest.ini_options]\npythonpath = ["src"]\naddopts = "--strict-markers"\n'),
        ("src/own.py", 'ADDRESS = "10.0.10.1"\n'),
        ("tests/pair.clab.yml", TOPOLOGY),
        ("tests/test_mine.py", TESTS),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(user: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-rP", *arguments]
    done = subprocess.run(
        command, cwd=user, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=LIMIT_S
    )
    return done.stdout + done.stderr


def test_a_session_is_one_of_plain_and_of_lab_tests(user: Path) -> None:
    text = run(user)
    assert "1 failed, 4 passed" in text
    assert "AssertionError: assert ['eth1'] == ['eth1', 'eth2']" in text
    assert re.search(r"Captured log call -+\nWARNING +mine:test_mine.py:\d+ four hours", text)
    [directory] = (user / "runs" / "pytest").glob("2*")
    assert f"testbed: text, tests and files: {directory.relative_to(user)}" in text
    assert (directory / "report.html").is_file()
    tests = [json.loads(line) for line in (directory / "tests.jsonl").read_text().splitlines()]
    assert {test["test"]: test["outcome"] for test in tests} == {
        "tests/test_mine.py::test_hosts_reach_the_gateway[a]": "passed",
        "tests/test_mine.py::test_hosts_reach_the_gateway[b]": "passed",
        "tests/test_mine.py::test_that_fails": "failed",
        "tests/test_mine.py::test_hours_pass": "passed",
    }
    assert (directory / "tmp" / "test_that_fails0" / "events.jsonl").is_file()
    assert re.search("^=+ 1 failed in ", run(user, "--lf"), re.MULTILINE)


@pytest.mark.slow
def test_workers_have_machines_of_their_own(user: Path) -> None:
    assert "2 passed" in run(user, "-n", "2", "-k", "gateway")
    assert len(list((user / "runs" / "pytest").glob("2*"))) == 2
