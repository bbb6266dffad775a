"""Pictures of a plan, each as a text: SVG for people, Mermaid and dot for documents and other tools.

In SVG a node's label has its name in `data-node`; a cable has the ends of its links in `data-ends`, and in words in its
`title`, which is shown on hover.
"""

from collections.abc import Callable
from xml.etree import ElementTree as Xml

from testbed.topology.graph.box_text import Label
from testbed.topology.graph.picture import LinkEnds, Picture
from testbed.topology.graph.picture_layout import ARC, Bundle, Line, Placed, lay_out
from testbed.topology.kinds import KINDS
from testbed.topology.plan import Interface, Plan


def mermaid(plan: Plan) -> str:
    """Return Mermaid text with the nodes n1, n2, …: a name such as `end` is a keyword of the language."""
    numbers = {name: f"n{number}" for number, name in enumerate(plan.nodes, start=1)}
    lines = ["flowchart TB"]
    for node in plan.nodes.values():
        left, right = KINDS[node.kind].shape.mermaid
        lines.append(f'    {numbers[node.name]}{left}"{node.name}"{right}')
    for cable in Picture(plan).cables:
        line = "===" if cable.peer else "---"
        for lower, upper in cable.links:
            lines.append(f'    {numbers[upper.node]} {line}|"{_port(upper)} – {_port(lower)}"| {numbers[lower.node]}')
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
            shown = f'taillabel="{_port(upper)}", headlabel="{_port(lower)}"' + ", style=bold" * cable.peer
            lines.append(f'    "{upper.node}" -- "{lower.node}" [{shown}];')
    return "\n".join([*lines, "}"]) + "\n"


def _port(end: Interface) -> str:
    return f"{end.name} in {end.master}" if end.master else end.name


RAILS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#a16207", "#db2777")
PLAIN = "#64748b"
GRIP = 6
"""The height of what holds the members of a bond together, half on its box."""
STYLE = """\
text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #0f172a }
.name { font-weight: 600 } .title { font-weight: 700 } .quiet { fill: #64748b } .port { fill: #475569 }
path { fill: none; stroke-width: 1.5 } path.many { stroke-width: 4 } path.peer { stroke-width: 6 }
g.link:hover path { stroke-width: 5 }
""" + "".join(f".{name} {{ {kind.shape.style} }}\n" for name, kind in KINDS.items() if kind.planned_as in ("", name))


def svg(plan: Plan) -> str:
    layout = lay_out(Picture(plan))
    width, height = round(layout.width), round(layout.height)
    size = {"width": f"{width}", "height": f"{height}", "viewBox": f"0 0 {width} {height}"}
    root = Xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
    Xml.SubElement(root, "title").text = plan.name
    Xml.SubElement(root, "style").text = STYLE
    Xml.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#fff"})
    for line in layout.lines:
        _cable(root, line)
    for sample in layout.legend:
        x, y = sample.start
        drawn = Xml.SubElement(root, "path", {"d": f"M{x:g} {y:g}h22", "stroke": _colour(sample.rail)})
        if sample.peer:
            drawn.set("class", "peer")
        if not sample.rdma:
            drawn.set("stroke-dasharray", "5 4")
    for box in layout.boxes:
        _box(root, box, several_rails=len(layout.picture.rails) > 1)
    for bundle in layout.bundles:
        _bundle(root, bundle)
    for label in layout.labels:
        _text(root, label)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode") + "\n"


def _cable(root: Xml.Element, line: Line) -> None:
    (x1, y1), (x2, y2) = line.start, line.end
    if line.bent:
        bend = min(y1, y2) - ARC
        path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {bend:.1f} {x2:.1f} {bend:.1f} {x2:.1f} {y2:.1f}"
    else:
        path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
    cable = line.cable
    ends = " ".join(f"{end.node}:{end.name}" for link in cable.links for end in link)
    group = Xml.SubElement(root, "g", {"class": "link", "data-ends": ends})
    Xml.SubElement(group, "title").text = "\n".join(map(_link, cable.links))
    drawn = Xml.SubElement(group, "path", {"d": path, "stroke": _colour(cable.rail)})
    if cable.peer or len(cable.links) > 1:
        drawn.set("class", "peer" if cable.peer else "many")
    if cable.to_host and cable.rail is None:
        drawn.set("stroke-dasharray", "5 4")


def _bundle(root: Xml.Element, bundle: Bundle) -> None:
    """Draw the members of a bond as one port."""
    group = Xml.SubElement(root, "g", {"class": "bond"})
    Xml.SubElement(group, "title").text = bundle.text
    size = {"width": f"{bundle.right - bundle.left + 2 * GRIP:.1f}", "height": f"{GRIP}", "rx": f"{GRIP / 2:g}"}
    place = {"x": f"{bundle.left - GRIP:.1f}", "y": f"{bundle.y - GRIP / 2:.1f}"}
    Xml.SubElement(group, "rect", {**place, **size, "fill": _colour(bundle.rail)})


def _link(ends: LinkEnds) -> str:
    """Return `host1:eth1 10.1.1.2/24 – leaf1:e1 VLAN 10` or `leaf1:e2 VLAN 10, tagged 20 – leaf2:e2 (the same)`."""
    shown = []
    for end in ends:
        tagged = f"tagged {', '.join(map(str, end.trunk))}" if end.trunk else ""
        vlans = ", ".join(filter(None, (f"VLAN {end.vlan}" if end.vlan else "", tagged)))
        shown.append(" ".join(filter(None, (f"{end.node}:{end.name}", *map(str, end.addresses), vlans))))
    return " – ".join(shown)


def _box(root: Xml.Element, placed: Placed, *, several_rails: bool) -> None:
    group = Xml.SubElement(root, "g")
    place = {"x": f"{placed.x:.1f}", "y": f"{placed.y:.1f}", "width": f"{placed.width:.1f}"}
    Xml.SubElement(group, "rect", {**place, "height": f"{placed.height:.1f}", "rx": "5", "class": placed.box.kind.name})
    if several_rails and placed.box.kind.has_vlans and len(placed.rails) == 1:
        bar = {"x": f"{placed.x:.1f}", "y": f"{placed.y + 5:.1f}", "width": "4", "height": f"{placed.height - 10:.1f}"}
        Xml.SubElement(group, "rect", {**bar, "fill": _colour(placed.rails[0])})
    for label in placed.labels:
        _text(group, label)


def _text(parent: Xml.Element, label: Label) -> None:
    text = Xml.SubElement(parent, "text", {"x": f"{label.x:.1f}", "y": f"{label.y:.1f}", "font-size": f"{label.size}"})
    text.text = label.text
    if label.middle:
        text.set("text-anchor", "middle")
    if label.rail is not None:
        text.set("style", f"fill: {_colour(label.rail)}")
    elif label.style:
        text.set("class", label.style)
    if label.node:
        text.set("data-node", label.node)


def _colour(rail: int | None) -> str:
    return PLAIN if rail is None else RAILS[(rail - 1) % len(RAILS)]


STYLES: dict[str, Callable[[Plan], str]] = {"svg": svg, "mermaid": mermaid, "dot": dot}
