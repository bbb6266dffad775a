"""The page of the public API, docs/api.md, written from docstrings: `make examples` writes it again."""

import ast
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import MagicMock

from testbed.faults import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
MODULES = ("testbed", "testbed.faults", "testbed.workload", "testbed.session", "testbed.errors")
INTERNAL = {
    "Node": {
        "adopt",
        "borrow",
        "change",
        "change_end",
        "close",
        "complete_end",
        "complete",
        "configure",
        "delete_devices",
        "expect",
        "join",
        "links_work",
        "make_interface",
    }
    | {"lacp_strict", "make_bonds", "set_up", "pair_bonds", "bonds_aggregate"}
    | {"prepare", "release", "execute", "set_sysctls"},
    "Host": {"delete_rdma"},
    "Switch": {"fit_svis"},
    "HostInterface": {"configure_address"},
    "Interface": {"disconnect", "emit"},
    "Direction": {"remove", "take"},
    "Lab": {"await_bonds", "close", "context", "control_planes", "view"},
    "Routing": {"catch_up", "change", "close", "fileno", "forget", "drain", "on_route", "settle", "start"},
    "Scheduler": {"close", "run", "watch"},
    "Scenario": {"changes", "info", "settle", "variant", "words"},
    "Run": {"begin", "outcome"},
    "EventLog": {"epoch", "kernel_ns", "settle", "write"},
    "Injection": {"inject_after", "judged"},
    "Job": {"close", "launch", "scratch"},
    "Namespace": {"end_programs"},
    "Pods": {"check", "detach", "networks"},
    "Process": {"wait_until"},
    "TestbedError": {"exit_status"},
    "Topology": {"model_post_init"},
}
"""Public to the package that runs scenarios and builds labs, and nothing for a scenario to call."""
INTRODUCTION = """\
# Python API

Scenarios and tests import what these modules export, and nothing else of testbed:
{modules}. Everything else is private and changes without
notice. Until 1.0 the public API may change too, with a line in the CHANGELOG.

[Write your own scenario](scenarios.md) shows how the parts work together. `python -m pydoc testbed.Run` prints a class
with its full docstrings. This page is written from them by `make examples`.
"""


def stand_in_for_pyverbs() -> None:
    """Lets this Python import modules that need pyverbs, which is there in the guest only."""
    if find_spec("pyverbs") is None:
        names = ("addr", "cmid", "cq", "device", "enums", "mr", "pd", "pyverbs_error", "qp", "wr")
        sys.modules |= {"pyverbs": MagicMock()} | {f"pyverbs.{name}": MagicMock() for name in names}


def summary(text: str | None) -> str:
    """The first sentence of a docstring, for a cell of a table."""
    paragraph = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    sentence = re.match(r".*?(?=\.(\s|$))", paragraph)
    return (sentence[0] if sentence else paragraph.rstrip(":")).replace("``", "`").replace("|", "\\|")


def attributes(cls: type) -> dict[str, str]:
    """The fields that a class declares or sets in `__init__`, in that order, with the string below each, or nothing."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    makes = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    bodies = [tree.body, *(node.body for node in makes)]
    found = {}
    for body in bodies:
        for statement, after in zip(body, [*body[1:], None], strict=True):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            kind = "id" if body is tree.body else "attr"  # in `__init__` self.name, and no variable
            name = next((getattr(target, kind, "") for target in targets), "")
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            if name and not name.startswith("_"):
                found[name] = str(text)
    return found


def signature(name: str, function: Any, *, bound: bool) -> str:
    """A call with its parameters and plain defaults, without types."""
    found = inspect.signature(function)
    parameters = [
        p.replace(annotation=p.empty, default=Default(p.default) if p.default is not p.empty else p.empty)
        for p in found.parameters.values()
    ]
    return f"{name}{found.replace(parameters=parameters[1 if bound else 0 :], return_annotation=found.empty)}"


class Default:
    """The default of a parameter as a reader would write it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return str(getattr(self.value, "__name__", getattr(self.value, "name", repr(self.value))))


