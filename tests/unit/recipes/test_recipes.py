"""The recipes of docs/architecture.md, each carried out with a trivial example on a copy of the package.

An edit of a file that the recipe does not name fails, as does a recipe that names a file or a table that is not there.
"""

import os
import re
from pathlib import Path

import pytest
import recipes_of_labs  # noqa: F401 - registers its recipes
import recipes_of_records  # noqa: F401
from recipe_tree import CARRIED_OUT, RECIPES, ROOT, Tree

FILES = [file for part in ("testbed", "tests", "docs") for file in (ROOT / part).rglob("*") if file.is_file()]


def is_named(file: str, recipe: str) -> bool:
    """Whether a recipe names a file, or the directory in which the example is a file of the user's choice."""
    directory, name = os.path.split(file)
    return any(f"`{word}" in recipe for word in (file, f"{directory}/<", f"{directory}`", f"{directory}/`", f"{name}`"))


def test_each_recipe_is_carried_out() -> None:
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("*.py"))
    assert [heading for heading in RECIPES if f'"{heading}"' not in tests] == []
    assert CARRIED_OUT.keys() <= RECIPES.keys()


@pytest.mark.parametrize("heading", RECIPES)
def test_what_a_recipe_names_is_there(heading: str) -> None:
    text = RECIPES[heading]
    named = re.findall(r"((?:[\w<>]+/)*[\w<>.]+\.(?:py|h|c|js|yml|json|md)|(?:\w+/)+\w*)\b", text)
    for name in {re.sub(r"<\w+>.*", "", name).rstrip("/") for name in named}:
        assert any(f"/{name}/" in f"{file}/" for file in FILES), name
    for word, name in re.findall(r"`(\w+)` of `([^`]+)`", text):
        file = next(file for file in (ROOT / "testbed" / name, ROOT / name) if file.exists())
        assert re.search(rf"\b{word}\b", file.read_text()), f"{word} is not in {name}"


@pytest.mark.parametrize("heading", CARRIED_OUT)
def test_a_recipe_is_enough(heading: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    CARRIED_OUT[heading](tree)
    assert [file for file in sorted(tree.changed) if not is_named(file, RECIPES[heading])] == []
