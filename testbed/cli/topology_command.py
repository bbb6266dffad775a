"""`testbed topology` and `testbed graph`: files that describe a lab, and their pictures."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click
from rich.table import Table

from testbed.cli import options
from testbed.cli.live.live_options import connect, lab_option, then
from testbed.cli.output import give, json_option, log, show_notes
from testbed.cli.progress import output_console
from testbed.cli.scenario_list import columns
from testbed.cli.words import plain
from testbed.errors import InputError
from testbed.machine import questions
from testbed.protocol import ConvertedPlan, GraphStyle, InterfaceRow, Picture, PlanInfo, requests

NEW = """Write a topology file of a KIND, for you to edit. Options that you leave out have defaults; the file's head
shows them.

\b
single          one switch (--hosts)
two-tier        access switches under a core (--switches --hosts)
leaf-spine      every leaf on every spine (--leaves --spines --hosts --rails)
rail-optimized  a leaf for each rail of a pod (--pods --hosts --rails --oversubscription)
fat-tree        k pods of switches with k ports (--k)
"""
HEADS = ("interface", "peer", "MAC", "address", "gateway", "VLAN", "RDMA device", "bond")
"""Column heads of `check`; an empty column is left out."""


@click.group(help="Create or check a topology file, or print the format's JSON Schema.")
def topology() -> None:
    pass


@topology.command(
    short_help="Check a topology file and show the resulting lab.",
    help="""Check FILE and show the resulting lab: every interface and SVI with its MAC, addresses, gateway and VLANs.
    Standard error lists keys of containerlab that have no effect.""",
)
@click.argument("file")
@click.option("--mininet", is_flag=True, help="FILE[:NAME] is a Topo of Mininet, as for `from-mininet`.")
@json_option()
def check(file: str, mininet: bool, as_json: bool) -> None:
    plan = _plan_of_mininet(file) if mininet else questions.plan(Path(file))
    if as_json:
        click.echo(json.dumps(plan))
        return
    show_notes(plan["notes"])
    output_console(uncut=True).print(table(plan))


def table(plan: PlanInfo) -> Table:
    ends = {f"{row['node']}:{row['interface']}": row for row in plan["interfaces"]}
    rows = [{**_cells(row), "peer": plain(far_ends(row, ends))} for row in plan["interfaces"]]
    used = [head for head in HEADS if any(row[head] for row in rows)]
    found = columns(*used)
    for row in rows:
        found.add_row(*(row[head] for head in used))
    return found


def _cells(row: InterfaceRow) -> dict[str, str]:
    cells = (
        f"{row['node']}:{row['interface']}",
        row["peer"],
        row["mac"],
        _both(row["address"], row["address6"]),
        _both(row["gateway"], row["gateway6"]),
        _vlans(row),
        row["rdma"] or "",
        f"{row['mode']}: {', '.join(row['members'])}" if "mode" in row else row.get("master", ""),
    )
    return dict(zip(HEADS, map(plain, cells), strict=True))


def far_ends(row: InterfaceRow, ends: Mapping[str, InterfaceRow]) -> str:
    """Return the other end of a link; of a bond all that its members end at, each once."""
    far = [ends[ends[f"{row['node']}:{name}"]["peer"]] for name in row.get("members", ())]
    return (
        ", ".join(dict.fromkeys(f"{end['node']}:{end.get('master', end['interface'])}" for end in far)) or row["peer"]
    )


def _both(four: str, six: str) -> str:
    """Join the values of IPv4 and of IPv6, where a row has them."""
    return ", ".join(filter(None, (four, six)))


def _vlans(row: InterfaceRow) -> str:
    if row["routed"]:
        return "routed"
    tagged = f"tagged {', '.join(map(str, row['trunk']))}" if row["trunk"] else ""
    return ", ".join(filter(None, (str(row["vlan"] or ""), tagged)))


@topology.command(help=NEW)
@click.argument("kind")
@click.option("--hosts", type=int, help="Hosts: of the switch, of each access switch, of each leaf, of each pod.")
@click.option("--switches", type=int, help="Access switches.")
@click.option("--leaves", type=int)
@click.option("--spines", type=int)
@click.option("--rails", type=int, help="NICs of a host, each on its own leaf.")
@click.option("--pods", type=int)
@click.option("--oversubscription", metavar="DOWN:UP", help="Downlinks to uplinks of a leaf, such as 7:1.")
@click.option("--parallel", type=int, help="Links between a leaf and each spine; leaf-spine only.")
@click.option("--rail-only", is_flag=True, default=None, help="Separate spines for each rail; rail-optimized only.")
@click.option(
    "--dual-tor",
    is_flag=True,
    default=None,
    help="Two leaves for each one, and hosts with LACP to both: an Ethernet segment with --routing evpn, else host "
    "routes by frr; leaf-spine, where --leaves counts both, rail-optimized, fat-tree.",
)
@click.option("--k", type=int, help="Ports of a switch; even.")
@click.option(
    "--routed/--bridged", default=True, help="Leaves route, the default, or bridge: one VLAN a rail, over trunks."
)
@click.option("--family", type=click.Choice(["4", "6", "dual"]), default="4", help="Addresses: IPv4, IPv6 or both.")
@click.option(
    "--routing",
    type=click.Choice(["static", "frr", "evpn"]),
    help="static: routes in the file, the default; frr: BGP on the switches; evpn: BGP, and VLANs behind all leaves.",
)
@click.option("--evpn", "routing", flag_value="evpn", help="The same as --routing evpn.")
@click.option(
    "--management", is_flag=True, help="Add what training jobs need: mgmt0 on each host, and a launcher host."
)
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file; it must not exist.")
def new(kind: str, routed: bool, family: str, management: bool, output: Path | None, **sizes: int | str | None) -> None:
    given = {name: value for name, value in sizes.items() if value is not None}
    addresses = int(family) if family.isdecimal() else family
    wanted = {**given, "bridged": not routed, "family": addresses, "management": management}
    give(questions.ask(requests.Fabric(fabric=kind, options=wanted)), output, over=False)
    if output:
        then(f"testbed up {output}")


@topology.command(
    "from-mininet",
    help="""Convert a network of Mininet into a topology file.

    FILE is a Python file as for `mn --custom`, NAME an entry of its `topos` or a subclass of Topo, with arguments as
    for `mn --topo`: ring,4,delay=5ms. Without NAME it is the only one, or else the network that the script makes until
    it asks for a prompt. Switches become bridges; those of a network with loops need `--stp` or `--routing frr`.""",
)
@click.argument("file", metavar="FILE[:NAME]")
@click.option("--stp", is_flag=True, help="The bridges run spanning tree.")
@click.option("--routing", type=click.Choice(["frr"]), help="Switches route by FRR; each has a subnet for its hosts.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file; it must not exist.")
def from_mininet(file: str, stp: bool, routing: str | None, output: Path | None) -> None:
    if stp and routing:
        raise InputError("--stp and --routing exclude each other")
    give(_plan_of_mininet(file, stp=stp, routing=routing or "")["text"], output, over=False)
    if output:
        then(f"testbed up {output}")


@topology.command(
    "from-kathara",
    help="""Convert a Kathará lab into a topology file.

    DIR has lab.conf, and beside it the startup script and the directory of files of each device. The file's binds name
    them, so they stay where they are. Devices are containers of the lab's images, which `testbed image add` adds.""",
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--containers/--no-containers",
    default=True,
    help="Devices are containers, the default, or have the programs of the lab's machine and no files of theirs.",
)
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file; it must not exist.")
def from_kathara(directory: Path, containers: bool, output: Path | None) -> None:
    base = output.parent if output else directory
    request = requests.ConvertKathara(directory=str(directory), base=str(base), containers=containers)
    give(questions.ask(request, directory), output, over=False)
    if output:
        then(f"testbed up {output}")


