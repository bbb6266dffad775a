"""The state of a running lab, or of a run that can be stopped: one value, whose transitions are one table."""

from collections.abc import Mapping
from enum import Enum, auto

from testbed.errors import InputError, TestbedError


class State(Enum):
    STARTING = auto()
    """The machine starts; a lab is built, a run goes on to its first stop."""
    UP = auto()
    """A lab serves requests."""
    STOPPED = auto()
    """A run is stopped at a moment, and serves requests."""
    RUNNING = auto()
    """A run that was stopped goes on."""
    ENDING = auto()
    """The machine was asked to take the lab down."""
    OVER = auto()
    """The job has ended, or its run was aborted: the run directory stays."""
    DISCARDED = auto()
    """The lab was aborted before it was up: nothing stays."""
    DEAD = auto()
    """The machine failed: the lab's record stays, with the reason."""


class Input(Enum):
    START = auto()
    """A command waits for the lab to be up, or for the run to stop."""
    CONTINUE = auto()
    """A command lets the run go on."""
    REQUEST = auto()
    """Somebody has a request for the machine."""
    DOWN = auto()
    """A command, a signal or the idle time ends the lab."""
    ORPHANED = auto()
    """The command that started the lab has ended."""
    BUILT = auto()
    """The machine reports that the lab is up."""
    HELD = auto()
    """The machine is paused where the run is to be stopped."""
    FINISHED = auto()
    """The machine has done its job."""
    FAILED = auto()
    """The machine, or what follows its job, has failed."""


STARTING, UP, STOPPED, RUNNING, ENDING, OVER, DISCARDED, DEAD = State
STAY = None
BUILDS, RUNS = "is still starting", "is running, and accepts requests only while it is stopped"
GOES, NO_RUN = "is not stopped", "is no run that goes on"
ENDS, ENDED, DIED = "is being taken down", "has ended", "is dead"

TRANSITIONS: Mapping[Input, tuple[State | str | None, ...]] = {
    #                STARTING   UP      STOPPED  RUNNING  ENDING  OVER   DISCARDED  DEAD
    Input.START:    (STAY,      STAY,   STAY,    STAY,    ENDS,   STAY,  ENDED,     DIED),
    Input.CONTINUE: (GOES,      GOES,   RUNNING, GOES,    ENDS,   ENDED, ENDED,     DIED),
    Input.REQUEST:  (BUILDS,    STAY,   STAY,    RUNS,    ENDS,   ENDED, ENDED,     DIED),
    Input.DOWN:     (DISCARDED, ENDING, ENDING,  OVER,    STAY,   STAY,  STAY,      STAY),
    Input.ORPHANED: (DISCARDED, STAY,   STAY,    STAY,    STAY,   STAY,  STAY,      STAY),
    Input.BUILT:    (UP,        STAY,   NO_RUN,  NO_RUN,  STAY,   ENDED, ENDED,     DIED),
    Input.HELD:     (STOPPED,   NO_RUN, NO_RUN,  STOPPED, NO_RUN, ENDED, ENDED,     DIED),
    Input.FINISHED: (OVER,      OVER,   OVER,    OVER,    OVER,   STAY,  ENDED,     DIED),
    Input.FAILED:   (DISCARDED, DEAD,   DEAD,    DEAD,    DEAD,   STAY,  STAY,      STAY),
}  # fmt: skip
"""The outcome of each input in each state: the next state, STAY, or the reason why it is refused."""


class Lifecycle:
    def __init__(self, name: str) -> None:
        self._name = name
        self.state = STARTING

    def apply(self, given: Input) -> State | None:
        """Apply an input. Return the new state, or None if it stays the same. Raise the refusal."""
        found = TRANSITIONS[given][[*State].index(self.state)]
        if isinstance(found, State):
            self.state = found
            return found
        if found == GOES:
            raise InputError(f"{self._name} {GOES}", hint="`testbed continue` is for a stopped run.")
        if found:
            raise TestbedError(f"lab {self._name} {found}")
        return None
