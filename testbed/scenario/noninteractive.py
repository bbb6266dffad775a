"""The end of user code that asks for input: no keyboard is connected to a machine, and nobody would answer.

`refuse_input` is called once by a process that is about to run user code. From then on `breakpoint()`, `input()` and
all readers of standard input, pdb and Mininet's CLI among them, raise an InputError that names the line of the user's
file. Programs that such a process starts find standard input at its end.
"""

import builtins
import io
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from testbed.errors import InputError


def refuse_input(files: Path) -> None:
    """Refuse input from here on. `files` is the directory of the user's files."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise _refusal(files)

    sys.stdin = _Keyboard(refuse)
    sys.breakpointhook = refuse
    builtins.input = refuse


class _Keyboard(io.TextIOBase):
    """The `sys.stdin` of such a process. Reading it, and waiting until it can be read, is refused."""

    def __init__(self, refuse: Callable[..., NoReturn]) -> None:
        for name in "fileno", "read", "readline":  # all others call these
            setattr(self, name, refuse)


def _refusal(files: Path) -> InputError:
    """Return the error, at the innermost line of the user's files that is being executed."""
    frame = sys._getframe(2)
    while frame.f_back and not Path(frame.f_code.co_filename).is_relative_to(files):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(files):
        return InputError("the code asks for input, but a machine has no keyboard")
    line = linecache.getline(str(path), frame.f_lineno).strip()
    return InputError(
        f"`{line}` asks for input, but a machine has no keyboard",
        where=f"{path.relative_to(files)}:{frame.f_lineno}",
        hint="Remove it. The run's files keep the output of print() and the events.",
    )
