"""The recipes for records of runs and what is read from them, each with a trivial example."""

from recipe_tree import ROOT, Tree, recipe


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
            return Finding("cable-eaten", 0, "a mouse was there") if "mouse" in case.job.hosts else None
        """,
    )
    tree.insert(
        "report/diagnosis/rules/__init__.py", "from testbed.report.diagnosis.rules.link_failures import (", "eaten, "
    )
    tree.insert("report/diagnosis/rules/__init__.py", "OF_AN_END_WITHOUT_SUCCESS: Sequence[Rule] = (\n", "    eaten,")
    tree.check("""
        from testbed.report.diagnosis import Case, Observations, rules
        from testbed.report.diagnosis.observed_jobs import Job

        case = Case(Observations([], [], [], {}), Job("job", ["mouse"], [""], 0, 1, ok=False))
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
