"""A baseline that guesses: a cause of `testbed diagnose`, and a node or an interface of the lab."""

from random import Random

from testbed.cli.mcp.lab_calls import LabCalls
from testbed.protocol import live
from testbed.protocol.live import IncidentAnswer

CAUSES = (
    "corruption", "duplicate-ip", "host-down", "link-down", "lossless-drop", "lossy-link", "mtu-mismatch", "nic-down",
    "no-route", "pause-storm", "rank-hangs", "silent-drop", "slow-link", "stale-neighbour", "unresolved",
)  # fmt: skip


def answer(lab: LabCalls, ticket: str, seed: int) -> IncidentAnswer:
    draw = Random(seed)  # noqa: S311
    nodes = lab.ask(live.Inspect())["nodes"]
    places = [node["name"] for node in nodes] + [end["interface"] for node in nodes for end in node["interfaces"]]
    return IncidentAnswer(causes=[draw.choice(CAUSES)], places=[draw.choice(places)])
