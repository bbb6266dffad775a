"""The recipes of docs/architecture.md, each carried out with a trivial example on a copy of the package.

An edit of a file that the recipe does not name fails, as does a recipe that names a file or a table that is not there.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SECTION = PAGE.partition("## Extending it\n")[2].partition("\n## ")[0]
RECIPES = {
    heading: " ".join(text.split())
    for heading, text in re.findall(r"^\*\*(.+?)\.\*\* (.*?)(?=\n\n|\Z)", SECTION, re.DOTALL | re.MULTILINE)
}
FILES = [file for part in ("testbed", "tests", "docs") for file in (ROOT / part).rglob("*") if file.is_file()]


class Tree:
    """A copy of the package, and the files of it that were changed. Files are shared with the original until then."""

    def __init__(self, directory: Path) -> None:
        self._root, self._package = directory, directory / "testbed"
        self.changed: set[str] = set()
        shutil.copytree(ROOT / "testbed", self._package, copy_function=linked)

    def write(self, name: str, text: str) -> None:
        file = self._package / name
        file.unlink(missing_ok=True)
        file.write_text(text)
        self.changed.add(name)

    def read(self, name: str) -> str:
        return (self._package / name).read_text()

    def add(self, name: str, text: str) -> None:
        """Write a new file, or the end of one."""
        self.write(name, (self.read(name) if (self._package / name).exists() else "") + dedent(text))

    def copy(self, name: str, other: str) -> None:
        shutil.copy2(self._package / name, self._package / other)
        self.changed.add(other)

    def insert(self, name: str, anchor: str, text: str = "", *, before: str = "") -> None:
        """Put a text behind the only place of another one, or before it."""
        there = self.read(name)
        assert there.count(anchor) == 1, f"{name} has no single {anchor!r}"
        self.write(name, there.replace(anchor, before + anchor + text))

    def check(self, program: str) -> None:
        """Run a program that imports the copy and nothing of the original."""
        environment = {**os.environ, "PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        body = f"import testbed\nassert testbed.__file__.startswith({str(self._root)!r})\n{dedent(program)}"
        command = [sys.executable, "-P", "-c", body]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def is_named(file: str, recipe: str) -> bool:
    """Whether a recipe names a file, or the directory in which the example is a file of the user's choice."""
    directory, name = os.path.split(file)
    return any(f"`{word}" in recipe for word in (file, f"{directory}/<", f"{directory}`", f"{directory}/`", f"{name}`"))


CARRIED_OUT: dict[str, Callable[[Tree], None]] = {}


def recipe(heading: str) -> Callable[[Callable[[Tree], None]], Callable[[Tree], None]]:
    def register(carry_out: Callable[[Tree], None]) -> Callable[[Tree], None]:
        CARRIED_OUT[heading] = carry_out
        return carry_out

    return register


@recipe("A node kind")
def node_kind(tree: Tree) -> None:
    tree.add(
        "topology/kinds/hub.py",
        '''
        from dataclasses import dataclass

        from testbed.topology.definition import Definition
        from testbed.topology.kinds.kind import Kind, Shape
        from testbed.topology.plan import Node


        class HubKeys(Definition):
            repeats: int | None = None
            """Hub: how often it sends a frame."""


        @dataclass(frozen=True, slots=True)
        class HubPlan(Node):
            repeats: int = 1


        class Hub(Kind):
            name = "hub"
            lab_class = "hub:Hub"
            about = "a repeater"
            keys = HubKeys
            shape = Shape(("[", "]"), "box", "fill: #123456")

            def plan(self, node, interfaces, problems):
                return HubPlan(node.name, self.name, interfaces, repeats=node.keys.repeats or 1)
        ''',
    )
    tree.insert(
        "topology/kinds/__init__.py",
        "from testbed.topology.kinds.host_kind import Host\n",
        "from testbed.topology.kinds.hub import Hub\n",
    )
    tree.insert("topology/kinds/__init__.py", "for kind in (", "Hub(), ")
    tree.add(
        "lab/nodes/hub.py",
        """
        from testbed.lab.interface import Interface
        from testbed.lab.node import Node


        class Hub(Node[Interface]):
            def make_interface(self, name, index, mac, plan):
                return Interface(self, name, index, mac, plan)
        """,
    )
    tree.check("""
        from testbed.errors import InputError
        from testbed.lab import builder
        from testbed.lab.nodes.hub import Hub
        from testbed.topology import Topology, json_schema
        from testbed.topology.graph.svg import STYLE

        nodes = "h: {kind: %s, repeats: 3}, a: {kind: host}"
        text = "{name: t, topology: {nodes: {" + nodes + "}, links: [{endpoints: ['h:1', 'a:1']}]}}"
        plan = Topology.parse(text % "hub").plan()
        assert plan.nodes["h"].repeats == 3
        assert builder.KINDS[plan.nodes["h"].kind] is Hub
        node = json_schema()["$defs"]["NodeDefinition"]["properties"]
        assert "`hub`: a repeater." in node["kind"]["description"] and "repeats" in node
        assert "fill: #123456" in STYLE
        try:
            Topology.parse(text % "switch").plan()
        except InputError as error:
            assert "'repeats' is a key of a hub, not of a switch" in str(error)
        else:
            raise AssertionError("a switch has the key of a hub")
    """)


