"""Pictures of a plan, each as a text: SVG for people, Mermaid and dot for documents and other tools."""

from collections.abc import Callable

from testbed.topology.graph.picture import Picture
from testbed.topology.graph.svg import svg
from testbed.topology.kinds import KINDS
from testbed.topology.plan import Plan


def mermaid(plan: Plan) -> str:
    """Return Mermaid text with the nodes n1, n2, …: a name such as `end` is a keyword of the language."""
    numbers = {name: f"n{number}" for number, name in enumerate(plan.nodes, start=1)}
    lines = ["flowchart TB"]
    for node in plan.nodes.values():
        left, right = KINDS[node.kind].shape.mermaid
        lines.append(f'    {numbers[node.name]}{left}"{node.name}"{right}')
    for cable in Picture(plan).cables:
        for lower, upper in cable.links:
            lines.append(f'    {numbers[upper.node]} ---|"{upper.name} – {lower.name}"| {numbers[lower.node]}')
    return "\n".join(lines) + "\n"


def dot(plan: Plan) -> str:
    picture = Picture(plan)
    lines = [
        f'graph "{plan.name}" {{',
        "    rankdir=TB; node [fontname=monospace]; edge [fontname=monospace, fontsize=9];",
    ]
    for tier in reversed(picture.tiers):
        nodes = [node for box in picture.tier(tier) for node in box.nodes]
        lines.append("    { rank=same;")
        lines += [f'        "{node.name}" [shape={KINDS[node.kind].shape.dot}];' for node in nodes]
        lines.append("    }")
    for cable in picture.cables:
        for lower, upper in cable.links:
            ports = f'taillabel="{upper.name}", headlabel="{lower.name}"'
            lines.append(f'    "{upper.node}" -- "{lower.node}" [{ports}];')
    return "\n".join([*lines, "}"]) + "\n"


STYLES: dict[str, Callable[[Plan], str]] = {"svg": svg, "mermaid": mermaid, "dot": dot}
