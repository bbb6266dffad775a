"""Pictures of a plan, each as a text: SVG for people, Mermaid and dot for documents and other tools."""

from collections.abc import Callable

from testbed.topology.graph.listing import dot, mermaid
from testbed.topology.graph.svg import svg
from testbed.topology.plan import Plan

STYLES: dict[str, Callable[[Plan], str]] = {"svg": svg, "mermaid": mermaid, "dot": dot}
