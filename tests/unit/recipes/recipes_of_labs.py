"""The recipes for parts of labs, each with a trivial example."""

from recipe_tree import ROOT, Tree, recipe


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
        from testbed.lab.nodes import KINDS
        from testbed.lab.nodes.hub import Hub
        from testbed.topology import Topology, json_schema
        from testbed.topology.graph import STYLE

        nodes = "h: {kind: %s, repeats: 3}, a: {kind: host}"
        text = "{name: t, topology: {nodes: {" + nodes + "}, links: [{endpoints: ['h:1', 'a:1']}]}}"
        plan = Topology.parse(text % "hub").plan()
        assert plan.nodes["h"].repeats == 3
        assert KINDS[plan.nodes["h"].kind] is Hub
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
        from testbed.cni.plugins.contract import own, validated


        class Configuration(Part):
            word: str


        def call(asked):
            return {"word": validated(Configuration, own(asked.config)).word}
        """,
    )
    tree.insert("cni/agent/__init__.py", "from testbed.cni.plugins import ", "echo, ")
    tree.insert(
        "cni/agent/__init__.py",
        '        "coordinator": partial(coordinator.call, shared=shared),\n',
        '        "echo": echo.call,\n',
    )
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


@recipe("A tool for assistants")
def tool(tree: Tree) -> None:
    tree.add(
        "cli/mcp/reading_tools.py",
        '''

        class Size(TypedDict):
            nodes: int


        def size(lab: LabCalls) -> Size:
            """Count the nodes of the lab."""
            return {"nodes": len(lab.ask(live.Inspect())["nodes"])}
        ''',
    )
    tree.insert("cli/mcp/tool_list.py", "TOOLS = (\n", '    ToolEntry(reading_tools.size, "reads"),\n')
    tree.check(f"""
        import asyncio, os, sys, tempfile
        os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
        sys.path.insert(0, {str(ROOT / "tests/unit/cli")!r})
        from fake_lab import fake_lab
        from mcp import Client
        from testbed.cli.mcp.lab_calls import Access
        from testbed.cli.mcp.mcp_server import server

        async def called():
            async with Client(server(Access())) as client:
                return (await client.call_tool("size", {{}})).structured_content

        state = {{"name": "pair", "now_s": 0.0, "nodes": [], "faults": []}}
        with fake_lab({{"Inspect": lambda _: [{{"response": state}}]}}):
            assert asyncio.run(called()) == {{"nodes": 0}}
    """)
