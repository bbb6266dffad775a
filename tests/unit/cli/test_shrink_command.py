"""`testbed shrink`: what a failure does not need is left out, and the command that it prints shows the failure."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import invoke
from testbed.machine import record, runs
from testbed.machine.record import VariantResult
from testbed.machine.runs import VariantRun

SCENARIO = '''
from pydantic import Field
from testbed import Parameters, Scenario, Variant

class Size(Parameters):
    packets: int = Field(4, gt=0, le=1000)
    delay: float = 0.0
    text: str = ""
    other: bool = False

class Tiny(Scenario[Size]):
    """Tiny."""
    variants = Variant("bad", "fault", "it breaks"), Variant("good", "healthy", "it works", {"other": True})
    def run(self, run, parameters): ...
'''
FAULTS = 5
"""Those that the scenario injects."""
FAILURE = "the first WRITE: it was 'RETRY_EXC_ERR', not 'SUCCESS'"
OTHER_FAILURE = "the WRITE after the move: it was 'SUCCESS', not 'RETRY_EXC_ERR'"
Fails = Callable[[dict[str, Any], set[int]], bool | str]
"""Whether a run fails, or the failure of one that fails in another way."""


@pytest.fixture
def failing(
    ends_like: Callable[..., None], good: VariantResult, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Fails], None]:
    """Lets runs fail when a function of their settings and faults says so. Leaving a fault out is an event."""
    (tiny / "scenario.py").write_text(SCENARIO)

    def set_up(fails: Fails) -> None:
        ends_like(good)

        async def run_variant(
            job: Any, source: Any, variant_run: VariantRun, machine: Any, directory: Path, shown: Any
        ) -> VariantResult:
            chosen = job.then.chosen
            faults = {number for number in range(1, FAULTS + 1) if number not in chosen["without_faults"]}
            left_out = sorted({*range(1, FAULTS + 1)} - faults)
            lines = [
                {"t": 0, "kind": "left-out", "node": "", "text": "", "data": {"number": number, "fault": "link-down"}}
                for number in left_out
            ]
            (directory / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            found = fails(chosen["settings"], faults)
            failures = [found if isinstance(found, str) else FAILURE] if found else []
            return replace(
                good,
                name=variant_run.label,
                variant=variant_run.variant["name"],
                settings={**chosen["settings"]},
                failures=failures,
                without_faults=[*chosen["without_faults"]],
            )

        monkeypatch.setattr(runs, "run_variant", run_variant)

    return set_up


def test_what_does_not_matter_is_left_out(failing: Callable[[Fails], None], capsys: pytest.CaptureFixture[str]) -> None:
    failing(lambda settings, faults: int(settings.get("packets", 4)) >= 17 and {2, 4} <= faults)
    words = ["--variant", "good", "--set", "packets=300", "--set", "text=it's", "--set", "delay=2", "--seed", "8"]
    assert invoke(["shrink", "tiny", *words]) == 0
    printed = capsys.readouterr().out
    assert f"  {FAILURE}\n" in printed
    assert re.search(r"packets=300 +matters; packets=17 is enough\n", printed)
    for part in "text=it's", "delay=2", "fault 1: link-down", "fault 3: link-down", "fault 5: link-down":
        assert re.search(rf"{part} +does not matter\n", printed)
    for part in "fault 2: link-down", "fault 4: link-down":
        assert re.search(rf"{part} +matters\n", printed)
    assert "3 of 8 settings and faults matter · " in printed
    [command] = re.findall(r"Run it: testbed (.*)\n", printed)
    assert command == (
        "run tiny --variant good --set packets=17 --without-fault 1 --without-fault 3 --without-fault 5 --seed 8"
    )
    assert invoke(shlex.split(command)) == 1
    assert record.load(Path("runs/tiny/latest")).variants[0].failures == [FAILURE]
    assert invoke(["rerun", printed.splitlines()[-1]]) == 0


def test_a_run_directory_is_enough(
    failing: Callable[[Fails], None], tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its scenario is gone, and one of its faults was left out before."""
    failing(lambda settings, faults: 5 in faults and 1 not in faults)
    assert invoke(["run", "tiny", "--set", "packets=9", "--without-fault", "1"]) == 1
    (tiny / "scenario.py").unlink()
    capsys.readouterr()
    assert invoke(["shrink", "runs/tiny/latest", "--variant", "good", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["settings"], found["without_faults"]) == ({}, [1, 2, 3, 4])
    assert {part["part"]: part["matters"] for part in found["parts"]} == {
        "packets=9": False,
        "fault 2: link-down": False,
        "fault 3: link-down": False,
        "fault 4: link-down": False,
        "fault 5: link-down": True,
    }
    assert invoke(shlex.split(found["command"])[1:]) == 1
    assert (Path(found["directory"]) / "report.html").is_file()


def test_a_failure_that_needs_nothing_is_shown_so(
    failing: Callable[[Fails], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(lambda *_: True)
    assert invoke(["shrink", "tiny", "--variant", "good", "--set", "packets=9"]) == 0
    printed = capsys.readouterr()
    assert "0 of 6 settings and faults matter · 3 runs · seed 1\n" in printed.out


def test_another_failure_is_not_the_same(failing: Callable[[Fails], None], capsys: pytest.CaptureFixture[str]) -> None:
    failing(lambda settings, faults: 2 in faults or OTHER_FAILURE)
    assert invoke(["shrink", "tiny", "--variant", "good", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failures"], found["without_faults"]) == ([FAILURE], [1, 3, 4, 5])


def test_a_number_that_the_variant_sets_itself_goes_back_to_that(
    failing: Callable[[Fails], None], tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(lambda settings, _: int(settings["packets"]) < 90)
    text = (tiny / "scenario.py").read_text()
    (tiny / "scenario.py").write_text(text.replace('{"other": True}', '{"packets": 100}'))
    assert invoke(["shrink", "tiny", "--variant", "good", "--set", "packets=50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {"packets": "89"}


def test_settings_that_the_scenario_refuses_together_stay(
    failing: Callable[[Fails], None], tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the delay the packets would be too many."""
    check = "    @model_validator(mode='after')\n    def fit(self):\n        assert self.packets < 10 or self.delay\n"
    text = (tiny / "scenario.py").read_text().replace("import Field", "import Field, model_validator")
    failing(lambda settings, _: int(settings.get("packets", 4)) >= 20)
    (tiny / "scenario.py").write_text(text.replace("\nclass Tiny", f"{check}        return self\n\nclass Tiny"))
    words = ["--set", "packets=30", "--set", "delay=1", "--jobs", "1"]
    assert invoke(["shrink", "tiny", "--variant", "good", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {part["part"] for part in found["parts"] if part["matters"]} == {"packets=30", "delay=1"}
    assert found["settings"]["packets"] == "20"
    assert 0 < float(found["settings"]["delay"]) < 0.001


def test_a_run_that_is_as_expected_is_2(failing: Callable[[Fails], None], capsys: pytest.CaptureFixture[str]) -> None:
    failing(lambda *_: False)
    assert invoke(["shrink", "tiny", "--variant", "good"]) == 2
    assert "variant good is as expected: nothing to shrink" in capsys.readouterr().err
    assert invoke(["run", "tiny", "--variant", "good"]) == 0
    assert invoke(["shrink", "runs/tiny/latest"]) == 2
    assert "name one variant with an unexpected outcome\n  It has: none." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiny"], "name the variant that fails: --variant with one of bad, good"),
        (["tiny", "--variant", "worse"], "no variant 'worse'"),
        (["tiny", "--variant", "good", "--set", "packets=-1"], "packets"),
        (["runs/tiny/latest", "--seed", "3"], "a run directory has its own"),
        (["runs/tiny/latest", "--variant", "bad"], "It has: good."),
        (["elsewhere"], "scenario 'elsewhere' does not exist"),
    ],
)
def test_wrong_input_is_2(
    failing: Callable[[Fails], None], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(lambda *_: True)
    invoke(["run", "tiny", "--variant", "good"])
    capsys.readouterr()
    assert invoke(["shrink", *words]) == 2
    assert message in capsys.readouterr().err


def test_faults_are_not_left_out_of_a_run_that_stops(
    failing: Callable[[Fails], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(lambda *_: True)
    words = ["--variant", "good", "--stop-at", "fault", "--without-fault", "1"]
    assert invoke(["run", "tiny", *words]) == 2
    assert "--stop-at exclude each other" in capsys.readouterr().err
    assert invoke(["run", "tiny", "--variant", "good", "--stop-at", "fault", "--keep-steps"]) == 2
    assert "--keep-steps and --stop-at exclude each other" in capsys.readouterr().err
