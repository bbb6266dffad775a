"""The positions of everything in a picture. Lengths are in SVG's pixels."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from testbed.topology.graph.box_text import FONT, PAD, SMALL, Label, ports, text_width, written
from testbed.topology.graph.picture import Box, Cable, Picture
from testbed.topology.kinds import KINDS

GAP = 28
"""The minimum gap between boxes of a tier."""
MARGIN = 28
TITLE = 52
LEGEND = 34
STRIP = 16
"""The height of the row of a box with the names of the ports of an edge."""
MAX_NAMED_PORTS = 16
BARE_PORT = 7
"""The space for a port without a name."""
LOOSE = 1.5
"""The factor on the space that a port needs, where its edge is longer."""
ARC = 34
"""The height of the bend of a cable within a tier."""
NEAR, FALL = 64, 6.5
"""The distance between tiers: the minimum, and the factor on the root of a cable's sideways distance."""
SPREAD = 0.55
"""The minimum part of the picture's width that a tier uses."""

Point = tuple[float, float]


@dataclass(slots=True)
class Placed:
    """A box with its labels; `width` and `height` are set before `x` and `y`."""

    box: Box
    rails: list[int]
    lines: list[Label]
    """Relative to the upper left corner, below the strip."""
    width: float = 0
    height: float = 0
    x: float = 0
    y: float = 0
    above: list[_End] = field(default_factory=list)
    below: list[_End] = field(default_factory=list)
    left: list[_End] = field(default_factory=list)
    """The end of the peer link to the box on the left, if there is one; `right` is alike."""
    right: list[_End] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


@dataclass(slots=True)
class _End:
    """The point where a cable meets an edge of a box, the upper or the lower one; with peers, its port's label."""

    cable: Cable
    side: int
    label: str
    x: float = 0

    @property
    def bonds(self) -> tuple[str, ...]:
        """Return the bonds whose members its links are, by link; empty if one of them is no member."""
        names = tuple(link[self.side].master for link in self.cable.links)
        return names if all(names) else ()


@dataclass(frozen=True, slots=True)
class Line:
    cable: Cable
    start: Point
    end: Point
    bent: bool
    """True for a bend over the boxes of a tier."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The sample of a line in the legend."""

    start: Point
    rail: int | None = None
    rdma: bool = True
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """The members of a bond at an edge of a box: the ends of their cables, from `left` to `right`."""

    left: float
    right: float
    y: float
    rail: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Layout:
    picture: Picture
    width: float
    height: float
    boxes: list[Placed]
    lines: list[Line]
    bundles: list[Bundle]
    labels: list[Label]
    legend: list[Sample]


def lay_out(picture: Picture) -> Layout:
    placed = {box: Placed(box, picture.rails_of(box), written(picture, box)) for box in picture.boxes}
    ends = {
        (cable, side): _End(cable, side, ports(link[side].name for link in cable.links))
        for cable in picture.cables
        for side in (0, 1)
    }
    rows = [[placed[box] for box in picture.tier(tier)] for tier in picture.tiers]
    _order_rows(picture, rows)
    beside = {(one.box, other.box) for row in rows for one, other in itertools.pairwise(row)}
    for (cable, side), end in ends.items():
        box, pair = placed[cable.boxes[side]], (cable.boxes[side], cable.boxes[1 - side])
        if cable.peer and (pair in beside or pair[::-1] in beside):
            (box.right if pair in beside else box.left).append(end)
        else:
            (box.above if cable.level or side == 0 else box.below).append(end)
    for row in rows:
        for one in row:
            _size(one)
    width = _place_across(picture, rows, placed) if rows else 0
    bottom = _place_down(picture, rows, placed) if rows else TITLE
    for one in placed.values():
        _order_ends(one, placed)
    legend, labels, least = _legend(picture, bottom)
    title = [
        Label(MARGIN, MARGIN + 4, picture.plan.name, 18, style="title"),
        Label(MARGIN, MARGIN + 22, _summary(picture), FONT, style="quiet"),
    ]
    for one in placed.values():
        _label(one)
    width = max(width, least, 2 * MARGIN + max(text_width(label.text, label.size) for label in title))
    lines = [_line(cable, placed, ends[cable, 0], ends[cable, 1]) for cable in picture.cables]
    bundles = [bundle for one in placed.values() for bundle in _bundles(one)]
    height = bottom + (LEGEND if legend else 0) + MARGIN
    return Layout(picture, width, height, list(placed.values()), lines, bundles, [*title, *labels], legend)