@recipe("A fault")
def fault(tree: Tree) -> None:
    tree.add(
        "faults/weather.py",
        '''
        from typing import ClassVar

        from testbed.faults.fault import End, Fault


        class Lightning(Fault):
            """A port is struck."""

            name: ClassVar[str] = "lightning"
            end: End
            times: int = 1
            """How often."""

            def inject(self, lab, undo):
                undo.callback(lab.struck.clear)
                lab.struck.add(self.end)

            def verify(self, lab):
                return {"end": self.end} if self.end in lab.struck else None
        ''',
    )
    tree.insert("faults/catalogue.py", "from testbed.faults import ", "weather, ")
    tree.insert("faults/catalogue.py", "for module in (", "weather, ")
    tree.insert(
        "faults/__init__.py",
        "from testbed.faults.packet import ExactPacket as ExactPacket\n",
        "from testbed.faults.weather import Lightning as Lightning\n",
    )
    tree.check("""
        from contextlib import ExitStack
        from types import SimpleNamespace
        from testbed.faults import KINDS, Lightning, descriptions, make, problem

        [info] = [info for info in descriptions() if info["name"] == "lightning"]
        assert info["title"] == "A port is struck"
        assert info["parameters"]["properties"]["times"]["description"] == "How often."
        assert problem("lightning", {"end": "leaf:e1"}) == "" != problem("lightning", {})
        lab, found = SimpleNamespace(struck=set()), make(KINDS, "lightning", {"end": "leaf:e1"})
        assert found == Lightning(end="leaf:e1")
        with ExitStack() as undo:
            found.inject(lab, undo)
            assert found.verify(lab)
        assert not found.verify(lab)
    """)


@recipe("A qdisc on a port")
def qdisc(tree: Tree) -> None:
    tree.insert("topology/plan.py", "    queue: int | None = None\n", "    gap: int = 0\n")
    tree.insert("topology/models.py", "    queue: Packets | None = None\n", "    gap: Packets | None = None\n")
    tree.insert("lab/link_quality.py", 'words = [f"reorder', ' {quality.reorder:g}% gap {quality.gap}", f"reorder')
    tree.insert(
        "lab/link_quality.py", '            case "netem":\n', '                values["gap"] = options["gap"]\n'
    )
    tree.add(
        "faults/link.py",
        '''

        class LinkGap(_Impairment):
            """Every so many packets overtake."""

            name: ClassVar[str] = "link-gap"
            gap: int
        ''',
    )
    tree.check("""
        from types import SimpleNamespace
        from testbed.faults import KINDS, make
        from testbed.lab.link_quality import commands, quality_of
        from testbed.topology import Quality, Topology

        links = "[{endpoints: ['a:1', 'b:1'], gap: 5}]"
        text = "{name: t, topology: {nodes: {a: {kind: host}, b: {kind: host}}, links: " + links + "}}"
        assert [end.sends.gap for end in Topology.parse(text).plan().links[0]] == [5, 5]
        [line], _ = commands("e1", 1500, Quality(gap=5), set())
        assert " gap 5" in line
        found = quality_of([{"kind": "netem", "options": {"gap": 5}}])
        assert found.gap == 5
        lab = SimpleNamespace(interface=lambda end: SimpleNamespace(sends=SimpleNamespace(verified=lambda: found)))
        assert make(KINDS, "link-gap", {"end": "leaf:e1", "gap": 5}).verify(lab) == {"gap": 5}
        assert make(KINDS, "link-gap", {"end": "leaf:e1", "gap": 6}).verify(lab) is None
    """)


