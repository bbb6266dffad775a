"""The search for the scenario in a user's file, with clear errors where there is none; the user's modules beside it.

Modules of Python, its packages and testbed keep their names. Much is imported late: without this, a reader of a
topology would import a yaml.py beside a scenario as PyYAML.
"""

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from testbed.errors import InputError, TestbedError
from testbed.protocol import DEBIAN_PACKAGE, HOST_FILES, VARIANT, ScenarioInfo
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Variant
from testbed.switch.profile import Profile
from testbed.topology import Plan
from testbed.topology.kinds import KINDS

ATTRIBUTES: dict[str, tuple[Any, str]] = {
    "title": (str, "is a text"),
    "topology": (str, "must be a file name"),
    "compared": (str, "must be the name of a variant"),
    "training": (bool, "must be True or False"),
    "limit_s": (Annotated[float, Field(gt=0, allow_inf_nan=False)], "must be a number of seconds"),
    "busy_limit_s": (float | None, "must be a number of seconds, or None"),
    "tags": (tuple[str, ...] | list[str], "must be a tuple of strings"),
    "images": (tuple[str, ...] | list[str], "must be a tuple of strings"),
    "parameters": (type[Parameters], "must be a subclass of testbed.Parameters"),
    "variants": (tuple | list, "must be a tuple of Variant"),
}
"""The types of a scenario's attributes, as pydantic checks them, and in words."""
BUSY_S, TRAINING_BUSY_S = 60.0, 600.0
Refuse = Callable[..., None]
"""A function that raises an InputError with a message, and a hint if there is one."""


def load(path: Path) -> type[Scenario]:
    """Return the one Scenario class of the file `path`. Its directory is importable, for modules of its own."""
    add(path.parent)
    spec = importlib.util.spec_from_file_location("testbed_scenario", path)
    if spec is None or spec.loader is None:
        raise InputError(
            "is not a Python file", where=path.name, hint="A scenario is a .py file, or a directory with a scenario.py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks there for what the annotations of parameters name
    with blaming(path):
        spec.loader.exec_module(module)
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Scenario) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise InputError(
            f"a scenario file must define one subclass of testbed.Scenario; this one defines {len(found)}",
            where=path.name,
            hint="docs/scenarios.md shows how to write one.",
        )
    with blaming(path):
        check(found[0], path.name)
    return found[0]


@contextlib.contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turn whatever the user's code raises in the block into an InputError at its line."""
    try:
        yield
    except TestbedError:
        raise
    except BaseException as error:  # SystemExit, and what is derived from nothing better, among it
        hint, line = "", line_of(error, path)
        if isinstance(error, ImportError | AttributeError) and (names := hidden(path.parent)):
            others = f"Python modules or packages have the same names as {', '.join(names)} beside it"
            hint = f"{others} and are imported instead: rename your files."
        raise InputError(words(error), where=f"{path.name}:{line}" if line else path.name, hint=hint) from error


def line_of(error: BaseException, path: Path) -> int | None:
    """Return the line of the user's file that an exception came from."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def words(error: BaseException) -> str:
    """Return the kind of an error and its text, if it has one: `__str__` may be the user's."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        return f"{type(error).__name__}, whose text cannot be made: {type(other).__name__}"


def check(scenario: type[Scenario], where: str) -> None:
    """Check what every scenario must define, before a machine is started."""

    def refuse(message: str, hint: str = "") -> None:
        raise InputError(message, where=where, hint=hint)

    check_attributes(scenario, refuse)
    check_packages(scenario, refuse)
    for variant in scenario.variants:
        if not isinstance(variant, Variant):
            refuse(f"class {scenario.__name__} has {variant!r} among its variants, which is not a Variant")
        check_variant(variant, refuse)
    names = [variant.name for variant in scenario.variants]
    if not names:
        refuse(f"class {scenario.__name__} has no variants")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        refuse(f"variant {twice[0]} is given twice")
    if scenario.compared and scenario.compared not in names:
        refuse(f"class {scenario.__name__} compares {scenario.compared!r}, which is not a variant")
    for variant in scenario.variants:
        scenario.settle(variant, {})


def check_attributes(scenario: type[Scenario], refuse: Refuse) -> None:
    name = scenario.__name__
    if not hasattr(scenario, "variants"):
        refuse(f"class {name} has no `variants`")
    if inspect.isabstract(scenario) or not callable(scenario.run):
        refuse(f"class {name} has no method `run`")
    for attribute, (kind, text) in ATTRIBUTES.items():
        value = getattr(scenario, attribute)
        try:
            TypeAdapter(kind).validate_python(value, strict=True)
        except ValidationError:
            refuse(f"`{attribute}` of class {name} {text}, not {value!r}")
    if not scenario.words()[0]:
        refuse(f"class {name} has no docstring", "Its first line is the scenario's title.")


