"""`testbed bench`: costs of container networks, measured in a machine."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click
from rich.table import Table

from testbed.cli import options
from testbed.cli.output import json_option, log
from testbed.cli.progress import output_console
from testbed.cli.words import duration
from testbed.machine import runs
from testbed.machine.jobs import Job, Machine
from testbed.protocol import IpamRow, PodsRow
from testbed.protocol.events import BENCH
from testbed.protocol.requests import IpamBench, PodsBench, Request

R = TypeVar("R")
LIMIT_S = 86400.0
"""The machine's own seconds."""
Ipam = Literal["host-local", "ippool"]
IPAM: tuple[Ipam, ...] = get_args(Ipam)
MOST = 1.5
"""Upper limit of a call of ippool, as a multiple of host-local's time."""
RESULT = "bench.json"
FINE = "no conflict, no waste, no leak"

nodes_option = click.option("--nodes", type=click.IntRange(1, 100), default=10, show_default=True)
at_once_option = click.option(
    "--at-once", type=click.IntRange(1), default=10, show_default=True, help="Pods that start at the same time."
)


@click.group(
    help=f"""Measure what container networks cost when many pods start.

    Times are from the machine's clock. On the virtual clock a nanosecond is an instruction, so times are the same on
    every host. {RESULT} in the run directory has the figures, too."""
)
def bench() -> None:
    pass


