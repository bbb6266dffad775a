"""The table of CNI's demands in docs/cni-own.md and the tests that it names belong together."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests" / "lab" / "cni"


def named(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", text))


def defined(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))


def test_each_test_of_the_table_is_there_and_each_test_of_conformance_in_the_table() -> None:
    table = named((ROOT / "docs" / "cni-own.md").read_text().partition("## Conformance")[2])
    there = set().union(*map(defined, TESTS.glob("test_*.py")))
    assert not table - there
    assert not defined(TESTS / "test_conformance.py") - table
