"""A variant of a scenario: its lab built, its run, its verdict."""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from testbed import faults
from testbed.cni.runtime.pods import PodNetworks
from testbed.errors import TestbedError
from testbed.executor import Context, Ended, ignore_sigterm, topologies
from testbed.executor.moments import Cut, Moments
from testbed.kernel import ownership
from testbed.lab import Lab
from testbed.protocol import Event, Made, VariantOutcome
from testbed.protocol.requests import Variant
from testbed.scenario import loading
from testbed.scenario.events import EventLog
from testbed.scenario.evidence import Evidence
from testbed.scenario.noninteractive import refuse_input
from testbed.scenario.rows import plan_rows
from testbed.scenario.run import Run

RESERVE = 4 << 20
"""Bytes kept for the verdict of a scenario that fills the disk."""
COMPLAINTS = " WARNING: ", " BUG: ", " Oops", "general protection fault", "refcount_t"
FULL_DISK_HINT = "The guest's disk is memory, 900 MB. A capture can be narrowed with a filter."


def run(request: Variant, context: Context) -> VariantOutcome:
    """Builds the lab, runs the scenario, takes the lab down; the verdict."""
    emit, out, file = context.emit, context.out, context.files / request.scenario
    refuse_input(file.parent)
    scenario = loading.load(file)
    variant = scenario.variant(request.variant)
    with loading.blaming(file):
        parameters = scenario.settle(variant, request.settings)
        values = parameters.model_dump(mode="json")
    instance, plan, profiles, _ = topologies.lab_of(scenario, parameters, file, request.topology)
    topology = topologies.file_of(instance, parameters, file, request.topology)
    moments = Moments(context.wire, emit, topology.read_text())

    def listen(event: Event) -> None:
        emit({"event": event})
        files.hear(event)
        moments.hear(event)

    log = EventLog(listen, lambda until_ns: emit({"settled": until_ns}))
    reserve, kernel_log = reserved(out), open_kernel_log()
    emit({"made": Made(parameters=values, topology=plan_rows(plan), epoch=log.epoch())})
    lab = Lab(
        plan, out, log.emit, profiles=profiles, networks=PodNetworks(file.parent), zero_ns=log.zero_ns,
        files=topology.parent,
    )  # fmt: skip
    moments.begin(lab, log)
    files = Evidence(lab, log)
    run = Run(lab, log, variant, files, without_faults=request.without_faults)
    up = False
    lab.defer(lambda: up or files.save("the lab could not be built"))
    try:
        with lab, before_teardown():
            up = True
            try:
                faults.break_from_the_start(lab)
                run.failures += files.count("the lab came up")
                instance.run(run, parameters)
            except (Ended, Cut):
                raise
            except BaseException:
                reserve.unlink()
                run.failures += files.save("the run was cut short")
                raise
            run.failures += files.save("the end")
    except Ended:
        raise
    except Cut:
        run.failures.insert(0, "it was ended where it was stopped")
    except BaseException as error:  # whatever the user's code raises, SystemExit among it
        reserve.unlink(missing_ok=True)
        (out / "traceback.txt").write_text(traceback.format_exc())
        run.failures.insert(0, explain(error, file))
    reserve.unlink(missing_ok=True)
    run.failures += kernel_complaints(kernel_log, out / "kernel.log")
    return run.outcome(out)


def reserved(out: Path) -> Path:
    """Makes a file that keeps room on the disk until it is removed."""
    reserve = out / "reserve"
    with reserve.open("wb") as room:
        os.posix_fallocate(room.fileno(), 0, RESERVE)
    return reserve


def open_kernel_log() -> int:
    """The kernel's log: of a machine that is the run's own from its start, of this very kernel from now on."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    if ownership.current():
        os.lseek(log, 0, os.SEEK_END)
    return log


def kernel_complaints(log: int, copy: Path) -> list[str]:
    """Keeps the kernel's log in the file `copy`, and closes it; a warning or an oops in it is a failure, whatever users
    saw."""
    lines = []
    try:
        while True:
            head, _, text = os.read(log, 1 << 16).decode(errors="replace").partition(";")
            microseconds = int(head.split(",")[2])
            lines.append(f"[{microseconds / 1e6:12.6f}] {text.splitlines()[0]}")
    except BlockingIOError:
        pass
    finally:
        os.close(log)
    copy.write_text("".join(f"{line}\n" for line in lines))
    return [f"the kernel complained: {line}" for line in lines if any(words in line for words in COMPLAINTS)]


def explain(error: BaseException, file: Path) -> str:
    """Describe the error that ended the run, with the place in the scenario's file it came from."""
    line = loading.line_of(error, file)
    place = f"{file.name}:{line}: " if line else ""
    if isinstance(error, TestbedError):
        return str(error) if error.where.startswith(f"{file.name}:") else f"{place}{error}"
    hint = FULL_DISK_HINT if isinstance(error, OSError) and error.errno == errno.ENOSPC else ""
    return f"{place}{loading.words(error)}" + (f"\n  {hint}" if hint else "")


@contextlib.contextmanager
def before_teardown() -> Iterator[None]:
    """From the end of the block on, SIGTERM does not cut short what takes the lab down."""
    try:
        yield
    finally:
        ignore_sigterm()
