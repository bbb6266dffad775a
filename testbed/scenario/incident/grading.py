"""The grade of an answer: what was named, whether the job is well again, and what it cost others."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime

from testbed.errors import InputError
from testbed.protocol import IncidentGrade
from testbed.scenario.incident.drawing import Incident

CAUSE, PLACE, SINCE, WELL, OTHERS, HINT = 25, 25, 10, 30, 10, 10
"""Points for each; a hint costs them."""
NEAR_S = 10.0
"""`since` is right so many seconds before and after it went wrong."""
SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")
CLOCK = "%H:%M:%S"


def share(named: Collection[str], wanted: Sequence[Collection[str]]) -> float:
    """Return how much of what is wanted was named, 0 to 1: one word of each. What was named beside that counts as
    wrong."""
    left, right = list(dict.fromkeys(named)), 0
    for words in wanted:
        found = next((word for word in left if word in words), None)
        if found is not None:
            left.remove(found)
            right += 1
    return right / max(len(wanted), right + len(left))


def seconds_since(text: str, now: datetime, now_s: float) -> float:
    """Return a time as seconds of the lab: `00:01:12` by the cluster's clock, which says `now`, or `12.5s` as events
    have it. InputError for anything else."""
    if found := SECONDS.fullmatch(text):
        return float(found[1])
    try:
        at = datetime.strptime(text, CLOCK).replace(year=now.year, month=now.month, day=now.day)
    except ValueError:
        hint = "Such as 00:01:12 by the cluster's clock, or 12.5s of the lab's time."
        raise InputError(f"{text!r} is not a time", hint=hint) from None
    return now_s - (now - at).total_seconds()


def grade(
    incident: Incident,
    *,
    causes: Collection[str],
    places: Collection[str],
    since_s: float | None,
    began_s: float,
    began: str,
    mitigated_s: float | None,
    answered_s: float,
    commands: Sequence[str],
    suffered: Sequence[str],
    hints: int,
) -> IncidentGrade:
    """Return the grade. Times are seconds: `since_s` and `began_s` of the lab (`began` is by the cluster's clock), the
    others since the ticket; `mitigated_s` is None if the job is not well."""
    cause = share(causes, [trouble.causes for trouble in incident.troubles])
    place = share(places, [trouble.places for trouble in incident.troubles])
    since = since_s is not None and abs(since_s - began_s) <= NEAR_S
    well = mitigated_s is not None
    points = CAUSE * cause + PLACE * place + SINCE * since + WELL * well + OTHERS * (well and not suffered)
    return {
        "number": incident.number,
        "area": incident.area,
        "level": incident.level,
        "cause": round(cause, 3),
        "place": round(place, 3),
        "since": since,
        "mitigated": well,
        "mitigated_s": mitigated_s if mitigated_s is None else round(mitigated_s, 3),
        "answered_s": round(answered_s, 3),
        "commands": list(commands),
        "suffered": list(suffered),
        "hints": hints,
        "points": max(0, round(points) - HINT * hints),
        "solution": {
            "causes": [trouble.causes[0] for trouble in incident.troubles],
            "places": [list(trouble.places) for trouble in incident.troubles],
            "since_s": round(began_s, 3),
            "since": began,
            "stories": [trouble.story for trouble in incident.troubles],
            "traces": [trace.text for trace in incident.traces],
            "mend": incident.mend,
            "wrong": [" && ".join(fix) for fix in incident.wrong],
        },
    }
