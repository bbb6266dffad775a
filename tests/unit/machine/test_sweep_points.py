"""The seeds of a sweep as users write them, and the command of each of its runs."""

import contextlib
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.machine.sweeps.points import MOST, Point, seeds


@pytest.mark.parametrize(
    ("text", "found"),
    [("0..4", [0, 1, 2, 3, 4]), ("1,5,9", [1, 5, 9]), ("7..7", [7]), ("3..5, 1, 4..6", [3, 4, 5, 1, 6])],
)
def test_seeds_are_ranges_and_numbers_each_once(text: str, found: list[int]) -> None:
    assert seeds(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a seed or a range"),
        ("1,,2", "'' is not a seed or a range"),
        ("-1", "'-1' is not a seed"),
        ("1..", "'1..' is not a seed"),
        ("1...5", "'1...5' is not a seed"),
        ("٣", "'٣' is not a seed"),
        ("9..1", "9..1: the end is before the start"),
        (f"0..{MOST}", f"a sweep of {MOST + 1} runs is too large"),
        (str(2**63), "is too large"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        seeds(text)
    assert message in raised.value.message


@given(st.text())
def test_any_text_is_seeds_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        assert seeds(text)


def test_the_command_of_a_run_is_quoted_for_a_shell() -> None:
    point = Point(7, {"name": "as-is", "expected": "fault", "text": "", "settings": {}}, {}, {"text": "it's $HOME"})
    assert shlex.split(point.command("my scenarios/a")) == [
        "testbed",
        "run",
        "my scenarios/a",
        "--variant",
        "as-is",
        "--set",
        "text=it's $HOME",
        "--seed",
        "7",
    ]
