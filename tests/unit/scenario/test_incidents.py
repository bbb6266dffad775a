"""Incidents: what a number draws, how an answer is graded, and that what is secret is told nobody."""

import random
import re
import shlex
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import COMMANDS
from testbed.cni.spec import conflist
from testbed.errors import InputError
from testbed.faults.catalogue import KINDS as FAULTS
from testbed.faults.fault import make
from testbed.scenario.event_log import EventLog
from testbed.scenario.incident import others
from testbed.scenario.incident.desk import Desk
from testbed.scenario.incident.drawing import AREAS, DOUBLE, LEVELS, RETURNS, TRIED_BEFORE, cell, draw
from testbed.scenario.incident.grading import grade, seconds_since, share
from testbed.scenario.incident.incident import FILES, Settings
from testbed.scenario.incident.kinds import RETURNING, STEADY, evpn
from testbed.scenario.incident.scenes import SCENES
from testbed.scenario.incident.site import LEAVES, Place, uplink
from testbed.scenario.incident.symptoms import STEP
from testbed.scenario.incident.traces import MISLEADING, TRIED
from testbed.scenario.incident.trouble import Act, Broken, Deleted, Entered, Left, Set, Started, Trace, Trouble, Typed
from testbed.scenario.incident.workers import WORKERS, Worker
from testbed.topology import Topology

BLOCK = len(AREAS) * len(LEVELS)
ALL = [kind for kinds in (STEADY, RETURNING) for found in kinds.values() for kind in found]
TROUBLES = [kind(random.Random(seed)) for kind in ALL for seed in range(4)]  # noqa: S311
TRACES = [
    (scene, kind(random.Random(seed)))  # noqa: S311
    for traces in (MISLEADING, TRIED)
    for scene, kinds in traces.items()
    for kind in kinds
    for seed in range(4)
]
PLANS = {scene: Topology.load(FILES / one.topology).plan() for scene, one in SCENES.items()}
OF_PODS = {end for at in WORKERS for end in (f"{at.pod}:net1", f"{at.host}:{at.parent}")}
DOCS = Path(__file__).parents[3] / "docs"
CAUSES = re.compile(r"^\| (`[a-z`, -]+`) \|", re.MULTILINE)
DIAGNOSIS, INCIDENTS = ((DOCS / f"{page}.md").read_text() for page in ("diagnosis", "incidents"))
NOON = datetime(2026, 1, 1, 12, 0, 0)


def test_a_number_is_the_same_incident_everywhere() -> None:
    assert draw(7) == draw(7)
    assert draw(7, area="fabric").area == "fabric"
    assert draw(7, level=3).level == 3
    assert Settings.model_validate({"number": 7}).incident == draw(7)
    assert len({draw(number).troubles[0].story for number in range(300)}) > 40


def test_each_area_has_each_level_as_often() -> None:
    assert set(Counter(cell(number) for number in range(3 * BLOCK)).values()) == {3}
    assert [cell(number) for number in range(BLOCK)] != [cell(number) for number in range(BLOCK, 2 * BLOCK)]


def test_every_kind_is_drawn() -> None:
    drawn = {draw(number, area, level).troubles[0].hints for area in AREAS for level in (1, 4) for number in range(60)}
    assert drawn == {trouble.hints for trouble in TROUBLES}


@pytest.mark.parametrize("number", range(2 * BLOCK))
def test_parts_of_an_incident_touch_nothing_in_common(number: int) -> None:
    incident = draw(number)
    assert len(incident.troubles) == (2 if incident.level == DOUBLE else 1)
    undone = [trace for trace in incident.traces if trace.undo]
    assert len(undone) == (incident.level == TRIED_BEFORE)
    touched = [*(one.parts for one in incident.troubles), *(one.parts for one in undone)]
    assert sum(map(len, touched)) == len(frozenset().union(*touched))
    assert all(fix != incident.mend for fix in incident.wrong)
    assert incident.returns == (incident.level == RETURNS)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: f"{one.causes[0]} {one.places[0]}")
