"""`testbed topology new` and `check`, `testbed graph`: what is written where, and what is refused."""

from pathlib import Path

import pytest

from testbed.cli.main import invoke


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_fabric_is_printed_or_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "--hosts", "2"]) == 0
    printed = capsys.readouterr().out
    assert invoke(["topology", "new", "single", "--hosts", "2", "-o", "lab.clab.yml"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("lab.clab.yml").read_text() == printed
    assert "# Made by `testbed topology new single --hosts 2 --routed`." in printed


def test_what_was_edited_is_not_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.clab.yml").write_text("mine")
    assert invoke(["topology", "new", "single", "-o", "lab.clab.yml"]) == 2
    assert "error: lab.clab.yml: the file exists" in capsys.readouterr().err
    assert Path("lab.clab.yml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["leaf-spain"], "Did you mean leaf-spine?"),
        (["fat-tree", "--k", "5"], "k is 5; it is an even number"),
        (["fat-tree", "--bridged"], "is a layer-2 loop"),
        (["single", "--spines", "2"], "single has no option 'spines'"),
        (["single", "--hosts", "many"], "'many' is not a valid integer"),
        (["single", "-o", "no/such/lab.yml"], "error: no/such/lab.yml: cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_made_is_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in " ".join(err.split())


def test_check_says_which_vlan_a_port_is_in_or_that_it_routes(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--leaves", "2", "--spines", "1", "--hosts", "1"]
    assert invoke(["topology", "new", "leaf-spine", *sizes, "--routing", "frr", "-o", "lab.clab.yml"]) == 0
    assert invoke(["topology", "check", "lab.clab.yml"]) == 0
    rows = {words[0]: words[3:] for words in map(str.split, capsys.readouterr().out.splitlines())}
    assert rows["leaf1:e1"] == ["10"]
    assert rows["leaf1:e2"] == rows["spine1:e1"] == ["routed"]
    assert rows["host1:eth1"] == ["10.1.1.2/24", "host1-eth1"]


def test_a_graph_is_printed_or_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "-o", "lab.clab.yml"]) == 0
    assert invoke(["graph", "lab.clab.yml"]) == 0
    printed = capsys.readouterr().out
    assert invoke(["graph", "lab.clab.yml", "-o", "lab.svg"]) == 0
    assert invoke(["graph", "lab.clab.yml", "-o", "lab.svg"]) == 0  # a picture may be written over
    assert Path("lab.svg").read_text() == printed
    assert printed.startswith("<svg ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lab.yml"], "error: lab.yml: no such file"),
        (["bad.yml"], "error: bad.yml:1:42: kind 'hots' is not supported"),
        (["bad.yml", "--format", "png"], "'png' is not one of 'svg', 'mermaid', 'dot'"),
    ],
)
def test_what_cannot_be_drawn_is_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.yml").write_text("{name: bad, topology: {nodes: {a: {kind: hots}}}}")
    assert invoke(["graph", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
