"""Finds the scenario in a user's file, and says clearly what is wrong with it where there is none."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path

from testbed.errors import InputError
from testbed.protocol import VARIANT
from testbed.scenario.model import Scenario, Variant


def load(path: Path) -> type[Scenario]:
    """The one Scenario class of the file `path`. Its directory is importable, so it may bring modules of its own."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("testbed_scenario", path)
    if spec is None or spec.loader is None:
        raise InputError(
            "is no Python file", where=path.name, hint="A scenario is a .py file, or a directory with a scenario.py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks there for what the annotations of parameters name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise blame(error, path) from error
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Scenario) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise InputError(
            f"a scenario file holds one subclass of testbed.Scenario, this one {len(found)}",
            where=path.name,
            hint="docs/scenarios.md shows how to write one.",
        )
    check(found[0], path.name)
    return found[0]


def blame(error: BaseException, path: Path) -> InputError:
    """What the user's file raised, at its line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = frames[-1].lineno if frames else 1
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    return InputError(f"{type(error).__name__}: {error}", where=f"{path.name}:{line}")


def check(scenario: type[Scenario], where: str) -> None:
    """What every scenario must say, found before a machine is started."""
    for name in ("title", "variants"):
        if not hasattr(scenario, name):
            raise InputError(f"class {scenario.__name__} has no `{name}`", where=where)
    if inspect.isabstract(scenario):
        raise InputError(f"class {scenario.__name__} has no method `run`", where=where)
    for variant in scenario.variants:
        if not isinstance(variant, Variant):
            raise InputError(
                f"class {scenario.__name__} has {variant!r} among its variants, which is no Variant", where=where
            )
        if not VARIANT.fullmatch(str(variant.name)):
            raise InputError(
                f"a variant cannot be called {variant.name!r}",
                where=where,
                hint="Letters, digits, `-`, `_` and `.` only.",
            )
    names = [variant.name for variant in scenario.variants]
    if not names:
        raise InputError(f"class {scenario.__name__} has no variants", where=where)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"variant {twice[0]} is there twice", where=where)
    if scenario.compared and scenario.compared not in names:
        raise InputError(f"class {scenario.__name__} compares {scenario.compared!r}, which is no variant", where=where)
    for variant in scenario.variants:
        if variant.expected not in ("fault", "healthy"):
            raise InputError(
                f"variant {variant.name} expects {variant.expected!r}, not 'fault' or 'healthy'", where=where
            )
        scenario.settle(variant, {})