def check_variant(variant: Variant, refuse: Refuse) -> None:
    if not (isinstance(variant.name, str) and VARIANT.fullmatch(variant.name)):
        refuse(f"a variant cannot have the name {variant.name!r}", "Use only letters, digits, `-`, `_` and `.`.")
    if variant.name in HOST_FILES:
        refuse(f"a variant cannot have the name {variant.name!r}: a run's directory has another file of that name")
    if variant.expected not in ("fault", "healthy"):
        refuse(f"variant {variant.name} expects {variant.expected!r}, not 'fault' or 'healthy'")
    if not isinstance(variant.text, str):
        refuse(f"the text of variant {variant.name} is {variant.text!r}")
    if not (isinstance(variant.settings, Mapping) and all(isinstance(name, str) for name in variant.settings)):
        refuse(f"the settings of variant {variant.name} must be a mapping of parameters, not {variant.settings!r}")


def info(
    scenario: type[Scenario], name: str, chosen: Mapping[str, Any], named: Collection[str], path: Path
) -> ScenarioInfo:
    """Describe a scenario; `chosen` are the user's settings, `named` the variants they named."""
    try:
        with blaming(path):
            schema: Any = scenario.parameters.model_json_schema()
            changes = [scenario.changes(variant, chosen, named) for variant in scenario.variants]
    except InputError as error:
        if isinstance(error.__cause__, PydanticUserError | PydanticSerializationError):
            first = str(error.__cause__).partition("\n")[0]
            raise InputError(f"the parameters cannot be written as JSON: {first}", where=path.name) from error
        raise
    title, text = scenario.words()
    return {
        "name": name,
        "title": title,
        "text": text,
        "tags": list(scenario.tags),
        "parameters": schema,
        "variants": [
            {"name": variant.name, "expected": variant.expected, "text": variant.text, "settings": settings}
            for variant, settings in zip(scenario.variants, changes, strict=True)
        ],
        "compared": scenario.compared or scenario.variants[0].name,
        "limit_s": scenario.limit_s,
        "busy_limit_s": scenario.busy_limit_s or (TRAINING_BUSY_S if scenario.training else BUSY_S),
        "training": scenario.training,
        "notes": [],
        "packages": sorted(set(scenario.packages)),
        "images": sorted(set(scenario.images)),
    }


def check_profiles(profiles: object, plan: Plan, where: str) -> None:
    """Check the result of a scenario's `profiles`: profiles by the names of switches."""
    if not isinstance(profiles, Mapping):
        raise InputError(f"profiles returns {profiles!r}; expected profiles by the names of switches", where=where)
    switches = [node.name for node in plan.nodes.values() if KINDS[node.kind].has_vlans]
    for name, profile in profiles.items():
        if name not in switches:
            hint = f"Its switches: {', '.join(switches) or 'none'}."
            raise InputError(f"profiles names {name!r}, which is not a switch of {plan.name}", where=where, hint=hint)
        if not isinstance(profile, Profile):
            raise InputError(f"profiles has {profile!r} for {name}, which is not a Profile", where=where)


def check_packages(scenario: type[Scenario], refuse: Refuse) -> None:
    packages = scenario.packages
    for name in (packages,) if isinstance(packages, str) or not isinstance(packages, Iterable) else packages:
        if isinstance(packages, str) or not DEBIAN_PACKAGE.fullmatch(str(name)):
            refuse(
                f"class {scenario.__name__} needs {name!r}, which is not a valid Debian package name",
                'Write packages = ("iperf3", "tcpflow").',
            )


THEIRS = ("test",)
"""A package of Python's own tests, which nobody imports, and a usual name for a directory of tests."""


class OwnFirst(MetaPathFinder):
    """A finder of top-level modules where they were found before directories of the user were importable."""

    def __init__(self, path: Sequence[str]) -> None:
        self._path = list(path)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or name in THEIRS:
            return None
        found = PathFinder.find_spec(name, self._path)
        return found if found and found.loader else None  # a directory without an __init__.py is no module of ours


def add(directory: Path) -> None:
    """Make the modules in `directory` importable, and in those that the user's code puts in front of sys.path."""
    if not any(isinstance(finder, OwnFirst) for finder in sys.meta_path):
        place = next((number for number, finder in enumerate(sys.meta_path) if finder is PathFinder), 0)
        sys.meta_path.insert(place, OwnFirst(sys.path))
    sys.path.insert(0, str(directory))


def hidden(directory: Path) -> list[str]:
    """Return the files in `directory` that cannot be imported: other modules have their names."""
    loaded = {path.name: sys.modules.get(path.stem) for path in sorted(directory.glob("*.py"))}
    return [
        name
        for name, module in loaded.items()
        if module and Path(getattr(module, "__file__", None) or "").parent != directory
    ]
