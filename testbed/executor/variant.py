"""A variant of a scenario: its lab built, its run, its verdict."""

import contextlib
import errno
import os
import traceback
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed import faults
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import InputError, TestbedError
from testbed.executor import Context, Ended, ignore_sigterm, topologies
from testbed.executor.live.server import Server
from testbed.executor.topologies import ScenarioLab
from testbed.executor.wire import MOMENT, Wire
from testbed.kernel import ownership
from testbed.kernel.kmsg import KernelLog
from testbed.lab import Lab
from testbed.protocol import Chosen, Event, Made, VariantOutcome, events, live, messages
from testbed.protocol.events import LOST
from testbed.protocol.messages import Channel, Emit
from testbed.protocol.requests import Variant
from testbed.scenario import loading
from testbed.scenario.event_log import EventLog
from testbed.scenario.evidence import Evidence
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.noninteractive import refuse_input
from testbed.scenario.rows import plan_rows
from testbed.scenario.run import NOT_CHOSEN, Run


class Cut(SystemExit):
    """The end, by the user, of a run that was stopped."""


class Moments:
    """The moments of one run."""

    def __init__(self, wire: Wire | None, emit: Emit, source: str, chosen: Chosen | None) -> None:
        """Without a wire, or on the real clock, there are none. `source` is the text of the lab's topology file;
        without a variant `chosen` that comes at the first of them."""
        self._wire = wire if wire and wire.virtual else None
        self._emit = emit
        self._source = source
        self._chosen = chosen
        self._number = 0
        self._holding = False
        """True while the run is held: a change by hand is then no moment of it."""
        self._lab: Lab | None = None
        self._log: EventLog | None = None
        self._server: Server | None = None

    def begin(self, lab: Lab, log: EventLog) -> None:
        self._lab, self._log = lab, log

    def up(self) -> None:
        """Reach the first moment: the lab is up, and prepared."""
        assert self._lab
        assert self._log
        self._reach(self._log.now, events.LAB.name, f"{self._lab.plan.name} is up")

    @property
    def chosen(self) -> Chosen:
        """Return the variant to run in the lab, which is up."""
        if self._chosen is None:
            raise TestbedError("the lab is up, and nobody has chosen a variant to run in it")
        return self._chosen

    def on_event(self, event: Event) -> None:
        """Receive an event of the run, which has been reported."""
        if self._server:
            self._server.publish(event)
        if is_moment(event) and self._number:
            self._reach(event["t"], event["kind"], event["text"])

    def _reach(self, t: int, kind: str, text: str) -> None:
        if self._wire is None or self._lab is None or self._holding:
            return
        self._number += 1
        self._emit({"moment": {"number": self._number, "t": t, "kind": kind, "text": text}})
        self._wire.pause(MOMENT)
        found = deque(self._wire.receive())
        while found:
            self._obey(found.popleft(), found)

    def _obey(self, message: dict[str, Any], next_ones: deque[dict[str, Any]]) -> None:
        """Do what a message asks for. One that holds the run has those that came with it served there."""
        assert self._wire
        assert self._lab
        assert self._log
        request = messages.parse(message)
        if isinstance(request, live.Choose):
            self._chosen = request.chosen
            return
        Channel(int(str(message["id"])), self._write).respond(None)
        if isinstance(request, live.StopAt):
            left = request.t - self._log.now
            self._lab.scheduler.after(left / 1e9, lambda: self._reach(request.t, "time", ""))
        elif isinstance(request, live.Hold):
            self._server = Server(self._lab, self._log, self._wire, self._source, received=next_ones)
            self._holding = True
            down = self._server.serve()
            self._holding = False
            if down is not None:
                down.respond(None)
                raise Cut(1)

    def _write(self, line: bytes, _: bool) -> None:
        assert self._wire
        self._wire.send(line)


def is_moment(event: Event) -> bool:
    if event["kind"] == events.EXPECT.name:
        match events.named(event["kind"], event["data"]):
            case events.Expectation(met=False):
                return True
    return event["kind"] in (events.STEP.name, events.FAULT_INJECTED.name)


RESERVE = 4 << 20
"""Bytes kept for the verdict of a scenario that fills the disk."""
COMPLAINTS = " WARNING: ", " BUG: ", " Oops", "general protection fault", "refcount_t"
FULL_DISK_HINT = "The guest's disk is in memory and has 900 MB. Narrow captures with a filter."


