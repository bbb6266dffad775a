"""What becomes of a user's tests inside a machine: one session of pytest in a process of its own, in which each test
misbehaves in another way."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.machine import pytests
from testbed.machine.local import LocalMachine
from testbed.protocol.requests import Pytest

TESTS = """
import io
import pdb
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.errors import TestbedError


def refused():
    try:
        {}["no"]
    except KeyError as error:
        raise TestbedError("the plugin refused", hint="ask again") from error


@pytest.fixture
def broken():
    refused()


def test_passes(tmp_path):
    (tmp_path / "kept.txt").write_text("kept")
    Path("made").mkdir()
    Path("made/values.csv").write_text("1,2")


def test_error_of_testbed():
    refused()


def test_error_in_set_up(broken): ...


@pytest.mark.limit(0.2)
def test_beyond_its_limit():
    while True:
        try:
            time.sleep(60)  # here it stands
        except Exception:
            continue


@pytest.mark.limit(0.2)
def test_that_catches_its_limit():
    try:
        time.sleep(60)
    except BaseException:
        pass


@pytest.fixture
def slow_to_go():
    yield
    time.sleep(0.3)
    print("all of it went")


@pytest.mark.limit(0.25)
def test_whose_teardown_is_longer_than_its_limit(slow_to_go): ...


def test_breakpoint():
    breakpoint()


def test_pdb():
    pdb.set_trace()


def test_input():
    input("name? ")


def test_stdin_of_its_own(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("yes"))
    assert input() == "yes"


def test_program_that_reads():
    assert subprocess.run(["cat"], capture_output=True, check=True).stdout == b""


def test_program_beside_it():
    assert subprocess.run(["./beside.sh"], capture_output=True, check=True).stdout == b"runs\\n"


@pytest.mark.skip(reason="no card")
def test_skipped(): ...


@pytest.mark.topology({"name": "pair"})
def test_topology_that_is_a_dict(lab): ...


@pytest.mark.xfail
def test_known():
    raise AssertionError
