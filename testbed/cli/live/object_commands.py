"""`testbed get`, `delete`, `scale` and `rollout`: the Kubernetes objects of a lab that lives, as with kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.live import live_options
from testbed.cli.words import plain
from testbed.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.protocol.live import Applied, Listing


MOST_WAITING = 10
"""Pods whose reason to wait is printed."""
MANIFESTS = (".yaml", ".yml", ".json")


class Selecting(click.Command):
    """A command in which `-l app=web` is a selector of labels, as kubectl's users type it; `-l NAME` is the lab."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        signs = ("=", "!", " in ", " notin ")
        words = [
            "--selector" if word == "-l" and any(sign in following for sign in signs) else word
            for word, following in zip(args, [*args[1:], ""], strict=True)
        ]
        return super().parse_args(ctx, words)


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


def selecting(command: live_options.Command) -> live_options.Command:
    words = "Those with these labels, such as app=web,tier!=db; `-l` means it if there is a sign in it."
    return click.option("--selector", metavar="LABELS", default="", help=words)(command)


def named(kind: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return kinds and names of the words `pod a b`, `pods,svc`, `pod/a svc/b`."""
    words = [kind, *names] if kind else []
    if not any("/" in word for word in words):
        return ([kind] if kind else []), list(names)
    if all("/" in word for word in words):
        pairs = [word.partition("/") for word in words]
        return list(dict.fromkeys(pair[0] for pair in pairs)), [pair[2] for pair in pairs]
    raise InputError("name all objects with their kinds, or none", hint="`pod/web-0 svc/web`, or `pod web-0 web-1`.")


@click.command(
    cls=Selecting,
    help="""List the Kubernetes objects of a lab, or some: `testbed get pods`, `testbed get sp rail1 -o yaml`, `testbed
    get pods,svc -l app=web`. A node, a pod and a pool are shown with what the lab has: whether the node is up, the
    addresses of the pod's interfaces, those that the pool has given.""",
)
@click.option("-o", "output", type=click.Choice(["yaml", "json", "wide", "name"]), help="Print them so.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Of all namespaces; so it is without -n.")
@selecting
@namespaced
@live_options.lab_option
@click.argument("kind", metavar="KIND")
@click.argument("names", metavar="[NAME]…", nargs=-1)
def get(
    output: str | None,
    all_namespaces: bool,
    selector: str,
    namespace: str,
    name: str,
    kind: str,
    names: tuple[str, ...],
) -> int:
    from testbed.protocol.live import GetObjects

    kinds, wanted = named(kind, names)
    within = "" if all_namespaces else namespace
    found = live_options.ask(name, GetObjects(resources=kinds, names=wanted, namespace=within, selector=selector))
    objects = [one for listing in found for one in listing["objects"]]
    whole = objects[0] if wanted and len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
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
            _show([listing for listing in found if listing["rows"]], wide=output == "wide")
    return 0


def _show(listings: Sequence[Listing], *, wide: bool) -> None:
    """Print a table for each kind, as kubectl does; several have their kinds before the names."""
    from testbed.cli.live.lab_tables import table
    from testbed.cli.progress import table_console

    for number, listing in enumerate(listings):
        if number:
            click.echo()
        columns = [*listing["columns"], *(listing["wide"] if wide else [])]
        shown, name = table(*columns), listing["columns"].index("NAME")
        for row in listing["rows"]:
            cells = row[: len(columns)]
            if len(listings) > 1:
                cells[name] = f"{listing['kind'].lower()}/{cells[name]}"
            shown.add_row(*map(plain, cells))
        table_console().print(shown)


