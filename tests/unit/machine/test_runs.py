"""Variants side by side on any machine: what comes of them, and the directory that keeps what they left."""

import asyncio
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import InputError, MachineError, TestbedError
from testbed.machine import runs
from testbed.machine.jobs import Job
from testbed.machine.record import Identity, Origin, RunResult, VariantResult
from testbed.machine.runs import VariantRun
from testbed.machine.scenarios import Source
from testbed.machine.slots import Slots
from testbed.protocol import Chosen, Clock, Event, LabInfo, ScenarioInfo, VariantInfo, VariantOutcome
from testbed.protocol.live import Choose
from testbed.protocol.requests import Variant

IDENTITY = Identity("vm", "1.0", "c0de", "ef", "10.0.2 (Debian)", "tcg", None, None)
EVENT: Event = {"t": 5, "kind": "step", "node": "", "text": "begin", "data": {}}


def lab_of(name: str) -> LabInfo:
    """Variants `x.a` and `x.b` have the lab `x`."""
    return {"topology": f"{name.partition('.')[0]}.clab.yml", "profiles": {}}


def info(*names: str) -> ScenarioInfo:
    variants: list[VariantInfo] = [
        {"name": name, "expected": "healthy", "text": "", "settings": {"packets": "4"}, "lab": lab_of(name)}
        for name in names
    ]
    return {
        "name": "story",
        "title": "",
        "text": "",
        "tags": [],
        "parameters": {},
        "variants": variants,
        "limit_s": 60.0,
        "busy_limit_s": 60.0,
        "training": False,
        "notes": [],
        "packages": [],
        "images": [],
    }


def outcome(name: str, **changes: Any) -> dict[str, Any]:
    good = {"observed": "healthy", "evidence": {}, "failures": [], "warnings": [], "trace": name * 4, "virtual_s": 1.5}
    return {**good, **changes}


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Identity, "of", lambda _: IDENTITY)


def chosen(job: Job[Any]) -> Chosen:
    """Return the variant of a job, which comes when its lab is up."""
    [request] = job.requests
    assert (type(request), request.chosen) == (Variant, None)
    assert isinstance(job.then, Choose)
    return job.then.chosen


@dataclass
class FakeMachine:
    """Ends each variant as `endings` says: an error to raise, or a message; else with the expected outcome."""

    endings: Mapping[str, Exception | dict[str, Any]] = field(default_factory=dict)
    record: Any = field(default_factory=lambda: {"event": EVENT})
    pauses: Mapping[str, float] = field(default_factory=dict)
    jobs: list[Job[Any]] = field(default_factory=list)
    clock: Clock = "virtual"
    at_once: int = 0
    most: int = 0

    async def run(self, job: Job[Any], out: Path) -> float:
        self.jobs.append(job)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        name = chosen(job)["variant"]
        try:
            job.receive({"id": 0, "report": self.record})
            await asyncio.sleep(self.pauses.get(name, 0.001))
            ending = self.endings.get(name, {"response": outcome(name)})
            if isinstance(ending, Exception):
                raise ending
            if ending:
                job.receive({"id": 0, **ending})
            return 0.25
        finally:
            self.at_once -= 1


class Heard(runs.Listener):
    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def started(self, variant_run: VariantRun) -> None:
        self.all.append(("started", variant_run.label))

    def event(self, variant_run: VariantRun, event: Event) -> None:
        self.all.append((event["text"], variant_run.label))

    def finished(self, variant_run: VariantRun, result: VariantResult) -> None:
        self.all.append(("finished", variant_run.label))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "story").mkdir()
    (tmp_path / "story" / "scenario.py").write_text("the story")
    return Source("story", tmp_path / "story" / "scenario.py")


def run(
    source: Source, machine: FakeMachine, names: Sequence[str], *, jobs: int = 2, listener: runs.Listener | None = None
) -> RunResult:
    said = info(*names)
    out = runs.run_directory(source.file.parents[1] / "runs", "story")
    variant_runs, heard = runs.choose(said, []), listener or runs.Listener()

    async def go() -> RunResult:
        return await runs.run(source, said, variant_runs, 9, machine, out, heard, Slots(jobs))

    return asyncio.run(go())


