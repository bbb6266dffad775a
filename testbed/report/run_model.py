"""A run for its report: the directory of a variant, or of a lab, with facts that are not in its files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.protocol import EPOCH, EVENTS, RESULT, TESTS, TOPOLOGY, Event, PlanRows
from testbed.records import json_files
from testbed.records.event_reader import read
from testbed.records.regular_files import contents_if_any

RUNS_HINT = "Run directories are runs/<scenario>/<time>; runs/<scenario>/latest is the latest one."

FAILURES = ("failed", "error")
"""Outcomes of tests: in the test itself, or around it."""
MOST_TESTS = 12
"""Maximum of tests in a report; those that passed fill the remaining places."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A directory with events.jsonl, topology.json, captures and counters: a variant's, or a lab's. Without outcomes it
    has no verdict. `realtime_ns` is CLOCK_REALTIME at t = 0; with None, captures have no place in the time line."""

    name: str
    directory: Path
    text: str = ""
    expected: str | None = None
    observed: str | None = None
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""
    virtual_s: float = 0.0
    wall_s: float | None = None
    realtime_ns: int | None = None

    @property
    def as_expected(self) -> bool | None:
        if self.expected is None:
            return None
        return self.observed == self.expected and not self.failures


@dataclass(frozen=True, kw_only=True)
class Run:
    """The parts of a report, and its head. `facts` are pairs of a name and a value."""

    name: str
    place: str
    """The name of its directory, which distinguishes it from other runs of the same scenario."""
    title: str
    text: str
    facts: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]

    @property
    def as_expected(self) -> bool | None:
        """True if all parts are as expected; None if no part has a verdict."""
        known = [one.as_expected for one in self.parts if one.as_expected is not None]
        return all(known) if known else None


def read_run(directory: Path) -> Run:
    """Read a run directory, of any version of testbed that wrote a result.json. InputError if it is none."""
    path = directory / RESULT
    if (directory / TESTS).is_file():
        return _session(directory)
    if not path.is_file():
        near = directory.parent / RESULT
        hint = f"Did you mean {directory.parent}?" if near.is_file() else RUNS_HINT
        raise InputError("is not a run directory: it has no result.json", where=str(directory), hint=hint)
    try:
        found = json_files.read(path)
        if "variants" not in found:
            return _lab(directory, found)
        parts = tuple(_part(directory, variant) for variant in found["variants"])
        scenario = str(found["scenario"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"is damaged: {type(error).__name__}: {error}", where=str(path)) from None
    made = found.get("made_from")
    made = made if isinstance(made, dict) else {}
    basics = found.get("seed"), found.get("clock"), found.get("trace")
    facts = _facts(made, found.get("image"), *basics, machine=found.get("machine"))
    title, text = str(found.get("title") or ""), str(found.get("text") or "")
    return Run(name=scenario, place=directory.resolve().name, title=title, text=text, facts=facts, parts=parts)


def _facts(
    made: Mapping[str, Any], image: Any, seed: Any, clock: Any, trace: Any, *, topology: Any = None, machine: Any = None
) -> tuple[tuple[str, str], ...]:
    """Return the facts in the head of a report: those that are known."""
    where = {"topology": topology, "seed": seed, "clock": clock, "machine": machine}
    programs = {"testbed": made.get("testbed"), "QEMU": made.get("qemu")}
    known = {**where, **programs, "image": str(image or "")[:12], "trace": str(trace or "")[:12]}
    return tuple((name, str(value)) for name, value in known.items() if value not in (None, ""))


def _session(directory: Path) -> Run:
    """Read the directory of a session of pytest: its tests that had a lab, all that failed and some that passed."""
    path = directory / TESTS
    try:
        tests = [test for _, test in json_files.lines(path)]
        with_labs = [test for test in tests if _has_lab(directory, test)]
        failed = [_test(directory, test) for test in with_labs if test["outcome"] in FAILURES]
        passed = [_test(directory, test) for test in with_labs if test["outcome"] == "passed"]
        failures = sum(test["outcome"] in FAILURES for test in tests)
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"is damaged: {type(error).__name__}: {error}", where=str(path)) from None
    parts = (*failed, *passed[: max(0, MOST_TESTS - len(failed))])
    if not parts:
        raise InputError("no test has a lab in its tmp_path", where=str(directory), hint="pytest.txt has its output.")
    return Run(
        name="pytest",
        place=directory.resolve().name,
        text="",
        parts=parts,
        title=f"{len(tests)} tests in a machine, {failures} failed",
        facts=(("with a lab", str(len(with_labs))), ("in this report", str(len(parts)))),
    )


def _has_lab(directory: Path, test: Mapping[str, Any]) -> bool:
    """Return whether the directory that a machine named is below the session's, and a lab's."""
    place = (directory / str(test["directory"])).resolve()
    return place.is_relative_to(directory.resolve()) and (place / EPOCH).is_file()


def _test(directory: Path, found: Mapping[str, Any]) -> Part:
    place = directory / found["directory"]
    epoch = read_json(place / EPOCH) or {}
    failures = (str(found["text"]),) if found["outcome"] != "passed" else ()
    return Part(
        name=str(found["test"]),
        directory=place,
        expected="passed",
        observed=str(found["outcome"]),
        failures=failures,
        virtual_s=float(found["virtual_s"]),
        wall_s=float(found["wall_s"]),
        realtime_ns=epoch.get("realtime_ns"),
    )


def _lab(directory: Path, found: dict[str, Any]) -> Run:
    """Read the directory of a lab, which has the files of a variant and no verdict."""
    made, epoch = dict(found["made_from"]), found.get("epoch") or {}
    basics = found["seed"], found["clock"], found["trace"]
    facts = _facts(made, made.get("image"), *basics, topology=found["topology"])
    name = str(found["name"])
    part = Part(
        name=name,
        directory=directory,
        trace=str(found["trace"]),
        virtual_s=float(found["virtual_s"] or 0),
        realtime_ns=epoch.get("realtime_ns"),
    )
    return Run(name=name, place=directory.resolve().name, title="A lab that lived", text="", facts=facts, parts=(part,))


def _part(directory: Path, found: dict[str, Any]) -> Part:
    name = str(found["name"])
    if not name or name in (".", "..") or "/" in name:
        raise ValueError(f"{name!r} cannot be the name of a variant")
    epoch = found.get("epoch") or {}
    return Part(
        name=name,
        directory=directory / name,
        text=str(found.get("text") or ""),
        expected=str(found["expected"]),
        observed=found["observed"] and str(found["observed"]),
        failures=tuple(map(str, found["failures"])),
        warnings=tuple(map(str, found.get("warnings") or ())),
        evidence=dict(found["evidence"]),
        settings=dict(found.get("settings") or {}),
        trace=str(found["trace"]),
        virtual_s=float(found["virtual_s"]),
        wall_s=float(found["wall_s"]),
        realtime_ns=epoch.get("realtime_ns"),
    )


def read_events(directory: Path) -> list[Event]:
    """Return the events of a directory, in the order of time; none without the file. A damaged line, such as the last
    one of a killed machine, is left out."""
    return sorted(read(directory / EVENTS), key=lambda event: event["t"])


def read_plan(directory: Path) -> PlanRows | None:
    """Return the planned topology of a directory; None if its machine ended before planning it."""
    path = directory / TOPOLOGY
    return json_files.plan(path) if path.is_file() else None


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file; None if it is missing or cut off. InputError if it cannot be read."""
    try:
        return json_files.parsed(contents_if_any(path) or b"")
    except ValueError:
        return None
