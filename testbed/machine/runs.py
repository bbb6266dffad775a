"""A scenario's variants on machines, side by side, and the run directory with their results."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import protocol
from testbed.errors import InputError, MachineError, TestbedError, did_you_mean, naming
from testbed.machine import record
from testbed.machine.files import writing
from testbed.machine.jobs import Job, Machine
from testbed.machine.record import Identity, Origin, RunResult, VariantResult
from testbed.machine.scenarios import Source
from testbed.machine.shared_lab import SharedLab
from testbed.machine.slots import Slots
from testbed.machine.task_group import TaskGroup
from testbed.protocol.events import EVIDENCE, LATEST_NS, OBSERVED
from testbed.protocol.live import Choose
from testbed.protocol.requests import Variant
from testbed.records import merged_captures, run_readme
from testbed.records.event_reader import checked

LONGEST_S = LATEST_NS / 1e9


@dataclass(frozen=True)
class VariantRun:
    """One run of a variant of a scenario. `label` is its name among those of the same command."""

    scenario: str
    label: str
    variant: protocol.VariantInfo
    without_faults: Sequence[int] = ()
    """Numbers of faults that are left out, in the order in which the run injects them."""


class Listener:
    """Listener for runs as they happen, such as the console. Every method does nothing until it is overridden."""

    def started(self, variant_run: VariantRun) -> None: ...

    def event(self, variant_run: VariantRun, event: protocol.Event) -> None:
        """Receive an event when it is reported, which is not always in the order of their time."""

    def settled(self, variant_run: VariantRun, until_ns: int) -> None:
        """Receive a time up to which no more events will come; none come after `finished` either."""

    def finished(self, variant_run: VariantRun, result: VariantResult) -> None: ...


def choose(info: protocol.ScenarioInfo, named: Sequence[str]) -> list[VariantRun]:
    """Return the variants to run, each by its name: those named, or all, in the scenario's order."""
    names = [variant["name"] for variant in info["variants"]]
    for name in named:
        if name not in names:
            hint = f"{did_you_mean(name, names)}It has: {', '.join(names)}."
            raise InputError(f"scenario {info['name']} has no variant {name!r}", hint=hint)
    chosen = [variant for variant in info["variants"] if not named or variant["name"] in named]
    return [VariantRun(info["name"], variant["name"], variant) for variant in chosen]


def run_directory(base: Path, scenario: str, *, latest: bool = True) -> Path:
    """Make a new directory ``<base>/<scenario>/<time>``; with `latest` the link of that name beside it points to it."""
    parent = base / scenario
    stamp = time.strftime("%Y%m%d-%H%M%S")
    with writing(parent, "Name another directory for runs with --out."):
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            path = parent / (f"{stamp}-{number}" if number else stamp)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
        if latest:
            link = parent / f".latest-{path.name}"
            link.symlink_to(path.name)
            link.replace(parent / "latest")
    return path


async def run(
    source: Source,
    info: protocol.ScenarioInfo,
    variant_runs: Sequence[VariantRun],
    seed: int,
    machine: Machine,
    out: Path,
    listener: Listener,
    slots: Slots,
) -> RunResult:
    """Run variants of a scenario, as many at a time as there are slots. Leave in `out` what repeats the run."""
    started: list[float] = []
    files = source.files()
    executable = source.executable(files)
    record.keep_files(files, executable, out)

    shared = shared_labs(variant_runs) if machine.clock == "virtual" else {}

    async def one(variant_run: VariantRun, ticket: int) -> VariantResult:
        lab = shared.get(variant_run.label)
        if lab:
            await lab.turn()
        async with slots.taken(ticket):
            started.append(time.monotonic())
            listener.started(variant_run)
            directory = out / variant_run.label
            directory.mkdir()
            shown = Shown(variant_run, directory, listener)
            request, then = asked(variant_run, source, machine)
            job = Job(
                [request],
                files,
                executable,
                limit_s=info["limit_s"],
                busy_s=info["busy_limit_s"],
                seed=seed,
                training=info["training"],
                lab=lab,
                then=then,
                listen=shown.listen,
            )
            try:
                result = await run_variant(job, source, variant_run, machine, directory, shown)
            finally:
                if lab:
                    lab.pass_on()
            listener.finished(variant_run, result)
            return result

    def meanwhile() -> Identity:
        """Do the work that the end of a run needs and that does not need the machine."""
        protocol.requests.adapter(protocol.VariantOutcome)
        return Identity.of(machine)

    try:
        async with TaskGroup() as group:
            identity = group.create_task(asyncio.to_thread(meanwhile))
            tasks = [group.create_task(one(variant_run, slots.ticket())) for variant_run in variant_runs]
        origin = Origin.of_run(identity.result(), source, files)
        variants, wall_s = [task.result() for task in tasks], time.monotonic() - started[0]
        texts = info["title"], info["text"]
        result = RunResult.of(info["name"], seed, machine.clock, wall_s, out, variants, origin, *texts)
        result.write()
    finally:
        explain(out, info["name"])
    return result


def shared_labs(variant_runs: Sequence[VariantRun]) -> dict[str, SharedLab]:
    """Return the labs that several of the runs have, by the label of each run."""
    groups: dict[str, list[str]] = {}
    for variant_run in variant_runs:
        groups.setdefault(json.dumps(variant_run.variant["lab"], sort_keys=True), []).append(variant_run.label)
    return {label: lab for labels in groups.values() if len(labels) > 1 for lab in [SharedLab()] for label in labels}