def test_a_topology_of_the_user_travels_with_the_job(source: Source, tmp_path: Path) -> None:
    mine = tmp_path / "mine.clab.yml"
    mine.write_text("name: mine")
    machine = FakeMachine()
    run(replace(source, topology=mine), machine, ["a"])
    (job,) = machine.jobs
    (request,) = job.requests
    assert isinstance(request, Variant)
    assert job.files[request.topology] == b"name: mine"
    assert request.topology not in source.files()
    run(source, machine, ["a"])
    assert machine.jobs[-1].requests == [replace(request, topology="")]


# What to run, and where it is kept


def test_all_variants_are_run_unless_some_are_named() -> None:
    said = info("as-is", "garp", "aging")
    assert [variant_run.variant for variant_run in runs.choose(said, [])] == said["variants"]
    assert [variant_run.label for variant_run in runs.choose(said, ["garp"])] == ["garp"]
    assert [variant_run.label for variant_run in runs.choose(said, ["garp", "as-is", "garp"])] == ["as-is", "garp"]


@pytest.mark.parametrize(
    ("name", "guess"), [("", ""), ("worse", ""), ("GARP", "Did you mean garp? "), ("asis", "Did you mean as-is? ")]
)
def test_a_variant_that_is_not_there_is_refused_with_the_names_of_those_that_are(name: str, guess: str) -> None:
    with pytest.raises(InputError, match=f"scenario story has no variant '{name}'") as said:
        runs.choose(info("as-is", "garp"), ["garp", name])
    assert said.value.hint == f"{guess}It has: as-is, garp."


def test_run_directories_of_one_second_differ_and_latest_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "20260101-000000")
    made = [runs.run_directory(tmp_path / "runs", "story") for _ in range(3)]
    assert [path.name for path in made] == ["20260101-000000", "20260101-000000-1", "20260101-000000-2"]
    parent = tmp_path / "runs" / "story"
    assert (parent / "latest").resolve() == made[-1]
    assert (parent / "latest").readlink() == Path(made[-1].name)
    assert sorted(path.name for path in parent.iterdir()) == sorted([*(path.name for path in made), "latest"])


@pytest.mark.parametrize("place", ["/proc/runs", "/dev/null", "/dev/null/runs"])
def test_where_no_directory_can_be_made_is_wrong_input(place: str) -> None:
    with pytest.raises(InputError, match="cannot be written: ") as said:
        runs.run_directory(Path(place), "story")
    assert (said.value.where, "--out" in said.value.hint) == (f"{place}/story", True)


# What comes of them


def test_a_run_keeps_the_order_of_the_variants_and_leaves_its_result(source: Source) -> None:
    machine = FakeMachine(pauses={"slow": 0.05})
    result = run(source, machine, ["slow", "quick"])
    assert [variant.name for variant in result.variants] == ["slow", "quick"]
    assert result.as_expected
    assert [variant.wall_s for variant in result.variants] == [0.25, 0.25]
    assert json.loads((result.out / "result.json").read_text()) == result.json()
    assert (result.out / "slow" / "events.jsonl").is_file()


def test_a_machine_gets_the_job_its_files_and_its_limit(source: Source) -> None:
    machine = FakeMachine()
    run(source, machine, ["only"])
    (job,) = machine.jobs
    assert job.requests == [Variant(scenario="scenario.py", lab={"topology": "only.clab.yml", "profiles": {}})]
    assert chosen(job) == {"variant": "only", "settings": {"packets": "4"}, "without_faults": []}
    assert job.files == {"scenario.py": b"the story"}
    assert (job.seed, job.limit_s, job.busy_s, job.training, job.executable) == (9, 60.0, 60.0, False, [])


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_no_more_variants_run_at_once_than_jobs(source: Source, jobs: int) -> None:
    machine = FakeMachine()
    run(source, machine, [f"v{number}" for number in range(7)], jobs=jobs)
    assert machine.most == jobs


def begin_order(source: Source, machine: FakeMachine, names: Sequence[str], jobs: int = 2) -> list[str]:
    run(source, machine, names, jobs=jobs)
    return [chosen(job)["variant"] for job in machine.jobs]


