"""`testbed run` around its machines: status, standard output, and the JSON that other programs read."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import invoke
from testbed.machine.record import RunResult, VariantResult

RUN_KEYS = {
    "scenario",
    "verdict",
    "seed",
    "clock",
    "machine",
    "image",
    "trace",
    "wall_s",
    "out",
    "variants",
    "made_from",
    "title",
    "text",
}
VARIANT_KEYS = {"name", "text", "expected", "observed", "trace", "virtual_s", "wall_s", "evidence"}


def test_a_run_as_expected_is_0_and_prints_one_object(
    ends_like: Callable[..., None], good: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(good)
    assert invoke(["run", str(tiny), "--seed", "9", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == RUN_KEYS
    assert all(set(variant) >= VARIANT_KEYS for variant in printed["variants"])
    assert (printed["scenario"], printed["verdict"], printed["seed"]) == ("tiny", "as-expected", 9)
    assert (printed["clock"], printed["machine"], printed["image"]) == ("virtual", "vm", "ef" * 32)
    assert [variant["name"] for variant in printed["variants"]] == ["bad", "good"]
    assert json.loads((Path(printed["out"]) / "result.json").read_text()) == printed


def test_a_run_that_is_not_as_expected_is_1_and_says_so(
    ends_like: Callable[..., None], bad: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(bad)
    assert invoke(["run", str(tiny), "--variant", "good", "--out", "elsewhere"]) == 1
    said = capsys.readouterr().out
    assert "tiny: unexpected · 1 variant" in said
    assert "good is not as expected:\n  users saw fault where healthy was expected" in said
    assert Path("elsewhere/tiny/latest/result.json").is_file()


def test_what_has_no_effect_in_the_topology_is_noted(
    ends_like: Callable[..., None], good: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(good)
    file = tiny / "topology.clab.yml"
    file.write_text("{name: tiny, topology: {nodes: {a: {kind: host, cpu: 2}}}}")
    assert invoke(["run", str(tiny), "--variant", "good"]) == 0
    out, err = capsys.readouterr()
    assert f"… note: {file}:1:49: 'cpu' has no effect: a container of a lab runs without it" in err.splitlines()
    assert "no effect" not in out


def test_several_scenarios_print_an_array(
    ends_like: Callable[..., None], good: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(good)
    assert invoke(["run", str(tiny), str(tiny / "scenario.py"), "--variant", "good", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [result["scenario"] for result in printed] == ["tiny", "tiny"]
    assert printed[0]["out"] != printed[1]["out"]


@pytest.mark.parametrize(
    ("variant", "settings", "said"),
    [
        ([], [{"packets": "7"}, {"packets": 9}], "… variant good sets packets=9 itself: --set does not change it\n"),
        (["--variant", "good"], [{"packets": "7"}], ""),
        (["--variant", "bad"], [{"packets": "7"}], ""),
        (["--variant", "good", "--variant", "bad"], [{"packets": "7"}, {"packets": "7"}], ""),
    ],
)
def test_a_variant_keeps_what_it_sets_itself_unless_the_user_names_it(
    ends_like: Callable[..., None],
    good: VariantResult,
    tiny: Path,
    capsys: pytest.CaptureFixture[str],
    variant: list[str],
    settings: list[dict[str, Any]],
    said: str,
) -> None:
    ends_like(good)
    assert invoke(["run", str(tiny), "--set", "packets=7", *variant, "--json"]) == 0
    out, err = capsys.readouterr()
    assert [found["evidence"] for found in json.loads(out)["variants"]] == settings
    assert "".join(line for line in err.splitlines(keepends=True) if "--set does not" in line) == said


def test_json_of_a_result_is_what_the_design_lists(
    result_of: Callable[..., RunResult], good: VariantResult, bad: VariantResult
) -> None:
    found = result_of(good, bad).json()
    assert set(found) == RUN_KEYS
    assert found["verdict"] == "unexpected"
    assert len(found["trace"]) == 64
    first, second = found["variants"]
    assert set(first) == set(second) >= VARIANT_KEYS
    assert (first["expected"], first["observed"], first["virtual_s"]) == ("healthy", "healthy", 1503.25)
    assert second["evidence"]["switch_arp"] == "pod A's MAC"
    assert result_of(good).json()["verdict"] == "as-expected"


def test_a_variant_without_an_observation_is_null_in_json(
    result_of: Callable[..., RunResult], bad: VariantResult
) -> None:
    found = json.loads(json.dumps(result_of(replace(bad, observed=None)).json()))
    assert found["variants"][0]["observed"] is None


def test_list_and_describe_print_what_programs_read(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(listed["ip-reuse"]) == {"name", "title", "tags", "variants"}

    assert invoke(["describe", str(tiny), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["parameters"]["properties"]["packets"]["default"] == 4
    assert described["source"] == str(tiny / "scenario.py")

    assert invoke(["describe", str(tiny)]) == 0
    shown = capsys.readouterr().out
    assert "A scenario that says little." in shown
    assert "packets of a message" in shown
