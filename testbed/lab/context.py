"""The few things that all parts of a lab share, so that none of them has to know the lab itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.errors import InputError
from testbed.lab.kernel_view import KernelView
from testbed.lab.scheduler import Scheduler
from testbed.lab.seal import Seal
from testbed.nic import RdmaDevices
from testbed.protocol import HOST_FILES
from testbed.protocol.events import Emit


@dataclass(frozen=True)
class Context:
    lab: str
    directory: Path
    """The run directory, for captures and outputs."""
    emit: Emit
    scheduler: Scheduler
    view: KernelView
    devices: RdmaDevices
    files: Path
    """The directory of the topology file, where containers find their files."""
    seal: Seal | None = None
    """What hides something from users, if the lab is sealed."""

    def file(self, name: str) -> Path:
        """Return a path in the run directory. InputError for a name that the run itself needs."""
        if name.partition("/")[0] in HOST_FILES:
            raise InputError(f"{name} is a file of the run itself", hint="Choose another name.")
        return self.directory / name
