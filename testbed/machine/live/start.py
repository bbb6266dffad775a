"""The start of the keeper of a new lab."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

from testbed.errors import MachineError
from testbed.machine import child_processes
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection, EndedError
from testbed.machine.live.kept import discard
from testbed.machine.live.order import Order


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
                child_processes.ours("testbed.machine.live.keeper", *map(str, handed)),
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
            wrote = (lab.directory / labs.LOG).read_text(errors="replace").strip()
            raise MachineError(f"the lab's keeper did not start:\n{wrote}") from None
        except BaseException:
            keeper.kill()
            keeper.wait()
            discard(Path(lab.out))
            raise
        finally:
            os.close(ready)