def _plan_of_mininet(file: str, *, stp: bool = False, routing: str = "") -> ConvertedPlan:
    path, _, name = file.partition(":") if not os.path.isfile(file) else (file, "", "")
    options.prepare_for_code()
    questions.LOG.set(log)
    return questions.plan_of_mininet(Path(path), name, stp=stp, routing=routing)


@topology.command(help="Print the JSON Schema of topology files, for editors.")
def schema() -> None:
    click.echo(json.dumps(questions.ask(requests.Schema()), indent=1))


@click.command(
    help="""Draw the topology FILE: its switches in tiers, its hosts below them, each rail in a colour.

    Without FILE it draws the lab that is up, with the MACs and addresses that it has now; pods are not drawn."""
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--topo", "-t", type=click.Path(path_type=Path), help="The same as FILE, for containerlab's users.")
@click.option("--format", "style", type=click.Choice(get_args(GraphStyle)), default="svg", show_default=True)
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file.")
@lab_option
def graph(file: Path | None, topo: Path | None, style: GraphStyle, output: Path | None, name: str) -> None:
    file = file or topo
    if file is None:
        picture = drawn_lab(name, style)
    else:
        picture = questions.draw(file, style)
        if output is not None and os.path.exists(output) and output.samefile(file):
            raise InputError("is the topology itself", where=str(output), hint="Name another file for the picture.")
    show_notes(picture["notes"])
    give(picture["text"], output, over=True)


def drawn_lab(name: str, style: GraphStyle) -> Picture:
    """Draw a lab that is up, with what its kernel has."""
    from testbed.protocol.live import Rows

    with connect(name) as connection:
        return {"text": questions.draw_plan(connection.answer(Rows()), style), "notes": []}
