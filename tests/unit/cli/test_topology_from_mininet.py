"""`testbed topology` with files of Mininet."""

from pathlib import Path

import pytest

from testbed.cli.main import invoke

TOPO = """\
from mininet.topo import SingleSwitchTopo

topos = {"star": lambda hosts=2: SingleSwitchTopo(hosts)}
"""


@pytest.fixture
def star(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "star.py").write_text(TOPO)
    return tmp_path / "star.py"


def test_a_topo_is_converted_into_a_file_that_checks_alike(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "from-mininet", "star.py:star,3", "-o", "star.clab.yml"]) == 0
    assert capsys.readouterr().out == ""
    assert invoke(["topology", "check", "star.clab.yml"]) == 0
    converted = capsys.readouterr().out
    assert invoke(["topology", "check", "--mininet", "star.py:star,3"]) == 0
    assert capsys.readouterr().out == converted
    assert "h3-eth0" in converted


def test_without_a_file_to_write_the_text_goes_to_standard_output(
    star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["topology", "from-mininet", "star.py"]) == 0
    assert "name: star\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["star.py:stat"], "the file has no topology stat"),
        (["none.py:star"], "none.py: no such file"),
        ([f"{'a' * 300}:star"], "cannot be read: File name too long"),
        (["star.py", "-o", "no/such"], "no/such: cannot be written"),
    ],
)
def test_wrong_input_is_told(
    star: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["topology", "from-mininet", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
