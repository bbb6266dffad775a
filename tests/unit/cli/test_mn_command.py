"""`testbed mn`: the words and files that go to the machine."""

from pathlib import Path

import pytest

from testbed.cli.live.mn_command import TOPOLOGY, travelling
from testbed.errors import InputError
from testbed.executor.live.mininet_script import last_rate


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in "a/one.py", "a/beside.py", "b/two.py":
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "given", "files"),
    [
        ((), ["--topo", "minimal"], []),
        (("--topo", "linear,4"), ["--topo", "linear,4"], []),
        (("a/one.py", "--flag", "x"), ["one.py", "--flag", "x"], ["beside.py", "one.py"]),
        (("--custom", "a/one.py", "--topo", "x"), ["--custom", "one.py", "--topo", "x"], ["beside.py", "one.py"]),
        (("--custom=a/one.py,b/two.py",), ["--custom=one.py,two.py"], ["beside.py", "one.py", "two.py"]),
    ],
)
def test_scripts_go_along_with_what_is_beside_them(
    scripts: Path, words: tuple[str, ...], given: list[str], files: list[str]
) -> None:
    found, beside, _ = travelling(words)
    assert (found, sorted(beside)) == (given, sorted([TOPOLOGY, *files]))


@pytest.mark.parametrize("words", [("one.txt",), ("--custom", "one.txt"), ("missing.py",)])
def test_what_is_no_script_is_refused(scripts: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        travelling(words)
    assert caught.value.where == words[-1]


def test_the_last_rate_of_a_report() -> None:
    assert (
        last_rate("[ 1] 0-1 sec 112 MBytes 941 Mbits/sec\n[ 1] 0-5 sec 1 GBytes 9.57 Gbits/sec\n") == "9.57 Gbits/sec"
    )
    assert last_rate("nothing") == ""
