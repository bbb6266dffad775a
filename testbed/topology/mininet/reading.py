"""Finding the `Topo` in a file. It is the user's program, so this runs in its own process, never in the command's."""

import inspect
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from testbed.errors import InputError, did_you_mean
from testbed.topology.mininet import recording

MODULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("mininet", "mininet.clean", "mininet.cli", "mininet.link", "mininet.log", "mininet.net"), ()),
    **dict.fromkeys(("mininet.node", "mininet.nodelib", "mininet.term"), ()),
    "mininet.topo": ("Topo", "SingleSwitchTopo", "SingleSwitchReversedTopo", "MinimalTopo", "LinearTopo"),
    "mininet.topolib": ("Topo", "TreeTopo", "TorusTopo"),
    "mininet.util": ("irange", "natural"),
}
"""The stand-in's modules, and what they take from `recording`. All other names exist only for import."""


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "mininet.log":
            value: Any = lambda *_, **__: None  # noqa: E731
        else:
            value = type(name, (), {"__module__": self.__name__, "__init__": _refuse})
        setattr(self, name, value)
        return value


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    raise InputError(
        f"{type(self).__name__}(…) is called while the file is read, when no network exists",
        hint="Put the code that builds and runs the network below `if __name__ == '__main__':`.",
    )


def stand_in() -> dict[str, ModuleType]:
    modules: dict[str, ModuleType] = {name: _Module(name) for name in MODULES}
    for name, taken in MODULES.items():
        for thing in taken:
            setattr(modules[name], thing, getattr(recording, thing))
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, modules[name])
    modules["mininet"].__path__ = []
    return modules


@contextmanager
def _importable(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let the block import these modules by name. Modules imported meanwhile are forgotten after it."""
    before = sys.modules.copy()
    sys.modules.update(modules)
    try:
        yield
    finally:
        sys.modules.clear()
        sys.modules.update(before)


def read(file: Path, name: str) -> tuple[str, recording.Topo]:
    """Return the topology `name` of a file, with its name: an entry of its `topos` or a class, with arguments as in `mn
    --topo` (``ring,4,delay=5ms``). Without a name return the only one."""
    wanted, *arguments = name.split(",")
    with _importable(stand_in()):
        try:
            found = runpy.run_path(str(file), run_name=file.stem)
            chosen, make = _choose(found, wanted, file)
            positional = [_value(argument) for argument in arguments if "=" not in argument]
            pairs = (argument.partition("=") for argument in arguments if "=" in argument)
            topo = make(*positional, **{key: _value(text) for key, _, text in pairs})
        except InputError as error:
            raise InputError(error.message, where=error.where or _place(error, file), hint=error.hint) from error
        except (Exception, SystemExit) as error:
            raise _blame(error, file) from error
    if not isinstance(topo, recording.Topo):
        raise InputError(f"{chosen} creates {topo!r}, which is not a Topo", where=str(file))
    return chosen, topo


def _choose(found: dict[str, Any], wanted: str, file: Path) -> tuple[str, Any]:
    """Return the `topos` entry or class of this name; by default the only entry, or the only class without `topos`."""
    topos: dict[str, Any] = found.get("topos", {})
    classes = {
        name: thing
        for name, thing in found.items()
        if inspect.isclass(thing) and issubclass(thing, recording.Topo) and thing.__module__ == file.stem
    }
    known = {**classes, **topos}
    if wanted:
        if wanted not in known:
            hint = f"{did_you_mean(wanted, known)}It has: {', '.join(known) or 'none'}."
            raise InputError(f"the file has no topology {wanted}", where=str(file), hint=hint)
        return wanted, known[wanted]
    entries = list(topos or classes)
    if len(entries) != 1:
        hint = f"Name one of them: {', '.join(f'{file.name}:{name}' for name in entries)}." if entries else ""
        what = "more than one topology" if entries else "no `topos` and no subclass of Topo"
        raise InputError(f"the file has {what}", where=str(file), hint=hint)
    return entries[0], known[entries[0]]


def _value(text: str) -> int | float | str:
    for kind in int, float:
        with suppress(ValueError):
            return kind(text)
    return text


def _blame(error: BaseException, file: Path) -> InputError:
    if isinstance(error, SyntaxError):
        return InputError(f"not valid Python: {error.msg}", where=f"{file}:{error.lineno}:{error.offset}")
    hint = "The file is read by itself, with Python's own modules and Mininet's." * isinstance(error, ImportError)
    return InputError(f"{type(error).__name__}: {error}", where=_place(error, file), hint=hint)


def _place(error: BaseException, file: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)
