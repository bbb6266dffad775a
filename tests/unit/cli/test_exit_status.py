"""Every way a command can end, as the shell sees it: a status, and one message that says what to do."""

import errno
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from testbed.cli import main
from testbed.cli.main import invoke
from testbed.errors import DeadlineError, InputError, MachineError, TestbedError, UnsupportedError

JSON = click.Option(["--json"], is_flag=True, expose_value=False)


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | int | None], int]:
    """The status of a command that raises this error or returns this value."""

    def run(end: BaseException | int | None, *words: str) -> int:
        def callback() -> Any:
            if isinstance(end, BaseException):
                raise end
            return end

        module = SimpleNamespace(probe=click.Command("probe", callback=callback, params=[JSON]))
        monkeypatch.setitem(sys.modules, "probe_command", module)
        monkeypatch.setitem(main.COMMANDS, "probe", ("probe_command", "A command of this test."))
        return invoke(["probe", *words])

    return run


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["explode"]) == 2
    assert "No such command 'explode'" in capsys.readouterr().err


def test_run_needs_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run"]) == 2
    assert "name a scenario; `testbed list` shows them" in capsys.readouterr().err


def test_an_unknown_scenario_close_to_a_shipped_one_gets_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "ip-resue"]) == 2
    said = capsys.readouterr().err
    assert "scenario 'ip-resue' does not exist" in said
    assert "Did you mean ip-reuse?" in said


def test_an_unknown_scenario_far_from_all_is_told_where_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["describe", "zzz"]) == 2
    said = capsys.readouterr().err
    assert "Did you mean" not in said
    assert "`testbed list` shows the shipped scenarios" in said
    assert "ip-reuse" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runn"], "No such command 'runn'.\n  Did you mean run? See `testbed --help`."),
        (["image", "biuld"], "No such command 'biuld'.\n  Did you mean build? See `testbed image --help`."),
        (["topology", "from-minnet"], "Did you mean from-mininet? See `testbed topology --help`."),
        (["run", "--varient", "x"], "No such option '--varient'.\n  Did you mean --variant? See `testbed run --help`."),
        (["--versoin"], "No such option '--versoin'.\n  Did you mean --version? See `testbed --help`."),
        (["run", "--zzz"], "No such option '--zzz'.\n  See `testbed run --help`."),
    ],
)
def test_a_misspelled_word_gets_the_one_that_was_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(words) == 2
    error = capsys.readouterr().err
    assert f"error: {said}" in error if said.startswith("No") else said in error
    assert error.startswith("Usage: testbed ")


def test_a_misspelled_file_gets_the_one_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "lab.clab.yml").touch()
    monkeypatch.chdir(tmp_path)
    assert invoke(["topology", "check", "lab/lab.clab.yaml"]) == 2
    assert capsys.readouterr().err == "error: lab/lab.clab.yaml: no such file\n  Did you mean labs/lab.clab.yml?\n"


JSON_COMMANDS = {
    "bench ipam": ["--ipam", "nope"],
    "bench pods": ["--pods", "nope"],
    "incident bench": ["--agent", "random", "--seeds", "nope"],
    "run": ["nope"],
    "matrix": ["nope", "--over", "x"],
    "sweep": ["nope", "--seeds", "1"],
    "shrink": ["nope"],
    "list": ["--tag", "nope"],
    "describe": ["nope"],
    "rerun": ["nope"],
    "diff": ["nope", "nope"],
    "counters": ["nope"],
    "diagnose": ["nope"],
    "profile list": ["nope"],
    "profile describe": ["nope"],
    "topology check": ["nope.yml"],
    "fault list": ["nope"],
    "fault describe": ["nope"],
    "image info": ["nope"],
    "image ls": ["nope"],
    "doctor": ["--machine", "nope"],
    "gc": ["nope"],
    "train": ["nope.py"],
}
"""Every command that prints JSON, and wrong input for it."""


def commands(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name}{word} ")
        else:
            yield name + word, command


def test_the_commands_that_print_json_are_these() -> None:
    found = {name for name, command in commands(main.cli) if any("--json" in option.opts for option in command.params)}
    assert found == set(JSON_COMMANDS)


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_wrong_input_is_an_object_for_whoever_asked_for_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*command.split(), "--json", *JSON_COMMANDS[command]]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["status"] == 2
    assert sorted(found["error"]) == ["also", "hint", "message", "where"]
    assert "nope" in found["error"]["message"] + found["error"]["where"]
    assert "error: " in err


