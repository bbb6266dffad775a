"""Topology files, and what is made of them: plans, drawings, files from fabrics and from Mininet's topologies."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from testbed.errors import InputError
from testbed.executor import Context
from testbed.protocol import ConvertedPlan, InterfaceRow, LabInfo, Note, Picture, PlanInfo, PlanRows, requests
from testbed.scenario.rows import plan_rows
from testbed.switch.profile import QUALITY, Profile, load_profiles, value_problems, values_schema
from testbed.topology import Bond, Interface, Node, Plan, Svi, Topology, VirtualRouter

if TYPE_CHECKING:
    from testbed.scenario.model import Parameters, Scenario


def plan(request: requests.Plan, _: Context) -> PlanInfo:
    return plan_info(Topology.load(request.file))


def convert(request: requests.Convert, context: Context) -> ConvertedPlan:
    from testbed.topology import mininet

    os.chdir(context.files)  # places in errors start with the name as the user gave it
    file = Path(request.file)
    name, network = mininet.read(file, request.topo)
    text = mininet.convert(name, network, file.name, stp=request.stp, routed=request.routing == "frr")
    return {**plan_info(Topology.parse(text, source=f"{request.file} as converted")), "text": text}


def convert_kathara(request: requests.ConvertKathara, _: Context) -> str:
    from testbed.topology import kathara

    text = kathara.convert(Path(request.directory), Path(request.base), containers=request.containers)
    planned(Topology.parse(text, source=f"{request.directory} as converted"))
    return text


def draw(request: requests.Draw, _: Context) -> Picture:
    from testbed.topology import graph

    topology = Topology.load(request.file)
    return {"text": graph.STYLES[request.style](planned(topology)), "notes": notes_of(topology)}


def draw_plan(request: requests.DrawPlan, _: Context) -> str:
    from testbed.topology import graph

    return graph.STYLES[request.style](plan_of(request.plan))


def fabric(request: requests.Fabric, _: Context) -> str:
    from testbed.topology import fabrics

    return fabrics.text(fabrics.make(request.fabric, dict(request.options)))


def schema(_: requests.Schema, __: Context) -> dict[str, Any]:
    from testbed.topology import json_schema

    return json_schema(values_schema())


def plan_info(topology: Topology) -> PlanInfo:
    plan = planned(topology)
    return {**plan_rows(plan, {}), "notes": notes_of(topology), "images": plan.images, "binds": plan.binds}


def plan_of(rows: PlanRows) -> Plan:
    """Return as much of a plan as its rows have: what pictures show, except VLANs in which a switch only bridges.
    InputError for rows that are no plan."""
    try:
        return _plan_of(rows)
    except ValueError as error:
        raise InputError(f"the topology is damaged: {error}") from None


def _plan_of(rows: PlanRows) -> Plan:
    nodes: dict[str, Node] = {}
    for row in rows["interfaces"]:
        name = row["node"]
        node = nodes.setdefault(name, Node(name, row["kind"], (), **_switch(rows, row)))
        given: dict[str, Any] = {
            "mac": row["mac"],
            "address": IPv4Interface(row["address"]) if row["address"] else None,
            "address6": IPv6Interface(row["address6"]) if row["address6"] else None,
        }
        if row["peer"]:
            peer, _, end = row["peer"].partition(":")
            port = Interface(
                name,
                row["interface"],
                mtu=0,
                peer=(peer, end),
                rdma=row["rdma"],
                vlan=row["vlan"],
                trunk=tuple(row["trunk"]),
                routed=row["routed"],
                master=row.get("master", ""),
                bond=_bond(row),
                **given,
            )
            if port.bond:
                nodes[name] = replace(node, bonds=(*node.bonds, port))
            else:
                nodes[name] = replace(node, interfaces=(*node.interfaces, port))
        else:
            svi = Svi(row["vlan"] or 0, row["interface"], vni=row.get("vni", 0), vrrp=_virtual_router(row), **given)
            nodes[name] = replace(node, svis=(*node.svis, svi))
    ends = {(port.node, port.name): port for node in nodes.values() for port in node.interfaces}
    for port in ends.values():
        if port.peer not in ends:
            raise InputError(f"the peer of {port.node}:{port.name} is {':'.join(port.peer)}, which does not exist")
    order = {end: number for number, end in enumerate(ends)}
    links = tuple((port, ends[port.peer]) for end, port in ends.items() if order[port.peer] > order[end])
    return Plan(rows["name"], nodes, links)


def _bond(row: InterfaceRow) -> Bond | None:
    if "members" not in row:
        return None
    mode, members = row.get("mode", "802.3ad"), tuple(row["members"])
    return Bond(mode, members, system=row.get("system", ""), es_id=row.get("es_id", 0), mlag=row.get("mlag", 0))


def _virtual_router(row: InterfaceRow) -> VirtualRouter | None:
    if (found := row.get("vrrp")) is None:
        return None
    four, six = found["address"], found["address6"]
    return VirtualRouter(found["id"], IPv4Address(four) if four else None, IPv6Address(six) if six else None)


def _switch(rows: PlanRows, row: InterfaceRow) -> dict[str, Any]:
    """Return the profile of a row's node, the values that were set, and what it is in EVPN."""
    switch = rows.get("switches", {}).get(row["node"])
    if not switch:
        return {"profile": row.get("profile", "")}
    values = {name: one["value"] for name, one in switch["values"].items() if one["quality"] == QUALITY["U"]}
    vtep = IPv4Address(switch["vtep"]) if "vtep" in switch else None
    tunnels = {"vtep": vtep, "l3vni": switch.get("l3vni", 0)}
    return {"profile": switch["profile"], "profile_values": tuple(values.items()), **tunnels}