def test_a_variant_with_the_lab_of_another_waits_until_that_is_up_and_then_comes_first(source: Source) -> None:
    """`x.b` waits for `x.a` alone, and meanwhile its place is given to `y`."""

    @dataclass
    class Builder(FakeMachine):
        async def run(self, job: Job[Any], out: Path) -> float:
            if chosen(job)["variant"] == "x.a":
                assert job.lab
                await asyncio.sleep(0.02)
                job.lab.keep(None, None)  # type: ignore[arg-type]
            return await super().run(job, out)

    machine = Builder(pauses={"x.a": 0.05, "y": 0.04, "z": 0.01})
    assert begin_order(source, machine, ["x.a", "x.b", "y", "z"]) == ["y", "x.a", "x.b", "z"]
    labs = {chosen(job)["variant"]: job.lab for job in machine.jobs}
    assert labs["x.a"] is labs["x.b"] is not None
    assert labs["y"] is labs["z"] is None


def test_a_variant_whose_lab_did_not_come_up_leaves_the_others_their_turn(source: Source) -> None:
    machine = FakeMachine({"x.a": MachineError("the guest hangs")})
    assert begin_order(source, machine, ["x.a", "x.b", "x.c"]) == ["x.a", "x.b", "x.c"]
    assert machine.most == 2


def test_on_the_real_clock_each_variant_has_its_own_lab_and_is_chosen_from_the_start(source: Source) -> None:
    @dataclass
    class Real(FakeMachine):
        clock: Clock = "real"

        async def run(self, job: Job[Any], _: Path) -> float:
            self.jobs.append(job)
            job.receive({"id": 0, "response": outcome("v")})
            return 0.25

    machine = Real()
    run(source, machine, ["x.a", "x.b"])
    assert [(job.lab, job.then) for job in machine.jobs] == [(None, None)] * 2
    assert [job.requests[0].chosen["variant"] for job in machine.jobs] == ["x.a", "x.b"]


def test_a_listener_hears_of_a_variant_when_it_runs_and_not_when_it_waits(source: Source) -> None:
    heard = Heard()
    run(source, FakeMachine(), ["a", "b"], jobs=1, listener=heard)
    story = ["started", "begin", "finished"]
    assert heard.all == [(what, name) for name in ("a", "b") for what in story]


def test_a_machine_that_fails_is_an_unexpected_variant_with_its_reason(source: Source) -> None:
    machine = FakeMachine({"hangs": MachineError("the guest hangs. Its last output:\n  | Oops")})
    result = run(source, machine, ["hangs", "fine"])
    hangs, fine = result.variants
    assert not result.as_expected
    assert (hangs.observed, hangs.as_expected) == (None, False)
    assert hangs.failures == ["the guest hangs. Its last output:\n  | Oops"]
    assert fine.as_expected
    assert json.loads((result.out / "result.json").read_text())["verdict"] == "unexpected"


@dataclass
class Shows:
    """A machine that shows lines of progress, writes files, and then fails."""

    lines: Sequence[dict[str, Any]]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    error: Exception | None = field(default_factory=lambda: MachineError("the guest hangs"))
    clock: Clock = "virtual"

    async def run(self, job: Job[Any], out: Path) -> float:
        for line in self.lines:
            job.receive({"id": 0, **line} if "response" in line else {"id": 0, "report": line})
        for name, data in self.files.items():
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(data.encode() if isinstance(data, str) else data)
        if self.error:
            raise self.error
        return 0.25


def test_what_was_shown_is_kept_when_the_machine_leaves_nothing(source: Source) -> None:
    late, early = {**EVENT, "t": 9_000_000_000}, {**EVENT, "t": 3, "text": "a switch learned"}
    result = run(source, Shows([{"event": late}, {"settled": 2}, {"event": early}]), ["v"])  # type: ignore[arg-type]
    (variant,) = result.variants
    assert (variant.observed, variant.virtual_s, variant.failures) == (None, 9.0, ["the guest hangs"])
    kept = [json.loads(line) for line in (result.out / "v" / "events.jsonl").read_text().splitlines()]
    assert kept == [early, late]


def test_what_a_run_observed_stays_whatever_ends_its_machine(source: Source) -> None:
    kinds = ("evidence", {"tries": 3}), ("evidence", {"status": "SUCCESS"}), ("observed", {"observed": "healthy"})
    events = [{"event": {**EVENT, "kind": kind, "data": data}} for kind, data in kinds]
    result = run(source, Shows(events), ["v"])  # type: ignore[arg-type]
    (variant,) = result.variants
    assert (variant.observed, variant.evidence) == ("healthy", {"tries": 3, "status": "SUCCESS"})
    assert (variant.as_expected, variant.failures) == (False, ["the guest hangs"])


