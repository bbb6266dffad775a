"""Pictures of a plan, each as a text: SVG for people, Mermaid and dot for documents and other tools."""

from __future__ import annotations

from collections.abc import Callable

from testbed.topology.graph.layout import lay_out
from testbed.topology.graph.listing import dot, mermaid
from testbed.topology.graph.picture import Picture
from testbed.topology.graph.svg import draw
from testbed.topology.plan import Plan

__all__ = ["STYLES", "dot", "mermaid", "svg"]


def svg(plan: Plan) -> str:
    return draw(lay_out(Picture(plan)))


STYLES: dict[str, Callable[[Plan], str]] = {"svg": svg, "mermaid": mermaid, "dot": dot}
