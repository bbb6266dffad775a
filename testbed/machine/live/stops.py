"""Where a run is to be stopped: at a step, at its first fault, at the first expectation that fails, at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.machine.moments import Moment

FAULT, FAILURE = "fault", "first-failure"
SECONDS = re.compile(r"T=(\d+(?:\.\d+)?)s?")


@dataclass(frozen=True)
class Stop:
    """`text` is as the user wrote it; `t` is a time in virtual nanoseconds."""

    text: str
    t: int | None = None

    @classmethod
    def of(cls, text: str) -> Stop:
        """A number or the beginning of a step's text, `fault`, `first-failure`, `T=12.5s`."""
        if found := SECONDS.fullmatch(text):
            return cls(text, round(float(found[1]) * 1e9))
        if text.startswith("T="):
            raise InputError(f"{text!r} is no time", hint="Such as T=12.5s, in virtual seconds.")
        if not text.strip():
            raise InputError("a stop is a step, `fault`, `first-failure` or T=SECONDS")
        return cls(text)

    def here(self, moment: Moment) -> bool:
        match moment.kind:
            case "time":
                return self.t is not None
            case "step":
                return self.text not in (FAULT, FAILURE) and names(self.text, moment)
            case "fault.injected":
                return self.text == FAULT
            case "expect":
                return self.text == FAILURE
        return self.text == str(moment.number)


def names(text: str, moment: Moment) -> bool:
    """Whether the user means this moment: by its number, or by a part of its text."""
    return text == str(moment.number) if text.isdigit() else text.casefold() in moment.text.casefold()