def test_a_trouble_names_what_its_lab_has(trouble: Trouble) -> None:
    plan, nodes = PLANS[trouble.scene], nodes_of(trouble.scene, trouble.acts)
    ends = {f"{name}:{end.name}" for name, node in plan.nodes.items() for end in node.interfaces} | OF_PODS
    for place in trouble.places:
        assert place in nodes or place.startswith(("rank ", "leaf")) or {*place.split(" - ")} <= ends, place
    check_acts(nodes, trouble.acts)
    check_commands(nodes, [*trouble.mend, *trouble.wrong])
    assert trouble.mend
    assert trouble.parts
    assert not {*trouble.mend} & {*trouble.wrong} or len(trouble.mend) > 1


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: f"{one.causes[0]} {one.places[0]}")
def test_the_word_for_a_cause_is_documented(trouble: Trouble) -> None:
    documented = re.findall(r"`([a-z-]+)`", " ".join(CAUSES.findall(DIAGNOSIS) + CAUSES.findall(INCIDENTS)))
    assert trouble.causes[0] in documented or trouble.causes[0] in FAULTS


@pytest.mark.parametrize(("scene", "trace"), TRACES)
def test_a_trace_names_what_its_lab_has(scene: str, trace: Trace) -> None:
    nodes = nodes_of(scene, trace.acts)
    check_acts(nodes, trace.acts)
    check_commands(nodes, trace.undo)
    assert bool(trace.undo) == bool(trace.parts)


def nodes_of(scene: str, acts: Any) -> set[str]:
    """Return the names of nodes of a scene, its pods and those that acts start among them."""
    return {*PLANS[scene].nodes, *SCENES[scene].pods, *(act.pod for act in acts if isinstance(act, Started))}


def check_acts(nodes: set[str], acts: Any) -> None:
    for act in acts:
        match act:
            case Typed(node, command):
                assert node in nodes
                assert shlex.split(command)
            case Entered(switch, lines):
                assert switch in nodes
                assert lines
            case Set(switch, values):
                assert switch in nodes
                assert values
            case Left(node, name, script):
                assert node in nodes
                assert name not in script
            case Started(host, _, networks):
                assert host in nodes
                assert [conflist.make(network) for network in networks]
            case Deleted(pod):
                assert pod in nodes
            case Broken(fault, parameters):
                make(FAULTS, fault, dict(parameters))
            case _:
                raise AssertionError(act)


def check_commands(nodes: set[str], commands: Any) -> None:
    for line in commands:
        words = shlex.split(line)
        assert words[0] in COMMANDS
        if words[0] == "exec":
            assert words[1] in nodes
            assert words[2] == "--"


def test_a_scene_is_found_by_the_name_in_its_file() -> None:
    assert {scene: plan.name for scene, plan in PLANS.items()} == {scene: scene for scene in SCENES}
    assert set(MISLEADING) == set(TRIED) == set(SCENES)
    for scene, one in SCENES.items():
        assert {host for flow in one.flows for host in flow} <= set(PLANS[scene].nodes)


@pytest.mark.parametrize("scene", ["cluster", "lossless"])
def test_places_are_those_of_the_file(scene: str) -> None:
    plan = PLANS[scene]
    for host in (host for hosts in LEAVES.values() for host in hosts):
        nic, at = plan.nodes[host].interfaces[0], Place(host)
        assert nic.address
        assert (str(nic.address.ip), ":".join(nic.peer)) == (at.ip, at.port)
    for leaf in LEAVES:
        for near, far in (uplink(leaf, number) for number in (1, 2)):
            node, port = near.split(":")
            [peer] = [":".join(end.peer) for end in plan.nodes[node].interfaces if end.name == port]
            assert peer == far


def test_rails_and_tunnels_are_those_of_the_file() -> None:
    plan = PLANS["evpn"]
    for vlan, hosts in evpn.RAILS.items():
        for host, leaf in zip(hosts, LEAVES, strict=True):
            nic = plan.nodes[host].interfaces[0]
            assert nic.address
            assert (str(nic.address.ip), ":".join(nic.peer)) == (evpn.IPS[host], Place(host).port)
            assert plan.nodes[leaf].interface(Place(host).port.partition(":")[2]).vlan == vlan
    for leaf in LEAVES:
        bgp = plan.nodes[leaf].bgp
        assert bgp
        assert (str(plan.nodes[leaf].vtep), bgp.asn) == (evpn.VTEPS[leaf], evpn.ASNS[leaf])


