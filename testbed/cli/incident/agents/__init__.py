"""Those who work on incidents: the baselines that come along, and commands of the user's.

An agent gets a lab and its ticket, works on it, and returns its answer.
"""

from collections.abc import Callable, Mapping

from testbed.cli.incident.agents import chance, diagnosis, runbook
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.protocol.live import IncidentAnswer

Agent = Callable[[LabCalls, str, int], IncidentAnswer]
"""Its arguments: the lab, the ticket, and a seed for what it draws."""
BASELINES: Mapping[str, Agent] = {"diagnose": diagnosis.answer, "random": chance.answer, "runbook": runbook.answer}
