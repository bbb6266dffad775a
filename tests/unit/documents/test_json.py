"""Places in JSON: of any value that JSON can hold, however it is laid out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.documents.json import JsonDocument
from testbed.documents.text import Mark, Path
from testbed.errors import InputError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
TEXT = """{
  "name": "x", "name": "y",
  "plugins": [{"type": "a"},
              {"a\\"b": [1, {}]}]
}
"""


def document(text: str) -> JsonDocument:
    return JsonDocument(text.encode(), "x.json", "conflist")


def paths(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


@given(VALUES, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_at_the_place_of_each_value_is_that_value(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    read = document(text)
    lines = text.split("\n")
    for path, expected in paths(value):
        mark = read.find(path)
        rest = "\n".join([lines[mark.line - 1][mark.column - 1 :], *lines[mark.line :]])
        assert json.JSONDecoder().raw_decode(rest)[0] == expected
        if path and isinstance(path[-1], str):
            mark = read.find(path, key=True)
            assert json.JSONDecoder().raw_decode(lines[mark.line - 1][mark.column - 1 :])[0] == path[-1]


@pytest.mark.parametrize(
    ("path", "mark"),
    [
        ((), Mark(1, 1)),
        (("name",), Mark(2, 24)),  # of a key that is given twice the last one counts, as for json
        (("plugins", 1, 'a"b', 1), Mark(4, 28)),
        (("plugins", 2), Mark(3, 14)),
        (("plugins", 0, "ipam", "type"), Mark(3, 15)),
        (("none",), Mark(1, 1)),
        (("name", "x"), Mark(2, 24)),
    ],
)
def test_of_what_is_not_there_the_place_is_that_of_what_is_around_it(path: Path, mark: Mark) -> None:
    assert document(TEXT).find(path) == mark


def test_a_byte_order_mark_is_no_json() -> None:
    with pytest.raises(InputError, match="not valid JSON"):
        document("\ufeff{}")