@pytest.mark.parametrize("words", [("-f", "json"), ("-fjson",), ("--format", "json"), ("--format=json",)])
def test_the_format_json_is_for_errors_too(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in commands(main.cli):
        if any({"--format", "-f"} <= {*option.opts} for option in command.params):
            assert invoke([*name.split(), *words, "--nope"]) == 2
            assert "--nope" in json.loads(capsys.readouterr().out)["error"]["message"], name
    assert invoke(["ps", "-f", "table", "--nope"]) == 2
    assert capsys.readouterr().out == ""


def test_an_error_as_json_has_all_its_parts(ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    error = UnsupportedError("it lacks x", where="a.yml:3:1", hint="Fix it.", also=[("a.yml:4:1", "and y")])
    assert ends_with(error, "--json") == 3
    also = [{"message": "and y", "where": "a.yml:4:1"}]
    found = {"message": "it lacks x", "where": "a.yml:3:1", "hint": "Fix it.", "also": also}
    assert json.loads(capsys.readouterr().out) == {"error": found, "status": 3}
    assert ends_with(KeyboardInterrupt(), "--json") == 130
    assert json.loads(capsys.readouterr().out)["status"] == 130


def test_a_word_for_another_program_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["pytest", "nope.py", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_an_unknown_variant_gets_the_names_of_all(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", str(tiny), "--variant", "worse"]) == 2
    said = capsys.readouterr().err
    assert "scenario tiny has no variant 'worse'" in said
    assert "It has: bad, good." in said
    assert "Did you mean" not in said


def test_an_unknown_variant_close_to_one_gets_its_name(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", str(tiny), "--variant", "god"]) == 2
    assert "Did you mean good? It has: bad, good." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("colour=red", "parameters of variant bad: there is no 'colour'\n  Parameters: packets."),
        ("packet=5", "there is no 'packet'\n  Did you mean packets? Parameters: packets."),
        ("packets=many", "packets: Input should be a valid integer"),
        ("packets=0", "packets: Input should be greater than 0"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_and_the_parameters_are_named(
    tiny: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    assert invoke(["run", str(tiny), "--set", setting]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Parameters: packets." in error


@pytest.mark.parametrize("setting", ["packets", "=4", " =4"])
def test_a_setting_has_a_key_and_a_value(capsys: pytest.CaptureFixture[str], setting: str) -> None:
    assert invoke(["run", "ip-reuse", "--set", setting]) == 2
    assert f"{setting!r} is not of the form KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--seed", "-1"), ("--clock", "wall"), ("--machine", "cloud"), ("--jobs", "0")])
def test_an_option_s_value_is_checked(capsys: pytest.CaptureFixture[str], option: tuple[str, str]) -> None:
    assert invoke(["run", "ip-reuse", *option]) == 2
    assert f"Invalid value for '{option[0]}'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "describe"])
def test_an_error_of_the_topology_is_told_before_a_machine_is_asked_for(
    tiny: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tiny / "topology.clab.yml").write_text("name: tiny\ntopology:\n  nodes: {a: {kind: hots}}\n")
    assert invoke([command, str(tiny)]) == 2
    assert f"error: {tiny}/topology.clab.yml:3:21: kind 'hots' is not supported" in capsys.readouterr().err


def test_a_setting_is_checked_for_the_scenarios_of_a_tag_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--tag", "arp", "--set", "colour=red"]) == 2
    assert "there is no 'colour'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["run"], ["run", "ip-reuse"], ["list"], ["list", "--json"]])
def test_a_tag_that_no_scenario_has_is_wrong_input(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*words, "--tag", "swich"]) == 2
    assert "no scenario has the tag 'swich'\n  Did you mean switch? Tags: arp, cni, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [(TestbedError, 1), (MachineError, 1), (DeadlineError, 1), (InputError, 2), (UnsupportedError, 3)],
)
def test_an_error_of_the_tree_has_its_status_and_says_what_where_and_what_to_do(
    ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str], error: type[TestbedError], status: int
) -> None:
    assert ends_with(error("it is broken", where="a.yml:3:1", hint="Mend it.")) == status
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: a.yml:3:1: it is broken\n  Mend it.\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130(
    ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    assert ends_with(error) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_3_and_names_the_file(
    ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str], number: int
) -> None:
    assert ends_with(OSError(number, "no space", "/data/result.json")) == 3
    said = capsys.readouterr().err
    assert "error: /data/result.json: the disk is full" in said
    assert "Free some space, or name another place." in said


def test_a_read_only_file_system_is_3_and_names_the_file(
    ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(OSError(errno.EROFS, "read-only", "/cache/snapshots")) == 3
    said = capsys.readouterr().err
    assert "error: /cache/snapshots: this file system is read-only" in said
    assert "XDG_CACHE_HOME for the cache" in said


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_file_of_somebody_else_is_3(
    ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str], number: int
) -> None:
    assert ends_with(OSError(number, "no", "/home/other/x")) == 3
    assert "error: /home/other/x: permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("defect", [ValueError("ours"), PermissionError(errno.EACCES, "denied")])
def test_a_defect_of_testbed_stays_an_exception(ends_with: Callable[..., int], defect: Exception) -> None:
    with pytest.raises(type(defect)):
        ends_with(defect)


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1), (3, 3)])
def test_what_a_command_returns_is_its_status(ends_with: Callable[..., int], returned: int | None, status: int) -> None:
    assert ends_with(returned) == status


def test_what_an_error_quotes_cannot_command_the_terminal(
    ends_with: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with(InputError("bad \x1b[2J\x07name\x9b31m\n  second line"))
    assert capsys.readouterr().err == "error: bad  [2J name 31m\n  second line\n"
