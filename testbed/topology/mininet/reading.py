"""Finding the network in a file: a `Topo`, or what a script makes. It is the user's program, so this runs in a process
of its own, never in the command's."""

import contextlib
import inspect
import runpy
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from testbed.errors import InputError, did_you_mean
from testbed.topology.mininet import network, recording
from testbed.topology.mininet.network import Mininet, Over

MODULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("mininet", "mininet.log", "mininet.moduledeps", "mininet.term"), ()),
    "mininet.topo": ("Topo", "SingleSwitchTopo", "SingleSwitchReversedTopo", "MinimalTopo", "LinearTopo"),
    "mininet.topolib": ("Topo", "TreeTopo", "TorusTopo"),
    "mininet.util": ("irange", "natural"),
}
"""The stand-in's modules, and what they take from `recording`. Other names than these and those of `network` exist only
for import."""


class _Ignored:
    """What may be called, and has what names there may be."""

    def __call__(self, *_: Any, **__: Any) -> str:
        return ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ in ("mininet.log", "mininet.util", "mininet.term"):
            value: Any = _Ignored()
        else:
            value = type(name, (), {"__module__": self.__name__, "__init__": _refuse})
        setattr(self, name, value)
        return value


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    raise InputError(f"{type(self).__name__}(…) has no counterpart in a lab")


def stand_in() -> dict[str, ModuleType]:
    modules: dict[str, ModuleType] = {name: _Module(name) for name in (*MODULES, *network.MODULES)}
    for name, module in modules.items():
        for thing in MODULES.get(name, ()):
            setattr(module, thing, getattr(recording, thing))
        for thing in network.MODULES.get(name, ()):
            setattr(module, thing, getattr(network, thing))
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    modules["mininet"].__path__ = []
    return modules


@contextmanager
def _importable(modules: dict[str, ModuleType], directory: Path) -> Iterator[None]:
    """Let the block import these modules by name, and those beside the file. Modules imported meanwhile are forgotten
    after it. Time does not pass."""
    before, path, sleep = sys.modules.copy(), sys.path.copy(), time.sleep
    sys.modules.update(modules)
    sys.path.insert(0, str(directory))
    time.sleep = lambda _: None
    try:
        yield
    finally:
        time.sleep = sleep
        sys.path[:] = path
        sys.modules.clear()
        sys.modules.update(before)


def read(file: Path, name: str) -> tuple[str, Mininet]:
    """Return the network `name` of a file, with its name: an entry of its `topos` or a class, with arguments as in `mn
    --topo` (``ring,4,delay=5ms``). Without a name return the only one, else the network that the script makes."""
    wanted, *arguments = name.split(",")
    with _importable(stand_in(), file.parent):
        Mininet.made = []
        try:
            found = _run(file, file.stem)
            if Mininet.made:  # it makes its network when it is imported, too
                Mininet.made[0].build()
                return file.stem, Mininet.made[0]
            entries = _entries(found, file)
            if not wanted and len(entries[0]) != 1:
                return _of_script(file, entries[0])
            chosen, make = _choose(entries, wanted, file)
            positional = [_value(argument) for argument in arguments if "=" not in argument]
            pairs = (argument.partition("=") for argument in arguments if "=" in argument)
            options = {key: _value(text) for key, _, text in pairs}
            if not wanted and (lacking := _lacking(make)):
                return _of_script(file, entries[0], lacking)
            topo = make(*positional, **options)
        except InputError as error:
            raise InputError(error.message, where=error.where or _place(error, file), hint=error.hint) from error
        except (Exception, SystemExit) as error:
            raise _blame(error, file) from error
        if not isinstance(topo, recording.Topo):
            raise InputError(f"{chosen} creates {topo!r}, which is not a Topo", where=str(file))
        return chosen, Mininet(topo)


def _run(file: Path, name: str) -> dict[str, Any]:
    """Run a file up to the end of its network, and return its variables as far as there are any."""
    argv = sys.argv
    sys.argv = [str(file)]
    try:
        return runpy.run_path(str(file), run_name=name)
    except Over:
        return {}
    except Exception as error:
        if not any(made.started for made in Mininet.made):
            raise
        line = _place(error, file).rpartition(":")[2]
        Mininet.made[0].notes.append(f"The script was followed up to line {line}: {error!r:.100}")
        return {}
    finally:
        sys.argv = argv


def _of_script(file: Path, known: list[str], lacking: str = "") -> tuple[str, Mininet]:
    """Return the network that a script makes when it is run, which it is up to its prompt or the end of its network."""
    with contextlib.suppress(SystemExit):
        _run(file, "__main__")
    if Mininet.made:
        Mininet.made[0].build()
    else:
        hint = f"Name one of them: {', '.join(f'{file.name}:{name}' for name in known)}." if known else ""
        what = "more than one topology" if known else "no `topos`, no subclass of Topo, and makes no network"
        if lacking:
            what = f"a topology {known[0]} that needs arguments ({lacking}), and makes no network"
            hint = f"Give them: {file.name}:{known[0]},{lacking.replace(' ', '')}"
        raise InputError(f"the file has {what}", where=str(file), hint=hint)
    return file.stem, Mininet.made[0]


def _entries(found: dict[str, Any], file: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the names that compete, the entries of `topos` or the classes without `topos`, and all by name."""
    topos: dict[str, Any] = found.get("topos", {})
    classes = {
        name: thing
        for name, thing in found.items()
        if inspect.isclass(thing) and issubclass(thing, recording.Topo) and thing.__module__ == file.stem
    }
    return list(topos or classes), {**classes, **topos}


def _choose(entries: tuple[list[str], dict[str, Any]], wanted: str, file: Path) -> tuple[str, Any]:
    names, known = entries
    if not wanted:
        return names[0], known[names[0]]
    if wanted not in known:
        hint = f"{did_you_mean(wanted, known)}It has: {', '.join(known) or 'none'}."
        raise InputError(f"the file has no topology {wanted}", where=str(file), hint=hint)
    return wanted, known[wanted]


def _lacking(make: Any) -> str:
    """Return the arguments that a topology needs, such as ``n, delay``."""
    function = getattr(make, "build", make) if inspect.isclass(make) and "__init__" not in vars(make) else make
    with suppress(TypeError, ValueError):
        parameters = list(inspect.signature(function).parameters.values())
        needed = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        return ", ".join(name for name in needed if name != "self")
    return ""


def _value(text: str) -> int | float | str:
    for kind in int, float:
        with suppress(ValueError):
            return kind(text)
    return text


def _blame(error: BaseException, file: Path) -> InputError:
    if isinstance(error, SyntaxError):
        hint = "It is written for Python 2." * error.msg.startswith("Missing parentheses in call to 'print'")
        return InputError(f"not valid Python: {error.msg}", where=f"{file}:{error.lineno}:{error.offset}", hint=hint)
    if isinstance(error, SystemExit):
        hint = "The script has ended before it made a network: it may need arguments."
        return InputError(f"SystemExit: {error}", where=_place(error, file), hint=hint)
    hint = "The file is read with Python's own modules, Mininet's, and those beside it." * isinstance(
        error, ImportError
    )
    return InputError(f"{type(error).__name__}: {error}", where=_place(error, file), hint=hint)


def _place(error: BaseException, file: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)
