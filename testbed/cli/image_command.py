"""`testbed image`: the images that machines boot from, and the images of containers."""

import asyncio
import json
from pathlib import Path

import click
from rich.table import Table

from testbed.cli.output import json_option, log
from testbed.cli.progress import ensure_image, output_console
from testbed.cli.words import duration, plain, size
from testbed.errors import InputError, UnsupportedError
from testbed.machine import containers, layers, making
from testbed.machine import image as images
from testbed.machine.archives import boot_image
from testbed.machine.image import Image, Layer
from testbed.machine.recipe import inputs_key

FILE = click.Path(dir_okay=False, path_type=Path)
KEY = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(help="Build, show, move or remove the image that machines boot from; add container images.")
def image() -> None:
    pass


@image.command(
    help="""Build the image if it is not there, and with --with a layer of Debian packages on top of it.

    A layer takes seconds. Scenarios that name these packages use it, and so does `testbed pytest --with`; it does not
    change runs that name none."""
)
@click.option("--with", "packages", metavar="PACKAGE,…", multiple=True, help="Add a layer with these packages.")
def build(packages: tuple[str, ...]) -> None:
    wanted = layers.names(packages)
    found = ensure_image()
    if wanted:
        found = asyncio.run(layers.ensure(found, wanted, log))
    click.echo(plain(found.layer.path if found.layer else found.path))


@image.command(help="Show the image of this version of testbed.")
@json_option("Print one JSON object, with every package and its version.")
def info(as_json: bool) -> None:
    found = _needed()
    if as_json:
        added = [{**layer.manifest, "path": str(layer.path)} for layer in layers.every(found)]
        click.echo(json.dumps({**found.manifest, "path": str(found.path), "layers": added}))
        return
    manifest = found.manifest
    total = sum(entry["size"] for entry in manifest["files"].values())
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for name, value in (
        ("digest", found.digest[:16]),
        ("kernel", found.kernel),
        ("packages", f"{len(manifest['packages'])} of Debian, {len(manifest['python'])} of Python"),
        ("size", size(total)),
        ("built", f"{manifest['built']}, in {duration(manifest['build_s'])}"),
        ("path", str(found.path)),
        *(("layer", _layer(layer)) for layer in layers.every(found)),
    ):
        table.add_row(name, value)
    output_console(uncut=True).print(table)


def _layer(layer: Layer) -> str:
    manifest = layer.manifest
    with_ = f"{', '.join(layer.asked)}: {len(manifest['packages'])} of Debian, {size(manifest['size'])}"
    return f"{with_}, in {duration(manifest['build_s'])}"


@image.command(help="Print a hash of everything the image of this version depends on: the key for a CI cache.")
def key() -> None:
    click.echo(inputs_key()[:16])


@image.command(
    help="""Add a container image to the cache, for topology nodes with `image: NAME`. FILE is the output of `docker
    save`, or an OCI layout as a tar file or a directory. Every layer is checked against its
    digest. An image of the same name is replaced."""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--name", metavar="NAME", default="", help="Name of the image, such as tools:1. Default: the name in the file."
)
def add(file: Path, name: str) -> None:
    added = containers.add(file, name)
    click.echo(f"{added.manifest['image'][:12]}  {plain(added.name)}, {size(added.size)}")


@image.command(help="List the container images that were added.")
@json_option("Print a JSON array with the digest of each image.")
def ls(as_json: bool) -> None:
    found = containers.every()
    if as_json:
        click.echo(json.dumps([{**one.manifest, "path": str(one.path)} for one in found]))
        return
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for column in "name", "image", "size":
        table.add_column(column)
    for one in found:
        table.add_row(plain(one.name), one.manifest["image"][:12], size(one.size))
    output_console(uncut=True).print(table)


@image.command(
    help="""Remove from the cache every image that machines boot from, with its layers, and every snapshot. With NAME,
    remove only the container images with these names."""
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
def rm(names: tuple[str, ...]) -> None:
    for name in names:
        containers.remove(name)
        click.echo(f"removed {plain(containers.canonical(name))}")
    if names:
        return
    removed = images.remove_all()
    making.clear()
    click.echo(f"removed {removed} image{'' if removed == 1 else 's'} and their snapshots")


@image.command(
    help="""Write the image with its layers to FILE, with its checksum in FILE.sha256.

    FILE is an OCI archive: `skopeo copy oci-archive:FILE docker://…` copies it to a registry."""
)
@click.argument("file", type=FILE)
@click.option(
    "--sign", "key", type=KEY, help="Sign it with this private key (PEM: Ed25519, ECDSA or RSA), also in FILE.sig."
)
def export(file: Path, key: Path | None) -> None:
    if not file.parent.is_dir():
        raise InputError("there is no such directory", where=str(file.parent))
    found = _needed()
    checksum = boot_image.export(found, file, layers.every(found), key)
    click.echo(f"{checksum}  {plain(file)}")


@image.command(
    "import",
    help="""Import an exported image into the cache; every byte is checked. SOURCE is the file that `testbed image
    export` wrote, or the directory to which `skopeo copy docker://… oci:DIR` copied it.""",
)
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--key", type=KEY, help="Refuse an image that the owner of this public key (PEM) did not sign.")
def import_(source: Path, key: Path | None) -> None:
    if not source.exists():
        raise InputError("there is no such file", where=str(source))
    click.echo(plain(boot_image.import_(source, key).path))


def _needed() -> Image:
    found = images.find()
    if found is None:
        raise UnsupportedError("there is no image of this version yet", hint="Run: testbed image build")
    return found
