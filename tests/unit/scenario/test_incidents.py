"""Incidents: what a number draws, and that what is secret is told nobody."""

import json
import random
import shlex
from typing import Any

import pytest

from testbed.cli.main import COMMANDS
from testbed.errors import InputError
from testbed.faults.catalogue import KINDS as FAULTS
from testbed.faults.fault import make
from testbed.scenario.event_log import EventLog
from testbed.scenario.incident.desk import Desk
from testbed.scenario.incident.drawing import draw
from testbed.scenario.incident.incident import FILES, STEP
from testbed.scenario.incident.kinds import IPS, KINDS, PORTS, Trouble
from testbed.topology import Topology

MANY = range(300)
TROUBLES = [kind(random.Random(seed)) for kinds in KINDS.values() for kind in kinds for seed in range(4)]  # noqa: S311


def test_a_number_is_the_same_incident_everywhere() -> None:
    assert draw(7) == draw(7)
    assert draw(7, area="fabric").area == "fabric"
    assert len({json.dumps(draw(number).trouble.story) for number in MANY}) > 40


def test_every_kind_is_drawn() -> None:
    drawn = {tuple(draw(number).trouble.hints) for number in MANY}
    assert drawn >= {tuple(trouble.hints) for trouble in TROUBLES}


def test_an_area_that_there_is_not_is_said() -> None:
    with pytest.raises(InputError, match="there is no area moon"):
        draw(1, "moon")  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: f"{one.causes[0]} {one.places[0]}")
def test_a_trouble_names_what_its_lab_has(trouble: Trouble) -> None:
    plan = Topology.load(FILES / "routed.clab.yml").plan()
    ends = {f"{name}:{end.name}" for name, node in plan.nodes.items() for end in node.interfaces}
    for place in trouble.places:
        assert place in plan.nodes or place.startswith(("rank ", "leaf")) or {*place.split(" - ")} <= ends, place
    for node, *_ in trouble.commands:
        assert node in plan.nodes
    for name, parameters in trouble.faults:
        make(FAULTS, name, dict(parameters))
    for line in (*trouble.mend, *trouble.wrong):
        words = shlex.split(line)
        assert words[0] in COMMANDS
        if words[0] == "exec":
            assert words[1] in plan.nodes
            assert words[2] == "--"
    assert trouble.mend
    assert not {*trouble.mend} & {*trouble.wrong}


def test_addresses_and_ports_are_those_of_the_file() -> None:
    plan = Topology.load(FILES / "routed.clab.yml").plan()
    for host, ip in IPS.items():
        nic = plan.nodes[host].interfaces[0]
        assert nic.address is not None
        assert (str(nic.address.ip), ":".join(nic.peer)) == (ip, PORTS[host])


def test_hints_come_one_after_the_other() -> None:
    desk = Desk("ticket", ["first", "second"])
    assert [desk.hint(), desk.hint(), desk.told] == ["first", "second", 2]
    with pytest.raises(InputError, match="there are 2 hints"):
        desk.hint()


def test_what_is_withheld_is_in_no_log() -> None:
    heard: list[Any] = []
    log = EventLog(heard.append)
    with log.withheld():
        log.emit("mine", "leaf1", "SECRET")
    log.emit("mine", "leaf1", "known")
    assert [event["text"] for event in heard] == [event["text"] for event in log.events] == ["known"]


def test_a_rank_s_lines_are_steps() -> None:
    text = "2026-01-01 00:01:02 step 12 took 1.034 s\nUCX ERROR something\n2026-01-01 00:01:03 step 13 took 12.5 s\n"
    assert [found["number"] for found in STEP.finditer(text)] == ["12", "13"]
