"""What can be said without a lab: what scenarios are, what topology files become, which faults there are.

The user's code runs here, so this is a process of its own (`inside`); the answer is a file in its directory.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from testbed.errors import InputError, did_you_mean
from testbed.kernel import children
from testbed.protocol import DESCRIBED, OUTPUT, Job, Note, refusals

if TYPE_CHECKING:
    from testbed.scenario.model import Parameters, Scenario
    from testbed.switch.profile import Profile
    from testbed.topology import Family, Interface, Node, Plan, Svi, Topology

DESCRIBING = "testbed.faults", "testbed.lab", "testbed.scenario.loading", "testbed.workload.verbs"
"""What most scenarios import."""


def give(job: Job, out: Path) -> None:
    """The answer to a job that needs no machine."""
    match job["kind"]:
        case "describe":
            describe_each(job, out)
        case "topology":
            show_topology(job, out)
        case "fabric":
            make_fabric(job, out)
        case "graph":
            draw_topology(job, out)
        case "faults":
            from testbed import faults

            (out / "faults.json").write_text(json.dumps(faults.descriptions()))
        case "profiles":
            from testbed.switch import profile

            (out / "profiles.json").write_text(json.dumps(profile.descriptions()))


def describe_each(job: Job, out: Path) -> None:
    """Describes scenarios, each in a process forked from this one: what several of them import is here then."""
    stand_in_for_pyverbs()
    if len(job["scenarios"]) > 1:
        for name in DESCRIBING:
            importlib.import_module(name)
    parent, running = os.getpid(), []
    for number, (name, file, settings) in enumerate(job["scenarios"]):
        directory = out / str(number)
        directory.mkdir()
        child = os.fork()
        if not child:
            children.end_with(parent)
            place = Path(job["in"]) / str(number) / file
            describe_and_exit(name, place, settings, job["named"], job.get("topology", ""), directory)
        running.append((child, directory))
    for child, directory in running:
        os.waitpid(child, 0)
        (directory / DESCRIBED).touch()


def describe_and_exit(
    name: str, file: Path, settings: dict[str, str], named: list[str], topology: str, out: Path
) -> NoReturn:
    """What the scenario writes goes to a file beside its description."""
    with (out / OUTPUT).open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.close(3)
    try:
        with refusals(out):
            describe(name, file, settings, named, topology, out)
    except BaseException:
        (out / "error.txt").write_text(traceback.format_exc())
    finally:
        with contextlib.suppress(Exception):  # the user's code may have replaced it
            sys.stdout.flush()
        os._exit(0)


def describe(name: str, file: Path, settings: dict[str, str], named: list[str], given: str, out: Path) -> None:
    """Loads a scenario and checks all that needs no kernel: the user's settings, the profiles they make, the topology,
    which may be `given` in the place of its own. Leaves its description in info.json."""
    from testbed.scenario import loading
    from testbed.scenario.noninteractive import refuse_input

    refuse_input(file.parent)
    scenario = loading.load(file)
    info = loading.info(scenario, name, settings, named, file)
    plans: list[Plan] = []
    switches: list[str] = []
    for variant, said in zip(scenario.variants, info["variants"], strict=True):
        if not named or variant.name in named:
            with loading.blaming(file):
                parameters = scenario.settle(variant, said["settings"])
            _, plan, profiles, notes = lab_of(scenario, parameters, file)
            if plan not in plans:
                plans.append(plan)
                info["notes"] += notes
            switches += profiles
    if given:
        plan, info["notes"] = planned_file(file.parent, given)
        fits(plan, given, file, plans, switches)
    (out / "info.json").write_text(json.dumps(info))


def lab_of(
    scenario: type[Scenario], parameters: Parameters, file: Path, given: str = ""
) -> tuple[Scenario, Plan, Mapping[str, Profile], list[Note]]:
    """An instance of a scenario, the plan of its lab or of the topology that is `given` in its place, the profiles of
    switches that depend on the parameters, and the notes on the topology."""
    from testbed.scenario import loading

    with loading.blaming(file):
        instance = scenario()
        topology = given or instance.topology_for(parameters)
        profiles = instance.profiles(parameters)
    if not isinstance(topology, str | os.PathLike):
        raise InputError(f"topology_for returns {topology!r}, which is no file's name", where=file.name)
    plan, notes = planned_file(file.parent, str(topology))
    loading.check_profiles(profiles, plan, file.name)
    return instance, plan, profiles, notes


@functools.cache
def planned_file(directory: Path, name: str) -> tuple[Plan, list[Note]]:
    """The plan of a file beside a scenario, and the notes on it. Places in errors start with the name that the scenario
    gives."""
    from testbed.topology import Topology

    before = Path.cwd()
    os.chdir(directory)
    try:
        topology = Topology.load(name)
        return planned(topology), notes_of(topology)
    finally:
        os.chdir(before)


def fits(plan: Plan, given: str, scenario: Path, own: list[Plan], switches: list[str]) -> None:
    """Raises InputError when a topology in the place of a scenario's `own` ones lacks what the scenario names: nodes
    and ends of links that its file has as texts, and the switches that it gives a profile."""
    tree = ast.parse(scenario.read_text())
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    problems = []
    for node in {node.name: node for each in own for node in each.nodes.values()}.values():
        ends = [end for end in node.interfaces if f"{node.name}:{end.name}" in texts]
        if not (ends or node.name in texts or node.name in switches):
            continue
        there = plan.nodes.get(node.name)
        if there is None or there.kind != node.kind:
            what = f"{node.name!r} is a {there.kind} here" if there else f"there is no {node.kind} {node.name!r}"
            problems.append(f"{what}, which the scenario has as a {node.kind}" if there else what)
            continue
        known = [interface.name for interface in there.interfaces]
        problems += [
            f"{node.name!r} has no interface {end.name!r}; {did_you_mean(end.name, known)}it has: {', '.join(known)}"
            for end in ends
            if end.name not in known
        ]
    if problems:
        also = [(given, problem) for problem in problems[1:]]
        hint = f"The scenario needs these; its own topology: {', '.join(each.name for each in own)}."
        raise InputError(problems[0], where=given, hint=hint, also=also)


def show_topology(job: Job, out: Path) -> None:
    """Leaves in topology.json the plan of the file that the job names, or the format's JSON Schema if it names none.
    Of a Mininet file `text` is what it is in our format."""
    from testbed.switch.profile import values_schema
    from testbed.topology import Topology, json_schema

    if not job["name"]:
        (out / "topology.json").write_text(json.dumps(json_schema(values_schema())))
        return
    answer: dict[str, Any] = {}
    if "mininet" in job:
        os.chdir(job["in"])  # places in errors start with the name as the user gave it
        answer["text"] = mininet_topology(Path(job["name"]), job["mininet"])
        topology = Topology.parse(answer["text"], source=f"{job['name']} as converted")
    else:
        topology = Topology.load(job["name"])
    answer = {**plan_rows(planned(topology)), "notes": notes_of(topology), **answer}
    (out / "topology.json").write_text(json.dumps(answer))


def plan_rows(plan: Plan) -> dict[str, Any]:
    """A plan as JSON: what `testbed topology check --json` prints, and what a run directory keeps."""
    rows = [row for node in plan.nodes.values() for row in interface_rows(node)]
    return {"name": plan.name, "interfaces": rows}


def notes_of(topology: Topology) -> list[Note]:
    return [
        {"key": note.key, "where": note.where, "text": note.text, "lines": list(note.lines)} for note in topology.notes
    ]


def interface_rows(node: Node) -> Iterator[dict[str, Any]]:
    """The interfaces of a node, then its SVIs with an address: without one the switch only bridges there."""
    for end in node.interfaces:
        yield {
            **planned_row(node, end),
            "peer": ":".join(end.peer),
            "gateway": next_hop(node, end, 4),
            "gateway6": next_hop(node, end, 6),
            "trunk": list(end.trunk),
            "routed": end.routed,
            "rdma": end.rdma,
        }
    for svi in node.svis:
        if svi.addresses:
            nothing = {"peer": "", "gateway": "", "gateway6": "", "trunk": [], "routed": False, "rdma": None}
            yield {**planned_row(node, svi), **nothing}


def next_hop(node: Node, end: Interface, family: Family) -> str:
    """The gateway that a host's routes have behind an interface, that of its default route first; nothing if none of
    them leaves by it."""
    networks = [address.network for address in end.addresses if address.version == family]
    routes = sorted(node.routes, key=lambda route: route.destination.prefixlen)
    hops = (hop for route in routes for hop in route.via if any(hop in network for network in networks))
    return str(next(hops, ""))


def planned_row(node: Node, end: Interface | Svi) -> dict[str, Any]:
    return {
        "node": node.name,
        "kind": node.kind,
        "interface": end.name,
        "mac": end.mac,
        "address": str(end.address or ""),
        "address6": str(end.address6 or ""),
        "vlan": end.vlan,
    }


def mininet_topology(file: Path, name: str) -> str:
    from testbed.topology import mininet

    stand_in_for_pyverbs()  # the file may import testbed.mininet
    return mininet.convert(*mininet.read(file, name), source=file.name)


def planned(topology: Topology) -> Plan:
    """The plan of what a lab would be built from: its profiles and its faults are checked too."""
    from testbed.switch.profile import load_profiles, value_problems

    return topology.plan(profiles=load_profiles(), check_fault=fault_problem, check_values=value_problems)


def fault_problem(name: str, parameters: Mapping[str, Any]) -> str:
    """Imports the faults, and with them netlink, for files that have some."""
    from testbed import faults

    return faults.problem(name, parameters)


def make_fabric(job: Job, out: Path) -> None:
    """Leaves in topology.json the text of a topology file."""
    from testbed.topology import fabrics

    (out / "topology.json").write_text(json.dumps(fabrics.text(fabrics.make(job["name"], job["options"]))))


def draw_topology(job: Job, out: Path) -> None:
    """Leaves in topology.json a drawing of the file that the job names as `text`, and its notes."""
    from testbed.topology import Topology, graph

    topology = Topology.load(job["name"])
    text = graph.STYLES[job["style"]](planned(topology))
    (out / "topology.json").write_text(json.dumps({"text": text, "notes": notes_of(topology)}))


def stand_in_for_pyverbs() -> None:
    """Lets a scenario be described where there is no RDMA: it imports verbs and does not use them before it runs."""
    if "pyverbs" not in sys.modules and importlib.util.find_spec("pyverbs") is None:
        from unittest.mock import MagicMock

        names = ("addr", "cmid", "cq", "device", "enums", "mr", "pd", "pyverbs_error", "qp", "wr")
        sys.modules |= {"pyverbs": MagicMock()} | {f"pyverbs.{name}": MagicMock() for name in names}
