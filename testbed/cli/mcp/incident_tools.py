"""Tools for a lab with an incident. Their docstrings are what the model reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from testbed.cli.live.incident_runs import answered
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.protocol import live


class Told(TypedDict):
    text: str


class Solved(TypedDict):
    """`cause` and `place` are the parts that were right, 0 to 1; `mitigated` is whether the job is well again,
    `suffered` the traffic of others that was hurt."""

    points: int
    cause: float
    place: float
    since: bool
    mitigated: bool
    suffered: list[str]
    stories: list[str]
    """What it was."""
    mend: list[str]
    """Commands that mend it."""


def ticket(lab: LabCalls) -> Told:
    """Read the ticket of an incident: what the users of a lab see, in which something is wrong that nobody tells. Find
    out what, or mend it, then call `answer`."""
    return {"text": lab.ask(live.IncidentTicket())}


def hint(lab: LabCalls) -> Told:
    """Get the next of three hints of an incident. Each costs ten points of a hundred."""
    return {"text": lab.ask(live.IncidentHint())}


Causes = Annotated[list[str], Field(description='What is wrong, a word for each: "link-down". Empty: mended only.')]
Places = Annotated[list[str], Field(description='Where: a node, "leaf1:e1", "leaf1:u1 - spine1:d1", "rank 3".')]
Since = Annotated[str, Field(description='"00:01:12" by the cluster\'s clock, or "12.5s" of the lab. Empty: unknown.')]


def answer(
    lab: LabCalls,
    causes: Causes = [],  # noqa: B006 - pydantic copies it
    places: Places = [],  # noqa: B006
    since: Since = "",
) -> Solved:
    """Answer an incident, once: the job is watched until it is well, the grade comes back, and the lab ends. Points are
    for the cause, the place, the time, and for a job that is well again while nothing else suffers."""
    with lab.connected() as connection:
        grade, _ = answered(connection, live.IncidentAnswer(causes=causes, places=places, since=since))
    return {
        "points": grade["points"],
        "cause": grade["cause"],
        "place": grade["place"],
        "since": grade["since"],
        "mitigated": grade["mitigated"],
        "suffered": grade["suffered"],
        "stories": grade["solution"]["stories"],
        "mend": grade["solution"]["mend"],
    }
