"""What a sealed lab hides from those who work on it: an incident tells nobody what is wrong."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from testbed.kernel.impairments.cables import Cables, Port


class Seal:
    """Programs of users are on a node, and see nothing of this machine (`kernel/sealed_root.py`)."""

    def __init__(self, log: Path) -> None:
        """`log` is the file for the reasons of a kernel that refuses the programs on ports."""
        self.shown: list[Path] = []
        """Directories that those programs can read: those of jobs."""
        self._log = log

    @cached_property
    def cables(self) -> Cables:
        """Return what makes cables bad without a trace in a qdisc."""
        return Cables(self._keep)

    def _keep(self, reasons: str) -> None:
        self._log.write_text(reasons)

    def cover(self, ports: Iterable[Port]) -> None:
        """Make all ports look alike, whatever their cables do."""
        for port in ports:
            self.cables.attach(port)
