"""Where a machine begins to run our code: `prepare` once before a snapshot, `run` for each job.

As a program (``main``, with IN and OUT as arguments) it runs the job in the directory IN on this very kernel; progress
goes to file descriptor 3.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.protocol import CniAnswer, Job, Made, VariantOutcome, refusals

Emit = Callable[[dict[str, Any]], None]

WARM = (
    "pytest",
    "testbed.cni.pods",
    "testbed.cni.rxe",
    "testbed.faults",
    "testbed.lab.lab",
    "testbed.scenario.run",
    "testbed.scenario.loading",
    "testbed.scenario.session",
    "testbed.workload.tools",
    "testbed.workload.verbs",
)
RESERVE = 16 << 20
"""Bytes kept for the verdict of a scenario that fills the disk."""
COMPLAINT = re.compile(r"\bWARNING: |\bBUG: |\bOops\b|general protection fault|refcount_t")
FULL_DISK_HINT = "The guest's disk is memory, 900 MB. A capture can be narrowed with a filter."


def prepare(job: dict[str, Any], out: str, emit: Emit) -> None:
    """Imports and reads what any job may use, so that it is in the snapshot."""
    for name in WARM:
        importlib.import_module(name)
    from testbed import nic
    from testbed.cni import runtime
    from testbed.switch.profile import load_profiles

    load_profiles()
    nic.prepare()
    runtime.prepare()


def run(job: Job, out: str, emit: Emit) -> None:
    """Runs one job. What it has to say besides progress is in the directory `out`."""
    with refusals(Path(out)):
        for name in job.get("executable", []):
            (Path(job["in"]) / name).chmod(0o755)  # which a parcel does not carry
        if job.get("training"):
            from testbed.workload.jobs import ranks

            ranks.start()  # in a snapshot it has long been there
        match job["kind"]:
            case "describe" | "topology" | "faults" | "profiles" | "fabric" | "graph":
                from testbed import answers

                answers.give(job, Path(out))
            case "cni":
                use_networks(job, Path(out), emit)
            case "variant":
                run_variant(job, Path(out), emit)
            case "layer":
                from testbed import packages

                packages.install(job["layer"], Path(job["in"]), Path(out), emit)
            case "pytest":
                run_pytest(job, Path(out), emit)


def use_networks(job: Job, out: Path, emit: Emit) -> None:
    """Does what `testbed cni` was asked to, and leaves the answer in cni.json."""
    from testbed.cni.tool import Errand
    from testbed.scenario.events import EventLog

    request = job["cni"]
    os.chdir(job["in"])  # places in errors start with the name as the user gave it
    errand = Errand(request)
    if request["command"] == "load":
        answer: CniAnswer = {"result": None, "kept": []}
    else:
        answer = errand.run(out, EventLog(lambda event: emit({"event": event})).emit)
    (out / "cni.json").write_text(json.dumps(answer))


def run_variant(job: Job, out: Path, emit: Emit) -> None:
    """Builds the lab, runs the scenario, takes the lab down, leaves the verdict in outcome.json."""
    from testbed import answers, faults
    from testbed.cni.pods import PodNetworks
    from testbed.lab import Lab
    from testbed.scenario import loading
    from testbed.scenario.events import EventLog
    from testbed.scenario.noninteractive import refuse_input
    from testbed.scenario.run import Run

    file = Path(job["in"]) / job["scenario"]
    refuse_input(file.parent)
    scenario = loading.load(file)
    variant = scenario.variant(job["variant"])
    with loading.blaming(file):
        parameters = scenario.settle(variant, job.get("settings", {}))
        values = parameters.model_dump(mode="json")
    log = EventLog(lambda event: emit({"event": event}), lambda until_ns: emit({"settled": until_ns}))
    reserve = out / "reserve"
    reserve.write_bytes(bytes(RESERVE))
    teller, plan, profiles, _ = answers.lab_of(scenario, parameters, file, job.get("topology", ""))
    made: Made = {
        "parameters": values,
        "topology": answers.plan_rows(plan),
        "epoch": log.epoch(),
    }
    emit({"made": made})
    lab = Lab(plan, out, log.emit, profiles=profiles, networks=PodNetworks(file.parent))
    run = Run(lab, log, variant)
    up = False
    lab.defer(lambda: up or run.save_evidence("the lab could not be built"))
    try:
        with lab, before_teardown():
            up = True
            try:
                faults.break_from_the_start(lab)
                teller.run(run, parameters)
            except Ended:
                raise
            except BaseException:
                reserve.unlink()
                run.failures += run.save_evidence("the run was cut short")
                raise
            run.failures += run.save_evidence("the end")
    except Ended:
        raise
    except BaseException as error:  # whatever the user's code raises, SystemExit among it
        reserve.unlink(missing_ok=True)
        (out / "traceback.txt").write_text(traceback.format_exc())
        run.failures.insert(0, explain(error, file))
    reserve.unlink(missing_ok=True)
    run.failures += kernel_complaints(out / "kernel.log")
    outcome: VariantOutcome = run.outcome(out)
    (out / "outcome.json").write_text(json.dumps(outcome))


def kernel_complaints(copy: Path) -> list[str]:
    """Keeps the kernel's log in the file `copy`; a warning or an oops in it is a failure, whatever users saw."""
    lines = []
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            head, _, text = os.read(log, 1 << 16).decode(errors="replace").partition(";")
            microseconds = int(head.split(",")[2])
            lines.append(f"[{microseconds / 1e6:12.6f}] {text.splitlines()[0]}")
    except BlockingIOError:
        pass
    finally:
        os.close(log)
    copy.write_text("\n".join(lines) + "\n")
    return [f"the kernel complained: {line}" for line in lines if COMPLAINT.search(line)]