"""


@dataclass(frozen=True)
class Done:
    status: int
    out: Path
    tests: dict[str, dict[str, Any]]
    text: str


def run(directory: Path, text: str, *arguments: str) -> Done:
    """Runs tests on this kernel; they need no lab."""
    beside, out = directory / "tests", directory / "out"
    beside.mkdir()
    out.mkdir()
    (beside / "test_it.py").write_text(text)
    (beside / "beside.sh").write_text("#!/bin/sh\necho runs\n")
    (beside / "beside.sh").chmod(0o755)
    running = pytests.run(
        [beside / "test_it.py"],
        Pytest(arguments=["-p", "no:randomly", "--color=no", *arguments]),
        seed=1,
        training=False,
        machine=LocalMachine(),
        out=out,
        show=lambda _: None,
    )
    status = asyncio.run(running)
    lines = (out / "tests.jsonl").read_text().splitlines() if (out / "tests.jsonl").exists() else []
    tests = {line["test"].partition("::")[2]: line for line in map(json.loads, lines)}
    return Done(status, out, tests, (out / "pytest.txt").read_text())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    directory = tmp_path_factory.mktemp("session")
    return run(directory, TESTS, f"--junitxml={directory}/report.xml", f"--log-file={directory}/log.txt")


def test_every_test_has_a_line_with_its_outcome(done: Done) -> None:
    assert done.status == 1
    assert {name: test["outcome"] for name, test in done.tests.items()} == {
        "test_passes": "passed",
        "test_error_of_testbed": "failed",
        "test_error_in_set_up": "error",
        "test_beyond_its_limit": "failed",
        "test_that_catches_its_limit": "failed",
        "test_whose_teardown_is_longer_than_its_limit": "passed",
        "test_breakpoint": "failed",
        "test_pdb": "failed",
        "test_input": "failed",
        "test_stdin_of_its_own": "passed",
        "test_program_that_reads": "passed",
        "test_program_beside_it": "passed",
        "test_skipped": "skipped",
        "test_topology_that_is_a_dict": "error",
        "test_known": "xfailed",
    }


def test_a_line_says_why_a_test_was_skipped(done: Done) -> None:
    assert done.tests["test_skipped"]["text"] == "Skipped: no card"


def test_a_topology_that_is_neither_a_file_nor_yaml_is_refused(done: Done) -> None:
    assert "takes the name of a file or YAML, not a dict" in done.tests["test_topology_that_is_a_dict"]["text"]


def test_what_tests_wrote_is_kept(done: Done) -> None:
    directory = done.tests["test_passes"]["directory"]
    assert (done.out / directory / "kept.txt").read_text() == "kept"
    assert (done.out / "files" / "made" / "values.csv").read_text() == "1,2"
    assert not (done.out / "files" / "test_it.py").exists()


def test_reports_are_kept_and_come_to_where_they_were_asked_for(done: Done) -> None:
    wanted = done.out.parent / "report.xml"
    assert "<testsuites" in wanted.read_text()
    assert (done.out / "reports" / "junitxml" / "report.xml").read_text() == wanted.read_text()
    assert (done.out.parent / "log.txt").exists()
    assert f"generated xml file: {wanted}" in done.text


def test_a_test_beyond_its_limit_is_named_with_where_it_stood(done: Done) -> None:
    line = next(number for number, text in enumerate(TESTS.splitlines(), 1) if "# here it stands" in text)
    said = "test_it.py::test_beyond_its_limit: its limit of 0.2 virtual seconds is over; "
    assert f"{said}it stood at test_it.py:{line} in test_beyond_its_limit" in done.text
    assert "its limit of 0.2 virtual seconds is over" in done.tests["test_that_catches_its_limit"]["text"]


def test_an_error_of_testbed_is_its_message_at_the_user_s_lines(done: Done) -> None:
    text = done.tests["test_error_of_testbed"]["text"]
    assert "E           testbed.errors.TestbedError: the plugin refused" in text
    assert "E             ask again" in text
    assert "direct cause" not in text
    assert len(text.splitlines()) < 25
    assert "the plugin refused" in done.tests["test_error_in_set_up"]["text"]


@pytest.mark.parametrize(
    ("name", "line"), [("breakpoint", "breakpoint()"), ("pdb", "pdb.set_trace()"), ("input", 'input("name? ")')]
)
def test_what_asks_for_input_is_refused_at_its_line(done: Done, name: str, line: str) -> None:
    number = next(number for number, text in enumerate(TESTS.splitlines(), 1) if text.strip() == line)
    assert f"test_it.py:{number}: `{line}` asks for input" in done.tests[f"test_{name}"]["text"]


@pytest.mark.parametrize(
    ("text", "argument", "said"),
    [
        ("def test_it(): ...", "--pdb", "--pdb waits for a keyboard, but a machine has none"),
        (
            "import pytest\n@pytest.mark.limit('long')\ndef test_it(): ...",
            "-q",
            "test_it.py::test_it: @pytest.mark.limit takes a number of seconds above 0",
        ),
    ],
)
def test_wrong_usage_is_2_with_one_message(tmp_path: Path, text: str, argument: str, said: str) -> None:
    done = run(tmp_path, text, argument)
    assert done.status == 2
    assert f"ERROR: {said}" in done.text
    assert not done.tests


def test_a_file_that_cannot_be_collected_is_an_error_of_its_own(tmp_path: Path) -> None:
    done = run(tmp_path, "import nothing_of_that_name\n\ndef test_it(): ...")
    assert done.status == 2
    (line,) = (json.loads(line) for line in (done.out / "tests.jsonl").read_text().splitlines())
    assert (line["test"], line["outcome"]) == ("test_it.py", "error")
    assert "No module named 'nothing_of_that_name'" in line["text"]
