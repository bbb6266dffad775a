"""The drawing of an incident by its number: what goes wrong, and when. The same number is the same incident."""

from dataclasses import dataclass
from random import Random

from testbed.errors import InputError
from testbed.protocol import IncidentArea
from testbed.scenario.incident.kinds import KINDS, Trouble


@dataclass(frozen=True)
class Incident:
    """`after` is the number of the job's steps after which something goes wrong."""

    number: int
    area: IncidentArea
    after: int
    trouble: Trouble


def draw(number: int, area: IncidentArea | None = None) -> Incident:
    """Return the incident of a number; of those of an area, where that is given."""
    random = Random(f"incident {number} {area or ''}")  # noqa: S311
    chosen: IncidentArea = random.choice(list(KINDS)) if area is None else area
    if chosen not in KINDS:
        raise InputError(f"there is no area {chosen}", hint=f"Areas: {', '.join(KINDS)}.")
    first = random.choice(KINDS[chosen])(random)
    return Incident(number, chosen, random.randrange(4, 12), first)