def asked(variant_run: VariantRun, source: Source, machine: Machine) -> tuple[Variant, Choose | None]:
    """Return the request for a variant. On the virtual clock it is for the lab alone, and the second one chooses the
    variant when that is up: the trace then does not depend on whose lab it was."""
    chosen: protocol.Chosen = {
        "variant": variant_run.variant["name"],
        "settings": variant_run.variant["settings"],
        "without_faults": [*variant_run.without_faults],
    }
    later = machine.clock == "virtual"
    request = Variant(
        scenario=source.file.name,
        lab=variant_run.variant["lab"],
        topology=source.inner_topology,
        chosen=None if later else chosen,
    )
    return request, Choose(chosen=chosen) if later else None


def explain(out: Path, scenario: str) -> None:
    """Write README.txt into a run directory, for the files that are there now."""
    run_readme.explain(out, f"Files of a run of the scenario {scenario}")


async def run_variant(
    job: Job[protocol.VariantOutcome],
    source: Source,
    variant_run: VariantRun,
    machine: Machine,
    directory: Path,
    shown: Shown,
) -> VariantResult:
    """Return a machine's verdict. An earlier end is a failure, unless the user's input or this machine caused it."""
    started = time.monotonic()
    try:
        wall_s = await machine.run(job, directory)
        outcome = verdict(job, source)
    except TestbedError as error:
        if error.exit_status != 1:
            raise
        wall_s, virtual_s = time.monotonic() - started, shown.virtual_s
        outcome = protocol.VariantOutcome(
            observed=shown.observed,
            evidence=shown.evidence,
            failures=[str(error)],
            warnings=[],
            trace="",
            virtual_s=virtual_s,
        )
    finally:
        shown.keep()
        if shown.made:
            await asyncio.to_thread(merged_captures.write, directory, shown.made, shown.events)
        run_readme.remove_empty(directory)
    return result_of(variant_run, outcome, wall_s, shown.made, shown.parameters, job.touched)


def result_of(
    variant_run: VariantRun,
    outcome: protocol.VariantOutcome,
    wall_s: float,
    made: protocol.Made | None = None,
    parameters: dict[str, Any] | None = None,
    touched: Sequence[str] = (),
) -> VariantResult:
    return VariantResult(
        name=variant_run.label,
        expected=variant_run.variant["expected"],
        observed=outcome["observed"],
        trace=outcome["trace"],
        virtual_s=round(outcome["virtual_s"], 9),
        wall_s=round(wall_s, 3),
        evidence=outcome["evidence"],
        failures=outcome["failures"],
        warnings=outcome["warnings"],
        variant=variant_run.variant["name"],
        settings=variant_run.variant["settings"],
        parameters=parameters,
        topology=made and record.digest(topology_text(made).encode()),
        epoch=made and made["epoch"],
        touched=list(touched),
        text=variant_run.variant["text"],
        without_faults=[*variant_run.without_faults],
    )


def topology_text(made: protocol.Made) -> str:
    return json.dumps(made["topology"], indent=1) + "\n"


def verdict(job: Job[protocol.VariantOutcome], source: Source) -> protocol.VariantOutcome:
    """Return the verdict in a job's response, if it is valid."""
    found = job.answer(about=source.file, place=source.place)
    if not 0 <= found["virtual_s"] < LONGEST_S:
        raise MachineError(f"the response is damaged: {found['virtual_s']} is not a number of seconds")
    return found


class Shown:
    """Keeper and forwarder of a variant's reports, however it ends. User code sends them: they may be anything."""

    def __init__(self, variant_run: VariantRun, directory: Path, listener: Listener) -> None:
        self._variant_run = variant_run
        self._directory = directory
        self._listener = listener
        self.events: list[protocol.Event] = []
        self.made: protocol.Made | None = None
        self.parameters: dict[str, Any] | None = None

    @property
    def virtual_s(self) -> float:
        """Return the seconds since the variant began, as far as events show."""
        return max((event["t"] for event in self.events), default=0) / 1e9

    @property
    def observed(self) -> protocol.Observed | None:
        """Return the outcome that the run observed, whatever came after."""
        return next((found.observed for found in map(OBSERVED.of, self.events) if found), None)

    @property
    def evidence(self) -> dict[str, Any]:
        return {key: value for found in map(EVIDENCE.of, self.events) if found for key, value in vars(found).items()}

    def listen(self, line: dict[str, Any]) -> None:
        match line:
            case {"event": found} if event := checked(found):
                self.events.append(event)
                self._listener.event(self._variant_run, event)
            case {"settled": int(until_ns)} if abs(until_ns) < LATEST_NS:
                self._listener.settled(self._variant_run, until_ns)
            case {
                "made": {
                    "topology": dict(),
                    "epoch": {"realtime_ns": int(zero), "monotonic_ns": int(), "kernel_ns": int() | None},
                } as made
            } if self.made is None and abs(zero) < LATEST_NS:
                self.made = made
                path = self._directory / protocol.TOPOLOGY
                with naming(path):
                    path.write_text(topology_text(made))
            case {"parameters": dict(parameters)} if self.parameters is None:
                self.parameters = parameters
            case _:
                raise MachineError(f"a line of progress is not an event: {str(line)[:80]}")

    def keep(self) -> None:
        """Write events.jsonl, in the order of time, if the machine left none."""
        path = self._directory / protocol.EVENTS
        if self.events and not path.exists():
            ordered = sorted(self.events, key=lambda event: event["t"])
            with naming(path):
                path.write_text("".join(json.dumps(event) + "\n" for event in ordered))
