"""A user's pytest files on any machine: what they write is shown, how they end is a status."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import InputError, MachineError
from testbed.machine import pytests
from testbed.machine.jobs import Job
from testbed.protocol.requests import Pytest

FAILED = {"test": "test_a.py::test_it", "outcome": "failed", "virtual_s": 2, "directory": "", "text": "E  assert 0"}


@dataclass
class FakeMachine:
    """Reports `records`, leaves `report` in the file of a report, answers with `status` unless it is None, and may fail
    then."""

    records: Sequence[Any]
    status: Any
    report: str = ""
    error: str = ""
    limit_s: float = 0.0

    async def run(self, job: Job[Any], out: Path) -> float:
        self.limit_s = job.limit_s
        for record in self.records:
            job.receive({"id": 0, "report": record})
        if self.report:
            (out / "reports" / "junitxml").mkdir(parents=True)
            (out / "reports" / "junitxml" / "report.xml").write_text(self.report)
        if self.status is not None:
            job.receive({"id": 0, "response": self.status})
        if self.error:
            raise MachineError(self.error)
        return 0.1


def go(
    tmp_path: Path, machine: FakeMachine, arguments: Sequence[str] = (), limit_s: float | None = None
) -> tuple[int, str]:
    """The status, and what was shown."""
    tests, shown = tmp_path / "tests", []
    for directory in (tests, tmp_path / "out"):
        directory.mkdir()
    running = pytests.run(
        [tests],
        Pytest(arguments=[*arguments], limit_s=limit_s),
        seed=1,
        training=False,
        machine=machine,
        out=tmp_path / "out",
        show=shown.append,
    )
    return asyncio.run(running), "".join(shown)


def run(tmp_path: Path, record: Any, status: Any) -> tuple[int, str]:
    return go(tmp_path, FakeMachine([record], status))


def test_packages_and_conftest_files_go_along_up_to_rootdir(tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "tests" / "inner"
    inner.mkdir(parents=True)
    for file in (inner / "__init__.py", inner.parent / "__init__.py", inner / "test_a.py"):
        file.touch()
    (tmp_path / "conftest.py").touch()
    assert pytests.place([inner])[0] == tmp_path
    assert pytests.place([inner], tmp_path / "repository")[0] == tmp_path / "repository"
    (inner.parent / "__init__.py").unlink()
    assert pytests.place([inner])[0] == inner.parent


def test_files_beyond_rootdir_are_refused(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").touch()
    root = tmp_path / "repository"
    (root / "tests").mkdir(parents=True)
    with pytest.raises(InputError, match="is not below pytest's rootdir"):
        pytests.SessionFiles.of(root, [tmp_path / "test_a.py"], [])
    with pytest.raises(InputError, match="is not below pytest's rootdir"):
        pytests.SessionFiles.of(root, [root / "tests"], [".."])


@pytest.mark.parametrize(("left", "status"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2)])
def test_what_tests_write_is_shown_and_their_status_is_ours(tmp_path: Path, left: int, status: int) -> None:
    assert run(tmp_path, {"write": "1 passed\n"}, left) == (status, "1 passed\n")


@pytest.mark.parametrize(
    ("record", "status", "said"),
    [
        ({"event": {}}, 0, "a line of progress is not an output: "),
        ({"write": 1}, 0, "a line of progress is not an output: "),
        ({"result": {**FAILED, "virtual_s": "2"}}, 0, "a line of progress is not an output: "),
        ({"report": {"file": "../report.xml", "given": "report.xml"}}, 0, "a line of progress is not an output: "),
        ({"report": {"file": "reports/../x/y", "given": "report.xml"}}, 0, "a line of progress is not an output: "),
        ({"write": ""}, "0", "the response is damaged: "),
        ({"write": ""}, 256, "the response is damaged: 256 is not an exit status"),
        ({"write": ""}, None, "its code ended the process before testbed had finished"),
    ],
)
def test_what_is_damaged_is_one_error(tmp_path: Path, record: Any, status: Any, said: str) -> None:
    with pytest.raises(MachineError, match=said):
        run(tmp_path, record, status)


def test_the_text_is_kept_without_colours_and_a_terminal_obeys_only_these(tmp_path: Path) -> None:
    text = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J one\r\ntwo\tthree\n"
    _, shown = run(tmp_path, {"write": text}, 0)
    assert shown == "\x1b[31mred\x1b[0m ]0;title 2J one\ntwo\tthree\n"
    assert (tmp_path / "out" / "pytest.txt").read_text() == "red ]0;title 2J one\ntwo\tthree\n"


REPORT = {"report": {"file": "reports/junitxml/report.xml", "given": "of/report.xml"}}


@pytest.mark.parametrize("words", [["--junitxml=of/report.xml"], ["--junitxml", "of/report.xml"]])
def test_a_report_comes_to_where_the_user_named_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    go(tmp_path, FakeMachine([REPORT], 1, report="<testsuites/>"), words)
    assert (tmp_path / "of" / "report.xml").read_text() == "<testsuites/>"


def test_a_report_of_a_machine_that_failed_comes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError):
        go(tmp_path, FakeMachine([REPORT], None, report="<testsuites/>"), ["--junitxml=of/report.xml"])
    assert (tmp_path / "of" / "report.xml").exists()


def test_a_machine_names_no_file_of_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    go(tmp_path, FakeMachine([REPORT], 0, report="hostile"), ["--junitxml=other.xml"])
    assert not (tmp_path / "of").exists()


def test_a_report_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    report = {"report": {**REPORT["report"], "given": str(tmp_path)}}
    with pytest.raises(InputError, match=r"cannot be written: Is a directory\n  It is in .*report\.xml"):
        go(tmp_path, FakeMachine([report], 0, report="<testsuites/>"), [f"--junitxml={tmp_path}"])


def test_what_ended_is_kept_and_what_ran_is_named_when_the_machine_fails(tmp_path: Path) -> None:
    records = [{"running": "test_a.py::test_it"}, {"result": FAILED}, {"running": "test_a.py::test_long"}]
    with pytest.raises(MachineError) as said:
        go(tmp_path, FakeMachine(records, None, error="the guest hangs"))
    assert (said.value.message, said.value.where) == ("the guest hangs", "test_a.py::test_long")
    assert said.value.hint.startswith("1 tests had ended: ")
    (line,) = pytests.ended(tmp_path / "out")
    assert line == {**FAILED, "wall_s": line["wall_s"]}
    assert "FAILED test_a.py::test_it\nE  assert 0" in (tmp_path / "out" / "pytest.txt").read_text()


def test_the_directory_explains_itself(tmp_path: Path) -> None:
    go(tmp_path, FakeMachine([{"result": FAILED}], 0))
    assert "tests.jsonl" in (tmp_path / "out" / "README.txt").read_text()


def test_a_report_that_is_empty_is_delivered_and_not_kept(tmp_path: Path) -> None:
    """pytest's log of a session without a message is."""

    @dataclass
    class Logs(FakeMachine):
        async def run(self, job: Job[Any], out: Path) -> float:
            (out / "reports" / "log-file").mkdir(parents=True)
            (out / "reports" / "log-file" / "log.txt").touch()
            return await super().run(job, out)

    wanted = tmp_path / "log.txt"
    report = {"report": {"file": "reports/log-file/log.txt", "given": str(wanted)}}
    go(tmp_path, Logs([report], 0), [f"--log-file={wanted}"])
    assert wanted.exists()
    assert not (tmp_path / "out" / "reports").exists()


def test_a_session_s_limit_leaves_time_for_the_teardown(tmp_path: Path) -> None:
    machine = FakeMachine([], 0)
    go(tmp_path, machine, limit_s=60.0)
    assert machine.limit_s == 60 + pytests.END_S


def test_the_conftest_files_above_the_tests_come_along(tmp_path: Path) -> None:
    below = tmp_path / "suite" / "part" / "deep"
    below.mkdir(parents=True)
    for directory in (below, below.parent, below.parent.parent):
        (directory / "conftest.py").touch()
    (below / "test_one.py").touch()
    assert pytests.place([below]) == (tmp_path / "suite", ["part/deep"])
    assert pytests.place([Path(f"{below}/test_one.py::test_it")]) == (
        tmp_path / "suite",
        ["part/deep/test_one.py::test_it"],
    )
