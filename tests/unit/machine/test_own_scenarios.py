"""Scenarios of the user's own, known by name: from a variable, or from pyproject.toml."""

import os
from pathlib import Path

import pytest

from testbed.cli.main import invoke
from testbed.errors import InputError
from testbed.machine import scenarios


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TESTBED_SCENARIOS", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in "labs/mine", "labs/ip-reuse", "other/theirs":
        assert invoke(["new", name]) == 0
    (tmp_path / "inner").mkdir()
    return tmp_path


def names() -> list[str]:
    return [source.name for source in scenarios.own()]


def test_without_a_word_there_are_none() -> None:
    assert names() == []


def test_the_nearest_pyproject_names_directories(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pyproject.toml").write_text('[tool.testbed]\nscenarios = ["labs", "other"]\n')
    monkeypatch.chdir(project / "inner")
    assert names() == ["ip-reuse", "mine", "theirs"]
    assert scenarios.resolve("theirs").file == Path("../other/theirs/scenario.py")
    assert scenarios.resolve("ip-reuse").is_shipped


def test_the_variable_wins_over_pyproject(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pyproject.toml").write_text('[tool.testbed]\nscenarios = ["labs"]\n')
    monkeypatch.setenv("TESTBED_SCENARIOS", os.pathsep.join([str(project / "other"), ""]))
    assert names() == ["theirs"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.testbed\n", "is no valid TOML"),
        ('[tool.testbed]\nscenarios = "labs"\n', "must be a list of directories"),
        ('[tool.testbed]\nscenarios = ["nothing"]\n', "this directory of scenarios does not exist"),
    ],
)
def test_what_is_wrong_is_named(project: Path, text: str, message: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        names()


def test_a_new_scenario_has_the_name_of_its_directory_and_replaces_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "name: mine\n" in (project / "labs/mine/topology.clab.yml").read_text()
    assert "class Mine(Scenario" in (project / "labs/mine/scenario.py").read_text()
    assert invoke(["new", "labs/mine"]) == 2
    assert "exists, and someone may have edited it" in capsys.readouterr().err
    assert invoke(["new", "labs/1 2"]) == 2
    assert not (project / "labs/1 2").exists()
