"""Results of tools have bounds, whatever is in them."""

import random
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from testbed.cli.mcp.bounds import CELL, LEFT_OUT, RESULT, Ends, bounded, compact, shortened

TEXT = some.text(max_size=50)
VALUE = some.recursive(
    TEXT | some.integers() | some.none() | some.booleans(),
    lambda inner: some.lists(inner, max_size=5) | some.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


@given(
    some.dictionaries(
        TEXT.filter(lambda key: key != LEFT_OUT), TEXT | some.lists(VALUE) | some.dictionaries(TEXT, VALUE)
    )
)
def test_what_fits_stays_whole(result: dict[str, Any]) -> None:
    found = bounded(result)
    assert LEFT_OUT not in found
    assert [type(value) for value in found.values()] == [type(value) for value in result.values()][: len(found)]


@pytest.mark.parametrize("newest_last", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_large_is_cut(seed: int, newest_last: bool) -> None:
    draw = random.Random(seed)  # noqa: S311

    def text() -> str:
        return "".join(draw.choices(string.printable + "\x1b\u202eäπ", k=draw.choice([3, 30, 3000, 30_000])))

    def rows() -> list[Any]:
        return [{"text": text(), "number": number} for number in range(draw.choice([1, 10, 200]))]

    result = {
        "a": draw.choice([text, rows])(),
        "b": {str(number): text() for number in range(draw.choice([0, 5, 300]))},
        "c": rows(),
        "left_out": 7,
    }
    found = bounded(result, newest_last=newest_last)
    assert len(compact(found)) <= RESULT
    kept = sum(len(found[key]) for key in "abc" if not isinstance(result[key], str))
    had = sum(len(result[key]) for key in "abc" if not isinstance(result[key], str))
    assert found["left_out"] == 7 + had - kept
    if found["c"]:
        row = found["c"][-1 if newest_last else 0]
        assert row["number"] == result["c"][-1 if newest_last else 0]["number"]
        assert len(row["text"]) <= CELL


def test_a_text_loses_its_middle_and_says_how_much() -> None:
    text = "a" * 500 + "b" * 500
    found = shortened(text, 100)
    assert len(found) <= 100
    begin, gap, end = found.split("…")
    assert (set(begin.strip()), set(end.strip())) == ({"a"}, {"b"})
    assert int(gap.split()[0]) == 1000 - len(begin.strip()) - len(end.strip())


@given(some.lists(some.binary(max_size=40)))
def test_the_ends_of_a_stream_are_those_of_the_whole(pieces: list[bytes]) -> None:
    ends = Ends(20)
    for piece in pieces:
        ends.write(piece.hex().encode())
    whole = b"".join(pieces).hex()
    if len(whole) <= 40:
        assert ends.text() == whole
    else:
        assert ends.text() == f"{whole[:20]}\n… {len(whole) - 40} bytes left out …\n{whole[-20:]}"
