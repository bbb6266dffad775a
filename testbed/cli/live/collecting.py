"""The files of a run while its lab lives, brought here for a diagnosis."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.machine import child_processes
from testbed.machine.live.connection import Connection
from testbed.machine.memory_files import inner
from testbed.protocol import TOPOLOGY, live

MOST_BYTES = 256 << 20


@contextlib.contextmanager
def collected(connection: Connection) -> Iterator[Path]:
    """Yield a directory with the files of the run as they would be if it ended now. MachineError for what is damaged:
    the guest runs the user's code."""
    with child_processes.scratch() as directory:
        left = MOST_BYTES

        def receive(report: dict[str, Any]) -> None:
            nonlocal left
            match report:
                case {"file": str(name), "out": str(text)}:
                    data = base64.b64decode(text)
                    left -= len(data)
                    if left < 0:
                        raise MachineError(f"the lab's files have more than {MOST_BYTES >> 20} MiB")
                    path = directory / inner(name.encode(errors="surrogateescape"))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("ab") as file:
                        file.write(data)

        try:
            (directory / TOPOLOGY).write_text(json.dumps(connection.answer(live.Rows())))
            connection.answer(live.RunFiles(), receive)
        except (ValueError, OSError) as error:
            raise MachineError(f"the lab's files are damaged: {error}") from error
        yield directory