def notes_of(topology: Topology) -> list[Note]:
    return [cast("Note", asdict(note)) for note in topology.notes]


def planned(topology: Topology) -> Plan:
    """Return the plan of a lab's topology, with its profiles and its faults checked."""
    return topology.plan(profiles=load_profiles(), check_fault=fault_problem, check_values=value_problems)


def fault_problem(name: str, parameters: Mapping[str, Any]) -> str:
    """Check a fault. The faults, and with them netlink, are imported for files that have some."""
    from testbed import faults

    return faults.problem(name, parameters)


@dataclass(frozen=True)
class ScenarioLab:
    """The lab of a scenario with certain parameters. `topology` is a path below the scenario's directory."""

    topology: str
    plan: Plan
    profiles: Mapping[str, Profile]
    notes: Sequence[Note]

    def info(self) -> LabInfo:
        profiles = {name: profile.model_dump(mode="json") for name, profile in self.profiles.items()}
        return {"topology": self.topology, "profiles": profiles}


def lab_of(
    scenario: type[Scenario], parameters: Parameters, file: Path, given: str = ""
) -> tuple[Scenario, ScenarioLab]:
    """Return a scenario's instance and its lab, with the topology file `given` in place of its own if not empty."""
    from testbed.scenario import loading

    with loading.blaming(file):
        instance = scenario()
        topology = given or instance.topology_for(parameters)
        profiles = instance.profiles(parameters)
    if not isinstance(topology, str | os.PathLike):
        raise InputError(f"topology_for returns {topology!r}, which is not a file name", where=file.name)
    plan, notes = planned_file(file.parent, str(topology))
    loading.check_profiles(profiles, plan, file.name)
    return instance, ScenarioLab(str(topology), plan, dict(profiles), notes)


def described_lab(info: LabInfo, file: Path) -> ScenarioLab:
    """Return the lab that `ScenarioLab.info` has described; `file` is the scenario's."""
    plan, notes = planned_file(file.parent, info["topology"])
    profiles = {name: Profile.model_validate(values) for name, values in info["profiles"].items()}
    return ScenarioLab(info["topology"], plan, profiles, notes)


@functools.cache
def planned_file(directory: Path, name: str) -> tuple[Plan, list[Note]]:
    """Return the plan of a file beside a scenario, and the notes on it. Errors name it as the scenario does."""
    with contextlib.chdir(directory):
        topology = Topology.load(name)
        return planned(topology), notes_of(topology)
