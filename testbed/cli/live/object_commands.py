"""`testbed get` and `testbed delete`: the Kubernetes objects of a lab that lives, as with kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.live import live_options
from testbed.cli.words import plain
from testbed.errors import InputError

if TYPE_CHECKING:
    from testbed.protocol.live import Applied


MOST_WAITING = 10
"""Pods whose reason to wait is printed."""


def show_pods(found: Applied) -> None:
    """Print how many pods of manifests run, and why others wait."""
    running, waiting = found["running"], found["waiting"]
    if running:
        click.echo(f"{len(running)} pod{'s run' if len(running) > 1 else ' runs'}: `testbed get pods` lists them")
    for pod, reason in list(waiting.items())[:MOST_WAITING]:
        click.echo(f"… {plain(pod)} waits: {plain(reason)}", err=True)
    if len(waiting) > MOST_WAITING:
        click.echo(f"… {len(waiting) - MOST_WAITING} more wait", err=True)


def namespaced(command: live_options.Command) -> live_options.Command:
    option = click.option("--namespace", "-n", "namespace", metavar="NAME", default="", help="Of this namespace.")
    return option(command)


@click.command(
    help="""List the Kubernetes objects of a lab, or one: `testbed get pods`, `testbed get sp rail1 -o yaml`. A pod and
    a pool are shown with what the lab has: the addresses of the pod's interfaces, those that the pool has given."""
)
@click.option("-o", "output", type=click.Choice(["yaml", "json", "wide", "name"]), help="Print them so.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Of all namespaces; so it is without -n.")
@namespaced
@live_options.lab_option
@click.argument("kind", metavar="KIND")
@click.argument("object_", metavar="[NAME]", default="")
def get(output: str | None, all_namespaces: bool, namespace: str, name: str, kind: str, object_: str) -> int:
    from testbed.cli.live.lab_tables import table
    from testbed.cli.progress import table_console
    from testbed.protocol.live import GetObjects

    if "/" in kind and not object_:
        kind, _, object_ = kind.partition("/")
    within = "" if all_namespaces else namespace
    found = live_options.ask(name, GetObjects(resource=kind, name=object_, namespace=within))
    objects = found["objects"]
    whole = objects[0] if object_ and len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    match output:
        case "json":
            click.echo(json.dumps(whole, indent=4, ensure_ascii=False))
        case "yaml":
            import yaml

            click.echo(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True), nl=False)
        case "name":
            for one in objects:
                click.echo(plain(f"{one['kind'].lower()}/{one['metadata']['name']}"))
        case _ if not objects:
            click.echo("No resources found", err=True)
        case _:
            columns = [*found["columns"], *(found["wide"] if output == "wide" else [])]
            shown = table(*columns)
            for row in found["rows"]:
                shown.add_row(*map(plain, row[: len(columns)]))
            table_console().print(shown)
    return 0


@click.command(
    help="""Delete a Kubernetes object of a lab, or those of a manifest: `testbed delete pod web-0`, `testbed delete -f
    pools.yaml`. A pod ends as with a container runtime: its programs, its networks, its namespace."""
)
@click.option("--filename", "-f", "file", type=click.Path(path_type=Path), help="Delete the objects of this manifest.")
@namespaced
@live_options.lab_option
@click.argument("kind", metavar="[KIND]", default="")
@click.argument("object_", metavar="[NAME]", default="")
def delete(file: Path | None, namespace: str, name: str, kind: str, object_: str) -> int:
    from testbed.machine import files
    from testbed.protocol.live import DeleteObjects

    if "/" in kind and not object_:
        kind, _, object_ = kind.partition("/")
    if bool(file) == bool(kind) or bool(kind) != bool(object_):
        hint = "`testbed delete pod web-0`, or `testbed delete -f FILE`."
        raise InputError("name a kind and an object, or a manifest", hint=hint)
    if file:
        request = DeleteObjects(manifest=files.read_or_input(file).decode(errors="replace"), file=files.shown(file))
    else:
        request = DeleteObjects(resource=kind, name=object_, namespace=namespace)
    for one in live_options.ask(name, request):
        click.echo(f"{plain(one)} is deleted")
    return 0