@pytest.mark.parametrize("observed", ["all well", 7, ["fault"], None])
def test_an_observation_may_be_damaged(source: Source, observed: object) -> None:
    event = {**EVENT, "kind": "observed", "data": {"observed": observed}}
    (variant,) = run(source, Shows([{"event": event}]), ["v"]).variants  # type: ignore[arg-type]
    assert variant.observed is None


def test_the_events_that_a_machine_left_stay_as_they_are(source: Source) -> None:
    machine = Shows([{"event": EVENT}, {"response": outcome("v")}], {"events.jsonl": "whole\n"}, None)
    result = run(source, machine, ["v"])  # type: ignore[arg-type]
    assert (result.out / "v" / "events.jsonl").read_text() == "whole\n"


def test_empty_files_and_directories_are_not_left(source: Source) -> None:
    machine = Shows([], {"output.log": "", "cni/plugin.log": "", "kernel.log": "x"})
    result = run(source, machine, ["v"])  # type: ignore[arg-type]
    assert [path.name for path in (result.out / "v").rglob("*")] == ["kernel.log"]


MADE = {
    "topology": {"name": "pair", "interfaces": [{"node": "a"}]},
    "epoch": {"realtime_ns": 30, "monotonic_ns": 20, "kernel_ns": 10},
}


def test_a_run_directory_says_what_its_run_was_made_from(source: Source) -> None:
    result = run(source, Shows([{"made": MADE}, {"parameters": {"packets": 4}}]), ["v"])  # type: ignore[arg-type]
    found = json.loads((result.out / "result.json").read_text())
    sha256 = hashlib.sha256(b"the story").hexdigest()
    assert found["made_from"] == {
        "machine": "vm",
        "testbed": "1.0",
        "code": "c0de",
        "image": "ef",
        "qemu": "10.0.2 (Debian)",
        "accelerator": "tcg",
        "kernel": None,
        "python": None,
        "file": "scenario.py",
        "files": {"scenario.py": sha256},
        "given_topology": None,
        "given_program": None,
    }
    (variant,) = found["variants"]
    assert variant["variant"] == "v"
    assert variant["settings"] == {"packets": "4"}
    assert variant["parameters"] == {"packets": 4}
    assert variant["epoch"] == MADE["epoch"]
    topology = (result.out / "v" / "topology.json").read_bytes()
    assert variant["topology"] == hashlib.sha256(topology).hexdigest()
    assert json.loads(topology) == MADE["topology"]
    assert (result.out / "scenario" / "scenario.py").read_text() == "the story"


@pytest.mark.parametrize(
    "made",
    [{}, {**MADE, "topology": []}, {**MADE, "epoch": {}}, {**MADE, "epoch": {**MADE["epoch"], "realtime_ns": 1 << 63}}],
)
def test_what_a_run_is_made_from_may_be_damaged(source: Source, made: dict[str, Any]) -> None:
    result = run(source, Shows([{"made": made}]), ["v"])  # type: ignore[arg-type]
    assert result.variants[0].failures[0].startswith("a line of progress is not an event: ")


def test_the_captures_of_a_variant_are_merged_however_it_ends(source: Source) -> None:
    header = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
    machine = Shows([{"made": MADE}, {"event": EVENT}], {"a-eth1.pcap": header, "empty.log": ""})
    result = run(source, machine, ["v"])  # type: ignore[arg-type]
    assert not result.as_expected
    assert b"a-eth1.pcap" in (result.out / "v" / "packets.pcapng").read_bytes()


def test_a_run_directory_explains_itself(source: Source) -> None:
    result = run(source, Shows([{"made": MADE}], {"kernel.log": "x"}), ["v"])  # type: ignore[arg-type]
    lines = (result.out / "README.txt").read_text().splitlines()
    assert lines[0].startswith("Files of a run of the scenario story.")
    assert [line.split()[0] for line in lines if line[:1].islower()] == [
        "result.json",
        "scenario/",
        "topology.json",
        "kernel.log",
    ]


def test_a_script_that_the_scenario_runs_stays_executable(source: Source) -> None:
    script = source.file.parent / "plugin"
    script.write_text("#!/bin/sh")
    script.chmod(0o755)
    result = run(source, FakeMachine(), ["v"])
    assert (result.out / "scenario" / "plugin").stat().st_mode & 0o777 == 0o755


