"""`testbed incident`: labs in which something is wrong that nobody tells, and the grade of an answer."""

import time
from pathlib import Path
from typing import get_args

import click

from testbed.cli.incident.bench import bench, round_
from testbed.cli.live import incident_runs, live_options
from testbed.cli.live.up import end
from testbed.cli.scenario_options import out_option
from testbed.machine.live import labs
from testbed.protocol import IncidentArea, IncidentGrade, IncidentLevel, live


@click.group(help="Work on a lab in which something is wrong that nobody tells, and have the answer graded.")
def incident() -> None: ...


@incident.command(
    help="""Start a lab with an incident, and print its ticket: what its users see.

    The same number, area and level are the same incident everywhere. Work on it with the commands for labs that live;
    `testbed incident answer` ends it."""
)
@click.option("--seed", "number", type=click.IntRange(0), metavar="N", help="Its number. Default: by the time of day.")
@click.option("--area", type=click.Choice(get_args(IncidentArea)), help="What it is about. Default: drawn.")
@click.option(
    "--level",
    type=click.IntRange(1, max(get_args(IncidentLevel))),
    help="""1: one fault; 2: with misleading traces; 3: two faults; 4: one that heals and comes back; 5: a wrong fix was
    tried before. Default: drawn.""",
)
@click.option("--name", metavar="NAME", default="", help="The lab's name. Default: incident-N.")
@out_option
@live_options.format_option
def new(
    number: int | None, area: IncidentArea | None, level: IncidentLevel | None, name: str, out: Path, form: str
) -> int:
    number = int(time.time()) % 1_000_000 if number is None else number
    name = name or f"{incident_runs.NAME}-{number}"
    with incident_runs.opened(name, {"number": number, "area": area, "level": level}, out) as connection:
        try:
            incident_runs.proceed(connection, {"control": "start"})
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


@incident.command(help="Print the next of its three hints. Each costs ten points.")
@live_options.lab_options
def hint(name: str, form: str) -> int:
    text = live_options.ask(name, live.IncidentHint())
    return live_options.show(form, {"hint": text}, text)


@incident.command(
    help="""Answer an incident: its cause, its place, since when, or by having mended it. The job is watched, and the
    grade printed.

    \b
    testbed incident answer --cause link-down --place leaf1:e1 --since 00:01:12
    testbed incident answer --mended

    CAUSE is a word of docs/diagnosis.md or the name of a fault, PLACE a node, an end of a link, a link as `diagnose`
    names it, or `rank 3`, TIME the cluster's clock, or seconds as events have them (12.5s). Give --cause and --place
    once for each thing that is wrong. The lab ends."""
)
@click.option("--cause", "causes", multiple=True, metavar="CAUSE", help="What is wrong.")
@click.option("--place", "places", multiple=True, metavar="PLACE", help="Where.")
@click.option("--since", default="", metavar="TIME", help="Since when.")
@click.option("--mended", is_flag=True, help="The job is well again; no cause is named.")
@live_options.lab_options
def answer(causes: tuple[str, ...], places: tuple[str, ...], since: str, mended: bool, name: str, form: str) -> int:
    if not (causes or places or since or mended):
        raise click.UsageError("give --cause, --place and --since, or --mended")
    given = live.IncidentAnswer(causes=list(causes), places=list(places), since=since)
    with live_options.connect(name) as connection:
        grade, out = incident_runs.answered(connection, given)
    return live_options.show(form, grade, "\n".join([*graded(grade, given), "", *solved(grade), out]))


@incident.command(
    help="""Print what was wrong, what mends it, and what does not.

    With RUN, the directory of an incident that has its answer. Without it the incident that is up is given up: it gets
    no points, and the lab ends. The report has all that happened."""
)
@click.argument("run", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@live_options.lab_options
def solution(run: Path | None, name: str, form: str) -> int:
    if run:
        grade, out = incident_runs.read(run), str(run)
    else:
        with live_options.connect(name) as connection:
            grade, out = incident_runs.answered(connection, live.IncidentAnswer(gives_up=True))
    return live_options.show(form, grade, "\n".join([*solved(grade), out]))


incident.add_command(bench, "bench")
incident.add_command(round_, "round")


@incident.command("list", help="List the labs with an incident that are up.")
@live_options.format_option
def list_(form: str) -> int:
    found = [lab for lab in labs.every() if lab.topology == incident_runs.TOPOLOGY]
    rows = [{"lab": lab.name, "state": lab.state, "out": lab.out} for lab in found]
    return live_options.show(form, rows, "\n".join(f"{row['lab']}  {row['state']}" for row in rows) or "none is up")


def rightly(part: float, given: object) -> str:
    if not given:
        return "not given"
    return "not right" if not part else "right" if part == 1 else "right in part"


def graded(grade: IncidentGrade, given: live.IncidentAnswer) -> list[str]:
    """Return the grade of an answer in words, a line each."""
    well_s = grade["mitigated_s"]
    others = f"suffered: {', '.join(grade['suffered'])}" if grade["suffered"] else "did not suffer"
    return [
        f"{grade['points']} of 100 points",
        f"  cause       {rightly(grade['cause'], given.causes)}",
        f"  place       {rightly(grade['place'], given.places)}",
        f"  since       {rightly(grade['since'], given.since)}",
        f"  the job     {'is not well' if well_s is None else f'is well again, {well_s:.0f} s after the ticket'}",
        f"  answer      {grade['answered_s']:.0f} s after the ticket",
        f"  commands    {len(grade['commands'])} that can change something",
        f"  others      {others}",
        f"  hints       {grade['hints']}",
    ]


def solved(grade: IncidentGrade) -> list[str]:
    """Return the solution in words, a line each."""
    one = grade["solution"]
    told = [
        f"{cause}, since {one['since']}: {story}." for cause, story in zip(one["causes"], one["stories"], strict=True)
    ]
    before = [f"Before: {trace}" for trace in one["traces"]]
    mends = ["What mends it:", *(f"  testbed {command}" for command in one["mend"])]
    fails = ["What does not:", *(f"  testbed {' && testbed '.join(fix.split(' && '))}" for fix in one["wrong"])]
    return [*told, *before, *mends, *fails]
