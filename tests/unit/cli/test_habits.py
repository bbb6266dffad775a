"""What users of containerlab, Mininet and kubectl type without thinking."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from testbed.cli.live.lab_tables import reason, show_labs
from testbed.cli.live.live_options import Following
from testbed.cli.main import invoke, with_sbin
from testbed.cli.pytest import Output
from testbed.errors import InputError
from testbed.machine import cache, scenarios
from testbed.machine.live.labs import Lab


@pytest.mark.parametrize("words", [["help"], ["help", "up"], ["help", "topology", "new"]])
def test_help_is_a_command_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(words) == 0
    shown = capsys.readouterr().out
    assert invoke([*words[1:], "--help"]) == 0
    assert capsys.readouterr().out == shown != ""


@click.command(cls=Following)
@click.option("--follow", is_flag=True)
@click.option("--format", "-f", "form", default="table")
@click.argument("switch", default="")
def followed(follow: bool, form: str, switch: str) -> None:
    click.echo(f"{follow} {form} {switch}".strip())


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-f"], "True table"),
        (["-f", "json"], "False json"),
        (["-f", "-f", "json"], "True json"),
        (["-f", "leaf"], "True table leaf"),
        (["leaf", "-f"], "True table leaf"),
        (["-fjson"], "False json"),
    ],
)
def test_f_follows_unless_it_names_a_format(words: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    followed.main(words, standalone_mode=False)
    assert capsys.readouterr().out == f"{shown}\n"


LAB = Lab("a-lab-with-a-rather-long-name", "some/directory/with/a/long/name.clab.yml", "virtual", 0.0, 0, "", "", "up")


def test_tables_in_a_pipe_are_not_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show_labs([LAB])
    assert f"{LAB.name} {LAB.topology} virtual" in capsys.readouterr().out


def test_a_dead_lab_has_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    trace = "Traceback (most recent call last):\n  File x\nKeyError: 'eth1'\n"
    dead = Lab(**{**LAB.__dict__, "state": "dead", "why": trace})
    assert reason(dead) == f"KeyError: 'eth1' ({dead.directory}/keeper.log has more)"
    assert reason(Lab(**{**LAB.__dict__, "why": "its keeper was killed"})) == "its keeper was killed"


def test_programs_of_administrators_are_found() -> None:
    assert with_sbin("/usr/sbin:/bin") == "/usr/sbin:/bin:/usr/local/sbin:/sbin"


def test_a_directory_of_a_run_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["rerun", "runs/nothing/1"]) == 2
    assert capsys.readouterr().err.startswith("error: runs/nothing/1: does not exist\n")


def test_a_lab_needs_one_name_of_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    for words in [], ["x.clab.yml", "-t", "y.clab.yml"]:
        assert invoke(["up", *words]) == 2
        assert "name a topology file or a scenario: testbed up FILE" in capsys.readouterr().err


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A directory, and the process that holds it locked."""
    code = (
        f"import fcntl, os, sys; fcntl.flock(os.open({str(tmp_path)!r}, 0), fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        yield tmp_path, holder.pid
        holder.communicate(b"\n")


def test_who_waits_for_a_lock_says_for_which_process(held: tuple[Path, int]) -> None:
    path, pid = held
    assert cache.waiting_for(path).startswith(
        f"wait for another testbed, process {pid}: {sys.executable} -c import fcntl"
    )
    said: list[str] = []
    token = cache.WAITING.set(lambda text: (said.append(text), os.kill(pid, 15))[0])
    try:
        with cache.locked(path):
            assert len(said) == 1
            handle = os.open(path, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(handle)
    finally:
        cache.WAITING.reset(token)


def test_a_missing_image_is_named_before_a_machine_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from testbed.cli import options

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.clab.yml").write_text("{name: x, topology: {nodes: {a: {kind: linux, image: nothing}}}}")

    def choose(*_: object) -> None:
        raise InputError("a machine was chosen")

    monkeypatch.setattr(options, "choose", choose)
    assert invoke(["up", "x.clab.yml"]) == 2
    assert "the image nothing:latest has not been added" in capsys.readouterr().err


def test_a_line_of_testbed_s_is_never_within_one_of_pytest_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest prints a point for each test; a remark on the host came within the row."""
    with (tmp_path / "both").open("w+") as both:
        monkeypatch.setattr(sys, "stdout", both)
        monkeypatch.setattr(sys, "stderr", both)
        output = Output()
        for piece in ("test_a.py ", "..", "", ".\n"):
            output.show(piece)
            output.log("this host is busy")
        both.seek(0)
        assert both.read().splitlines() == [
            *("test_a.py ", "… this host is busy", "..", "… this host is busy", "… this host is busy"),
            *(".", "… this host is busy"),
        ]


def test_a_lab_of_kathara_that_is_brought_up_names_the_way(tmp_path: Path) -> None:
    (tmp_path / "lab.conf").write_text('pc1[0]="A"\n')
    with pytest.raises(InputError) as error:
        scenarios.resolve(str(tmp_path))
    assert error.value.hint == f"It is a lab of Kathará: testbed topology from-kathara {tmp_path}"
