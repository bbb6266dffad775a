"""Checks of what nodes share and wait for: the network of another node's container, the stages of other nodes."""

import itertools
from graphlib import CycleError, TopologicalSorter

from testbed.documents.problems import Problems
from testbed.documents.text import Path, choices
from testbed.topology.kinds.linux_kind import LinuxKeys
from testbed.topology.kinds.start_keys import start
from testbed.topology.plan import STAGES
from testbed.topology.resolved import ResolvedNode


def check(nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    linux = {node.name: node for node in nodes.values() if isinstance(node.keys, LinuxKeys)}
    for node in linux.values():
        _check_network(node, linux, problems)
    _check_waits(linux, problems)


def _check_network(node: ResolvedNode, linux: dict[str, ResolvedNode], problems: Problems) -> None:
    if not (name := node.keys.shared_network()):
        return
    wrong = ""
    if name == node.name or (name in linux and linux[name].keys.shared_network()):
        wrong = f"{name!r} has no network of its own"
    elif name not in linux:
        wrong = f"the lab has no container {name!r} whose network {node.name!r} can share; there are: "
        wrong += choices(name, [one for one in linux if one != node.name])
    if wrong:
        problems.add(node.paths["network_mode"], wrong)


def _check_waits(linux: dict[str, ResolvedNode], problems: Problems) -> None:
    """Check that each stage can come: what it waits for exists, and does not wait for it."""
    sorter: TopologicalSorter[tuple[str, str]] = TopologicalSorter()
    for node in linux.values():
        planned = start(node.keys)
        for stage in planned.stages if planned else ():
            for other, awaited in stage.waits:
                if other not in linux:
                    wrong = f"stage {stage.name!r} of {node.name!r} waits for {other!r}, which is no node of `linux`; "
                    problems.add(_place(node), f"{wrong}there are: {choices(other, list(linux))}")
                elif awaited == "healthy" and linux[other].keys.healthcheck is None:
                    wrong = f"{node.name!r} waits for {other!r} to be healthy, but {other!r} has no 'healthcheck'"
                    problems.add(_place(node), wrong)
            sorter.add((node.name, stage.name), *stage.waits)
        for earlier, later in itertools.pairwise(STAGES):
            sorter.add((node.name, later), (node.name, earlier))
    try:
        sorter.prepare()
    except CycleError as error:
        waits = " waits for ".join(f"{name} ({stage})" for name, stage in reversed(error.args[1]))
        waiting = next(linux[name] for name, _ in error.args[1] if start(linux[name].keys))
        problems.add(_place(waiting), f"nodes wait for each other: {waits}")


def _place(node: ResolvedNode) -> Path:
    return node.paths.get("stages") or node.paths.get("wait_for") or node.path
