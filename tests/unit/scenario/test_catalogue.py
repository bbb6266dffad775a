"""The scenarios that come with testbed: all of them are in the catalogue, and say what a reader needs."""

import re

import pytest

from testbed.machine.scenarios import SHIPPED, shipped

CATALOGUE = SHIPPED.parent / "docs" / "catalogue.md"
SMOKE = ("cni-smoke", "training-smoke")
"""They show that the pieces work together, and no fault of the field."""


def test_the_catalogue_has_every_scenario_once_and_no_other() -> None:
    named = re.findall(r"^\| \[([\w-]+)\]\(\.\./scenarios/([\w-]+)/scenario\.py\)", CATALOGUE.read_text(), re.MULTILINE)
    assert sorted(named) == [(source.name, source.name) for source in shipped()]


@pytest.mark.parametrize("name", [source.name for source in shipped() if source.name not in SMOKE])
def test_a_scenario_says_how_it_looks_on_real_gear_and_what_cures_it(name: str) -> None:
    text = (SHIPPED / name / "scenario.py").read_text()
    assert re.search(r"^    On real gear: ", text, re.MULTILINE)
    assert re.search(r"^    The cures?: ", text, re.MULTILINE)
