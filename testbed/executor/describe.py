"""Descriptions, for which no lab is needed: scenarios, faults, profiles of switches.

A scenario is the user's code, so each has a process of its own (`Request.apart`).
"""

import ast
from dataclasses import replace
from pathlib import Path
from typing import cast

from testbed.errors import InputError, did_you_mean
from testbed.executor import Context, topologies
from testbed.protocol import FaultInfo, ProfileInfo, ScenarioInfo
from testbed.protocol.requests import Describe, Faults, Profiles
from testbed.topology import Plan


def faults(_: Faults, __: Context) -> list[FaultInfo]:
    from testbed import faults

    return cast("list[FaultInfo]", faults.descriptions())


def profiles(_: Profiles, __: Context) -> list[ProfileInfo]:
    from testbed.switch import profile

    return cast("list[ProfileInfo]", profile.descriptions())


def scenario(request: Describe, context: Context) -> ScenarioInfo:
    """Load a scenario and check all that needs no kernel: settings, the profiles they make, the topology."""
    from testbed.scenario import loading
    from testbed.scenario.noninteractive import refuse_input

    file = context.files / request.scenario
    refuse_input(file.parent)
    scenario = loading.load(file)
    info = loading.info(scenario, request.name, request.settings, request.named, file)
    plans: list[Plan] = []
    switches: list[str] = []
    for variant, found in zip(scenario.variants, info["variants"], strict=True):
        if not request.named or variant.name in request.named:
            with loading.blaming(file):
                parameters = scenario.settle(variant, found["settings"])
            given = "" if scenario.topology else request.topology
            _, lab = topologies.lab_of(scenario, parameters, file, given)
            if lab.plan not in plans:
                plans.append(lab.plan)
                info["notes"] += lab.notes
                info["images"] = sorted({*info["images"], *lab.plan.images})
            switches += lab.profiles
            found["lab"] = replace(lab, topology=request.topology or lab.topology).info()
    if request.topology:
        plan, info["notes"] = topologies.planned_file(file.parent, request.topology)
        info["images"] = sorted({*scenario.images, *plan.images})
        fits(plan, request.topology, file, plans, switches)
    return info


def fits(plan: Plan, given: str, scenario: Path, own: list[Plan], switches: list[str]) -> None:
    """Raise InputError when a topology in place of a scenario's `own` ones lacks what the scenario names: nodes and
    ends of links that its file has as texts, and the switches that it gives a profile."""
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
            problems.append(f"{what}; the scenario needs it as a {node.kind}" if there else what)
            continue
        known = [interface.name for interface in there.interfaces]
        problems += [
            f"{node.name!r} has no interface {end.name!r}; {did_you_mean(end.name, known)}it has: {', '.join(known)}"
            for end in ends
            if end.name not in known
        ]
    if problems:
        also = [(given, problem) for problem in problems[1:]]
        hint = f"The scenario needs them; its own topology: {', '.join(each.name for each in own)}."
        raise InputError(problems[0], where=given, hint=hint, also=also)
