"""A scenario's variants on machines, side by side, and the run directory that keeps what they left."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from testbed.errors import InputError, MachineError, TestbedError, did_you_mean
from testbed.machine import cache, scenarios
from testbed.machine.local import Machine
from testbed.machine.scenarios import Source
from testbed.protocol import Clock, Event, Job, Observed, ScenarioInfo, VariantInfo

LONGEST_S = 1e10
"""More virtual seconds than any run can have: the kernel counts nanoseconds in 64 bits."""
MachineName = Literal["vm", "local"]


@dataclass(frozen=True)
class Telling:
    """A variant of a scenario that is run once. `label` is its name among those that are run with it."""

    scenario: str
    label: str
    variant: VariantInfo


class Listener:
    """Sees runs as they happen; the console is one. Every method does nothing until it is overridden."""

    def started(self, telling: Telling) -> None: ...

    def event(self, telling: Telling, event: Event) -> None: ...

    def finished(self, telling: Telling, result: VariantResult) -> None: ...


@dataclass(frozen=True)
class VariantResult:
    """`observed` is None when the variant did not come to an observation; `failures` says why it is not as expected."""

    name: str
    expected: Observed
    observed: Observed | None
    as_expected: bool
    evidence: Mapping[str, Any]
    failures: Sequence[str]
    trace: str
    virtual_s: float
    wall_s: float

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "expected": self.expected,
            "observed": self.observed,
            "trace": self.trace,
            "virtual_s": round(self.virtual_s, 9),
            "wall_s": round(self.wall_s, 3),
            "evidence": dict(self.evidence),
            "failures": list(self.failures),
        }


@dataclass(frozen=True)
class Settings:
    """What the user chose for a run."""

    seed: int
    clock: Clock
    jobs: int


@dataclass(frozen=True)
class RunResult:
    scenario: str
    settings: Settings
    machine: MachineName
    image: str | None
    """Digest of the image, None on the local machine."""
    out: Path
    wall_s: float
    variants: list[VariantResult] = field(default_factory=list)

    @property
    def as_expected(self) -> bool:
        return all(variant.as_expected for variant in self.variants)

    @property
    def trace(self) -> str:
        """SHA-256 over the variants' names and traces."""
        return cache.digest(*(part for variant in self.variants for part in (variant.name, variant.trace)))

    def json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "verdict": "as-expected" if self.as_expected else "unexpected",
            "seed": self.settings.seed,
            "clock": self.settings.clock,
            "machine": self.machine,
            "image": self.image,
            "trace": self.trace,
            "wall_s": round(self.wall_s, 3),
            "out": str(self.out),
            "variants": [variant.json() for variant in self.variants],
        }


def choose(info: ScenarioInfo, named: Sequence[str]) -> list[Telling]:
    """The variants to run, each by its name: those named, or all, in the scenario's order."""
    names = [variant["name"] for variant in info["variants"]]
    for name in named:
        if name not in names:
            hint = f"{did_you_mean(name, names)}It has: {', '.join(names)}."
            raise InputError(f"scenario {info['name']} has no variant {name!r}", hint=hint)
    chosen = [variant for variant in info["variants"] if not named or variant["name"] in named]
    return [Telling(info["name"], variant["name"], variant) for variant in chosen]


def run_directory(base: Path, scenario: str) -> Path:
    """A new directory ``<base>/<scenario>/<time>``; ``latest`` beside it points to it."""
    parent = base / scenario
    parent.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        path = parent / (f"{stamp}-{number}" if number else stamp)
        try:
            path.mkdir()
            break
        except FileExistsError:
            number += 1
    link = parent / f".latest-{path.name}"
    link.symlink_to(path.name)
    link.replace(parent / "latest")
    return path


async def run(
    source: Source,
    info: ScenarioInfo,
    tellings: Sequence[Telling],
    settings: Settings,
    machine: Machine,
    names: tuple[MachineName, str | None],
    out: Path,
    listener: Listener,
    free: asyncio.Semaphore,
) -> RunResult:
    """Runs variants of a scenario, as many at a time as `free` lets; `names` is the machine's and its image's. Leaves
    result.json in `out`."""
    started: list[float] = []
    files = source.files()

    async def one(telling: Telling) -> VariantResult:
        async with free:
            started.append(time.monotonic())
            listener.started(telling)
            directory = out / telling.label
            directory.mkdir()
            result = await run_variant(source, info, telling, settings, machine, files, directory, listener)
            listener.finished(telling, result)
            return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(telling)) for telling in tellings]
    result = RunResult(
        info["name"], settings, *names, out, time.monotonic() - started[0], [task.result() for task in tasks]
    )
    (out / "result.json").write_text(json.dumps(result.json(), indent=1) + "\n")
    return result


async def run_variant(
    source: Source,
    info: ScenarioInfo,
    telling: Telling,
    settings: Settings,
    machine: Machine,
    files: Mapping[str, bytes],
    directory: Path,
    listener: Listener,
) -> VariantResult:
    variant = telling.variant
    job: Job = {
        "kind": "variant",
        "name": info["name"],
        "scenario": source.file.name,
        "variant": variant["name"],
        "settings": variant["settings"],
        "seed": settings.seed,
        "training": info["training"],
    }
    started = time.monotonic()

    def failed(reason: str) -> VariantResult:
        wall = time.monotonic() - started
        return VariantResult(telling.label, variant["expected"], None, False, {}, [reason], "", 0.0, wall)

    def listen(record: dict[str, Any]) -> None:
        listener.event(telling, event_of(record))

    try:
        wall = await machine.run(job, files, directory, listen, limit_s=info["limit_s"])
        scenarios.raise_refusal(directory, source)
        return result_of(scenarios.left_json(directory, "outcome.json"), telling, wall)
    except MachineError as error:
        return failed(str(error))
    except TestbedError as error:
        if error.exit_status != 1:
            raise
        return failed(str(error))


def event_of(record: Any) -> Event:
    """The event of a line of progress. The job ran the user's code, so this and what it left may be anything."""
    match record:
        case {"event": {"t": int(t), "kind": str(), "node": str(), "text": str(), "data": dict()}} if (
            0 <= t < LONGEST_S * 1e9
        ):
            event: Event = record["event"]
            return event
    raise MachineError(f"a line of progress is no event: {str(record)[:80]}")


def result_of(found: Any, telling: Telling, wall_s: float) -> VariantResult:
    """What a job's outcome.json says; None where there is none."""
    match found:
        case {
            "observed": "fault" | "healthy" | None as observed, "as_expected": bool(as_expected),
            "evidence": dict(evidence), "failures": list(failures), "trace": str(trace),
            "virtual_s": int() | float() as virtual_s,
        } if 0 <= virtual_s < LONGEST_S:  # fmt: skip
            said = [str(failure) for failure in failures]
            return VariantResult(
                telling.label, telling.variant["expected"], observed, as_expected, evidence, said, trace, virtual_s,
                wall_s,
            )  # fmt: skip
        case None:
            raise MachineError("the scenario's code ended its process before there was a verdict")
    raise MachineError(f"the verdict is damaged: {str(found)[:80]}")
