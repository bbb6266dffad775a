"""The tables of CNI's demands in docs/cni-conformance.md and the tests that they name belong together."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAB = ROOT / "tests" / "lab" / "cni"
CONFORMANCE = [LAB / "test_conformance_runtime.py", LAB / "test_conformance_plugins.py"]
FILES = [*LAB.glob("test_*.py"), *Path(__file__).parent.glob("test_*.py")]
TEXT = (ROOT / "docs" / "cni-conformance.md").read_text().partition("## Conformance")[2]
ROWS = [line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| ")]
REASON = re.compile(r"none: \w.{10,}")
"""Stands in a column in the place of tests."""


def named(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", text))


def defined(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))


def test_each_test_of_the_table_is_there_and_each_test_of_conformance_in_the_table() -> None:
    there = set().union(*map(defined, FILES))
    assert not named(TEXT) - there
    for file in CONFORMANCE:
        assert not defined(file) - named(TEXT), file


@pytest.mark.parametrize("row", [row for row in ROWS if row[0].strip() != "Demand"], ids=lambda row: row[0].strip())
def test_each_demand_has_tests_of_both_kinds_or_a_reason(row: list[str]) -> None:
    demand, *columns = (cell.strip() for cell in row)
    assert demand
    assert len(columns) == 2
    for column in columns:
        assert named(column) or REASON.fullmatch(column), column


def test_there_is_a_table_for_the_runtime_and_one_for_plugins() -> None:
    assert [row[0].strip() for row in ROWS].count("Demand") == 2
