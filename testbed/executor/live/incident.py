"""Requests to a lab with an incident: its ticket, a hint, the answer."""

import time
from datetime import datetime

from testbed.errors import InputError
from testbed.executor.live.server import Call
from testbed.protocol import live
from testbed.scenario.incident import grading
from testbed.scenario.incident.desk import desk


def ticket(_: live.IncidentTicket, __: Call) -> str:
    return desk().ticket


def hint(_: live.IncidentHint, __: Call) -> str:
    return desk().hint()


def answer(request: live.IncidentAnswer, _: Call) -> None:
    found = desk()
    if request.since:
        grading.seconds_since(request.since, datetime.now(), 0.0)
    if found.answer is not None:
        raise InputError("this incident has its answer")
    found.answer, found.answered_ns = request, time.monotonic_ns()