def members(cls: type) -> Iterator[tuple[str, str]]:
    """The public attributes, properties and methods of a class, and of its private bases up to a public one."""
    seen = {"model_config"} | {name for base in cls.__mro__ for name in INTERNAL.get(base.__name__, ())}
    inherited = itertools.takewhile(lambda base: not exported(base), cls.__mro__[1:])
    for base in (cls, *(base for base in inherited if base.__module__.startswith("testbed."))):
        own: dict[str, Any] = {**attributes(base), **{k: v for k, v in vars(base).items() if not k.startswith("_")}}
        for name, value in own.items():
            if name in seen:
                continue
            seen.add(name)
            if isinstance(value, (classmethod, staticmethod, FunctionType)):
                plain = getattr(value, "__func__", value)
                yield signature(name, plain, bound=not isinstance(value, staticmethod)), summary(plain.__doc__)
            elif isinstance(value, property):
                yield name, summary(value.__doc__)
            elif name in attributes(base):
                yield name, summary(attributes(base)[name])


def exported(thing: Any) -> bool:
    return any(getattr(module, name) is thing for module in modules() for name in names(module))


def names(module: ModuleType) -> list[str]:
    """The names that a module exports: its `__all__`, else what it imports or defines without an underscore."""
    own = sorted(name for name, thing in vars(module).items() if name[0] != "_" and not isinstance(thing, ModuleType))
    return list(getattr(module, "__all__", own))


def modules() -> list[ModuleType]:
    return [import_module(name) for name in MODULES]


def table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [head, ("---", "---"), *((f"`{name}`", text) for name, text in rows)]
    return "".join(f"| {name} | {text} |\n" for name, text in lines)


def section(module: ModuleType) -> Iterator[str]:
    """A module: a table of its names, and one of the members of each class."""
    yield f"\n## {module.__name__}\n\n{paragraph(module).rstrip(':')}\n"
    things = {name: getattr(module, name) for name in names(module)}
    kinds = list(KINDS.values())
    named = [(name, thing) for name, thing in things.items() if thing not in kinds]
    yield "\n" + table(("Name", "Meaning"), [describe(name, thing) for name, thing in named])
    for name, thing in named:
        rows = list(members(thing)) if inspect.isclass(thing) else []
        if rows:
            yield f"\n### {name}\n\n{about(thing)}\n"
            told = [(member, text) for member, text in rows if text]
            if told:
                yield "\n" + table(("Member", "Meaning"), told)
            head = "Also" if told else "Members"
            if plain := ", ".join(f"`{member}`" for member, text in rows if not text):
                yield f"\n{wrapped(f'{head}: {plain}.')}\n"
    if len(named) < len(things):
        faults = [(name, summary(thing.__doc__)) for name, thing in things.items() if thing in kinds]
        yield "\n### Kinds of faults\n\n[docs/faults.md](faults.md) has their parameters.\n\n"
        yield table(("Class", "Meaning"), faults)


def paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, on lines of 120 characters."""
    return wrapped(" ".join((thing.__doc__ or "").strip().partition("\n\n")[0].split()).replace("``", "`"))


def about(cls: type) -> str:
    bases = [base.__name__ for base in cls.__mro__[1:] if exported(base)]
    return wrapped(f"{paragraph(cls)} It has what `{bases[0]}` has, too." if bases else paragraph(cls))


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def describe(name: str, thing: Any) -> tuple[str, str]:
    """A public name and its summary; every one must have a docstring."""
    if name in NOTED:
        return name, NOTED[name]
    text = summary(thing.__doc__)
    if not text:
        raise SystemExit(f"{thing.__module__}.{name} is public and has no docstring")
    return (signature(name, thing, bound=False) if isinstance(thing, FunctionType) else name), text


NOTED = {
    "Field": "pydantic's `Field`: the default, the bounds and the description of a parameter",
    "IPAddress": "An address of either family: `IPv4Address` or `IPv6Address`",
    "KINDS": "The kinds of faults by the names that files and commands use",
    "ProfileName": "The type of a parameter that names a switch profile",
}
"""Values and types, which have no docstring of their own, and what is pydantic's."""


def page() -> str:
    stand_in_for_pyverbs()
    *first, last = (f"`{name}`" for name in MODULES)
    text = INTRODUCTION.format(modules=f"{', '.join(first)} and {last}")
    return text + "".join(part for module in modules() for part in section(module))


if __name__ == "__main__":
    from written import write

    write(PAGE, page())
