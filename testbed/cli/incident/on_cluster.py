"""Rounds of a benchmark on the workers of a Dask cluster."""

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import click

from testbed.cli import options
from testbed.cli.live import incident_runs
from testbed.cli.progress import ensure_image
from testbed.errors import UnsupportedError
from testbed.machine.scenarios import Source
from testbed.machine.sweeps.points import Work


async def play(
    engine: str,
    rounds: Iterable[Sequence[str]],
    parent: Path,
    on_printed: Callable[[Sequence[str], str], Awaitable[None]],
) -> None:
    """Play rounds, given by their words after `testbed`, on the cluster at ``dask://HOST:PORT``."""
    if importlib.util.find_spec("distributed") is None:
        hint = "Install it: pip install 'testbed[dask]'"
        raise UnsupportedError("--engine dask://… needs Dask, which is not installed", hint=hint)
    from testbed.machine.sweeps import dask_cluster

    source = Source(incident_runs.NAME, incident_runs.FILE).taken()
    [info] = await options.described([(source, {})])
    image = await asyncio.to_thread(ensure_image)
    tell = lambda text: click.echo(f"… {text}", err=True)  # noqa: E731
    async with dask_cluster.connected(engine, Work(source, info), image, parent, tell) as cluster:
        await cluster.run_commands(rounds, on_printed)
