"""Requests to a lab with an incident: its ticket, a hint, the answer."""

import time

from testbed.errors import InputError
from testbed.executor.live.server import Call
from testbed.protocol import live
from testbed.scenario.incident.desk import desk


def ticket(_: live.IncidentTicket, __: Call) -> str:
    return desk().ticket


def hint(_: live.IncidentHint, __: Call) -> str:
    return desk().hint()


def answer(request: live.IncidentAnswer, _: Call) -> None:
    found = desk()
    if found.answer is not None:
        raise InputError("this incident has its answer")
    found.answer, found.answered_ns = request, time.monotonic_ns()
