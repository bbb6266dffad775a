"""`testbed diagnose`: the rank of a job that stalled first, on which link, since when, and why."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.cli.live import collecting
from testbed.cli.live.live_options import connect
from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.words import plain, size
from testbed.errors import InputError
from testbed.records import bundle as bundle_package
from testbed.records.bundle import Bundle, flights, reproduction
from testbed.records.difference import variants
from testbed.report.diagnosis import diagnose as diagnoses
from testbed.report.diagnosis import diagnose_bundle
from testbed.report.diagnosis.calls import Collective, ranks
from testbed.report.diagnosis.rules import Diagnosis

MOST_WAITS = 4
MOST_BESIDE = 3
MOST_REMARKS = 8
MOST_FLOWS = 8


@click.command(
    help="""Report for each job of a run which rank stalled first, on which link, since when, and why; or that the job
    is healthy.

    RUN is a run directory, such as runs/training-smoke/latest, or the directory of a variant in it. The diagnosis reads
    only this directory, and only what a real cluster has: logs and flight records of the ranks, events and tables of
    switches, counters. It does not read which outcome was expected or which faults were injected.

    Jobs are started by mpirun or torchrun, or are the collectives of a Group; in a run without any, the queue pairs of
    its scenario are diagnosed.

    With --lab it reads the same of a lab that is up, such as a run that was stopped (--stop-at), while its jobs go on.

    With --from it reads what was collected of a real cluster instead: what hosts and switches printed, logs, flight
    records. docs/diagnosis.md has the layout of DIR. What nothing there says is not known, and no rule takes it for
    well. --topology-out writes that cluster as a lab, to reproduce the failure in.

    Exit status: 0 all jobs are healthy, 1 a job is not, 2 wrong usage, no run directory, no job or damaged files."""
)
@click.argument("directory", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@click.option("--lab", "lab", metavar="NAME", default="", help="The jobs of a lab that is up, as they are now.")
@click.option("--from", "collected", metavar="DIR", type=click.Path(path_type=Path), help="Files of a real cluster.")
@click.option(
    "--topology-out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --from: write the cluster as a topology file.",
)
@click.option(
    "--flight-records",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the jobs' flight records as PyTorch dumps them.",
)
@click.option("--collect-script", is_flag=True, help="Print the script that collects what a host has, and end.")
@json_option()
def diagnose(
    directory: Path | None,
    lab: str,
    collected: Path | None,
    topology_out: Path | None,
    flight_records: Path | None,
    collect_script: bool,
    as_json: bool,
) -> int:
    if collect_script:
        click.echo(resources.files(bundle_package).joinpath("collect.sh").read_text(), nl=False)
        return 0
    if [directory is not None, collected is not None, bool(lab)].count(True) != 1:
        raise click.UsageError("give a RUN, --lab NAME, or --from DIR")
    if topology_out and collected is None:
        raise click.UsageError("--topology-out needs --from")
    found = found_in(directory, lab, collected, topology_out)
    if not any(found.values()):
        raise InputError(
            "no job of several ranks ran here, or the version of testbed that made the run recorded none",
            where=str(collected or directory or lab),
            hint="Jobs are started by mpirun, torchrun or Group of testbed.workload; without one, the queue pairs of "
            "the scenario are diagnosed. The report shows what other programs did.",
        )
    if flight_records:
        for name, jobs in found.items():
            for one in jobs:
                write_records(one, flight_records / name / one.case.job.name)
    if as_json:
        rows = [{"variant": name, "jobs": [one.json() for one in jobs]} for name, jobs in found.items()]
        click.echo(json.dumps({"variants": rows}))
    else:
        report(output_console(), found)
    return 0 if all(one.healthy for jobs in found.values() for one in jobs) else 1


def found_in(
    directory: Path | None, lab: str, collected: Path | None, topology_out: Path | None
) -> Mapping[str, Sequence[Diagnosis]]:
    """Return the diagnoses of a run directory, of a lab that is up, or of what was collected of a real cluster."""
    if collected is not None:
        bundle = Bundle.read(collected)
        if topology_out:
            topology_out.write_text(reproduction.topology(bundle), encoding="utf-8")
        return {"bundle": diagnose_bundle(bundle)}
    if lab:
        with connect(lab) as connection, collecting.collected(connection) as place:
            return {lab: diagnoses(place)}
    assert directory is not None
    return {name: diagnoses(place) for name, place in variants(directory).items()}


def write_records(one: Diagnosis, directory: Path) -> None:
    """Write a dump for each rank of a job: nccl_trace_rank_3."""
    directory.mkdir(parents=True, exist_ok=True)
    for rank in range(len(one.case.job.hosts)):
        own = sorted((call for call in one.case.calls if call.rank == rank), key=lambda call: call.number)
        (directory / f"{flights.NAME}{rank}").write_bytes(flights.dumped(own))


def report(screen: Console, found: Mapping[str, Sequence[Diagnosis]]) -> None:
    for name, jobs in found.items():
        if not jobs:
            screen.print(Text(f"- {plain(name)}: no job", "dim"))
        for one in jobs:
            mark = ("✓ ", "bold green") if one.healthy else ("✗ ", "bold red")
            cause = (one.finding.cause, "bold green" if one.healthy else "bold red")
            screen.print(Text.assemble(mark, (plain(name), "bold"), ": ", cause))
            screen.print(facts(one))


def facts(one: Diagnosis) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", style="dim", no_wrap=True, min_width=9)
    table.add_column("", overflow="fold")
    for name, text in rows(one):
        table.add_row(f"  {name}", plain(text))
    return table


def rows(one: Diagnosis) -> Iterator[tuple[str, str]]:
    finding, case = one.finding, one.case
    job = case.job

    def seconds(nanoseconds: int) -> str:
        return moment(nanoseconds, case.seen.epoch)

    def timed(t: int, text: str, width: int = 0) -> str:
        return f"{seconds(t):>{width}}  {text}" if seconds(t) else text

    yield "", finding.text
    if not one.healthy:
        yield "since", seconds(finding.since) or "not known"
        if finding.link:
            yield "link", finding.link
        if over := case.over(finding.link):
            pairs = ", ".join(f"{one} to {other}" for one, other in over[:MOST_FLOWS])
            more = f" and {len(over) - MOST_FLOWS} more" if over[MOST_FLOWS:] else ""
            yield "flows", f"over this link: rank {pairs}{more}"
    if not one.healthy and (stuck := case.stuck):
        yield "stopped", timed(stuck.began, stop(stuck))
    elif not one.healthy and case.waits:
        waiting = [str(wait) for wait in case.waits[:MOST_WAITS]]
        yield "stopped", timed(case.waits[-1].call.began, "; ".join(waiting))
    times = f", {seconds(job.began)} to {seconds(job.ended)}" if seconds(job.ended) else ""
    yield "job", f"{job.name}{times}: {case.ending}"
    remarks = one.remarks if one.healthy else finding.evidence
    width = max((len(seconds(t)) for t, _ in remarks), default=0)
    for number, (t, text) in enumerate(remarks):
        name = "remark" if one.healthy else "evidence"
        yield "" if number else name, timed(t, text, width)
    for other in one.findings[1:]:
        since = f", since {seconds(other.since)}" if seconds(other.since) else ""
        yield "also", f"{other.cause}{since}: {other.text}"
        for number, (t, text) in enumerate(other.evidence[:MOST_BESIDE]):
            yield "" if number else "evidence", timed(t, text)
    for number, (t, text) in enumerate(one.unexplained):
        yield "" if number else "unexplained", timed(t, text)
    for number, text in enumerate(case.seen.remarks[:MOST_REMARKS]):
        yield "" if number else "not known", text


def stop(stuck: Collective) -> str:
    of = f" of {size(stuck.bytes)}" if stuck.bytes else ""
    what = f"{stuck.operation}{of}" if stuck.matches else stuck.asked
    waiting = f"{ranks(stuck.waiting)} wait{'' if stuck.waiting[1:] else 's'} in it"
    absent = f"; {ranks(stuck.absent)} did not enter it" if stuck.absent else ""
    return f"collective {stuck.sequence}, {what}: {waiting}{absent}"


def moment(nanoseconds: int, epoch: int | None) -> str:
    """Return a time for people: seconds of a run, or that of a real cluster in UTC; nothing where no time is known."""
    if epoch is None:
        return f"{nanoseconds / 1e9:.3f} s"
    if epoch == 0:
        return ""
    t = epoch + nanoseconds
    return f"{datetime.fromtimestamp(t // 10**9, UTC):%Y-%m-%d %H:%M:%S}.{t % 10**9 // 10**6:03} UTC"
