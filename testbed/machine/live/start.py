"""Starts the keeper of a new lab."""

from __future__ import annotations

import contextlib
import os
import subprocess

from testbed.errors import MachineError
from testbed.machine import processes
from testbed.machine.live import labs
from testbed.machine.live.client import Connection, EndedError
from testbed.machine.live.order import Order


def start(order: Order) -> Connection:
    """Starts a keeper, which lives on when this process ends; a connection to it. The lab is not up yet: ask for it
    with `wait_up`."""
    lab = order.lab
    with labs.claimed(lab) as lock:
        ready, theirs = os.pipe()
        orders, ours = os.pipe()
        with (lab.directory / labs.LOG).open("wb") as log:
            keeper = subprocess.Popen(
                processes.ours("testbed.machine.live.keeper", str(orders), str(theirs)),
                pass_fds=(orders, theirs, lock), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        os.close(orders)
        os.close(theirs)
        try:
            with contextlib.suppress(BrokenPipeError), os.fdopen(ours, "w") as pipe:
                pipe.write(order.text())
            os.read(ready, 1)  # closed when it listens, or has ended
            return Connection(lab)
        except EndedError:
            wrote = (lab.directory / labs.LOG).read_text(errors="replace").strip()
            raise MachineError(f"the lab's keeper did not start:\n{wrote}") from None
        except BaseException:
            keeper.kill()
            keeper.wait()
            raise
        finally:
            os.close(ready)
