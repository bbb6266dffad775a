"""`testbed probe`: a pingmesh of a lab, by RDMA and by TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from testbed.cli import completion_values
from testbed.cli.live import live_options
from testbed.cli.words import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table
    from rich.text import Text

    from testbed.protocol.live import ProbedMesh, ProbedPair

WIDEST = 16
"""NICs of a matrix on the screen; of more only the pairs that lose probes are shown."""
MOST_SHOWN = 20


@click.command(
    help="""Probe all pairs of NICs of a lab in both directions, by RDMA and by TCP, and print who reaches whom: a
    pingmesh. NODE is a host, a pod or an interface (h1:eth1); without any, all NICs with RDMA are probed.

    By RDMA each probe is a datagram (UD) as large as the MTU, without an answer: times and losses are those of one
    direction. Where the network has seen a lost one last is shown, and which ports keep probes for long. By TCP each
    probe is a connection and a segment as large.

    Exit status: 0 all probes arrived, else 1."""
)
@click.option(
    "--protocol",
    type=click.Choice(["both", "rdma", "tcp"]),
    default="both",
    show_default=True,
    help="Probe by it only.",
)
@click.option("--count", "-c", type=click.IntRange(1, 1000), default=8, show_default=True, help="Probes of each pair.")
@click.option("--size", type=click.IntRange(16, 4096), help="Bytes of a probe. Default: the MTU of the RDMA devices.")
@click.option("--dscp", type=click.IntRange(0, 63), default=0, show_default=True, help="DSCP of the datagrams.")
@click.option("--ipv6", "-6", "six", is_flag=True, help="Over IPv6 addresses.")
@live_options.lab_options
@click.argument("nodes", metavar="[NODE]...", nargs=-1, shell_complete=completion_values.nics)
def probe(
    protocol: str, count: int, size: int | None, dscp: int, six: bool, name: str, form: str, nodes: tuple[str, ...]
) -> int:
    from testbed.cli.progress import table_console
    from testbed.protocol.live import Probe

    family: Literal[4, 6] = 6 if six else 4
    protocols: list[Literal["rdma", "tcp"]] = [one for one in ("rdma", "tcp") if protocol in (one, "both")]
    request = Probe(
        nodes=list(nodes), protocols=protocols, count=count, size=size or 0, traffic_class=dscp << 2, family=family
    )
    found = live_options.ask(name, request)
    if form == "json":
        live_options.print_json(found)
    else:
        for mesh in found:
            table_console().print(*shown(mesh), sep="\n")
            click.echo("\n".join([*map(plain, sentences(mesh)), ""]))
    return 0 if all(pair["arrived"] == count for mesh in found for pair in mesh["pairs"]) else 1


def shown(mesh: ProbedMesh) -> list[str | Table]:
    """Return the title of a mesh, and its matrix, or the worst of its pairs."""
    what = "RDMA, one way" if mesh["protocol"] == "rdma" else "TCP, until the SYN is answered"
    title = f"{what}: median in µs, {mesh['bytes']} bytes"
    if len(mesh["nics"]) <= WIDEST:
        return [title, matrix(mesh)]
    return [title, worst(mesh)] if bad(mesh) else [title]


def matrix(mesh: ProbedMesh) -> Table:
    from testbed.cli.live.lab_tables import table

    short = short_names(mesh["nics"])
    made = table("from \\ to", *(plain(short[nic]) for nic in mesh["nics"]))
    for column in made.columns[1:]:
        column.justify = "right"
    pairs = {(pair["source"], pair["target"]): pair for pair in mesh["pairs"]}
    for source in mesh["nics"]:
        cells: Iterator[Text | str] = (
            "·" if source == target else cell(pairs[source, target]) for target in mesh["nics"]
        )
        made.add_row(plain(short[source]), *cells)
    return made


def worst(mesh: ProbedMesh) -> Table:
    from testbed.cli.live.lab_tables import table

    made = table("from", "to", "median")
    for pair in bad(mesh)[:MOST_SHOWN]:
        made.add_row(plain(pair["source"]), plain(pair["target"]), cell(pair))
    return made


def bad(mesh: ProbedMesh) -> list[ProbedPair]:
    return [pair for pair in mesh["pairs"] if pair["error"] or pair["arrived"] < pair["sent"]]


def cell(pair: ProbedPair) -> Text:
    """Return a pair's median, and how many of its probes are lost."""
    from rich.text import Text

    if not pair["arrived"]:
        return Text("none", "red")
    median = f"{pair['median_us']:.0f}"
    lost = pair["sent"] - pair["arrived"]
    return Text(f"{median} -{lost}/{pair['sent']}", "yellow") if lost else Text(median)


def short_names(nics: list[str]) -> dict[str, str]:
    """Return the nodes' names in place of their interfaces, where a node has one only."""
    nodes = [nic.partition(":")[0] for nic in nics]
    return {nic: node if nodes.count(node) == 1 else nic for nic, node in zip(nics, nodes, strict=True)}


def sentences(mesh: ProbedMesh) -> list[str]:
    """Return what is remarkable, in words."""
    sent, arrived = (sum(pair[what] for pair in mesh["pairs"]) for what in ("sent", "arrived"))
    found = [f"  {sent - arrived} of {sent} probes are lost"] if arrived < sent else ["  no probe is lost"]
    found += [f"  {one['count']} of them last seen: {one['place']}" for one in mesh["lost_at"][:MOST_SHOWN]]
    found += [f"  {port} keeps packets for {median:.0f} µs" for port, median in mesh["slow_ports"].items()]
    if mesh["resent"]:
        found.append(f"  {mesh['resent']} connections needed a second SYN, or a second answer to it")
    if mesh["unseen"]:
        found.append(f"  {mesh['unseen']} packets could not be looked at in time: places are not all known")
    errors = [pair for pair in mesh["pairs"] if pair["error"]]
    found += [f"  {pair['source']} to {pair['target']}: {pair['error']}" for pair in errors[:MOST_SHOWN]]
    left = len(errors) - MOST_SHOWN
    return [*found, f"  … and {left} pairs more"] if left > 0 else found
