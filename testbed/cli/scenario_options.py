"""Options that select parts of a scenario to run. `argument` is the command's argument with the scenario's name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from testbed.cli import completion_values

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
REPLACE = "Override a parameter's default; may be repeated. A variant's own value stays, unless --variant names it."

out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Directory for run directories.",
)


def split_settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        key, equals, chosen = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
        settings[key.strip()] = chosen.strip()
    return settings


def variants_option(argument: str) -> Decorator:
    return click.option(
        "--variant",
        "variants",
        metavar="NAME",
        multiple=True,
        shell_complete=completion_values.variants(argument),
        help="Only this variant; may be repeated.",
    )


def variant_option(argument: str, text: str) -> Decorator:
    return click.option("--variant", metavar="NAME", shell_complete=completion_values.variants(argument), help=text)


def set_option(argument: str, text: str = REPLACE) -> Decorator:
    return click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        callback=split_settings,
        shell_complete=completion_values.parameters(argument),
        help=text,
    )


def over_option(argument: str, text: str, *, required: bool = False) -> Decorator:
    return click.option(
        "--over",
        "overs",
        metavar="KEY[=VALUE,…]",
        multiple=True,
        required=required,
        shell_complete=completion_values.parameters(argument),
        help=text,
    )


def _choose_qemu(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value:
        from testbed.machine import emulator  # imports much

        os.environ[emulator.CHOICE] = value  # also for the processes that this one starts


qemu_option = click.option(
    "--qemu",
    metavar="host|PATH",
    expose_value=False,
    callback=_choose_qemu,
    help="Run the machine in this QEMU, or in the host's. Default: TESTBED_QEMU, else the image's.",
)