@bench.command(
    help="""Compare IPAM plugins: the comparison of Spiderpool's documentation.

    It creates pods with macvlan, IPv4 and IPv6, deletes and creates all of them again, and deletes them: once with
    exactly as many addresses as pods, once with a tenth more. ippool has one pool for all nodes; host-local keeps its
    addresses on each node, so each node has a part of them. "ADD" is the time of the whole network, "IPAM" the time of
    the IPAM plugin alone, measured while six of seven pods have addresses.

    Waste counts pods without an address although one is free for each, conflicts counts addresses that two pods have,
    leaks counts addresses that are still held at the end.

    Exit status: 0 none of these, and the median IPAM of ippool is at most 1.5 times the median of host-local; 1 else; 2
    wrong usage; 3 this machine cannot run it."""
)
@click.option("--ipam", "names", multiple=True, type=click.Choice(IPAM), help="Only this plugin; may be repeated.")
@click.option("--apps", type=click.IntRange(1), default=100, show_default=True, help="Deployments.")
@click.option("--replicas", type=click.IntRange(1), default=10, show_default=True, help="Pods of each.")
@nodes_option
@at_once_option
@options.machine_options
@json_option("Print a JSON array with an object for each plugin and number of addresses.")
def ipam(
    names: tuple[str, ...],
    apps: int,
    replicas: int,
    nodes: int,
    at_once: int,
    on: options.MachineOptions,
    as_json: bool,
) -> int:
    pods = apps * replicas
    if pods % nodes:
        raise click.UsageError(f"{pods} pods cannot be shared out evenly to {nodes} nodes.")
    spare = -(-pods // (10 * nodes)) * nodes
    request = IpamBench(
        ipam=[name for name in IPAM if not names or name in names],
        apps=apps,
        replicas=replicas,
        nodes=nodes,
        spare=[0, spare],
        at_once=at_once,
    )
    machine = options.choose(on.machine, on.clock, log)
    rows = measured(request, machine, on.seed, runs.run_directory(on.out, "bench-ipam"))
    wrong = faults(rows)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        output_console().print(ipam_table(rows), *ratios(rows), *(wrong or [FINE]), sep="\n")
    return int(bool(wrong))


@bench.command(
    help="""Measure pods with RDMA devices that all exist at the same time: time, memory, and whether the devices work.

    Each has macvlan with IPv4 and IPv6 addresses of ippool, and a soft-RoCE device in exclusive mode. Then each pod
    writes to the next pod, on the next node, with RDMA WRITE.

    Exit status: 0 all have a device and all WRITEs arrive, 1 not, 2 wrong usage, 3 this machine cannot run it."""
)
@click.option("--pods", type=click.IntRange(1, 10_000), default=1000, show_default=True)
@nodes_option
@at_once_option
@options.machine_options
@json_option()
def pods(pods: int, nodes: int, at_once: int, on: options.MachineOptions, as_json: bool) -> int:
    request = PodsBench(pods=pods, nodes=nodes, at_once=at_once)
    machine = options.choose(on.machine, on.clock, log)
    row = measured(request, machine, on.seed, runs.run_directory(on.out, "bench-pods"))
    if as_json:
        click.echo(json.dumps(row, indent=2))
    else:
        output_console().print(pods_table(row))
    return int(bool(row["failed"]))


def measured(request: Request[R], machine: Any, seed: int, directory: Path) -> R:
    """Measure the figures, write them to the run directory and return them."""
    found = asyncio.run(measure(request, machine, seed, directory))
    (directory / RESULT).write_text(json.dumps(found, indent=2) + "\n")
    return found


async def measure(request: Request[R], machine: Machine, seed: int, out: Path) -> R:
    """Return the response to a request, and log each part of it that is done."""

    def listen(record: dict[str, Any]) -> None:
        if (event := record["event"])["kind"] == BENCH.name:
            log(event["text"])

    job = Job([request], limit_s=LIMIT_S, seed=seed, listen=listen)
    await machine.run(job, out)
    return job.answer()


def ipam_table(rows: Sequence[IpamRow]) -> Table:
    lines = {
        "addresses": [str(row["addresses"]) for row in rows],
        **{text: [duration(figures(row)[f"{text}_s"]) for row in rows] for text in ("create", "recreate", "delete")},
    }
    for what in "add", "ipam":
        for percent in "p50", "p99":
            lines[f"{what.upper()} {percent}"] = [milliseconds(row, f"{what}_{percent}_ms") for row in rows]
    for what in "conflicts", "waste", "leaks":
        lines[what] = [str(figures(row)[what]) for row in rows]
    return drawn([f"{rows[0]['pods']} pods", *(row["ipam"] for row in rows)], lines)


def pods_table(row: PodsRow) -> Table:
    lines = {
        "create": [duration(row["create_s"])],
        "delete": [duration(row["delete_s"])],
        "ADD p50": [milliseconds(row, "add_p50_ms")],
        "ADD p99": [milliseconds(row, "add_p99_ms")],
        "memory in use": [f"{row['memory_mb']:.0f} MB"],
        "of a pod": [f"{row['pod_mb']:.2f} MB"],
        "WRITEs": [str(row["writes"])],
        "failed": [str(row["failed"])],
    }
    return drawn([f"{row['pods']} pods", f"{row['nodes']} nodes"], lines)


def figures(row: IpamRow) -> dict[str, Any]:
    return {**row}


def milliseconds(row: Mapping[str, Any], key: str) -> str:
    return f"{row[key]:.1f} ms"


def drawn(head: Sequence[str], lines: Mapping[str, Sequence[str]]) -> Table:
    """Make a table with figures in all columns but the first."""
    table = Table(*head, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for name, cells in lines.items():
        table.add_row(name, *cells)
    return table


def compared(rows: Sequence[IpamRow]) -> dict[int, float]:
    """Return by number of addresses how many times host-local's a call of ippool takes, where both were measured."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["addresses"], {})[row["ipam"]] = row["ipam_p50_ms"]
    return {size: of["ippool"] / of["host-local"] for size, of in found.items() if all(of.get(name) for name in IPAM)}


def ratios(rows: Sequence[IpamRow]) -> list[str]:
    return [
        f"{size} addresses: IPAM of ippool takes {ratio:.2f} times that of host-local (at most {MOST})"
        for size, ratio in compared(rows).items()
    ]


def faults(rows: Sequence[IpamRow]) -> list[str]:
    """Return a line for each row with something wrong, and for each comparison."""
    wrong = []
    for row in rows:
        counts = {"conflicts": row["conflicts"], "waste": row["waste"], "leaks": row["leaks"]}
        if any(counts.values()):
            found = ", ".join(f"{name} {count}" for name, count in counts.items())
            wrong.append(f"{row['ipam']} with {row['addresses']} addresses: {found}")
    for size, ratio in compared(rows).items():
        if ratio > MOST:
            wrong.append(
                f"ippool with {size} addresses takes {ratio:.2f} times as long as host-local, more than {MOST}"
            )
    return wrong
