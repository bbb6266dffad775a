"""`testbed incident`: labs in which something is wrong that nobody tells, and the grade of an answer."""

import time
from pathlib import Path
from typing import Any, get_args

import click

from testbed.cli.live import live_options
from testbed.cli.live.stopping import begun, described, order_of
from testbed.cli.live.up import end
from testbed.cli.scenario_options import out_option
from testbed.errors import InputError
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection
from testbed.machine.scenarios import Source
from testbed.protocol import GRADE, HANDOVER, IncidentArea, IncidentGrade, VariantInfo, live, requests
from testbed.records.regular_files import contents

FILE = Path(__file__).parents[2] / "scenario" / "incident" / "lab" / "scenario.py"
NAME, LABEL = "incident", "incident"


@click.group(help="Work on a lab in which something is wrong that nobody tells, and have the answer graded.")
def incident() -> None: ...


@incident.command(
    help="""Start a lab with an incident, and print its ticket: what its users see.

    The same number and area are the same incident everywhere. Work on it with the commands for labs that live;
    `testbed incident answer` ends it."""
)
@click.option("--seed", "number", type=click.IntRange(0), metavar="N", help="Its number. Default: by the time of day.")
@click.option("--area", type=click.Choice(get_args(IncidentArea)), help="What it is about. Default: drawn.")
@click.option("--name", metavar="NAME", default="", help="The lab's name. Default: incident-N.")
@out_option
@live_options.format_option
def new(number: int | None, area: str | None, name: str, out: Path, form: str) -> int:
    number = int(time.time()) % 1_000_000 if number is None else number
    settings = {"number": number, "area": area}
    source = Source(NAME, FILE)
    variant: VariantInfo = {"name": LABEL, "expected": "healthy", "text": "", "settings": settings}
    order = order_of(NAME, source, LABEL, variant, stop=HANDOVER, shares_lab=True)
    name = name or f"{NAME}-{number}"
    with begun(name, order, described(source), 1, out) as connection:
        try:
            wait(connection, {"control": "start"})
        except KeyboardInterrupt:
            end(connection)
            raise
        ticket = connection.answer(live.IncidentTicket())
    found = {"lab": name, "number": number, "ticket": ticket}
    return live_options.show(form, found, ticket, f"testbed inspect --lab {name}", "testbed incident answer --help")


@incident.command(help="Print the ticket of an incident again.")
@live_options.lab_options
def show(name: str, form: str) -> int:
    ticket = live_options.ask(name, live.IncidentTicket())
    return live_options.show(form, {"ticket": ticket}, ticket)


@incident.command(help="Print the next of its hints. Each costs ten points.")
@live_options.lab_options
def hint(name: str, form: str) -> int:
    text = live_options.ask(name, live.IncidentHint())
    return live_options.show(form, {"hint": text}, text)


@incident.command(
    help="""Answer an incident: its cause, its place, or by having mended it. The job is watched, and the grade printed.

    \b
    testbed incident answer --cause link-down --place leaf1:e1
    testbed incident answer --mended

    CAUSE is a word of docs/diagnosis.md or the name of a fault, PLACE a node, an end of a link, a link as `diagnose`
    names it, or `rank 3`. The lab ends."""
)
@click.option("--cause", default="", metavar="CAUSE", help="What is wrong.")
@click.option("--place", default="", metavar="PLACE", help="Where.")
@click.option("--mended", is_flag=True, help="The job is well again; no cause is named.")
@live_options.lab_options
def answer(cause: str, place: str, mended: bool, name: str, form: str) -> int:
    if not (cause or place or mended):
        raise click.UsageError("give --cause and --place, or --mended")
    with live_options.connect(name) as connection:
        connection.answer(live.IncidentAnswer(cause=cause, place=place))
        found = wait(connection, {"control": "continue", "discard": False, "to": ""})
    if "result" not in found:
        raise InputError("the incident did not come to an end")
    grade = read(Path(found["result"]["out"]) / LABEL / GRADE)
    return live_options.show(form, grade, "\n".join(words(grade)))


@incident.command("list", help="List the labs with an incident that are up.")
@live_options.format_option
def list_(form: str) -> int:
    found = [lab for lab in labs.every() if lab.topology == f"{NAME} {LABEL}"]
    rows = [{"lab": lab.name, "state": lab.state, "out": lab.out} for lab in found]
    return live_options.show(form, rows, "\n".join(f"{row['lab']}  {row['state']}" for row in rows) or "none is up")


def wait(connection: Connection, asked: dict[str, Any]) -> dict[str, Any]:
    """Let the run go on to its next stop or its end, and return what the keeper says. Its events are not shown."""

    def receive(report: dict[str, Any]) -> None:
        if "log" in report:
            click.echo(f"… {report['log']}", err=True)

    found: dict[str, Any] = connection.end(connection.begin(asked, receive))
    return found


def read(path: Path) -> IncidentGrade:
    """Return a grade. InputError if the run has none."""
    try:
        found: IncidentGrade = requests.adapter(IncidentGrade).validate_json(contents(path))
    except (OSError, ValueError):
        raise InputError("the incident has no grade: its run went wrong", where=str(path.parent)) from None
    return found


def words(grade: IncidentGrade) -> list[str]:
    yes = {True: "right", False: "not right"}
    others = f"lost {grade['suffered']} s" if grade["suffered"] else "did not suffer"
    lines = [
        f"{grade['points']} of 100 points",
        f"  cause       {yes[grade['cause']]}",
        f"  place       {yes[grade['place']]}",
        f"  the job     {'is well again' if grade['mitigated'] else 'is not well'}",
        f"  after       {grade['seconds']:.0f} s",
        f"  commands    {len(grade['commands'])} that can change something",
        f"  others      {others}",
        f"  hints       {grade['hints']}",
    ]
    one = grade["solution"]
    lines += ["", f"It was: {one['cause']}. {one['story'][0].upper()}{one['story'][1:]}."]
    return [*lines, *(f"  testbed {command}" for command in one["mend"])]