# Sizes and positions of the boxes


def _slot(ends: Sequence[_End]) -> float:
    if len(ends) > MAX_NAMED_PORTS:
        return BARE_PORT
    return max((text_width(end.label, SMALL) for end in ends), default=0) + 8


def _strip(ends: Sequence[_End]) -> float:
    return STRIP if 0 < len(ends) <= MAX_NAMED_PORTS else 0


def _top(one: Placed) -> float:
    return STRIP if one.left or one.right else _strip(one.above)


def _sides(one: Placed) -> float:
    """Return the width of the labels of peer links in a box's upper strip."""
    return 2 * max(_slot(ends) for ends in (one.left, one.right)) + PAD


def _size(one: Placed) -> None:
    texts = max(label.x + text_width(label.text, label.size) for label in one.lines) + PAD
    edges = max(_slot(one.above) * len(one.above) + _sides(one), _slot(one.below) * len(one.below)) + PAD
    one.width = max(texts, edges)
    one.height = _top(one) + max(label.y for label in one.lines) + FONT + 1.6 * PAD + _strip(one.below)


def _order_rows(picture: Picture, rows: list[list[Placed]]) -> None:
    """Order boxes by the middle of their neighbours in the adjacent row, else as in the file: the lowest row by the one
    above it, then each by the one below it. Peers are beside each other."""
    for beside, row in zip([*rows[1:2], *rows], rows, strict=False):
        place = {one.box: index for index, one in enumerate(beside)}
        means = {one.box: _mean([place[box] for box in picture.joined(one.box, place)], 0) for one in row}
        first = {one.box: min((one.box, *picture.peers(one.box)), key=lambda box: box.number) for one in row}
        row.sort(key=lambda one: (means[first[one.box]], first[one.box].number, one.box.number))


def _place_across(picture: Picture, rows: list[list[Placed]], placed: dict[Box, Placed]) -> float:
    """Pack the widest row; put the other boxes over or under the middle of their neighbours. Return the width."""
    widths = [sum(one.width for one in row) + GAP * (len(row) - 1) for row in rows]
    base = widths.index(max(widths))
    total = widths[base]
    _pack(rows[base], [0.0] * len(rows[base]), GAP)
    for number in [*range(base + 1, len(rows)), *range(base - 1, -1, -1)]:
        row, beside = rows[number], rows[number - 1 if number > base else number + 1]
        near = [one.box for one in beside]
        wanted = [_mean([placed[box].centre for box in picture.joined(one.box, near)], total / 2) for one in row]
        spare = SPREAD * total - sum(one.width for one in row)
        _pack(row, wanted, max(GAP, min(spare / max(1, len(row) - 1), 6 * GAP)))
    left = min(one.x for row in rows for one in row)
    for row in rows:
        for one in row:
            one.x += MARGIN - left
    return max(one.x + one.width for row in rows for one in row) + MARGIN


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _pack(row: list[Placed], wanted: list[float], gap: float) -> None:
    """Place centres as near to the wanted ones as the gap allows, by least squares (pool adjacent violators)."""
    offsets, at = [], 0.0
    for one in row:
        offsets.append(at + one.width / 2)
        at += one.width + gap
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, size = want - offset, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    shifts = [mean for mean, size in pools for _ in range(size)]
    for one, shift, offset in zip(row, shifts, offsets, strict=True):
        one.x = shift + offset - one.width / 2


def _place_down(picture: Picture, rows: list[list[Placed]], placed: dict[Box, Placed]) -> float:
    """Place tiers from the top, further apart where cables lead to the side; return the bottom of the lowest box."""
    y = float(TITLE + MARGIN)
    if any(end.cable.level for one in rows[-1] for end in one.above):
        y += ARC
    for row in reversed(rows):
        tallest = max(one.height for one in row)
        for one in row:
            one.y = y
            if not one.box.kind.is_host:
                one.height = tallest
        y += tallest
        if row is not rows[0]:
            boxes = {one.box for one in row}
            pairs = [cable.boxes for cable in picture.cables if not cable.level and cable.boxes[1] in boxes]
            aside = max((abs(placed[a].centre - placed[b].centre) for a, b in pairs), default=0)
            y += max(NEAR, FALL * math.sqrt(aside))
    return y