@pytest.mark.parametrize("at", WORKERS, ids=lambda at: at.pod)
def test_pods_of_ranks_fit_their_nodes_and_leaves(at: Worker) -> None:
    plan = PLANS["pods"]
    nic = next(end for end in plan.nodes[at.host].interfaces if end.name == "eth1")
    assert nic.address
    assert (str(nic.address.ip), ":".join(nic.peer)) == (at.node.ip, at.node.port)
    [svi] = [svi for svi in plan.nodes[at.leaf].svis if svi.vlan == at.vlan]
    assert [str(address) for address in svi.addresses] == [f"{at.gateway}/24"]
    assert at.mate.leaf == at.leaf
    assert at.mate != at


def test_nothing_that_is_left_running_has_the_name_of_a_fault() -> None:
    acts: list[Act] = [act for trouble in TROUBLES for act in trouble.acts]
    names = {act.name for act in acts if isinstance(act, Left)}
    assert names
    assert not [name for name in names for fault in FAULTS if fault in name]


def test_a_share_counts_what_is_wrong_too() -> None:
    wanted = [["no-route", "blackhole"], ["mtu"]]
    assert share(["blackhole", "mtu"], wanted) == 1
    assert share(["no-route"], wanted) == 0.5
    assert share(["no-route", "blackhole"], wanted) == 0.5
    assert share(["no-route", "blackhole", "mac"], wanted) == pytest.approx(1 / 3)
    assert share([], wanted) == 0
    assert share(["mtu", "mtu", "a", "b", "c"], [["mtu"]]) == 0.25


def test_a_time_is_one_of_the_cluster_or_of_the_lab() -> None:
    assert seconds_since("11:59:30", NOON, 40.0) == 10
    assert seconds_since("12.5s", NOON, 40.0) == 12.5
    assert seconds_since("12", NOON, 40.0) == 12
    with pytest.raises(InputError, match="'noon' is not a time"):
        seconds_since("noon", NOON, 40.0)


def graded(number: int, **given: Any) -> Any:
    incident = draw(number, level=1)
    trouble = incident.troubles[0]
    answer: dict[str, Any] = {
        "causes": [trouble.causes[-1]],
        "places": [trouble.places[0]],
        "since_s": 20.0,
        "began_s": 12.0,
        "began": "00:00:30",
        "mitigated_s": 80.0,
        "answered_s": 60.0,
        "commands": ["exec leaf1 -- true"],
        "suffered": [],
        "hints": 0,
    }
    return grade(incident, **{**answer, **given})


@pytest.mark.parametrize(
    ("given", "points"),
    [
        ({}, 100),
        ({"causes": []}, 75),
        ({"places": ["the moon"]}, 75),
        ({"since_s": 23.0}, 90),
        ({"since_s": None}, 90),
        ({"suffered": ["web1 to web2"]}, 90),
        ({"mitigated_s": None}, 60),
        ({"hints": 3}, 70),
        ({"causes": [], "places": [], "since_s": None, "mitigated_s": None, "hints": 2}, 0),
    ],
)
def test_points(given: Any, points: int) -> None:
    row = graded(4, **given)
    assert row["points"] == points
    assert row["solution"]["mend"] == draw(4, level=1).mend


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


def test_a_ticket_s_words_are_not_those_of_a_cause() -> None:
    words = {word for trouble in TROUBLES for word in trouble.causes}
    for _, trace in TRACES:
        assert not words & set(re.findall(r"[\w-]+", trace.text))


class Pings:
    """Stands for Flow."""

    def __init__(self, _: Any, near: str, far: str) -> None:
        self.name, self.number, self.well = f"{near} to {far}", 0, True

    def lost(self) -> int:
        return self.number

    def works(self) -> bool:
        return self.well


@pytest.mark.parametrize(
    ("before", "since", "well", "suffers"),
    [(0, 2, True, False), (0, 3, True, True), (1, 9, True, False), (1, 9, False, True), (0, 0, False, True)],
)
def test_a_flow_that_the_incident_hurt_is_judged_by_its_end_alone(
    monkeypatch: pytest.MonkeyPatch, before: int, since: int, well: bool, suffers: bool
) -> None:
    monkeypatch.setattr(others, "Flow", Pings)
    lab: Any = None
    traffic = others.Others(lab, [("web1", "web2")])
    flow: Any = traffic._flows[0]
    flow.number = 4
    traffic.mark()
    flow.number += before
    traffic.begin()
    flow.number += since
    flow.well = well
    assert traffic.suffered() == ["web1 to web2"] * suffers
