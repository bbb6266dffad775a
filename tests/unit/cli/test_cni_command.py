"""`testbed cni`: what is wrong with a conflist is said before a machine is asked for."""

import json
from pathlib import Path

import pytest

from testbed.cli.main import invoke

GOOD = {"cniVersion": "1.0.0", "name": "rdma", "plugins": [{"type": "macvlan"}]}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["add", "check", "del"])
def test_a_malformed_conflist_is_2_with_its_place(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("nets").mkdir()
    Path("nets/rdma.conflist").write_text('{"name": "rdma",\n "plugins": [}')
    assert invoke(["cni", command, "nets/rdma.conflist"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: nets/rdma.conflist:2:14: not valid JSON: Expecting value\n")


def test_a_file_that_is_not_there_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["cni", "add", "rdma.conflist"]) == 2
    assert "error: rdma.conflist: no such file" in capsys.readouterr().err


def test_a_directory_is_no_conflist(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["cni", "add", "."]) == 2
    assert "error: .: is not a regular file" in capsys.readouterr().err


def test_a_topology_s_error_is_of_the_topology(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rdma.conflist").write_text(json.dumps(GOOD))
    Path("labs").mkdir()
    Path("labs/my.clab.yml").write_text("name: tiny\ntopology:\n  nodes: {a: {kind: hots}}\n")
    assert invoke(["cni", "add", "rdma.conflist", "--topology", "labs/my.clab.yml"]) == 2
    assert "error: labs/my.clab.yml:3:21: kind 'hots' is not supported" in capsys.readouterr().err


def test_the_environment_of_cnitool_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("rdma.conflist").write_text(json.dumps(GOOD))
    for name, value, said in (
        ("CNI_IFNAME", "a:b", "'a:b' cannot be an interface's name"),
        ("CNI_ARGS", "MAC", "'MAC' is not of the form KEY=VALUE"),
        ("CAP_ARGS", "{", "--capability-args: not valid JSON"),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            assert invoke(["cni", "add", "rdma.conflist"]) == 2
        assert said in capsys.readouterr().err


def test_a_plugin_dir_that_is_not_there_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rdma.conflist").write_text(json.dumps(GOOD))
    assert invoke(["cni", "add", "rdma.conflist", "--plugin-dir", "plugins"]) == 2
    assert "error: plugins: is no directory" in capsys.readouterr().err


def test_a_number_that_is_none_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rdma.conflist").write_text('{"cniVersion": ' + "1" * 5000 + "}")
    assert invoke(["cni", "add", "rdma.conflist"]) == 2
    assert capsys.readouterr().err.startswith("error: rdma.conflist: not valid JSON: Exceeds the limit")