@recipe("Something in the lossless ports")
def lossless(tree: Tree) -> None:
    tree.insert("kernel/lossless/bpf/layout.h", "	__u64 watchdog_action;\n", "	__u64 patience_ns;\n")
    tree.insert(
        "switch/profile.py",
        "    source: Mapping[str, Source] = Field(default_factory=dict)\n",
        "    patience: Seconds = 3\n",
    )
    tree.insert(
        "switch/buffer.py",
        '        "reserve": buffer.reserve,\n',
        '        "patience_ns": round(profile.patience * 1e9),\n',
    )
    tree.insert("lab/port.py", "SETTINGS = (\n", '    "patience_ns",\n')
    tree.insert("lab/port.py", '                "marking": {},\n', '                "patience_ns": 0,\n')
    tree.check("""
        from types import SimpleNamespace
        from testbed.kernel.lossless.layout import structures
        from testbed.lab.port import Port
        from testbed.switch import buffer
        from testbed.switch.profile import profile
        from testbed.topology import Topology

        parts = "lossless: {dscp: 26, priority: 3}, nodes: {s: {kind: switch}, a: {kind: host}}"
        text = "{name: t, topology: {" + parts + ", links: [{endpoints: ['s:1', 'a:1']}]}}"
        plan = Topology.parse(text).plan()
        leaf = profile("sonic").replace(patience=7)
        sizes = buffer.buffer_of("s", leaf, plan.lossless, 1, 1500)
        memory = SimpleNamespace(configs=[structures()["port_config"]()], states=[structures()["port_state"]()])
        port = Port(memory, 0, plan.lossless, plan.links[0][0], switch=True)
        port.begin(0, 1, 2, buffer.port_values(leaf, sizes, plan.lossless))
        assert memory.configs[0].patience_ns == 7_000_000_000
        undo = port.change(patience_ns=5)
        assert memory.configs[0].patience_ns == 5
        undo()
        assert port.settings()["patience_ns"] == 7_000_000_000
    """)


@recipe("A CNI plugin of ours")
def cni_plugin(tree: Tree) -> None:
    tree.add(
        "cni/plugins/echo.py",
        """
        from testbed.cni.objects.kinds import Part
        from testbed.cni.plugins.configuration import own, validated


        class Configuration(Part):
            word: str


        def call(asked):
            return {"word": validated(Configuration, own(asked.config)).word}
        """,
    )
    tree.insert("cni/agent/__init__.py", "from testbed.cni.plugins import ", "echo, ")
    tree.insert("cni/agent/__init__.py", '        "coordinator": coordinator.call,\n', '        "echo": echo.call,\n')
    tree.copy("cni/bin/rxe", "cni/bin/echo")
    tree.check("""
        import json
        from pathlib import Path
        from testbed.cni import agent
        from testbed.cni.plugins import contract
        from testbed.cni.runtime import libcni, plugin_call

        assert plugin_call.find("echo", libcni.search_path(), "") == Path(testbed.__file__).parent / "cni/bin/echo"
        call = agent.plugins(Path("shared"), "node1")["echo"]
        given = {**dict.fromkeys(contract.ATTACHMENT, "/x"), "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0"}
        given["CNI_COMMAND"] = "ADD"
        config = {"cniVersion": "1.0.0", "name": "net", "type": "echo", "word": "hello"}
        assert contract.answer(call, given, json.dumps(config).encode()) == (0, '{"word": "hello"}')
        status, output = contract.answer(call, given, json.dumps({**config, "wrod": 1}).encode())
        assert status == 1 and "wrod is unknown" in output
    """)


