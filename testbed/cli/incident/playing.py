"""A round of the benchmark: one incident, and an agent that works on it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from testbed.cli.incident.agents import BASELINES, Agent
from testbed.cli.live import incident_runs
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.errors import InputError, TestbedError
from testbed.machine.live import labs
from testbed.protocol import IncidentArea, IncidentGrade, IncidentLevel, live
from testbed.protocol.live import IncidentAnswer

LAST_WORDS = 500


class Answer(BaseModel):
    """An agent's answer. What it leaves out it does not know."""

    model_config = ConfigDict(extra="forbid")

    causes: list[str] = []
    places: list[str] = []
    since: str = ""


class Round(TypedDict):
    """A row of the benchmark's result file. `error` says why an agent's answer counts as none; without a grade the
    round itself went wrong."""

    agent: str
    number: int
    area: IncidentArea | None
    """What was asked for; None: as the number draws it. `level` as well."""
    level: IncidentLevel | None
    grade: IncidentGrade | None
    error: str
    wall_s: float
    """Seconds that the agent worked."""


@dataclass(frozen=True)
class Command:
    """An agent of the user's: a line for the shell. Its standard input is the ticket, and the last line of its output
    the answer, as JSON. It has `limit_s` wall seconds."""

    line: str
    limit_s: float

    def __call__(self, lab: LabCalls, ticket: str, seed: int) -> IncidentAnswer:
        environment = {**os.environ, "TESTBED_LAB": lab.lab.name, "TESTBED_SEED": str(seed)}
        pipe = subprocess.PIPE
        with Started(
            ["sh", "-c", self.line], env=environment, stdin=pipe, stdout=pipe, start_new_session=True
        ) as agent:
            try:
                said, _ = agent.communicate(ticket.encode(), timeout=self.limit_s)
            except subprocess.TimeoutExpired:
                raise TestbedError(f"the agent was ended after {self.limit_s:g} s") from None
        if agent.returncode:
            raise TestbedError(f"the agent ended with status {agent.returncode}")
        lines = said.decode(errors="replace").strip().splitlines()
        return read_answer(lines[-1] if lines else "")


class Started(subprocess.Popen[bytes]):
    """A process that is killed with all it started at the end of the block."""

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        super().__exit__(*error)


def read_answer(line: str) -> IncidentAnswer:
    """Return the answer in an agent's last line. InputError for what is none."""
    try:
        return IncidentAnswer(**Answer.model_validate_json(line).model_dump())
    except ValueError:
        hint = '{"causes": ["link-down"], "places": ["leaf1:e1"], "since": "00:01:12"}; {} if it has mended it.'
        raise InputError(f"the agent's last line is no answer: {line[:LAST_WORDS]!r}", hint=f"Such as {hint}") from None


def agent_of(text: str, limit_s: float) -> Agent:
    """Return a baseline by its name, or a command of the user's. InputError for no command."""
    if text in BASELINES:
        return BASELINES[text]
    if not shlex.split(text):
        raise InputError("--agent is empty", hint=f"A command, or one of: {', '.join(BASELINES)}.")
    return Command(text, limit_s)


def play(
    number: int, area: IncidentArea | None, level: IncidentLevel | None, named: str, agent: Agent, out: Path
) -> Round:
    """Play a round in a lab of its own, which ends with this process at the latest."""
    name = f"round-{os.getpid()}"
    settings = {"number": number, "area": area, "level": level}
    with incident_runs.opened(name, settings, out, attached=True) as connection:
        run = Path(connection.lab.out)
        incident_runs.proceed(connection, {"control": "start"})
        ticket = connection.answer(live.IncidentTicket())
        began, error, given = time.monotonic(), "", IncidentAnswer(gives_up=True)
        try:
            given = agent(LabCalls.of(name, named), ticket, number)
        except (TestbedError, OSError) as raised:
            error = str(raised).partition("\n")[0]
        wall_s = round(time.monotonic() - began, 3)
        row = partial(Round, agent=named, number=number, area=area, level=level, wall_s=wall_s)
        try:
            if all(lab.name != name for lab in labs.every()):  # the tool `answer` of MCP has ended it
                return row(grade=incident_runs.read(run), error="")
            with LabCalls.of(name, "").connected() as other:
                return row(grade=incident_runs.answered(other, given)[0], error=error)
        except TestbedError as raised:
            return row(grade=None, error=error or str(raised).partition("\n")[0])
