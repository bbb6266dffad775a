"""`testbed rerun`: a run directory is enough to repeat a run, and what differs is named."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import invoke
from testbed.machine.record import Identity, VariantResult
from testbed.protocol import Epoch, Event


def event(t: int, text: str) -> Event:
    return {"t": t, "kind": "step", "node": "", "text": text, "data": {}}


@pytest.fixture
def made(good: VariantResult) -> VariantResult:
    epoch: Epoch = {"realtime_ns": 3, "monotonic_ns": 2, "kernel_ns": 1}
    return replace(good, parameters={"packets": 9}, topology="70" * 32, epoch=epoch)


@pytest.fixture
def run(ends_like: Callable[..., None], made: VariantResult, tiny: Path, tmp_path: Path) -> Callable[..., Path]:
    """Runs the tiny scenario and then removes it; the run directory, moved away."""

    def call(*words: str) -> Path:
        ends_like(made, [event(1, "begin"), event(2, "end")])
        assert invoke(["run", str(tiny), "--seed", "9", *words]) in (0, 1)
        copy = tmp_path / "elsewhere" / "copy"
        shutil.copytree((tmp_path / "runs" / "tiny" / "latest").resolve(), copy)
        shutil.rmtree(tmp_path / "runs")
        shutil.rmtree(tiny)
        return copy

    return call


def test_a_copy_of_a_run_directory_is_enough(
    run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run("--set", "packets=7")
    assert invoke(["rerun", str(directory)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "✓ bad: the same trace, abababababab" in said
    assert said[-2] == "tiny: the same trace · 2 variants · seed 9"
    again = json.loads((tmp_path / "runs" / "tiny" / "latest" / "result.json").read_text())
    once = json.loads((directory / "result.json").read_text())
    for key in ("scenario", "seed", "clock", "trace", "made_from"):
        assert again[key] == once[key]
    assert [one["settings"] for one in again["variants"]] == [{"packets": "7"}, {"packets": 9}]
    assert (tmp_path / "runs/tiny/latest/scenario/scenario.py").read_bytes() == (
        directory / "scenario/scenario.py"
    ).read_bytes()


def test_the_last_run_is_repeated_by_its_link(
    ends_like: Callable[..., None], made: VariantResult, tiny: Path, tmp_path: Path
) -> None:
    """The link points to the new run as soon as that begins."""
    ends_like(made)
    invoke(["run", str(tiny), "--variant", "good"])
    assert invoke(["rerun", "runs/tiny/latest"]) == 0
    assert len([*(tmp_path / "runs" / "tiny").iterdir()]) == 3


def test_a_matrix_is_repeated_with_each_of_its_values(
    ends_like: Callable[..., None], made: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(made)
    assert invoke(["matrix", str(tiny), "--variant", "good", "--over", "packets=3,30"]) == 0
    capsys.readouterr()
    assert invoke(["rerun", "runs/tiny/latest", "--variant", "packets=30", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (variant,) = found["run"]["variants"]
    assert (variant["name"], variant["variant"], variant["settings"]) == ("packets=30", "good", {"packets": "30"})


def test_another_trace_is_1_and_says_what_differs(
    run: Callable[..., Path],
    ends_like: Callable[..., None],
    made: VariantResult,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = run("--variant", "good")
    other = replace(made, trace="cd" * 32, parameters={"packets": 8})
    ends_like(other, [event(1, "begin"), event(3, "end")])
    identity = Identity("vm", "1.0", "c0de", "ef" * 32, "11.0 (Debian)", "tcg", None, None)
    monkeypatch.setattr(Identity, "of", lambda *_: identity)
    capsys.readouterr()
    assert invoke(["rerun", str(directory)]) == 1
    said = capsys.readouterr().out
    assert "✗ good: trace cdcdcdcdcdcd, then abababababab; the first events that differ:\n  then: {" in said
    assert '"t": 2' in said
    assert "different: QEMU: 10.0.2 (Debian) then, 11.0 (Debian) now\n" in said
    assert "different: the parameters of good: {'packets': 9} then, {'packets': 8} now\n" in said
    assert "tiny: not the same trace · 1 variant · seed 9\n" in said
    [command] = re.findall(r"See the events around it: testbed (diff .*)\n", said)
    assert invoke(shlex.split(command)) == 1
    assert "good: the same events; their times differ from line 2 on" in capsys.readouterr().out
    assert invoke(["rerun", str(directory), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["same"], found["rerun_of"]) == (False, str(directory))
    assert found["differs"] == {"qemu": {"then": "10.0.2 (Debian)", "now": "11.0 (Debian)"}}
    assert found["variants"][0]["first_difference"]["now"].startswith('{"t": 3')


def test_another_trace_of_the_same_is_a_defect(
    run: Callable[..., Path], ends_like: Callable[..., None], made: VariantResult, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run("--variant", "good")
    ends_like(replace(made, trace="cd" * 32))
    assert invoke(["rerun", str(directory)]) == 1
    assert "this is a defect of testbed" in capsys.readouterr().out


def test_a_run_without_a_trace_has_nothing_to_compare_with(
    ends_like: Callable[..., None], bad: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(replace(bad, observed=None, trace="", failures=["the guest hangs"]))
    invoke(["run", str(tiny), "--variant", "good"])
    assert invoke(["rerun", "runs/tiny/latest"]) == 1
    assert "✗ good: the run ended without a trace: nothing to compare" in capsys.readouterr().out


def damaged(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        file = directory / name
        file.write_text(change(file.read_text()))

    return damage


def changed(**values: object) -> Callable[[Path], None]:
    return damaged("result.json", lambda text: json.dumps({**json.loads(text), **values}))


def lacking(key: str) -> Callable[[Path], None]:
    return damaged("result.json", lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != key}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damaged("result.json", lambda text: text[:50]), "does not record the inputs of the run: Invalid JSON"),
        (damaged("result.json", lambda _: "[]"), "does not record the inputs of the run: "),
        (changed(made_from=None), "does not record the inputs of the run: made_from: "),
        (lacking("trace"), "does not record the inputs of the run: trace: Field required"),
        (changed(made_from={"file": "scenario.py"}), "does not record the inputs of the run: made_from.machine: "),
        (changed(seed="9"), "does not record the inputs of the run: seed: "),
        (changed(scenario="../x"), "'../x' cannot be the name of a scenario or a variant"),
        (damaged("scenario/scenario.py", lambda text: f"{text}#"), "is damaged: scenario.py differs from"),
        (lambda directory: (directory / "scenario/more.py").write_text(""), "is damaged: more.py differs"),
        (lambda directory: shutil.rmtree(directory / "scenario"), "differ from the recorded run"),
        (lambda directory: (directory / "result.json").unlink(), "is not a run directory: it has no result.json"),
    ],
)
def test_a_damaged_run_directory_is_2(
    damage: Callable[[Path], None], said: str, run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run("--variant", "good")
    damage(directory)
    assert invoke(["rerun", str(directory)]) == 2
    error = capsys.readouterr().err
    assert said in error.replace("\n", " ")
    assert "Traceback" not in error


def test_code_is_not_run_as_root_because_a_directory_says_so(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run("--variant", "good")
    assert invoke(["rerun", str(directory), "--machine", "local"]) == 2
    assert "the run was in a micro-VM: leave out --machine local" in capsys.readouterr().err
    changed(machine="local")(directory)
    assert invoke(["rerun", str(directory)]) == 2
    said = capsys.readouterr().err
    assert "was run on a machine's own kernel: its code would run here as root" in said
    assert "Do you know the scenario in it? Then add --machine local." in said


@pytest.mark.parametrize(
    ("place", "guess"),
    [("runs/tiny", "Did you mean runs/tiny/latest?"), ("runs/tiny/latest/good", "Did you mean runs/tiny/latest?")],
)
def test_a_place_beside_a_run_directory_is_2_with_the_right_one(
    place: str,
    guess: str,
    ends_like: Callable[..., None],
    made: VariantResult,
    tiny: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends_like(made)
    invoke(["run", str(tiny), "--variant", "good"])
    assert invoke(["rerun", place]) == 2
    assert guess in capsys.readouterr().err


def test_a_variant_that_the_run_did_not_have_is_2(run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    directory = run("--variant", "good")
    assert invoke(["rerun", str(directory), "--variant", "bad"]) == 2
    assert "the run had no variant 'bad'\n  It had: good." in capsys.readouterr().err
