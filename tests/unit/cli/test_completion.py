"""What shells complete: names of the user's labs without asking them, scenarios, faults, and what these take."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.cli import completion_values
from testbed.cli.completion import SHELLS, VARIABLE
from testbed.cli.main import cli, invoke
from testbed.machine.live.labs import Lab, root
from testbed.topology.models import QUALITY_KEYS

ROWS = [("h1", "host", "eth1"), ("h1", "host", "eth2"), ("leaf", "switch", "e1"), ("leaf", "switch", "e2")]
Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The values that a line, up to the cursor, can go on with; files are shown by `<file>`."""

    def values(line: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("COMP_LINE", f"testbed {line}")
        text = SHELLS[shell](cli, {}, "testbed", VARIABLE).complete()
        parts = [one.split("\t") for one in text.splitlines()]
        return [value if kind == "plain" else f"<{kind}>" for kind, value, _ in parts]

    return values


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab that is up, as far as the disk shows. It has a pod, and had another."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    out = tmp_path / "out"
    out.mkdir()
    made = Lab("pair", "pair.clab.yml", "virtual", 1.0, 1, "1", str(out), "up")
    made.directory.mkdir()
    made.write()
    rows = [{"node": node, "kind": kind, "interface": interface} for node, kind, interface in ROWS]
    (out / "topology.json").write_text(json.dumps({"interfaces": rows}))
    texts = [("p1", "created on h1: eth0 10.0.0.1, net1 fd00::1"), ("p2", "created on h1: eth0 10.0.0.2")]
    events = [*texts, ("leaf", "learned"), ("p2", "deleted from h1")]
    lines = [{"t": 1, "kind": "arp" if node == "leaf" else "pod", "node": node, "text": text} for node, text in events]
    (out / "events.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    handle = os.open(made.directory, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield made
    os.close(handle)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("insp", ["inspect"]),
        ("shell ", ["h1", "leaf", "p1"]),
        ("shell --lab pair h", ["h1"]),
        ("shell --lab none h", []),
        ("tables ", ["leaf"]),
        ("pod add ", ["h1"]),
        ("pod del ", ["p1"]),
        ("exec h1 ", ["leaf", "p1"]),
        ("exec h1 -- ", []),
        ("capture leaf:", ["leaf:e1", "leaf:e2"]),
        ("capture p1:", ["p1:eth0", "p1:net1"]),
        ("rdma write ", ["h1", "p1"]),
        ("rdma write h1:eth1 p1:", ["p1:eth0", "p1:net1"]),
        ("announce leaf", []),
        ("link set leaf:e1 d", ["down", "delay="]),
        ("down ", ["pair"]),
        ("down pair ", []),
        ("exec --lab ", ["pair"]),
        ("up x --clock ", ["real", "virtual"]),
        ("up ip", ["ip-reuse", "<file>"]),
        ("fault inject link-lo", ["link-loss"]),
        ("fault inject link-loss end=leaf:e", ["end=leaf:e1", "end=leaf:e2"]),
        ("fault inject link-loss lo", ["loss=", "loss_burst="]),
        ("profile describe sonic-", ["sonic-mac-move-guard"]),
        ("profile set leaf arp_ag", ["arp_age="]),
    ],
)
def test_a_line_is_completed(complete: Complete, line: str, found: list[str]) -> None:
    assert complete(line) == found


@pytest.mark.parametrize("command", ["run", "up", "matrix"])
def test_variants_and_parameters_are_those_of_the_scenario_on_the_line(
    complete: Complete, tiny: Path, command: str
) -> None:
    assert complete(f"{command} {tiny} --variant g") == ["good"]
    assert complete(f"{command} {tiny} --set pack") == ["packets="]


def test_names_that_a_shell_would_obey_are_left_out(complete: Complete, lab: Lab) -> None:
    rows = [{"node": name, "kind": "host", "interface": "eth1"} for name in ("good", "$(reboot)", "a\nb", "a b")]
    (Path(lab.out) / "topology.json").write_text(json.dumps({"interfaces": rows}))
    assert complete("shell ") == ["good", "p1"]


def test_a_lab_without_its_files_completes_nothing(complete: Complete, lab: Lab) -> None:
    shutil.rmtree(lab.out)
    assert complete("shell ") == []


def test_links_have_the_qualities_of_topology_files() -> None:
    assert sorted(completion_values.QUALITY) == sorted(QUALITY_KEYS)


# Shells


def script_of(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert invoke(["completion", shell]) == 0
    script = tmp_path / f"script.{shell}"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "testbed"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m testbed "$@"\n')
    command.chmod(0o755)
    return script


def ask(tmp_path: Path, command: list[str], text: str) -> list[str]:
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TERM": "dumb"}
    done = subprocess.run(command, input=text, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("testbed capture leaf:", ["e1", "e2"]),
        ("testbed fault inject link-loss end=leaf:", ["e1", "e2"]),
        ("testbed fault inject link-loss loss_", ["nospace", "loss_burst="]),
        ("testbed up zo", ["filenames", "zone.yml"]),
        ("testbed she", ["shell"]),
    ],
)
def test_bash_gets_what_is_behind_the_last_break(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, found: list[str]
) -> None:
    """Bash splits words at `:` and `=`, and puts an answer in the place of the part behind them."""
    script = script_of("bash", tmp_path, capsys)
    (tmp_path / "zone.yml").touch()
    asked = f"""
        compopt() {{ echo "$2"; }}
        COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
        source {script}
        COMP_LINE="{line}" COMP_POINT={len(line)}
        _testbed_completion testbed
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert ask(tmp_path, ["bash", "--norc"], asked) == found


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of("fish", tmp_path, capsys)
    asked = f"source {script}; complete --do-complete 'testbed capture leaf:'"
    assert ask(tmp_path, ["fish", "--no-config"], asked) == ["leaf:e1\tswitch", "leaf:e2\tswitch"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a terminal: zsh completes nowhere else."""
    script = script_of("zsh", tmp_path, capsys)
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TERM": "dumb"}
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(["zsh", "-f", "-i"], cwd=tmp_path, env=env, start_new_session=True, **streams) as shell:
        os.close(theirs)
        typed(ours, f"autoload -U compinit && compinit -u -d dump && source {script} && echo REA''DY\n", "READY\r")
        typed(ours, "testbed tabl\tx", "tables x")
        typed(ours, "\x15testbed pod del \tx", "p1 x")
        typed(ours, "\x15testbed fault inject link-loss loss_\t5", "loss_burst=5")
        shell.kill()
    os.close(ours)


def typed(terminal: int, keys: str, shown: str) -> None:
    """Types, and waits for what the shell shows then; of the line it may draw what is new."""
    os.write(terminal, keys.encode())
    found = ""
    while shown not in screen(found):
        assert select.select([terminal], [], [], 60)[0], found
        found += os.read(terminal, 4096).decode(errors="replace")


def screen(written: str) -> str:
    """The text without bells and the steps back of the cursor."""
    return re.sub(r".\x08|\x07", "", written)


def test_the_script_names_a_shell_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_a_shell_asks_the_command(tmp_path: Path) -> None:
    env = {**os.environ, VARIABLE: "bash_complete", "COMP_LINE": "testbed tabl"}
    done = subprocess.run([sys.executable, "-m", "testbed"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("plain\ttables\tShow the ARP")
    assert root().is_dir()
