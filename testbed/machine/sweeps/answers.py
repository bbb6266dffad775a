"""The answers of processes on the workers of a cluster: JSON and files. A client believes a worker no code."""

import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.errors import MachineError, TestbedError
from testbed.machine.record import Identity, RunResult, check_names
from testbed.protocol import Failure, messages, requests

LENGTH = 8
"""Length of the header before a JSON and before an answer, in bytes. It has their length."""
MOST_FILES, MOST_BYTES = 20_000, 2 << 30
"""Bounds of what a worker leaves of one run: a guest has 900 MB for it."""


def write(kind: str, content: Any = None, files: bytes = b"") -> bytes:
    """Return an answer: a kind, its content (an Identity, a RunResult, or JSON), and packed files."""
    shown = content.json() if isinstance(content, RunResult) else content
    shown = asdict(content) if isinstance(content, Identity) else shown
    text = json.dumps([kind, shown]).encode()
    return len(text).to_bytes(LENGTH, "big") + text + files


def read(answer: Any, address: str) -> tuple[str, Any, bytes]:
    """Return what `write` got. Raise its error; MachineError if it is no answer."""
    try:
        length = int.from_bytes(answer[:LENGTH], "big")
        kind, content = json.loads(answer[LENGTH : LENGTH + length])
        found = _typed(kind, content, address)
        files = answer[LENGTH + length :]
    except (TypeError, ValueError, LookupError, RecursionError) as wrong:
        text = str(wrong).splitlines()[0] if str(wrong) else type(wrong).__name__
        raise MachineError(f"the worker's answer is damaged: {text}", where=address) from None
    if isinstance(found, TestbedError):
        raise found
    return kind, found, files


def _typed(kind: Any, content: Any, address: str) -> Identity | RunResult | TestbedError | str | None:
    match kind:
        case "failed":
            error = messages.error_of(messages.checked(Failure, content, "failure"), str)
            error.where = error.where or address
            return error
        case "identity":
            identity: Identity = requests.adapter(Identity).validate_python(content)
            return identity
        case "printed":
            printed: str = messages.checked(str, content, "output")
            return printed
        case "ended":
            result: RunResult = requests.adapter(RunResult).validate_json(json.dumps(content))
            check_names(result, address)
            return result
        case "lacks":
            return None
    raise ValueError(f"its kind is {str(kind)[:40]!r}")


def packed(directory: Path) -> bytes:
    """Pack the files of a directory."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and not path.is_symlink():
                archive.write(path, path.relative_to(directory))
    return data.getvalue()


def unpack(files: bytes, directory: Path, address: str) -> None:
    """Unpack what `packed` packed; MachineError for anything else. zipfile keeps all names inside the directory."""
    try:
        with zipfile.ZipFile(io.BytesIO(files)) as archive:
            found = archive.infolist()
            if len(found) > MOST_FILES or sum(one.file_size for one in found) > MOST_BYTES:
                raise MachineError("the worker left more files of a run than a run has", where=address)
            archive.extractall(directory)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        raise MachineError(f"the worker's files of a run are damaged: {error}", where=address) from None
