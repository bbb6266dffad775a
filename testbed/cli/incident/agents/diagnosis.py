"""A baseline that is `testbed diagnose` alone: what it names first is the answer, and nothing is mended."""

from testbed.cli.live.collecting import collected
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.protocol.live import IncidentAnswer
from testbed.report.diagnosis import diagnose


def answer(lab: LabCalls, ticket: str, seed: int) -> IncidentAnswer:
    with lab.connected() as connection, collected(connection) as place:
        found = [one.finding for one in diagnose(place) if not one.healthy]
    if not found:
        return IncidentAnswer()
    first = found[0]
    places = [first.link] if first.link else [f"rank {number}" for number in first.ranks[:1]]
    since = "" if first.since is None else f"{first.since / 1e9:.3f}s"
    return IncidentAnswer(causes=[first.cause], places=places, since=since)