@click.command(
    cls=Selecting,
    help="""Delete Kubernetes objects of a lab, or those of manifests: `testbed delete pod web-0 web-1`, `testbed delete
    deploy -l app=web`, `testbed delete -f pools.yaml`. A pod ends as with a container runtime: its programs, its
    networks, its namespace.""",
)
@click.option(
    "--filename",
    "-f",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Delete the objects of this manifest, or of those of a directory. Can be repeated.",
)
@click.option("--all", "all_", is_flag=True, help="Delete all objects of the kind in the namespace.")
@selecting
@namespaced
@live_options.lab_option
@click.argument("kind", metavar="[KIND]", default="")
@click.argument("names", metavar="[NAME]…", nargs=-1)
def delete(
    files: tuple[Path, ...], all_: bool, selector: str, namespace: str, name: str, kind: str, names: tuple[str, ...]
) -> int:
    from testbed.machine import files as local
    from testbed.protocol.live import DeleteObjects

    kinds, wanted = named(kind, names)
    ways = [bool(files), bool(wanted), bool(kind and selector), bool(kind and all_)]
    if sum(ways) != 1 or (files and kind):
        hint = "`testbed delete pod web-0`, `testbed delete pods --all`, or `testbed delete -f FILE`."
        raise InputError("name a kind and objects, or a manifest", hint=hint)
    requests = [
        DeleteObjects(manifest=local.read_or_input(file).decode(errors="replace"), file=local.shown(file))
        for file in manifests(files)
    ]
    if kinds:
        requests = [DeleteObjects(resources=kinds, names=wanted, namespace=namespace, selector=selector)]
    failed: list[str] = []
    for request in requests:
        done = live_options.ask(name, request)
        for one in done["deleted"]:
            click.echo(f"{plain(one)} is deleted")
        for one in done["staying"]:
            click.echo(f"… {plain(one)}: it is deleted when they are free", err=True)
        failed += done["failed"]
        if not any(done.values()):
            click.echo("No resources found", err=True)
    if failed:
        raise InputError(failed[0], also=[("", one) for one in failed[1:]])
    return 0


def manifests(files: Sequence[Path]) -> list[Path]:
    """Return the files that `-f` means: of a directory its manifests, in the order of their names. InputError."""
    found: list[Path] = []
    for file in files:
        if file.is_dir():
            inside = sorted(one for one in file.iterdir() if one.suffix in MANIFESTS and one.is_file())
            if not inside:
                raise InputError(
                    "the directory has no manifest", where=str(file), hint=f"It has {', '.join(MANIFESTS)}."
                )
            found += inside
        else:
            found.append(file)
    return found


@click.command(help="Give a Deployment, ReplicaSet or StatefulSet of a lab another size.")
@click.option("--replicas", type=click.IntRange(0), required=True, help="Number of its pods.")
@namespaced
@live_options.lab_option
@click.argument("kind", metavar="KIND")
@click.argument("object_", metavar="[NAME]", default="")
def scale(replicas: int, namespace: str, name: str, kind: str, object_: str) -> int:
    return _change(name, kind, object_, "scaled", namespace=namespace, replicas=replicas)


@click.command(help="`restart` gives a Deployment, StatefulSet or DaemonSet of a lab new pods, by a rolling update.")
@namespaced
@live_options.lab_option
@click.argument("verb", type=click.Choice(["restart"]))
@click.argument("kind", metavar="KIND")
@click.argument("object_", metavar="[NAME]", default="")
def rollout(verb: str, namespace: str, name: str, kind: str, object_: str) -> int:
    return _change(name, kind, object_, "restarted", namespace=namespace, restart=verb == "restart")


def _change(lab: str, kind: str, name: str, word: str, **values: Any) -> int:
    from testbed.protocol.live import ChangeWorkload

    kinds, names = named(kind, [name] if name else [])
    if len(names) != 1:
        raise InputError("name one object", hint="`testbed scale deploy web --replicas 3`.")
    found = live_options.ask(lab, ChangeWorkload(resource=kinds[0], name=names[0], **values))
    for one in found["applied"]:
        click.echo(f"{plain(one)} is {word}")
    show_pods(found)
    return 0
