"""The table of expected diagnoses has every training scenario with all its variants."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from diagnosis_cases import DRAWN, EITHER, EXPECTED, HEALTHY, WITHOUT_A_JOB

SCENARIOS = Path(__file__).parents[4] / "scenarios"


def training() -> Iterator[tuple[str, dict[str, str]]]:
    """The scenarios that are tagged so, with the expectation of each variant, from their source."""
    for file in sorted(SCENARIOS.glob("*/scenario.py")):
        tree = ast.parse(file.read_text())
        tags = [
            ast.literal_eval(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "tags"
        ]
        if any("training" in found for found in tags):
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) >= 2)
            made = [call.args for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Variant"]
            yield file.parent.name, {ast.literal_eval(name): ast.literal_eval(expected) for name, expected, *_ in made}


TRAINING = dict(training())


def test_every_training_scenario_is_in_the_table_or_has_a_reason_not_to_be() -> None:
    assert sorted([*EXPECTED, *WITHOUT_A_JOB]) == sorted(TRAINING)


@pytest.mark.parametrize("scenario", EXPECTED)
def test_every_variant_is_in_the_table(scenario: str) -> None:
    drawn = [variant for name, variant in (*DRAWN, *EITHER) if name == scenario]
    assert sorted([*EXPECTED[scenario], *drawn]) == sorted(TRAINING[scenario])


@pytest.mark.parametrize("scenario", EXPECTED)
def test_what_users_feel_is_diagnosed(scenario: str) -> None:
    """A variant with a fault has a job that is not healthy; that of a healthy one is so in the end."""
    for variant, found in EXPECTED[scenario].items():
        jobs = found if isinstance(found, list) else [found]
        if TRAINING[scenario][variant] == "fault":
            assert any(job != HEALTHY for job in jobs), variant
        else:
            assert jobs[-1] == HEALTHY, variant