def run(request: Variant, context: Context) -> VariantOutcome:
    """Build the lab, run the scenario, take the lab down. Return the verdict."""
    emit, out, file = context.emit, context.out, context.files / request.scenario
    refuse_input(file.parent)
    scenario = loading.load(file)
    described = topologies.described_lab(request.lab, file)
    plan, profiles, topology = described.plan, described.profiles, file.parent / described.topology
    moments = Moments(context.wire, emit, topology.read_text(), request.chosen)

    def listen(event: Event) -> None:
        emit({"event": event})
        files.on_event(event)
        kernel.read(log)
        moments.on_event(event)

    log = EventLog(listen, lambda until_ns: emit({"settled": until_ns}))
    reserve, kernel = reserved(out), KernelWatch()
    emit({"made": Made(topology=plan_rows(plan, profiles), epoch=log.epoch())})
    networks = PodNetworks(file.parent)
    lab = Lab(
        plan,
        out,
        log.emit,
        profiles=profiles,
        networks=networks,
        zero_ns=log.zero_ns,
        files=topology.parent,
        kernel_ends=not ownership.current(),
        sealed=scenario.sealed,
    )
    moments.begin(lab, log)
    files = Evidence(lab, log)
    run = Run(lab, log, NOT_CHOSEN, files)
    up = False
    lab.defer(lambda: up or files.save("the lab could not be built"))
    try:
        with lab, before_teardown(), saved(files, run, file, reserve):
            up = True
            run.prepared = scenario.prepare(lab)
            moments.up()
            instance, parameters, values = begin(scenario, moments.chosen, run, described, request, file)
            emit({"parameters": values})
            faults.break_from_the_start(lab)
            run.failures += files.count("the lab came up")
            instance.run(run, parameters)
    except Ended:
        raise
    except Cut:
        run.failures.insert(0, "it was ended at its stop")
    except BaseException as error:  # whatever the user's code raises, SystemExit among it
        reserve.unlink(missing_ok=True)
        (out / "traceback.txt").write_text(traceback.format_exc())
        if (text := explain(error, file)) not in run.failures:
            run.failures.insert(0, text)
    reserve.unlink(missing_ok=True)
    run.failures += kernel.end(log, out / "kernel.log")
    with contextlib.closing(kernel):
        return run.outcome(out)


def begin(
    scenario: type[Scenario], chosen: Chosen, run: Run, lab: ScenarioLab, request: Variant, file: Path
) -> tuple[Scenario, Parameters, dict[str, Any]]:
    """Begin a variant's run in the lab that is up. Return the scenario's instance, and the parameters, also as JSON.
    InputError if they make another lab than when the scenario was described."""
    variant = scenario.variant(chosen["variant"])
    with loading.blaming(file):
        parameters = scenario.settle(variant, chosen["settings"])
        values = parameters.model_dump(mode="json")
    instance, own = topologies.lab_of(scenario, parameters, file, request.topology)
    if own != lab:
        raise InputError(
            "topology_for or profiles give another lab than when they were first called",
            where=file.name,
            hint="Let them depend on the parameters alone.",
        )
    run.begin(variant, chosen["without_faults"])
    return instance, parameters, values


@contextlib.contextmanager
def saved(files: Evidence, run: Run, file: Path, reserve: Path) -> Iterator[None]:
    """Save tables and counters at the end of the block. Record an interruption as a failure of the run at once: taking
    the lab down may raise something else."""
    try:
        yield
    except (Ended, Cut):
        raise
    except BaseException as error:
        reserve.unlink(missing_ok=True)
        run.failures = [explain(error, file), *run.failures, *files.save("the run was cut short")]
        raise
    run.failures += files.save("the end")
    run.warnings += run.lab.scheduler.programs.failed()


def reserved(out: Path) -> Path:
    """Make a file that reserves space on the disk until it is removed."""
    reserve = out / "reserve"
    with reserve.open("wb") as room:
        os.posix_fallocate(room.fileno(), 0, RESERVE)
    return reserve


class KernelWatch:
    """The kernel's log during a run: on a machine of the run's own from its start, on this very kernel from now on. It
    is read at each event, since the kernel keeps only the last few thousand records."""

    def __init__(self) -> None:
        self._log = KernelLog(whole=not ownership.current())
        self._lines: list[str] = []
        self._complaints: list[str] = []

    def close(self) -> None:
        self._log.close()

    def read(self, log: EventLog) -> None:
        """Copy the records that are new. An event reports the number of lost ones: a complaint may be among them."""
        lost = 0
        for record in self._log.records():
            if record.lost:
                lost += record.lost
                self._lines.append(f"({record.lost} records lost)")
            line = f"[{record.us / 1e6:12.6f}] {record.text}"
            self._lines.append(line)
            if record.kernel and any(words in line for words in COMPLAINTS):
                self._complaints.append(f"the kernel complained: {line}")
        if lost:
            log.emit(LOST(records=lost), "", f"{lost} records of the kernel's log were overwritten unread")

    def end(self, log: EventLog, copy: Path) -> list[str]:
        """Write the kernel's log to the file `copy`. Return its warnings and oopses: failures, whatever users saw."""
        self.read(log)
        try:
            copy.write_text("".join(f"{line}\n" for line in self._lines))
        except OSError as error:
            self._complaints.append(f"the kernel's log could not be kept: {error}")
        return self._complaints


def explain(error: BaseException, file: Path) -> str:
    """Describe the error that ended the run, with the place in the scenario's file that it came from."""
    line = loading.line_of(error, file)
    place = f"{file.name}:{line}: " if line else ""
    if isinstance(error, TestbedError):
        return str(error) if error.where.startswith(f"{file.name}:") else f"{place}{error}"
    hint = FULL_DISK_HINT if isinstance(error, OSError) and error.errno == errno.ENOSPC else ""
    return f"{place}{loading.words(error)}" + (f"\n  {hint}" if hint else "")


@contextlib.contextmanager
def before_teardown() -> Iterator[None]:
    """Ignore SIGTERM from the end of the block on, so that it does not cut the teardown of the lab short."""
    try:
        yield
    finally:
        ignore_sigterm()
