"""Names from files and arguments reach the terminal without what it would obey: escape sequences, carriage returns,
bells, and characters that turn the direction of text."""

import json
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text

from testbed.cli.main import invoke
from testbed.cli.progress import error_console, output_console
from testbed.cli.scenario_list import columns
from testbed.machine.record import VariantResult

HOSTILE = "\x1b]0;owned\x07\x1b[2J\rx\u202egnp\u2066\x9b31m\x85\u200f\x08"
"""Set a title, ring, clear the screen, write over the line; a bidi override and isolate; C1's CSI and NEL."""

SCENARIO = """
from pydantic import Field
from testbed import Parameters, Scenario, Variant

H = {hostile!r}

class Sizes(Parameters):
    size: str = Field(H, description=H)

class Hostile(Scenario):
    title = "title " + H
    tags = (H,)
    variants = Variant("bad", "fault", "text " + H), Variant("good", "healthy", H)
    parameters = Sizes
    def run(self, run, parameters): ...

Hostile.__doc__ = "A story " + H
"""

MININET = """
from mininet.topo import Topo

class Pair(Topo):
    def build(self):
        self.addLink(self.addHost("h1"), self.addSwitch("s1", dpid={hostile!r}))

topos = {{"pair" + {hostile!r}: Pair}}
"""

LAB = "name: lab\ntopology:\n  nodes:\n    a: {kind: linux, cpu: 1}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    directory = Path(HOSTILE)
    directory.mkdir()
    (directory / "scenario.py").write_text(SCENARIO.format(hostile=HOSTILE))
    (directory / "topology.clab.yml").write_text(LAB)
    (directory / "lab.clab.yml").write_text(LAB)
    (directory / "pair.py").write_text(MININET.format(hostile=HOSTILE))
    Path(f"lab-{HOSTILE}.yml").write_text(LAB)
    Path("pair.py").write_text(MININET.format(hostile=HOSTILE))
    quoted = json.dumps(HOSTILE)
    values = {
        "name": f"name: {quoted}\ntopology: {{nodes: {{a: {{kind: host}}}}}}",
        "node": f"name: lab\ntopology: {{nodes: {{{quoted}: {{kind: host}}}}}}",
        "key": f"name: lab\ntopology: {{nodes: {{a: {{kind: host, {quoted}: 1}}}}}}",
        "profile": f"name: lab\ntopology: {{nodes: {{a: {{kind: switch, profile: {quoted}}}}}}}",
        "fault": f"name: lab\ntopology: {{nodes: {{a: {{kind: host}}}}, faults: [{{fault: {quoted}}}]}}",
        "parameter": f"name: lab\ntopology: {{nodes: {{a: }}, faults: [{{fault: nic-down, {quoted}: 1}}]}}",
        "exec": f'name: lab\ntopology: {{nodes: {{a: {{kind: host, exec: [{quoted}, "\'"]}}}}}}',
        "alias": f"name: *{HOSTILE}\n",
        "raw": f"name: {HOSTILE}\n",
    }
    for name, text in values.items():
        Path(f"{name}.yml").write_text(text, newline="")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([HOSTILE], 2),
        ([f"--{HOSTILE}"], 2),
        (["run", HOSTILE, "--variant", HOSTILE], 2),
        (["run", HOSTILE, "--set", HOSTILE], 2),
        (["run", HOSTILE, "--set", f"{HOSTILE}=1"], 2),
        (["run", f"no-{HOSTILE}"], 2),
        (["run", "--tag", HOSTILE], 2),
        (["run", "x", "--machine", HOSTILE], 2),
        (["run", "x", "--jobs", HOSTILE], 2),
        (["run", "x", f"--{HOSTILE}"], 2),
        (["matrix", HOSTILE, "--over", HOSTILE], 2),
        (["list", "--tag", HOSTILE], 2),
        (["list", HOSTILE], 2),
        (["list", "--json"], 0),
        (["describe", HOSTILE], 0),
        (["describe", HOSTILE, "--json"], 0),
        (["describe", f"{HOSTILE}/scenario.py"], 0),
        (["describe", f"no-{HOSTILE}"], 2),
        (["topology", HOSTILE], 2),
        (["topology", "new", HOSTILE], 2),
        (["topology", "new", "single", "--oversubscription", HOSTILE], 2),
        (["topology", "new", "single", "-o", f"no-{HOSTILE}/x.yml"], 2),
        (["topology", "new", "single", "-o", f"lab-{HOSTILE}.yml"], 2),
        (["topology", "check", f"lab-{HOSTILE}.yml"], 0),
        (["topology", "check", "--json", f"lab-{HOSTILE}.yml"], 0),
        (["topology", "check", HOSTILE], 2),
        (["topology", "check", f"no-{HOSTILE}"], 2),
        *(
            (["topology", "check", f"{name}.yml"], 2)
            for name in ("name", "node", "key", "profile", "fault", "parameter", "exec", "alias", "raw")
        ),
        (["topology", "check", "--mininet", f"{HOSTILE}/pair.py"], 0),
        (["topology", "from-mininet", f"{HOSTILE}/pair.py"], 0),
        (["topology", "from-mininet", f"pair.py:{HOSTILE}"], 2),
        (["topology", "from-mininet", f"pair.py:pair{HOSTILE}"], 0),
        (["graph", f"lab-{HOSTILE}.yml"], 0),
        (["graph", "node.yml"], 2),
        (["graph", f"lab-{HOSTILE}.yml", "--format", HOSTILE], 2),
        (["graph", f"lab-{HOSTILE}.yml", "-o", f"lab-{HOSTILE}.yml"], 2),
        (["graph", f"lab-{HOSTILE}.yml", "-o", f"no-{HOSTILE}/x.svg"], 2),
        (["fault", "describe", HOSTILE], 2),
        (["cni", HOSTILE], 2),
        (["cni", "add", f"no-{HOSTILE}"], 2),
        (["cni", "add", f"{HOSTILE}/pair.py"], 2),
        (["pytest", f"no-{HOSTILE}"], 2),
        (["image", "import", f"no-{HOSTILE}"], 2),
        (["image", "export", f"no-{HOSTILE}/x"], 2),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_nothing_that_a_terminal_would_obey_arrives(
    words: list[str], status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert invoke(words) == status
    assert_harmless(capfd)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["run", HOSTILE, "--set", f"size={HOSTILE}"], 1),
        (["run", HOSTILE, "--json"], 1),
        (["matrix", HOSTILE, "--over", f"size={HOSTILE}", "--out", HOSTILE], 0),
    ],
    ids=["run", "json", "matrix"],
)
def test_nor_does_it_from_a_run(
    words: list[str], status: int, ends_like: Callable[..., None], bad: VariantResult, capfd: pytest.CaptureFixture[str]
) -> None:
    ends_like(replace(bad, failures=[HOSTILE]))
    assert invoke(words) == status
    assert_harmless(capfd)


def test_whatever_a_console_shows_is_harmless(capfd: pytest.CaptureFixture[str]) -> None:
    """Tables and lines are made in many places; a name in one of them passes here."""
    table = columns("name")
    table.add_row(HOSTILE)
    for console in output_console(), error_console():
        console.print(table)
        console.print(HOSTILE, Text(HOSTILE), style="dim")
    assert_harmless(capfd)


def assert_harmless(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = capfd.readouterr()
    assert out + err
    bad = {c for c in out + err if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"}
    assert not bad, ascii(out + err)
