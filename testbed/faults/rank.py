"""Ranks of training jobs that end before their program does."""

from contextlib import ExitStack
from typing import Annotated, ClassVar

from pydantic import Field, PrivateAttr

from testbed.errors import InputError
from testbed.faults.fault import Fault, Verified
from testbed.lab import Lab, processes


class RankKilled(Fault):
    """A rank of a training job is killed, as the kernel does with a program when its host's memory is full.

    The launcher finds out, and ends the job. The recovery brings nothing back: that is a restart of the job.
    """

    name: ClassVar[str] = "rank-killed"
    holds: ClassVar[bool] = False
    rank: Annotated[int, Field(ge=0)]
    """The number of the rank: RANK in its environment."""
    host: str = ""
    """The host or pod of the rank, if several jobs have one of this number."""
    _killed: list[int] = PrivateAttr(default_factory=list)

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nodes = [lab.host(self.host)] if self.host else lab.nodes.values()
        undo.callback(self._killed.clear)
        self._killed.extend(processes.kill_marked("RANK", str(self.rank), [node.namespace for node in nodes]))
        if not self._killed:
            where = f" on {self.host}" if self.host else ""
            raise InputError(f"fault {self}: no rank {self.rank} runs{where}")

    def verify(self, lab: Lab) -> Verified | None:
        return {"ended": len(self._killed)} if self._killed else None
