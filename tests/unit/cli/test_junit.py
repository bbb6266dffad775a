"""`testbed run --junit` and `testbed pytest --junit`: what CI servers read."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from testbed.cli import junit, options
from testbed.cli.main import invoke
from testbed.errors import MachineError, TestbedError
from testbed.machine import pytests
from testbed.machine.pytests import Ended
from testbed.machine.record import Identity, RunResult, VariantResult


def parsed(file: Path) -> ElementTree.Element:
    return ElementTree.parse(file).getroot()  # noqa: S314  # our own file


def properties(element: ElementTree.Element) -> dict[str, str]:
    return {one.attrib["name"]: one.attrib["value"] for one in element.findall("properties/property")}


def test_a_suite_is_a_scenario_and_a_case_a_variant(
    result_of: Callable[..., RunResult], good: VariantResult, bad: VariantResult, tmp_path: Path
) -> None:
    silent = replace(bad, name="silent", observed=None, failures=["the guest hangs"])
    junit.write([result_of(good, bad), replace(result_of(silent), scenario="other")], tmp_path / "report.xml")
    root = parsed(tmp_path / "report.xml")
    assert {key: root.attrib[key] for key in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    tiny, other = root.findall("testsuite")
    assert (tiny.attrib["name"], tiny.attrib["tests"], tiny.attrib["time"]) == ("tiny", "2", "3.500")
    assert properties(tiny)["seed"] == "7"
    assert properties(tiny)["trace"] == result_of(good, bad).trace
    works, breaks = tiny.findall("testcase")
    assert (works.attrib["classname"], works.attrib["name"], works.attrib["time"]) == ("tiny", "good", "2.500")
    assert properties(works)["trace"] == good.trace
    assert properties(works)["evidence.completion"] == "SUCCESS"
    assert works.find("failure") is None
    failure = breaks.find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "users saw fault where healthy was expected"
    assert failure.text == "users saw fault where healthy was expected\nthe first line\nand the second"
    error = other.find("testcase/error")
    assert error is not None
    assert error.text == "the guest hangs"


def test_whatever_a_guest_says_is_xml(result_of: Callable[..., RunResult], bad: VariantResult, tmp_path: Path) -> None:
    hostile = "\x00\x1b[2J]]>&<\ud800\ufffe\U0001f600"
    poisoned = replace(bad, evidence={hostile: hostile}, failures=[f"{hostile}\n{hostile}"])
    junit.write([result_of(poisoned)], tmp_path / "report.xml")
    failure = parsed(tmp_path / "report.xml").find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.count("]]>&<") == 2
    assert "\U0001f600" in failure.text


def test_a_report_is_written_where_the_user_is_and_beside_the_json(
    ends_like: Callable[..., None], bad: VariantResult, tiny: Path, tmp_path: Path
) -> None:
    ends_like(bad)
    assert invoke(["run", str(tiny), "--junit", "reports/run.xml", "--json"]) == 1
    cases = parsed(tmp_path / "reports" / "run.xml").findall("testsuite/testcase")
    assert [case.attrib["name"] for case in cases] == ["bad", "good"]


def test_a_place_where_nothing_can_be_written_is_2_before_a_machine_is_asked_for(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert invoke(["run", str(tiny), "--junit", str(tmp_path / "file" / "run.xml")]) == 2
    assert "cannot be written: " in capsys.readouterr().err


# Sessions of pytest


def ended(test: str, outcome: str, text: str = "", directory: str = "") -> Ended:
    return {"test": test, "outcome": outcome, "virtual_s": 1.5, "directory": directory, "text": text, "wall_s": 0.25}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, ElementTree.Element]]:
    """Has a session of pytest end with these tests, or break; the status and the report."""

    def end(tests: list[Ended], error: TestbedError | None = None, status: int = 0) -> tuple[int, ElementTree.Element]:
        async def run(*_: object, out: Path, **__: object) -> int:
            (out / "tests.jsonl").write_text("".join(json.dumps(test) + "\n" for test in tests))
            if error:
                raise error
            return status

        monkeypatch.setattr(pytests, "run", run)
        monkeypatch.setattr(options, "choose", lambda *_: SimpleNamespace(clock="virtual"))
        monkeypatch.setattr(Identity, "of", lambda *_: IDENTITY)
        runs, report = tmp_path / "runs", tmp_path / "new" / "report.xml"
        found = invoke(["pytest", str(tmp_path), "--seed", "7", "--out", str(runs), "--junit", str(report)])
        return found, parsed(report)

    return end


IDENTITY = Identity("vm", "1.0", "c0de", "ef" * 32, "10.0.2 (Debian)", "tcg", None, None)


def test_a_case_of_a_session_is_a_test(session: Callable[..., tuple[int, ElementTree.Element]]) -> None:
    status, root = session(
        [
            ended("deep/test_a.py::TestB::test_c[x::y]", "passed", directory="tmp/test_c0"),
            ended("test_a.py::test_d", "failed", "    assert 1 == 2\nE   assert 1 == 2\nE    +  where"),
            ended("test_a.py::test_e", "error", "E  RuntimeError: set-up"),
            ended("test_a.py::test_f", "skipped", "Skipped: no card"),
            ended("test_a.py::test_g", "xfailed"),
            ended("test_a.py::test_h", "xpassed"),
        ],
        status=1,
    )
    assert status == 1
    counts = {"tests": "6", "failures": "1", "errors": "1", "skipped": "2"}
    assert {key: root.attrib[key] for key in counts} == counts
    [suite] = root.findall("testsuite")
    assert (suite.attrib["name"], properties(suite)["seed"], properties(suite)["image"]) == ("pytest", "7", "ef" * 32)
    cases = suite.findall("testcase")
    assert [(case.attrib["classname"], case.attrib["name"]) for case in cases[:2]] == [
        ("deep.test_a.TestB", "test_c[x::y]"),
        ("test_a", "test_d"),
    ]
    assert properties(cases[0]) == {"virtual_s": "1.5", "directory": "tmp/test_c0"}
    assert cases[0].attrib["time"] == "0.250"
    endings = [(one.tag, one.attrib["message"]) for case in cases for one in case if one.tag != "properties"]
    assert endings == [
        ("failure", "assert 1 == 2"),
        ("error", "RuntimeError: set-up"),
        ("skipped", "Skipped: no card"),
        ("skipped", "xfailed"),
    ]


def test_a_machine_that_breaks_is_an_error_of_the_test_that_ran(
    session: Callable[..., tuple[int, ElementTree.Element]],
) -> None:
    broken = MachineError("the guest hangs", where="test_a.py::test_long", hint="1 tests had ended")
    status, root = session([ended("test_a.py::test_it", "passed")], broken)
    assert status == 1
    first, second = root.findall("testsuite/testcase")
    assert len(first) == 1
    assert (second.attrib["classname"], second.attrib["name"]) == ("test_a", "test_long")
    error = second.find("error")
    assert error is not None
    assert (error.attrib["message"], error.text) == ("the guest hangs", str(broken))