def _order_ends(one: Placed, placed: dict[Box, Placed]) -> None:
    """Order the ends on an edge by their targets, so that few cables cross; the members of a bond beside each other."""
    for ends in one.above, one.below:
        target = {id(end): placed[end.cable.boxes[1 - end.side]].centre for end in ends}
        bonds: dict[object, list[float]] = {}
        for end in ends:
            bonds.setdefault(end.bonds or id(end), []).append(target[id(end)])
        ends.sort(key=lambda end: (_mean(bonds[end.bonds or id(end)], 0), end.bonds, target[id(end)]))
        room = one.width - PAD - (_sides(one) if ends is one.above else 0)
        slot = min(LOOSE * _slot(ends), room / max(1, len(ends)))
        first = one.centre - slot * (len(ends) - 1) / 2
        for number, end in enumerate(ends):
            end.x = first + slot * number
    for end in one.left:
        end.x = one.x + (PAD + _slot(one.left)) / 2
    for end in one.right:
        end.x = one.x + one.width - (PAD + _slot(one.right)) / 2


def _label(one: Placed) -> None:
    top = one.y + _top(one)
    for label in one.lines:
        y = top + PAD * 0.6 + FONT + label.y
        one.labels.append(replace(label, x=one.x + label.x, y=y))
    for ends, y in (
        (one.above, one.y + STRIP - 4),
        ([*one.left, *one.right], one.y + STRIP - 4),
        (one.below, one.y + one.height - 5),
    ):
        if _strip(ends):
            one.labels += [
                Label(end.x, y, end.label, SMALL, True, "port", end.cable.rail if end.cable.to_host else None)
                for end in ends
            ]


def _line(cable: Cable, placed: dict[Box, Placed], start: _End, finish: _End) -> Line:
    lower, upper = (placed[box] for box in cable.boxes)
    if start in (*lower.left, *lower.right):
        left, right = sorted((lower, upper), key=lambda one: one.x)
        y = lower.y + STRIP / 2
        return Line(cable, (left.x + left.width, y), (right.x, y), bent=False)
    return Line(cable, (start.x, lower.y), (finish.x, upper.y + (0 if cable.level else upper.height)), cable.level)


def _bundles(one: Placed) -> Iterator[Bundle]:
    for ends, y in ((one.above, one.y), (one.below, one.y + one.height)):
        for bonds, found in itertools.groupby(ends, key=lambda end: end.bonds):
            members = list(found)
            if bonds and len(members) > 1:
                text = f"{bonds[0]}: {', '.join(end.label for end in members)}"
                yield Bundle(members[0].x, members[-1].x, y, members[0].cable.rail, text)


# Around the boxes


def _summary(picture: Picture) -> str:
    kinds = Counter(node.kind for node in picture.plan.nodes.values())
    order = sorted(kinds, key=lambda name: (KINDS[name].is_host, not KINDS[name].has_vlans))
    counts = [(kinds[name], name, KINDS[name].shape.plural) for name in order]
    counts.append((len(picture.plan.links), "link", "s"))
    texts = [f"{number} {noun}{'' if number == 1 else ending}" for number, noun, ending in counts if number]
    return ", ".join(texts) or "no links"


def _legend(picture: Picture, bottom: float) -> tuple[list[Sample], list[Label], float]:
    x, y = float(MARGIN), bottom + LEGEND
    entries: list[tuple[str, Sample]] = []
    if len(picture.rails) > 1:
        entries = [(f"rail {rail}", Sample((x, y), rail)) for rail in picture.rails]
    if any(cable.rail is None and cable.to_host for cable in picture.cables):
        entries.append(("no RDMA device", Sample((x, y), rdma=False)))
    if any(cable.peer for cable in picture.cables):
        entries.append(("peer link", Sample((x, y), peer=True)))
    samples, labels = [], []
    for text, sample in entries:
        samples.append(replace(sample, start=(x, y - 4)))
        labels.append(Label(x + 30, y, text, SMALL))
        x += 30 + text_width(text, SMALL) + 24
    return samples, labels, x
