"""The end of a training job for people: its ranks, or the settings that it survives."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.cli import summary
from testbed.cli.scenario_list import columns
from testbed.cli.words import duration, plain
from testbed.machine.record import RunResult, VariantResult
from testbed.protocol import RANKS, REPORT, JobRow, RankRow, requests
from testbed.records.regular_files import contents

SLOW = 3.0
"""A step is slow that lasts longer than so many medians."""
NO_STEPS = "No step was recorded: the script has no torch optimizer, or never called step()."
HINTS = {
    "environment variable": 'Ranks are started by mpirun: init_process_group("mpi") needs no MASTER_ADDR and no RANK.',
    "NCCL": 'The image has no GPU and no NCCL: use init_process_group("mpi").',
    "CUDA": "The machine has no GPU: a rank's device is the CPU.",
    "ModuleNotFoundError": "The image has PyTorch, mpi4py and NumPy; other modules must be beside the script.",
}
"""Hints by words in the end of a job."""
MOST_PORTS = 12
Jobs = Mapping[str, JobRow | None]


def job(console: Console, result: RunResult, done: Jobs, wall_s: float) -> None:
    """Print the ranks of a job."""
    [variant] = result.variants
    row = done[variant.name]
    console.print()
    if row:
        console.print(ranks_table(row["ranks"]))
        console.print()
        for line in remarks(row):
            console.print(Text(plain(line)), soft_wrap=True)
    if failures := [text for text in variant.failures if not text.startswith("users saw fault")]:
        summary.show_failures(console, "The run is not as requested:", replace(variant, failures=failures))
        console.print()
    if variant.as_expected:
        verdict = ("completed", "bold green")
    else:
        verdict = ("did not complete" if failed(variant, row) else "not as requested", "bold red")
    ranks = f" on {summary.number(len(row['ranks']), 'rank')}" if row else ""
    facts = f" · {duration(row['job_s'] if row else variant.virtual_s)} · {duration(wall_s)} wall · seed {result.seed}"
    summary.end(console, result.scenario, (": ", verdict, ranks), facts, result.out / REPORT)


def failed(variant: VariantResult, row: JobRow | None) -> bool:
    """Return whether the job itself did not come to a good end."""
    return variant.observed != "healthy" or row is None or bool(row["failure"])


def ranks_table(ranks: Sequence[RankRow]) -> Table:
    """Return a line for each rank; with its device, where ranks of a host have different ones."""
    devices = {rank.get("device", "") for rank in ranks}
    place = ("host", "device") if len(devices) > len({rank["host"] for rank in ranks}) else ("host",)
    table = columns("rank", *place, "steps", "first step", "median", "slowest", "which", "at", "end")
    for rank in ranks:
        who = str(rank["rank"]), *(plain(rank.get(word, "")) for word in place), str(rank["steps"])
        times = seconds(rank["first_s"]), seconds(rank["median_s"]), seconds(rank["slowest_s"])
        slowest = str(rank["slowest_step"] or ""), seconds(rank["slowest_at_s"])
        table.add_row(*who, *times, *slowest, Text(plain(rank["saw"]), style(rank["saw"])))
    return table


def style(saw: str) -> str:
    return {"completed": "green", "ended with the job": "dim"}.get(saw, "bold red")


def seconds(value: float | None) -> str:
    return "" if value is None else duration(value)


def remarks(row: JobRow) -> list[str]:
    """Return lines on what the table does not show."""
    ranks = row["ranks"]
    earlier = enumerate(row.get("earlier", ()), 1)
    found = [f"Attempt {number} failed: {failure}. The job was started again." for number, failure in earlier]
    if row["failure"]:
        after = f", {duration(row['job_s'] - row['fault_s'])} after the fault" if row["fault_s"] is not None else ""
        found.append(f"{row['failure']}{after}.")
        found += [hint for words, hint in HINTS.items() if words in row["failure"]]
    if not any(rank["steps"] for rank in ranks):
        found.append(NO_STEPS)
    if all(slow(rank) for rank in ranks):
        least, most = (of(rank["slowest_s"] or 0.0 for rank in ranks) for of in (min, max))
        first, last = (of(rank["slowest_step"] or 0 for rank in ranks) for of in (min, max))
        which = f"step {first}" if first == last else f"steps {first} to {last}"
        found.append(f"Every rank was slow in {which}: {duration(least)} to {duration(most)}.")
    if flows := row.get("flows"):
        ports = [f"{port} {count}" for port, count in flows.items()]
        more = f" and {len(ports) - MOST_PORTS} more" if ports[MOST_PORTS:] else ""
        found.append(f"Flows between ranks by ports between switches: {', '.join(ports[:MOST_PORTS])}{more}.")
    return found


def slow(rank: RankRow) -> bool:
    """Return whether a rank's slowest step stands out."""
    return bool(rank["slowest_s"] and rank["median_s"] and rank["slowest_s"] > SLOW * rank["median_s"])


def matrix(console: Console, result: RunResult, done: Jobs, points: Sequence[Mapping[str, str]], wall_s: float) -> None:
    """Print a line for each combination of settings."""
    table = columns(*points[0], "job", "end", "after", "slowest step")
    survived = 0
    for variant, point in zip(result.variants, points, strict=True):
        row = done[variant.name]
        good = row is not None and not row["failure"] and variant.as_expected
        survived += good
        word = ("survives", "green") if good else ("dies", "yellow") if row else ("not run", "bold red")
        slow = max((rank["slowest_s"] or 0.0 for rank in row["ranks"]), default=0.0) if row else 0.0
        table.add_row(
            *map(plain, point.values()),
            Text(*word),
            plain(row["failure"] or "completed" if row else ""),
            duration(row["job_s"]) if row else "",
            duration(slow) if slow else "",
        )
    console.print()
    console.print(table)
    for variant in result.variants:
        if not carried_out(variant, done[variant.name]):
            summary.show_failures(console, f"{plain(variant.name)} is not as requested:", variant)
    console.print()
    facts = f" · {duration(wall_s)} wall · seed {result.seed}"
    text = f": {survived} of {summary.number(len(points), 'run')} survived"
    summary.end(console, result.scenario, (text,), facts, result.out / REPORT)


def carried_out(variant: VariantResult, row: JobRow | None) -> bool:
    """Return whether a run came to its end with all its faults, however the job ended."""
    return variant.observed is not None and row is not None and not row["missed"]


def read(directory: Path) -> JobRow | None:
    """Return the job of a variant's directory; None if there is none, or the file is damaged."""
    with contextlib.suppress(OSError, ValueError):
        found: JobRow = requests.adapter(JobRow).validate_json(contents(directory / RANKS))
        return found
    return None
