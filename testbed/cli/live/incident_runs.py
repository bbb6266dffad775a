"""The run of an incident: begun, handed over, and continued to its grade."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from testbed.cli.live.stopping import begun, described, order_of
from testbed.cli.summary import write_report
from testbed.errors import InputError
from testbed.machine.live.connection import Connection
from testbed.machine.scenarios import Source
from testbed.protocol import GRADE, HANDOVER, IncidentGrade, VariantInfo, live, requests
from testbed.records.regular_files import contents

FILE = Path(__file__).parents[2] / "scenario" / "incident" / "lab" / "scenario.py"
NAME = LABEL = "incident"
TOPOLOGY = f"{NAME} {LABEL}"
"""What lab.json has as the lab's topology."""
SEED = 1
"""That of the machine: incidents differ by their number alone."""


def opened(name: str, settings: Mapping[str, Any], out: Path, *, attached: bool = False) -> Connection:
    """Start the lab of an incident; one that is `attached` ends with the connection."""
    source = Source(NAME, FILE)
    variant: VariantInfo = {"name": LABEL, "expected": "healthy", "text": "", "settings": dict(settings)}
    order = replace(order_of(NAME, source, LABEL, variant, stop=HANDOVER), shares_lab=True)
    return begun(name, order, described(source), SEED, out, attached=attached)


def proceed(connection: Connection, asked: dict[str, Any]) -> dict[str, Any]:
    """Let the run go on to its next stop or its end, and return what the keeper says. Its events are not shown."""

    def receive(report: dict[str, Any]) -> None:
        if "log" in report:
            click.echo(f"… {report['log']}", err=True)

    found: dict[str, Any] = connection.end(connection.begin(asked, receive))
    return found


def answered(connection: Connection, given: live.IncidentAnswer) -> tuple[IncidentGrade, str]:
    """Answer the incident of a lab, which ends. Return the grade and the path of the report."""
    connection.answer(given)
    found = proceed(connection, {"control": "continue", "discard": False, "to": ""})
    if "result" not in found:
        raise InputError("the incident did not come to an end")
    out = Path(found["result"]["out"])
    grade = read(out)
    return grade, str(write_report(out))


def read(run: Path) -> IncidentGrade:
    """Return the grade in a run's directory. InputError if it has none."""
    try:
        found: IncidentGrade = requests.adapter(IncidentGrade).validate_json(contents(run / LABEL / GRADE))
    except (OSError, ValueError):
        text = "the incident has no grade: it has no answer yet, or its run went wrong"
        raise InputError(text, where=str(run)) from None
    return found
