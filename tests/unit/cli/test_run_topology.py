"""`testbed run SCENARIO --topology FILE`: another lab for a scenario, which must have what the scenario names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.cli.main import invoke
from testbed.machine.record import VariantResult

SCENARIO = """
from testbed import Scenario, Variant
from testbed.faults import LinkDown
from testbed.switch.profile import profile

class Two(Scenario):
    title = "Two hosts"
    variants = (Variant("v", "healthy", ""),)
    def profiles(self, parameters):
        return {"core": profile("sonic")}
    def run(self, run, parameters):
        run.lab.host("client").ping("10.0.0.1", within=1)
        run.inject(LinkDown(end="leaf:e1"))
"""
TOPOLOGY = """\
name: two
topology:
  nodes: {leaf: {kind: switch}, core: {kind: switch}, client: {kind: host}, spare: {kind: host}}
  links:
    - endpoints: ["leaf:e1", "client:eth1"]
    - endpoints: ["leaf:e2", "spare:eth1"]
    - endpoints: ["leaf:e3", "core:e1"]
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("two").mkdir()
    Path("two/scenario.py").write_text(SCENARIO)
    Path("two/topology.clab.yml").write_text(TOPOLOGY)
    return Path("two")


def mine(text: str) -> str:
    Path("mine.clab.yml").write_text(text)
    return "mine.clab.yml"


def test_one_that_fits_runs(two: Path, ends_like: Callable[..., None], good: VariantResult) -> None:
    ends_like(good)
    smaller = TOPOLOGY.replace(", spare: {kind: host}", "").replace('    - endpoints: ["leaf:e2", "spare:eth1"]\n', "")
    assert invoke(["run", str(two), "--topology", mine(smaller)]) == 0  # the scenario does not name the spare host


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("client", "customer", "mine.clab.yml: there is no host 'client'"),
        ("core: {kind: switch}", "core: {kind: host}", "'core' is a host here; the scenario needs it as a switch"),
        ('"leaf:e1"', '"leaf:e9"', "'leaf' has no interface 'e1'"),
        ("kind: host}, spare", "kind: hos}, spare", "mine.clab.yml:3:70: kind 'hos' is not supported"),
    ],
)
def test_one_that_does_not_fit_is_2_before_a_machine_starts(
    two: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    assert invoke(["run", str(two), "--topology", mine(TOPOLOGY.replace(old, new))]) == 2
    assert said in capsys.readouterr().err


def test_it_is_for_one_scenario(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", str(two), "ip-reuse", "--topology", mine(TOPOLOGY)]) == 2
    assert "--topology is for one scenario" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_2(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", str(two), "--topology", "none.clab.yml"]) == 2
    assert "none.clab.yml: no such file" in capsys.readouterr().err
