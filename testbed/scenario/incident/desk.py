"""What an open incident tells those who work on it, and the answer that they give."""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.protocol.live import IncidentAnswer


@dataclass
class Desk:
    """The ticket and the hints of an incident, and the answer to it."""

    ticket: str
    hints: Sequence[str]
    told: int = 0
    """The number of hints that were given."""
    answer: IncidentAnswer | None = None
    answered_ns: int = 0
    """When, on CLOCK_MONOTONIC."""

    def hint(self) -> str:
        """Return the next hint. InputError if there is none left."""
        if self.told == len(self.hints):
            raise InputError(f"there are {len(self.hints)} hints, and all were given")
        self.told += 1
        return self.hints[self.told - 1]


_open: list[Desk] = []
"""That of this machine's lab, if it has an incident."""


def open_desk(desk: Desk) -> None:
    _open.append(desk)


def desk() -> Desk:
    """Return that of the lab. InputError if it has no incident."""
    if not _open:
        raise InputError("this lab has no incident", hint="`testbed incident new` starts a lab that has one.")
    return _open[-1]