def test_an_error_of_the_story_is_an_unexpected_variant(source: Source) -> None:
    refusal = {"message": "no such node", "where": "", "hint": "It has: a, b.", "also": [], "status": 1}
    result = run(source, FakeMachine({"v": {"error": refusal}}), ["v"])
    assert result.variants[0].failures == ["no such node\n  It has: a, b."]


def test_a_crash_of_the_inside_is_an_unexpected_variant_with_its_traceback(source: Source) -> None:
    result = run(source, FakeMachine({"v": {"crash": "Traceback …\nValueError: ours\n"}}), ["v"])
    (failure,) = result.variants[0].failures
    assert failure.endswith("Traceback …\nValueError: ours")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"write": "text"},
        {"event": []},
        {"event": {}},
        {"event": {**EVENT, "t": "5"}},
        {"event": {**EVENT, "t": 10**400}},
        {"event": None},
    ],
)
def test_progress_that_is_no_event_is_an_unexpected_variant(source: Source, record: Any) -> None:
    result = run(source, FakeMachine(record=record), ["v"])
    (failure,) = result.variants[0].failures
    assert failure.startswith("a line of progress is not an event: {")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"response": []}, "the response is damaged: "),
        ({"response": {}}, "the response is damaged: observed: Field required"),
        ({"response": outcome("v", observed="maybe")}, "the response is damaged: observed: "),
        ({"response": outcome("v", virtual_s=float("nan"))}, "the response is damaged: nan is not a number of seconds"),
        ({"response": outcome("v", evidence=["a"])}, "the response is damaged: evidence: "),
        ({"error": {"message": "no"}}, "the error is damaged: "),
        ({"error": "\xff"}, "the error is damaged: "),
        ({"answer": 1}, "a line of progress is not a message: "),
        ({"id": 1, "report": {}}, "a line of progress is not a message: "),
        ({}, "{source}: its code ended the process before testbed had finished"),
    ],
)
def test_a_verdict_that_is_damaged_is_an_unexpected_variant(source: Source, message: dict[str, Any], text: str) -> None:
    result = run(source, FakeMachine({"v": message}), ["v"])
    assert not result.as_expected
    (failure,) = result.variants[0].failures
    assert failure.startswith(text.replace("{source}", str(source.file)))


@pytest.mark.parametrize("status", [2, 3])
def test_wrong_input_ends_the_whole_run(source: Source, status: int) -> None:
    refusal = {"message": "unknown key", "where": "topology.clab.yml:3:1", "hint": "", "also": [], "status": status}
    with pytest.raises(TestbedError) as raised:
        run(source, FakeMachine({"v": {"error": refusal}}), ["v", "w"])
    assert raised.value.exit_status == status
    assert raised.value.where == str(source.file.parent / "topology.clab.yml:3:1")
    [readme] = source.file.parents[1].glob("runs/story/*-*/README.txt")
    assert "result.json" not in readme.read_text()


# Its fingerprint


def variant(name: str, trace: str, **changes: Any) -> VariantResult:
    run = runs.choose(info(name), [])[0]
    return replace(runs.result_of(run, VariantOutcome(**outcome(name, trace=trace)), 1.0), **changes)


def result(*variants: VariantResult, wall_s: float = 1.0) -> RunResult:
    origin = Origin(**asdict(IDENTITY), file="scenario.py", files={})
    return RunResult.of("story", 1, "virtual", wall_s, Path("out"), variants, origin)


def test_a_trace_tells_stories_apart_and_nothing_else() -> None:
    one = result(variant("a", "11"), variant("b", "22"))
    assert one.trace == result(variant("a", "11", wall_s=7.0), variant("b", "22"), wall_s=9.0).trace
    others = [
        result(variant("a", "11"), variant("b", "23")),
        result(variant("a", "22"), variant("b", "11")),
        result(variant("a", "11"), variant("c", "22")),
        result(variant("a", "11")),
        result(variant("a1", "1"), variant("b", "22")),
    ]
    assert one.trace not in {other.trace for other in others}


def test_a_run_is_as_expected_when_every_variant_is() -> None:
    good, bad = variant("a", "11"), variant("b", "22", failures=["it does not hold"])
    assert result(good, good).as_expected
    assert not result(good, bad).as_expected
