"""JSON in the files of a run directory, which may be damaged, or made by anybody."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from testbed.errors import InputError
from testbed.protocol import MESSAGE_DEPTH, PlanRows
from testbed.protocol.messages import depth, first_problem
from testbed.protocol.requests import adapter
from testbed.records.regular_files import contents, contents_if_any


def parsed(data: bytes | str) -> Any:
    """Parse a text. ValueError for what is no JSON of ours: NaN, integers of more than 64 bits, deep nesting."""
    try:
        found = json.loads(data, parse_constant=_refuse, parse_int=_integer)
        if depth(found) > MESSAGE_DEPTH:
            raise ValueError(f"it is nested in more than {MESSAGE_DEPTH} levels")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def read(file: Path) -> dict[str, Any]:
    """Return the object that a file has. InputError, with the file, if it cannot be read or is damaged."""
    try:
        found = parsed(contents(file))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except ValueError as error:
        raise InputError(f"is damaged: {error}", where=str(file)) from None
    if not isinstance(found, dict):
        raise InputError("is damaged: it is not an object", where=str(file))
    return found


def plan(file: Path) -> PlanRows:
    """Read topology.json. InputError if it cannot be read or is damaged."""
    from pydantic import ValidationError  # takes a while

    try:
        found: PlanRows = adapter(PlanRows).validate_python(read(file))
    except ValidationError as error:
        raise InputError(f"is damaged: {first_problem(error)}", where=str(file)) from None
    return found


def lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each line that is not empty, None for a damaged one; nothing if there is no such file.
    InputError if it cannot be read."""
    for number, line in enumerate((contents_if_any(file) or b"").split(b"\n"), 1):
        if line.strip():
            try:
                yield number, parsed(line)
            except ValueError:
                yield number, None


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"{digits[:20]}… is no integer of 64 bits")
    return int(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")
