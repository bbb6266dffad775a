"""The table of a benchmark: what each agent reached, by area and level, with intervals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

from testbed.cli.incident.playing import Round
from testbed.protocol import IncidentGrade

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
ALL = "all"


class Part(NamedTuple):
    """A part of rounds, 0 to 1, with its interval."""

    of_all: float
    low: float
    high: float


class Row(NamedTuple):
    """What an agent reached in rounds. `points` is a mean with half the width of its interval."""

    agent: str
    group: str
    rounds: int
    mended: Part
    named: Part
    """Rounds in which it named every cause and every place."""
    points: float
    points_within: float


def wilson(hits: int, of: int) -> Part:
    """Return a share with its score interval (E. B. Wilson, 1927), which holds for few rounds, too."""
    share = hits / of
    middle = (share + Z * Z / (2 * of)) / (1 + Z * Z / of)
    half = Z / (1 + Z * Z / of) * sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    return Part(share, max(0.0, middle - half), min(1.0, middle + half))


def rows(rounds: Iterable[Round]) -> list[Row]:
    """Return a row for each agent: of each area, of each level, of all. Rounds that went wrong are left out."""
    found: defaultdict[tuple[str, str], list[IncidentGrade]] = defaultdict(list)
    for one in rounds:
        if grade := one["grade"]:
            for group in (grade["area"], f"level {grade['level']}", ALL):
                found[one["agent"], group].append(grade)
    return [row(*key, found[key]) for key in sorted(found, key=lambda key: (key[0], key[1] == ALL, key[1]))]


def row(agent: str, group: str, grades: Sequence[IncidentGrade]) -> Row:
    points = [grade["points"] for grade in grades]
    return Row(
        agent,
        group,
        len(grades),
        wilson(sum(grade["mitigated"] for grade in grades), len(grades)),
        wilson(sum(grade["cause"] == grade["place"] == 1 for grade in grades), len(grades)),
        fmean(points),
        Z * stdev(points) / sqrt(len(points)) if len(points) > 1 else 0.0,
    )


def markdown(found: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    head = ["| Agent | Incidents | Rounds | Mended | Cause and place named | Points |", "|---|---|---|---|---|---|"]
    lines = [
        f"| {one.agent} | {one.group} | {one.rounds} | {percent(one.mended)} | {percent(one.named)} | "
        f"{one.points:.0f} ± {one.points_within:.0f} |"
        for one in found
    ]
    return "\n".join([*head, *lines])


def percent(part: Part) -> str:
    return f"{part.of_all:.0%} ({part.low:.0%} to {part.high:.0%})"
