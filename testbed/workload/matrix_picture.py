"""The traffic matrix of a training as SVG: a row for each rank that sends, a column for each that receives."""

import math
from typing import get_args
from xml.etree import ElementTree as Xml

from testbed.workload.parallelism import Dimension, Training

COLOURS: dict[Dimension, str] = {"tensor": "#2563eb", "expert": "#9333ea", "data": "#059669", "pipeline": "#ea580c"}
SIDE, MARGIN = 640, 56
FAINTEST = 0.25
"""The opacity of the pair with the fewest bytes."""
MOST_NAMED = 64
"""Ranks of a picture in which each pair has a title, shown on hover."""


def matrix_svg(training: Training) -> str:
    """Return the bytes of a step from rank to rank as SVG. A cell has the colour of the dimension with most of its
    bytes, and is darker, by the logarithm, with more bytes."""
    matrix, ranks = training.matrix(), training.parallel.ranks
    cell = SIDE / ranks
    width, height = MARGIN + SIDE + 16, MARGIN + SIDE + 40
    root = Xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "width": str(width), "height": str(height)})
    Xml.SubElement(root, "style").text = "text { font: 12px sans-serif; fill: #0f172a }"
    Xml.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#fff"})
    frame = {"x": f"{MARGIN}", "y": f"{MARGIN}", "width": f"{SIDE}", "height": f"{SIDE}"}
    Xml.SubElement(root, "rect", {**frame, "fill": "#f6f8fb", "stroke": "#64748b"})
    totals = {pair: sum(by_dimension.values()) for pair, by_dimension in matrix.items()}
    least, most = (math.log(bound(totals.values(), default=1)) for bound in (min, max))
    for (sender, receiver), by_dimension in matrix.items():
        dimension = max(by_dimension, key=lambda name: by_dimension[name])
        depth = (math.log(totals[sender, receiver]) - least) / ((most - least) or 1)
        place = {"x": f"{MARGIN + receiver * cell:.2f}", "y": f"{MARGIN + sender * cell:.2f}"}
        size = {"width": f"{cell:.2f}", "height": f"{cell:.2f}"}
        look = {"fill": COLOURS[dimension], "fill-opacity": f"{FAINTEST + (1 - FAINTEST) * depth:.2f}"}
        drawn = Xml.SubElement(root, "rect", {**place, **size, **look})
        if ranks <= MOST_NAMED:
            parts = ", ".join(f"{name} {count} bytes" for name, count in by_dimension.items())
            Xml.SubElement(drawn, "title").text = f"rank {sender} to rank {receiver}: {parts}"
    every = -(-ranks // 16)
    for rank in range(0, ranks, every):
        middle = MARGIN + (rank + 0.5) * cell
        _text(root, MARGIN - 6, middle + 4, str(rank), "end")
        _text(root, middle, MARGIN - 6, str(rank), "middle")
    silent = f"{training.silent_pairs():.1%} of the pairs are silent"
    _text(root, MARGIN, 18, f"{ranks} ranks: rows send, columns receive; {silent}")
    at = MARGIN
    shares = training.shares()
    for dimension in get_args(Dimension):
        if dimension in shares:
            swatch = {"x": f"{at}", "y": f"{MARGIN + SIDE + 14}", "width": "12", "height": "12"}
            Xml.SubElement(root, "rect", {**swatch, "fill": COLOURS[dimension]})
            _text(root, at + 18, MARGIN + SIDE + 24, f"{dimension} {shares[dimension]:.1%}")
            at += 150
    return Xml.tostring(root, encoding="unicode") + "\n"


def _text(root: Xml.Element, x: float, y: float, words: str, anchor: str = "start") -> None:
    Xml.SubElement(root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = words
