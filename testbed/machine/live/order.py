"""The start of the keeper of a new lab, and the order that it gets."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.machine import child_processes
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection, EndedError
from testbed.machine.live.kept import discard
from testbed.machine.live.labs import Lab


@dataclass(frozen=True)
class Order:
    """Order for a keeper. `request` and `files` make the job of its machine."""

    lab: Lab
    request: Mapping[str, Any]
    files: Mapping[str, bytes]
    executable: list[str]
    accelerator: Any
    seed: int
    packages: list[str]
    images: list[str]
    idle_s: float | None
    attached: bool
    """True if the lab ends with the connection of the command that starts it."""
    run: dict[str, Any] | None = None
    """The fields of `stoppable.RunOrder`, for a run that can be stopped instead of a lab."""

    def text(self) -> str:
        found = {**self.__dict__, "lab": self.lab.__dict__}
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({**found, "files": files})

    @classmethod
    def of(cls, text: str) -> Order:
        found = json.loads(text)
        files = {name: base64.b64decode(data) for name, data in found["files"].items()}
        return cls(**{**found, "lab": Lab(**found["lab"]), "files": files})


def start(order: Order, listening: socket.socket | None = None) -> Connection:
    """Start a keeper, which takes over the metrics socket `listening`. Return a connection to it. The lab is not up
    yet: once it is, it lives on when the connection is closed, unless it is attached."""
    lab = order.lab
    with labs.claimed(lab) as lock:
        ready, theirs = os.pipe()
        orders, ours = os.pipe()
        handed = (orders, theirs, *((listening.fileno(),) if listening else ()))
        with (lab.directory / labs.LOG).open("wb") as log:
            keeper = subprocess.Popen(
                child_processes.ours(labs.KEEPER, *map(str, handed)),
                pass_fds=(*handed, lock),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        os.close(orders)
        os.close(theirs)
        if listening:
            listening.close()
        try:
            pipe = os.fdopen(ours, "w")
            with contextlib.suppress(BrokenPipeError):
                print(order.text(), file=pipe, flush=True)
            os.read(ready, 1)  # closed when it listens, or has ended
            return Connection(lab, pipe)
        except EndedError:
            file = lab.directory / labs.LOG
            wrote = file.read_text(errors="replace").strip() if file.exists() else ""
            if not wrote:  # another command ended it
                raise
            raise MachineError(f"the lab's keeper did not start:\n{wrote}") from None
        except BaseException:
            keeper.kill()
            keeper.wait()
            discard(Path(lab.out))
            raise
        finally:
            os.close(ready)
