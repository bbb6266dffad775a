"""Options that several commands have, and the machine that they choose."""

import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from testbed.cli.output import log
from testbed.cli.progress import ensure_image
from testbed.cli.scenario_options import out_option, qemu_option
from testbed.errors import UnsupportedError
from testbed.machine import cache, checkup, containers, emulator, kvm, questions, scenarios
from testbed.machine.jobs import Machine
from testbed.machine.local import LocalMachine
from testbed.machine.scenarios import Source
from testbed.machine.vm import VirtualMachine
from testbed.protocol import Clock, ScenarioInfo

AT_ONCE = 4
"""Default number of variants that run side by side: each takes a core and up to 1 GB."""


jobs_option = click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Variants run at the same time. Default: by the number of CPUs."
)

junit_option = click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write a JUnit XML report."
)


@dataclass(frozen=True)
class MachineOptions:
    """Values of `machine_options`. `out` is the parent of run directories."""

    seed: int
    clock: Clock | None
    machine: str
    out: Path


def machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --seed, --clock, --machine and --out, which the command gets as `on`, MachineOptions."""

    @functools.wraps(command)
    def called(*, seed: int, clock: Clock | None, machine_name: str, out: Path, **others: Any) -> Any:
        questions.ON_THIS_KERNEL.set(machine_name == "local")
        return command(on=MachineOptions(seed, clock, machine_name, out), **others)

    for option in reversed(
        (
            click.option(
                "--seed",
                type=click.IntRange(0),
                default=1,
                show_default=True,
                help="Seed of all randomness in the guest.",
            ),
            click.option(
                "--clock", type=click.Choice(["virtual", "real"]), help="Default: virtual; real on the local machine."
            ),
            click.option(
                "--machine",
                "machine_name",
                type=click.Choice(["auto", "vm", "local"]),
                default="auto",
                show_default=True,
                help="vm: a micro-VM; local: this very kernel; auto: vm.",
            ),
            qemu_option,
            out_option,
        )
    ):
        called = option(called)
    return called


async def described(asked: Sequence[tuple[Source, Mapping[str, Any]]], named: Sequence[str] = ()) -> list[ScenarioInfo]:
    """Describe scenarios as `scenarios.describe` does, on a machine for code of others than testbed's."""
    if not all(source.is_shipped for source, _ in asked):
        questions.LOG.set(log)
        await asyncio.to_thread(prepare_for_code)
    return await scenarios.describe(asked, named)


def prepare_for_code() -> None:
    """Build the image of the micro-VM in which code of the user's files is run, if need be."""
    if not questions.ON_THIS_KERNEL.get():
        emulator.require()
        ensure_image()


def choose(machine_name: str, clock: Clock | None, log: Callable[[str], None]) -> Machine:
    """Return the machine of the options; build its image if need be. `log` gets the lines on slow steps."""
    cache.WAITING.set(log)
    if machine_name == "local":
        if clock == "virtual":
            raise click.UsageError("this kernel has only the real clock: leave out --clock virtual or --machine local")
        checkup.require_local()
        return LocalMachine(labs=True, log=log)
    emulator.require()
    image = ensure_image()
    if clock == "real" and kvm.answer() is None:
        log("test KVM: it takes up to half a minute, once, and the result is kept")
    return VirtualMachine(image, asyncio.run(kvm.flavour(image, clock or "virtual")), log)


async def equip(machine: Machine, packages: Sequence[str], images: Sequence[str] = ()) -> Machine:
    """Return the machine with these Debian packages and container images in it."""
    if not packages and not images:
        return machine
    if not isinstance(machine, VirtualMachine):
        if images:
            text = f"nodes with an image ({', '.join(images)}) are containers, which need a micro-VM"
            raise UnsupportedError(text, hint="Leave out --machine local.")
        checkup.require_packages(packages)
        return machine
    image = await containers.equip(machine.image, packages, images, machine.log)
    return VirtualMachine(image, machine.flavour, machine.log, keep_steps=machine.keep_steps)


def jobs_for(machine: Machine, asked: int | None) -> int:
    """Return the number of parallel variants. They disturb each other on the real clock and share a local kernel."""
    if isinstance(machine, LocalMachine) and asked not in (None, 1):
        raise click.UsageError("on the local machine variants run one after the other: leave out --jobs")
    if asked:
        return asked
    return min(len(os.sched_getaffinity(0)), AT_ONCE) if machine.clock == "virtual" else 1
