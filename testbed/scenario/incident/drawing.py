"""The drawing of an incident by its number: what goes wrong, where and when. The same number is the same incident."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, TypeVar, get_args

from testbed.protocol import IncidentArea, IncidentLevel
from testbed.scenario.incident.kinds import RETURNING, STEADY
from testbed.scenario.incident.traces import MISLEADING, TRIED
from testbed.scenario.incident.trouble import Trace, Trouble

D = TypeVar("D")
AREAS: Sequence[IncidentArea] = get_args(IncidentArea)
LEVELS: Sequence[IncidentLevel] = get_args(IncidentLevel)
MISLED, DOUBLE, RETURNS, TRIED_BEFORE = 2, 3, 4, 5
"""Levels: traces that mislead, two troubles, one that heals and comes back, a wrong fix that was tried."""


@dataclass(frozen=True)
class Incident:
    """`after` is the number of the job's steps after which something goes wrong. `traces` are there before."""

    number: int
    area: IncidentArea
    level: IncidentLevel
    after: int
    troubles: Sequence[Trouble]
    traces: Sequence[Trace]

    @property
    def scene(self) -> str:
        """Return the name of the cluster in which it happens."""
        return self.troubles[0].scene

    @property
    def returns(self) -> bool:
        return self.level == RETURNS

    @property
    def mend(self) -> list[str]:
        """Return the commands of the solution."""
        undone = [command for trace in self.traces for command in trace.undo]
        return [*undone, *(command for trouble in self.troubles for command in trouble.mend)]

    @property
    def wrong(self) -> list[list[str]]:
        """Return fixes that do not help, each as its commands: those often tried, and halves of the solution."""
        found = [[command] for trouble in self.troubles for command in trouble.wrong]
        halves = [list(trouble.mend) for trouble in self.troubles]
        halves += [list(trace.undo) for trace in self.traces if trace.undo]
        return found + (halves if len(halves) > 1 else [])


def cell(number: int) -> tuple[IncidentArea, IncidentLevel]:
    """Return the area and the level of a number: each pair once in a row of numbers that begins at a multiple of their
    number."""
    every: list[tuple[Any, Any]] = list(product(AREAS, LEVELS))
    block, place = divmod(number, len(every))
    Random(f"block {block}").shuffle(every)  # noqa: S311
    area, level = every[place]
    return area, level


def draw(number: int, area: IncidentArea | None = None, level: IncidentLevel | None = None) -> Incident:
    """Return the incident of a number; of an area and of a level, where they are given."""
    own_area, own_level = cell(number)
    area, level = area or own_area, level or own_level
    r = Random(f"incident {number} {area} {level}")  # noqa: S311
    kinds = (RETURNING if level == RETURNS else STEADY)[area]
    alone = level not in (DOUBLE, TRIED_BEFORE)
    first = drawn(r, kinds, lambda one: alone or not one.by_restart)
    troubles: list[Trouble] = [first]
    traces: list[Trace] = []
    if level == MISLED:
        traces = [make(r) for make in r.sample(MISLEADING[first.scene], 2)]
    if level == DOUBLE:
        second = drawn(r, kinds, lambda one: beside(one, first) and not one.by_restart)
        troubles.append(second)
    if level == TRIED_BEFORE:
        traces = [drawn(r, TRIED[first.scene], lambda one: not one.parts & first.parts)]
    return Incident(number, area, level, r.randrange(5, 9), troubles, traces)


def beside(one: Trouble, first: Trouble) -> bool:
    """Return whether a trouble is in the same cluster as the first one, and touches no part that it does."""
    return one.scene == first.scene and not one.parts & first.parts


def drawn(r: Random, kinds: Sequence[Callable[[Random], D]], fits: Callable[[D], bool]) -> D:
    """Draw one of a kind until it fits."""
    while True:
        found = r.choice(kinds)(r)
        if fits(found):
            return found
