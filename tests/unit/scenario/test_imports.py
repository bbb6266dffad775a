"""What stands beside a user's files never takes the place of what testbed imports, early or late."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.scenario import loading

SCENARIO = """
import theirs
from testbed import Scenario, Variant

class Tiny(Scenario):
    title = theirs.TITLE
    variants = (Variant("only", "healthy", "it works"),)
    def run(self, run, parameters): ...
"""


@pytest.fixture
def _without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that nothing has imported yet."""
    for name in ("colorsys", "theirs", "test"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("_without")
def test_a_scenario_brings_modules_of_its_own_and_replaces_none_of_ours(write: Callable[..., Path]) -> None:
    for name in ("colorsys", "testbed", "yaml"):
        write("raise SystemExit('hijacked')", f"{name}.py")
    write("TITLE = 'mine'", "theirs.py")
    assert loading.load(write(SCENARIO)).title == "mine"
    assert importlib.import_module("colorsys").rgb_to_hsv


@pytest.mark.usefixtures("_without")
def test_a_directory_put_in_front_later_replaces_nothing_either(write: Callable[..., Path], tmp_path: Path) -> None:
    front = tmp_path / "front"
    front.mkdir()
    (front / "colorsys.py").write_text("raise SystemExit('hijacked')")
    (front / "theirs.py").write_text("TITLE = 'mine'")
    loading.add(write("", "any.py").parent)
    sys.path.insert(0, str(front))
    assert importlib.import_module("colorsys").rgb_to_hsv
    assert importlib.import_module("theirs").TITLE == "mine"


@pytest.mark.usefixtures("_without")
def test_a_package_of_tests_may_be_called_test(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "__init__.py").write_text("MINE = True")
    loading.add(write("", "any.py").parent)
    assert importlib.import_module("test").MINE


def test_an_import_that_meets_another_module_than_the_one_beside_it_is_explained(write: Callable[..., Path]) -> None:
    write("def mine(): ...", "json.py")
    with pytest.raises(InputError, match="cannot import name 'mine'") as said:
        loading.load(write("from json import mine"))
    assert "have the same names as json.py beside it" in said.value.hint
