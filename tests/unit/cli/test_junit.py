"""`testbed run --junit`: what CI servers read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.cli import junit
from testbed.cli.main import invoke
from testbed.machine.record import RunResult, VariantResult


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
    assert "cannot be made: " in capsys.readouterr().err
