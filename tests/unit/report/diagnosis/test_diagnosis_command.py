"""`testbed diagnose`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from diagnosis_runs import DIED, Builder

from testbed.cli.main import invoke


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> tuple[int, str, str]:
        status = invoke(["diagnose", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def test_the_command_says_what_stalled_where_and_why(run: Builder, command) -> None:
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down").ends(9, **DIED).write()
    status, out, _ = command(run.directory.parent)
    assert status == 1
    assert out.splitlines() == [
        "✗ variant: link-down",
        "            rank 3 on n3 stalled first: its link leaf2:e3 - n3:eth1 is down",
        "  since     2.100 s",
        "  link      leaf2:e3 - n3:eth1",
        "  stopped   2.000 s  collective 7, Allreduce of 33 kB: ranks 0, 1, 2, 3 wait in",
        "            it",
        "  job       job, 1.000 s to 9.000 s: rank 1 on n1 ends first: RETRY_EXC_ERR:",
        "            transport retry counter exceeded",
        "  evidence  2.100 s  leaf2: e3 down",
    ]


def test_a_healthy_run_has_status_0_and_json_has_all_of_it(run: Builder, command) -> None:
    run.starts().paces().ends(3, ok=True).write()
    status, out, _ = command(run.directory, "--json")
    assert status == 0
    (variant,) = json.loads(out)["variants"]
    assert variant["variant"] == "variant"
    assert [(job["job"], job["healthy"], job["cause"], job["ranks"]) for job in variant["jobs"]] == [
        ("job", True, "healthy", [])
    ]


def test_a_directory_without_a_job_is_an_error_that_says_so(run: Builder, command) -> None:
    run.event(1, "lab", "", "up").write()
    status, _, said = command(run.directory)
    assert status == 2
    assert "no job of several ranks ran here" in said


def test_a_directory_that_is_none_is_an_error(tmp_path: Path, command) -> None:
    status, _, said = command(tmp_path / "nowhere")
    assert status == 2
    assert "no such directory" in said


def test_times_that_are_not_known_are_not_those_of_1970(tmp_path: Path, command) -> None:
    job = tmp_path / "jobs/train"
    job.mkdir(parents=True)
    (job / "hosts").write_text("gpu1\ngpu2\n")
    (job / "rank-0.log").write_text(
        "NCCL WARN NET/IB : Got completion from peer 10.1.1.2<3> with error 12, opcode 0 remoteGids::ffff:10.1.1.2\n"
    )
    _, out, _ = command("--from", tmp_path)
    assert out.splitlines()[4:] == [
        "  since      not known",
        "  job        train: rank 0 on gpu1 ends first: RETRY_EXC_ERR: Got completion",
        "             from peer 10.1.1.2<3> with error 12, opcode 0",
        "             remoteGids::ffff:10.1.1.2",
        "  evidence   10.1.1.2, does not answer rank 0 on gpu1",
        "  not known  when train ran is not known: no log or flight record of it has a",
        "             time",
    ]
