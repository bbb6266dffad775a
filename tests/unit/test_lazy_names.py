"""The names of `testbed`, which are imported on first use: type checkers see the homes that names are imported from."""

import ast
from pathlib import Path

import pytest

import testbed


def test_type_checkers_see_what_is_imported_on_first_use() -> None:
    program = ast.parse(Path(testbed.__file__).read_text())
    (block,) = (node for node in program.body if isinstance(node, ast.If))
    checked = {name.name: line.module for line in block.body if isinstance(line, ast.ImportFrom) for name in line.names}
    assert {name: module for module, names in testbed._HOMES.items() for name in names.split()} == checked
    assert sorted(testbed.__all__) == sorted(checked)


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'testbed' has no attribute 'no_such_name'"):
        testbed.no_such_name  # noqa: B018
