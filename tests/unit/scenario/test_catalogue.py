"""The scenarios that come with testbed: all of them are in the catalogue, and say what a reader needs."""

import asyncio
import re

import pytest

from testbed.machine.scenarios import SCENARIOS, describe, shipped

CATALOGUE = SCENARIOS.parent / "docs" / "catalogue.md"
SMOKE = ("cni-smoke", "training-smoke")
"""They show that the pieces work together, and no fault of the field."""


def test_the_catalogue_has_every_scenario_once_and_no_other() -> None:
    named = re.findall(r"^\| \[([\w-]+)\]\(\.\./scenarios/([\w-]+)/scenario\.py\)", CATALOGUE.read_text(), re.MULTILINE)
    assert sorted(named) == [(source.name, source.name) for source in shipped()]


@pytest.mark.parametrize("name", [source.name for source in shipped() if source.name not in SMOKE])
def test_a_scenario_says_how_it_looks_on_real_gear_and_what_fixes_it(name: str) -> None:
    text = (SCENARIOS / name / "scenario.py").read_text()
    assert re.search(r"^    On real gear: ", text, re.MULTILINE)
    assert re.search(r"^    The fix(es)?: ", text, re.MULTILINE)


def test_all_of_them_are_described_by_this_python_without_a_machine() -> None:
    """A machine's Python is newer than the one of a Debian 12 host."""
    described = asyncio.run(describe([(source, {}) for source in shipped()]))
    assert [scenario["name"] for scenario in described] == [source.name for source in shipped()]
