"""`testbed apply`: an edited topology file, or a Kubernetes manifest, for a lab that lives."""

from __future__ import annotations

import base64
import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.live import live_options
from testbed.cli.words import plain
from testbed.errors import InputError
from testbed.machine import files
from testbed.machine.live import labs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.cli.live.source import Found
    from testbed.protocol.live import ChangeRow

MOST_BYTES = 4 << 20
"""Bytes of the files that containers mount, in one message."""
SIGNS = {"new": ("+", "green"), "gone": ("-", "red"), "anew": ("±", "yellow"), "changed": ("~", "yellow")}


class Applying(click.Command):
    """`-f FILE` and `-t FILE` name the file, as kubectl's and containerlab's users type it; `-f json` is the format."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [
            word
            for word, following in itertools.zip_longest(args, args[1:])
            if not (word == "-t" or (word in ("-f", "--filename") and following not in ("json", "table")))
        ]
        return super().parse_args(ctx, words)


@click.command(
    cls=Applying,
    help="""Bring a lab that lives to its edited topology file: nodes, links, their values, faults. What the file does
    not change is not touched: it keeps its MACs, its planned addresses, its programs and its connections. What a node
    has from its begin, such as its container, makes the node anew.

    FILE may be a Kubernetes manifest, YAML or JSON, or a directory of them: its objects are added to the lab's, or
    replaced, and the pods of a Pod, Deployment, StatefulSet, DaemonSet or Job start. `-` is one from standard input.
    There may be several manifests.""",
)
@click.option("--dry-run", "dry", is_flag=True, help="Only print what would change.")
@live_options.lab_options
@click.argument("paths", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
def apply(dry: bool, name: str, form: str, paths: tuple[Path, ...]) -> int:
    from testbed.cli.live.object_commands import manifests

    read = {file: files.read_or_input(file) for file in manifests(paths)}
    if all(_is_manifest(data) for data in read.values()):
        return _objects(name, form, read, dry=dry)
    if len(read) > 1:
        wrong = next(file for file, data in read.items() if not _is_manifest(data))
        raise InputError(
            "it is not a Kubernetes manifest", where=files.shown(wrong), hint="A topology file goes alone."
        )
    ((file, data),) = read.items()
    if str(file) == "-" or not data.strip():
        hint = "A topology file is applied by its name."
        what = "it is not a Kubernetes manifest" if data.strip() else "it is empty"
        raise InputError(what, where=files.shown(file), hint=hint)
    from testbed.cli.live import source
    from testbed.protocol.live import Apply

    found = source.of_file(file)
    lab = name or _lab_of(file, found.name)
    sent, executable = _sent(found)
    text = data.decode(errors="replace")
    rows = live_options.ask(lab, Apply(name=str(file), text=text, files=sent, executable=executable, dry=dry))
    if form == "json":
        live_options.print_json(rows)
        return 0
    for row in rows:
        click.echo(_line(row))
    if not rows:
        click.echo(f"{plain(lab)} is as {plain(str(file))} says: nothing changes")
    live_options.then(*([f"testbed apply {file}"] if dry and rows else ["testbed inspect"]))
    return 0


def _lab_of(file: Path, name: str) -> str:
    """Return the lab of a file: that of the file's name, else the one that came up from this file."""
    there = labs.every()
    if any(lab.name == name for lab in there):
        return name
    came = [lab.name for lab in there if lab.topology and os.path.abspath(lab.topology) == os.path.abspath(file)]
    if len(came) == 1:
        return came[0]
    raise InputError(f"no lab {name} is up", where=str(file), hint=f"`testbed up {file}` brings it up.")


def _sent(found: Found) -> tuple[dict[str, str], list[str]]:
    """Return the files beside the topology file in base64, and which are executable, by their paths from it."""
    topology = str(found.asked["topology"])
    base = os.path.dirname(topology)
    beside = {name: data for name, data in found.files.items() if name != topology and not name.endswith("/")}
    total = sum(map(len, beside.values()))
    if total > MOST_BYTES:
        hint = "`testbed down`, then `testbed up`."
        raise InputError(f"the files that its containers mount have {total >> 20} MiB: too many to apply", hint=hint)
    texts = {os.path.relpath(name, base or "."): base64.b64encode(data).decode() for name, data in beside.items()}
    return texts, [os.path.relpath(name, base or ".") for name in found.executable]


def _line(row: ChangeRow) -> str:
    sign, colour = SIGNS[row["change"]]
    text = f"  {row['text']}" if row["text"] else ""
    return f"{click.style(sign, fg=colour)} {row['what']} {plain(row['name'])}{plain(text)}"


def _is_manifest(data: bytes) -> bool:
    """Return whether a file is one of objects, in YAML or JSON, and none of a topology."""
    key = rb'["\']?%s["\']?\s*:'
    begin = rb"^[\s{-]*" if not data.lstrip().startswith(b"{") else rb""
    topology = re.search(rb"^[\s{]*" + key % b"topology", data, re.MULTILINE)
    return bool(re.search(begin + key % b"apiVersion", data, re.MULTILINE)) and not topology


def _objects(name: str, form: str, read: Mapping[Path, bytes], *, dry: bool) -> int:
    from testbed.cli.live.object_commands import show_pods
    from testbed.protocol.live import ApplyObjects

    if dry:
        raise InputError("--dry-run is for topology files", where=str(next(iter(read))))
    applied: list[str] = []
    for file, data in read.items():
        found = live_options.ask(name, ApplyObjects(name=files.shown(file), text=data.decode(errors="replace")))
        for note in found["notes"]:
            click.echo(f"… {plain(note)}", err=True)
        if form != "json":
            for one in found["applied"]:
                click.echo(f"{plain(one)} is applied")
        applied += found["applied"]
    if form == "json":
        live_options.print_json({"applied": applied, "running": found["running"], "waiting": found["waiting"]})
    else:
        show_pods(found)
    return 0
