"""No command of these tests sees the user's cache or gets a machine; children are forks (`forked`)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.cli import options
from testbed.machine import runs, scenarios
from testbed.machine.record import Identity, Origin, RunResult, VariantResult
from testbed.machine.runs import VariantRun
from testbed.protocol import Event

SCENARIO = '''
from pydantic import Field
from testbed import Parameters, Scenario, Variant

class Size(Parameters):
    packets: int = Field(4, gt=0, description="packets of a message")

class Tiny(Scenario[Size]):
    """Tiny.

    A scenario that says little.
    """
    variants = Variant("bad", "fault", "it breaks"), Variant("good", "healthy", "it works", {"packets": 9})
    def run(self, run, parameters): ...
'''

IDENTITY = Identity("vm", "1.0", "c0de", "ef" * 32, "10.0.2 (Debian)", "tcg", None, None)
TOPOLOGY = "{name: tiny, topology: {nodes: {a: {kind: host}}}}"


@pytest.fixture(autouse=True)
def _forked(forked: object) -> None: ...


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "choose", lambda *_: pytest.fail("a machine was asked for"))


@pytest.fixture(autouse=True)
def _few_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scenarios are shipped: each is asked by a process of its own what it is."""
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    for name in ("ip-reuse", "cni-smoke"):
        (shipped / name).symlink_to(scenarios.SCENARIOS / name)
    monkeypatch.setattr(scenarios, "SCENARIOS", shipped)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The directory of a user's scenario: variants `bad` and `good`, parameter `packets`, which `good` sets itself."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    (directory / "scenario.py").write_text(SCENARIO)
    (directory / "topology.clab.yml").write_text(TOPOLOGY)
    return directory


@pytest.fixture
def good() -> VariantResult:
    return VariantResult(
        name="good",
        expected="healthy",
        observed="healthy",
        trace="ab" * 32,
        virtual_s=1503.25,
        wall_s=2.5,
        evidence={"completion": "SUCCESS"},
        failures=[],
        variant="good",
        settings={},
        parameters=None,
        topology=None,
        epoch=None,
    )


@pytest.fixture
def bad(good: VariantResult) -> VariantResult:
    """Not as expected."""
    failures = ["users saw fault where healthy was expected", "the first line\nand the second"]
    evidence = {"completion": "RETRY_EXC_ERR", "switch_arp": "pod A's MAC", "frames_to_dead_mac": "16 on e2"}
    return replace(
        good,
        name="bad",
        observed="fault",
        trace="cd" * 32,
        virtual_s=0.085,
        wall_s=1.0,
        evidence=evidence,
        failures=failures,
        variant="bad",
    )


@pytest.fixture
def ends_like(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Lets every run of a variant end like the given one, with its settings as evidence, and with the given events in
    its directory, without a machine."""

    def end(result: VariantResult, story: Sequence[Event] = ()) -> None:
        async def run_variant(
            _: object, __: object, variant_run: VariantRun, ___: object, directory: Path, ____: object
        ) -> VariantResult:
            (directory / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in story))
            settings = variant_run.variant["settings"]
            return replace(
                result,
                name=variant_run.label,
                variant=variant_run.variant["name"],
                settings=settings,
                evidence=settings,
            )

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(options, "choose", lambda *_: SimpleNamespace(clock="virtual"))
        monkeypatch.setattr(Identity, "of", lambda *_: IDENTITY)
        monkeypatch.setattr(runs, "run_variant", run_variant)

    return end


@pytest.fixture
def result_of() -> Callable[..., RunResult]:
    def make(*variants: VariantResult) -> RunResult:
        origin = Origin(**asdict(IDENTITY), file="scenario.py", files={})
        return RunResult.of("tiny", 7, "virtual", 3.5, Path("runs/tiny/1"), variants, origin)

    return make