def explain(error: BaseException, file: Path) -> str:
    """What ended the run, with the place in the scenario's file it came from."""
    from testbed.scenario.loading import words

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    place = f"{file.name}:{lines[-1]}: " if lines else ""
    if isinstance(error, TestbedError):
        return str(error) if error.where.startswith(f"{file.name}:") else f"{place}{error}"
    hint = FULL_DISK_HINT if isinstance(error, OSError) and error.errno == errno.ENOSPC else ""
    return f"{place}{words(error)}" + (f"\n  {hint}" if hint else "")


def run_pytest(job: Job, out: Path, emit: Emit) -> None:
    """Runs a user's tests, and leaves pytest's status in status.json."""
    from testbed.scenario import imports
    from testbed.scenario.session import Session

    os.chdir(job["in"])
    imports.add(Path(job["in"]))
    limits = job.get("limits", {})
    session = Session(Path(job["in"]), out, emit, limit_s=limits.get("session_s"), test_limit_s=limits.get("test_s"))
    sys.stdout = sys.stderr = session.terminal
    (out / "status.json").write_text(json.dumps(session.run(job["arguments"])))


@contextlib.contextmanager
def before_teardown() -> Iterator[None]:
    """From the end of the block on, SIGTERM does not cut short what takes the lab down."""
    try:
        yield
    finally:
        ignore_sigterm()


class Ended(SystemExit):
    """The parent ends this process."""


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # not SIG_IGN, which programs started from here on would inherit


def end(*_: object) -> None:
    """So that a lab is taken down when its parent goes. The first signal begins that, no other cuts it short."""
    ignore_sigterm()
    raise Ended(1)


def main() -> None:
    """The job of a directory, on this kernel. Ends with status 0 whenever the job could say how it ended."""
    parcel, out = map(os.path.abspath, sys.argv[1:])  # a job may go to its files' directory
    job = json.loads((Path(parcel) / "job.json").read_text())
    signal.signal(signal.SIGTERM, end)
    with os.fdopen(3, "w", buffering=1) as progress:

        def emit(record: dict[str, Any]) -> None:
            progress.write(json.dumps(record) + "\n")

        try:
            run(job, out, emit)
        except Exception:
            (Path(out) / "error.txt").write_text(traceback.format_exc())
