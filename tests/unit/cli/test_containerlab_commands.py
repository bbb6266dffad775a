"""`deploy` and `destroy` take the flags of containerlab, or say why not."""

from pathlib import Path

import pytest

from testbed.cli.live import containerlab_commands, up
from testbed.cli.main import invoke
from testbed.machine.live.labs import Lab

FILE = "name: pair\ntopology: {nodes: {h1: {kind: host}}}\n"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.mark.parametrize("flag", [flag for name in containerlab_commands.WITHOUT for flag in name.split(", ")])
def test_a_flag_that_cannot_mean_the_same_is_refused_with_the_reason(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, why = next((name, why) for name, why in containerlab_commands.WITHOUT.items() if flag in name.split(", "))
    command = "destroy" if name == "--keep-mgmt-net" else "deploy"
    assert invoke([command, flag, *([] if name in containerlab_commands.SWITCHES else ["x"])]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert why in said
    assert name.partition(",")[0] in said


def test_all_refused_flags_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["destroy", "--node-filter", "a", "-d", "--all"]) == 2
    assert "error: --node-filter, --debug cannot work here" in " ".join(capsys.readouterr().err.split())


def test_without_topo_it_is_the_only_file_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["deploy"]) == 2
    assert "this directory has no topology file: name one with --topo" in capsys.readouterr().err
    Path("one.clab.yml").write_text(FILE)
    assert containerlab_commands.topology("") == containerlab_commands.topology(".") == Path("one.clab.yml")
    Path("two.clab.yaml").write_text(FILE)
    assert invoke(["destroy"]) == 2
    assert "There are one.clab.yml, two.clab.yaml." in capsys.readouterr().err


def test_a_file_of_a_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["deploy", "-t", "https://example.org/x.clab.yml"]) == 2
    assert "Download it first" in capsys.readouterr().err


def test_the_lab_is_that_of_the_file_s_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.clab.yml").write_text(FILE)
    assert invoke(["destroy", "-t", "one.clab.yml"]) == 2
    assert "lab pair does not exist" in capsys.readouterr().err


def test_cleanup_removes_the_run_directory_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Path("runs/pair/1").absolute()
    for place in run, run.parent / "2":
        place.mkdir(parents=True)
    (run.parent / "latest").symlink_to("1")
    lab = Lab("pair", "", "real", 1.0, 0, "1", str(run), "dead")
    lab.directory.mkdir()
    lab.write()
    nameless = Lab("odd", "", "real", 1.0, 0, "1", "", "dead")
    nameless.directory.mkdir()
    nameless.write()
    assert invoke(["destroy", "--all", "--yes", "--cleanup"]) == 0
    assert [path.name for path in run.parent.iterdir()] == ["2"]
    assert Path().absolute().is_dir()
    assert not up.labs.every()
