"""Points at which a run is stopped: a step, its first fault, the first expectation that fails, a time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto

from testbed.errors import InputError
from testbed.machine.moments import Moment
from testbed.protocol import events

FAULT, FAILURE = "fault", "first-failure"
SECONDS = re.compile(r"T=(\d+(?:\.\d+)?)s?")


class Act(Enum):
    """Action at a moment of a run."""

    PASS = auto()
    KEEP = auto()
    """Save the moment, and pass it: the run may have to come back."""
    HOLD = auto()
    KEEP_AND_HOLD = auto()
    GO_BACK = auto()
    """Go back to the saved moment, which is the last one before the stop."""


@dataclass(frozen=True)
class Stop:
    """`text` is as the user wrote it; `t` is a time in virtual nanoseconds. A run is `near` after it went back to the
    last moment before `t`. Only then does the machine learn `t`: a run that does not stop must not."""

    text: str
    t: int | None = None
    near: bool = False

    @classmethod
    def of(cls, text: str) -> Stop:
        """Parse the number or the beginning of a step's text, `fault`, `first-failure`, or `T=12.5s`."""
        if found := SECONDS.fullmatch(text):
            return cls(text, round(float(found[1]) * 1e9))
        if text.startswith("T="):
            raise InputError(f"{text!r} is not a time", hint="Such as T=12.5s, in virtual seconds.")
        if not text.strip():
            raise InputError("--stop-at must be a step, `fault`, `first-failure` or T=SECONDS")
        return cls(text)

    @property
    def far(self) -> bool:
        """Return True for a stop that a run may pass after its last moment."""
        return self.t is not None and not self.near

    def nearer(self) -> Stop:
        return replace(self, near=True)

    def at(self, moment: Moment, *, kept: bool) -> Act:
        """Choose the action at a moment. `kept` is whether there is one to go back to."""
        if self.t is None:
            return Act.KEEP_AND_HOLD if self._named(moment) else Act.PASS
        if self.near:
            return Act.HOLD if moment.t >= self.t else Act.PASS
        if moment.t <= self.t:
            return Act.KEEP
        return Act.GO_BACK if kept else Act.KEEP_AND_HOLD

    def _named(self, moment: Moment) -> bool:
        match moment.kind:
            case events.STEP.name:
                return self.text not in (FAULT, FAILURE) and names(self.text, moment)
            case events.FAULT_INJECTED.name:
                return self.text == FAULT
            case events.EXPECT.name:
                return self.text == FAILURE
        return self.text == str(moment.number)


def names(text: str, moment: Moment) -> bool:
    """Return True if the text names this moment: by its number, or by a part of its text."""
    return text == str(moment.number) if text.isdigit() else text.casefold() in moment.text.casefold()