@recipe("A comment on packets")
def comment(tree: Tree) -> None:
    rule = '    Rule((events.ADDRESS,), _echoes, before=_near, where="anywhere"),\n'
    tree.insert("records/rules.py", "RULES = (\n", rule)
    tree.insert("records/rules.py", "    if frame.ip:\n", '        yield "echoes", frame.ip[0]\n')
    claim = 'def _echoes(data, _):\n    yield "echoes", address(data.ip)\n\n\n'
    tree.insert("records/rules.py", "RULES = (\n", before=claim)
    tree.check(f"""
        import sys, tempfile
        from pathlib import Path
        sys.path.insert(0, {str(ROOT / "tests/unit/records")!r})
        from lab_traffic import CLIENT, MS, SERVER, ZERO, event, pcap, roce, row
        from pcapng_reader import comments, read
        from testbed.records import merged_captures

        epoch = {{"realtime_ns": ZERO, "monotonic_ns": 0, "kernel_ns": None}}
        rows = [row("client", "eth1", CLIENT, "server:eth1"), row("server", "eth1", SERVER, "client:eth1")]
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            pcap(directory / "client-eth1.pcap", [(MS, roce(CLIENT, SERVER, ("10.0.0.1", "10.0.0.2")))])
            made = {{"parameters": {{}}, "topology": {{"name": "pair", "interfaces": rows}}, "epoch": epoch}}
            given = event(2 * MS, "address", "client", "it answers", interface="eth1", ip="10.0.0.1", has=True)
            merged_captures.write(directory, made, [given])
            [[text]] = comments(read(directory / "packets.pcapng"))
        assert text == "address at client, 1.000 ms later: it answers", text
    """)


@recipe("A cause of a job's trouble")
def cause(tree: Tree) -> None:
    tree.add(
        "report/diagnosis/rules/link_failures.py",
        """

        def eaten(case):
            return Finding("cable-eaten", 0, "a mouse was there") if "mouse" in case.seen.peers else None
        """,
    )
    tree.insert(
        "report/diagnosis/rules/__init__.py", "from testbed.report.diagnosis.rules.link_failures import ", "eaten, "
    )
    tree.insert("report/diagnosis/rules/__init__.py", "OF_AN_END_WITHOUT_SUCCESS: Sequence[Rule] = (\n", "    eaten,")
    tree.check("""
        from types import SimpleNamespace
        from testbed.report.diagnosis import rules

        case = SimpleNamespace(job=SimpleNamespace(ok=False), seen=SimpleNamespace(peers={"mouse": ""}))
        assert rules.conclude(case).finding.cause == "cable-eaten"
    """)


@recipe("A kind of event")
def kind(tree: Tree) -> None:
    tree.add(
        "protocol/events.py",
        """

        class Sneeze(Data):
            decibels: int


        SNEEZE = Kind("sneeze", Sneeze, "A nose sneezes.")
        """,
    )
    tree.check("""
        from testbed.protocol import events
        from testbed.scenario.event_log import EventLog

        log = EventLog(lambda event: None)
        log.emit(events.SNEEZE(decibels=90), "leaf", "atishoo")
        [event] = log.events
        assert (event["kind"], event["data"]) == ("sneeze", {"decibels": 90})
        assert events.SNEEZE.of(event).decibels == events.read(event).decibels == 90
        assert events.read({**event, "data": {"decibels": "loud"}}) is None
    """)


@recipe("A listener for reports")
def listener(tree: Tree) -> None:
    tree.add(
        "cli/bell.py",
        """
        import click

        from testbed.machine.runs import Listener


        class Bell(Listener):
            def event(self, variant_run, event):
                click.echo("\\a" + event["text"])
        """,
    )
    tree.insert("cli/run_command.py", "@options.junit_option\n", '@click.option("--bell", is_flag=True)\n')
    tree.insert("cli/run_command.py", "import junit as reports\n", "from testbed.cli.bell import Bell\n")
    tree.check("""
        import contextlib, io
        from pathlib import Path
        from testbed.cli.run_command import Bell, run
        from testbed.machine.runs import Shown, VariantRun

        assert "--bell" in {option for parameter in run.params for option in parameter.opts}
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):
            shown = Shown(VariantRun("s", "v", {}), Path(), Bell())
            shown.listen({"event": {"t": 1, "kind": "step", "node": "", "text": "a step", "data": {}}})
        assert heard.getvalue() == "\\aa step\\n"
    """)


@recipe("A counter")
def counter(tree: Tree) -> None:
    entry = (
        "{name: rx_sneezes, meaning: error, unit: sneezes, metrics: [node_network_receive_sneezes], text: A sneeze.}"
    )
    tree.insert(
        "records/counter_names.yml",
        "- owner: interface\n",
        before=f"""\
- owner: nose
  source: otology
  commands: [{{where: Linux, run: "sneeze {{interface}}"}}]
  counters:
    - {entry}
""",
    )
    tree.check("""
        from testbed.metrics.exposition import Families
        from testbed.records.counter_names import find

        found = find("rx_sneezes")
        assert (found.meaning, found.owner, found.commands[0].look) == ("error", "nose", "rx_sneezes")
        exported = Families()
        exported.count({"rx_sneezes": 3}, dict.fromkeys(("node", "pod", "interface"), "x"))
        assert {family.name: family.samples[0].value for family in exported} == {"node_network_receive_sneezes": 3}
    """)


@recipe("A metric")
def metric(tree: Tree) -> None:
    family = "{name: testbed_moon, kind: gauge, labels: {phase: phase}, help: The phase of the moon.}"
    tree.insert("metrics/families.yml", "\nfamilies:\n", f"  - {family}\n")
    line = '    found.add("testbed_moon", 1, phase="full")\n'
    tree.insert("metrics/exposition.py", '    found.add("testbed_time_seconds", measured["now_s"])\n', line)
    tree.check(f"""
        import sys
        sys.path.insert(0, {str(ROOT / "tests/unit/metrics")!r})
        from measurements import lab
        from testbed.metrics.exposition import families

        [found] = [family for family in families(lab()) if family.name == "testbed_moon"]
        assert [(sample.labels, sample.value) for sample in found.samples] == [({{"phase": "full"}}, 1)]
    """)


@recipe("Something in reports")
def report(tree: Tree) -> None:
    lane = '            case events.Service():\n                self._point(number, "Smells", node)\n'
    tree.insert("report/timeline.py", "            case None:\n                return\n", lane)
    tree.insert("report/timeline.py", "GROUPS = (\n", '    "Smells",\n')
    tree.add("report/page/smells.js", 'function smells(part) { return h("p", {}, part.smells); }\n')
    tree.insert("report/page/__init__.py", "SCRIPTS = (\n", '    "smells.js",\n')
    place = '    ["smells", "Smells", smells(part)],\n'
    tree.insert("report/page/main.js", '["gear", "On real gear", gear(part, run)],\n', place)
    tree.insert("report/contents.py", '        "counted": counted,', ' "smells": "of ozone",')
    tree.insert("report/gear.yml", "- kinds: [arp.wrong", ", service")
    tree.check(f"""
        import sys, tempfile
        from pathlib import Path
        sys.path.insert(0, {str(ROOT / "tests/unit/report")!r})
        from report_samples import MS, event, make_run
        from testbed.report.contents import contents
        from testbed.report.run_model import read_run
        from testbed.report.page import page

        with tempfile.TemporaryDirectory() as name:
            run = read_run(make_run(Path(name) / "tiny", [event(MS, "service", "leaf", address="10.0.0.9", port=80)]))
            found = contents([run], lambda plan: "", Path(name))
        [part] = found["parts"]
        assert part["smells"] == "of ozone"
        assert ("Smells", "leaf") in {{(lane["group"], lane["name"]) for lane in part["lanes"]}}
        assert "MAC that is not the owner's" in part["gear"][0]["title"]
        text = page("t", "t", found)
        assert "function smells(part)" in text and "smells(part)]," in text
    """)


# The recipes and what they name


def test_each_recipe_is_carried_out() -> None:
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_recipe*.py"))
    assert [heading for heading in RECIPES if f'"{heading}"' not in tests] == []
    assert CARRIED_OUT.keys() <= RECIPES.keys()


@pytest.mark.parametrize("heading", RECIPES)
def test_what_a_recipe_names_is_there(heading: str) -> None:
    text = RECIPES[heading]
    named = re.findall(r"((?:[\w<>]+/)*[\w<>.]+\.(?:py|h|c|js|yml|json|md)|(?:\w+/)+\w*)\b", text)
    for name in {re.sub(r"<\w+>.*", "", name).rstrip("/") for name in named}:
        assert any(f"/{name}/" in f"{file}/" for file in FILES), name
    for word, name in re.findall(r"`(\w+)` of `([^`]+)`", text):
        file = next(file for file in (ROOT / "testbed" / name, ROOT / name) if file.exists())
        assert re.search(rf"\b{word}\b", file.read_text()), f"{word} is not in {name}"


@pytest.mark.parametrize("heading", CARRIED_OUT)
def test_a_recipe_is_enough(heading: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    CARRIED_OUT[heading](tree)
    assert [file for file in sorted(tree.changed) if not is_named(file, RECIPES[heading])] == []
