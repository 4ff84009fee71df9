"""The picture of an object graph, as SVG, PNG or PDF: where each object, label and reference is. Lengths are in points.

The objects of a tree are laid out from left to right, a row for each leaf. An object stands left of everything below
it, and no other object has a place in the rows of that. So no two labels overlap. All lengths are in points (1/72
inch), from the top left corner.

Dashed lines lead from references to the objects that they refer to, around all labels. The references below one
object share a track, a vertical line right of all labels that it passes. An object with nothing below it is reached
from the right, where its row is empty; any other one from above its marker, along the upper edge of its first row,
where no text is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.cells import cell_len

from embexp.checkpoints.object_graph import Branch, Role
from embexp.system import printable

COLOURS = {Role.OBJECT: "#000000", Role.VARIABLE: "#1f5fd0", Role.OPTIMIZER: "#d01f1f", Role.SLOT: "#d97700"}
_NAMES = {
    Role.OBJECT: "object or layer",
    Role.VARIABLE: "variable",
    Role.OPTIMIZER: "optimizer",
    Role.SLOT: "slot variable",
}
_EDGE, _EDGE_NAME, _REFERENCE, _BACKGROUND = "#a0a0a0", "#555555", "#9a9a9a", "#ffffff"
_FONTS = ["DejaVu Sans Mono", "monospace"]
_REFERENCE_NAME = "→ PATH: drawn at PATH; for a slot, its variable"
_MOST_PIXELS = 60_000
FORMATS = (".svg", ".png", ".pdf")
"""Endings of the files that can be written."""
Point = tuple[float, float]
_SPACE = 2.0
"""Between a text and the line that leads on."""
FONT_SIZE = 9.0
CELL = 0.61 * FONT_SIZE
"""Width of a character: the widest of the common monospaced fonts has 0.602 of the size."""
_ROW = 16.0
"""Height of a row."""
_MARGIN = 14.0
MARKER = 3.2
"""Radius of the marker of an object."""
_GAP = 4.0
"""Between a line, a text, and a marker."""
_ELBOW = 8.0
"""From a label to the line from which its edges branch."""
_PART_GAP = 0.6
"""Rows between the parts of a checkpoint."""
_TRACK = 8.0
"""Between two tracks."""
_MOST_TRACKS = 40
"""If there were more tracks than this, none are drawn: the labels of references name their objects anyway."""


def write(tree: Branch, file: IO[bytes], kind: str, *, title: str, note: str) -> None:
    """Draws a tree into a file.

    Args:
        kind: svg, png or pdf.
    """
    head = [title, note]
    layout = lay_out(tree, top=_MARGIN + _ROW * (len(head) + 1) + _ROW / 2)
    legend = [*_NAMES.values(), _REFERENCE_NAME]
    width = max(layout.width, *(2 * _MARGIN + _width_of(line) for line in head), 2 * _MARGIN + _legend_width(legend))
    figure = Figure(figsize=(width / 72, layout.height / 72), facecolor=_BACKGROUND)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(layout.height, 0)
    _text(axes, title, (_MARGIN, _MARGIN + _ROW / 2), "#000000", weight="bold")
    _text(axes, note, (_MARGIN, _MARGIN + 1.5 * _ROW), _EDGE_NAME)
    _draw_legend(axes, _MARGIN + 2.5 * _ROW)
    _draw(axes, layout)
    dots = min(160.0, 72 * _MOST_PIXELS / max(width, layout.height))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "embexp"}), warnings.catch_warnings():
        # The viewer of an SVG has fonts of its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        metadata = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": None}[kind]
        figure.savefig(file, format=kind, dpi=dots, metadata=metadata)


def _draw(axes: Axes, layout: Layout) -> None:
    axes.add_collection(LineCollection(layout.lines, colors=_EDGE, linewidths=0.8, zorder=1), autolim=False)
    axes.add_collection(
        LineCollection(layout.dashed, colors=_REFERENCE, linewidths=0.7, linestyles=(0, (3, 2)), zorder=0),
        autolim=False,
    )
    _markers(axes, layout.left_arrows, "<", colour=_REFERENCE, size=3.5)
    _markers(axes, layout.down_arrows, "v", colour=_REFERENCE, size=3.5)
    for role, colour in COLOURS.items():
        for hollow in (False, True):
            points = [marker.at for marker in layout.markers if (marker.role, marker.is_hollow) == (role, hollow)]
            _markers(axes, points, "o", colour=colour, size=2 * MARKER, hollow=hollow)
    for text in layout.texts:
        colour = _EDGE_NAME if text.role is None else COLOURS[text.role]
        _text(axes, text.text, (text.left, text.middle), colour)


def _markers(
    axes: Axes, points: Sequence[Point], shape: str, *, colour: str, size: float, hollow: bool = False
) -> None:
    if points:
        xs, ys = zip(*points, strict=True)
        line = Line2D(xs, ys, linestyle="none", marker=shape, markersize=size, color=colour, zorder=2)
        if hollow:
            line.set_markerfacecolor(_BACKGROUND)
        axes.add_line(line)


def _text(axes: Axes, text: str, at: Point, colour: str, weight: str = "normal") -> None:
    axes.text(
        *at,
        printable.visible(text),
        color=colour,
        size=FONT_SIZE,
        family=_FONTS,
        weight=weight,
        verticalalignment="center_baseline",
        parse_math=False,
        zorder=3,
    )


def _legend_width(names: list[str]) -> float:
    return sum(_width_of(name) + 6 * MARKER + 8 for name in names)


def _draw_legend(axes: Axes, y: float) -> None:
    x = _MARGIN
    for role, name in _NAMES.items():
        _markers(axes, [(x + MARKER, y)], "o", colour=COLOURS[role], size=2 * MARKER)
        _text(axes, name, (x + 2 * MARKER + _GAP, y), COLOURS[role])
        x += _width_of(name) + 6 * MARKER + 8
    _markers(axes, [(x + MARKER, y)], "o", colour=_EDGE_NAME, size=2 * MARKER, hollow=True)
    _text(axes, _REFERENCE_NAME, (x + 2 * MARKER + _GAP, y), _EDGE_NAME)


@dataclass(frozen=True)
class Text:
    """A text in one line; `left` and `middle` are the middle of its left edge.

    Attributes:
        role: of the object that it names; None: it is the name of an edge, or a count of hidden ones.
    """

    text: str
    left: float
    middle: float
    role: Role | None

    @property
    def right(self) -> float:
        """The right edge."""
        return self.left + _width_of(self.text)


@dataclass(frozen=True)
class Marker:
    """The mark of an object; that of a reference to an object is hollow."""

    at: Point
    role: Role
    is_hollow: bool


@dataclass(frozen=True)
class Layout:
    """A drawing of `width` and `height`.

    Attributes:
        texts: names of edges and labels of objects.
        lines: points that are joined: edges.
        dashed: the same, from references to what they refer to.
        left_arrows: where dashed lines end that go left.
        down_arrows: where those end that go down.
    """

    width: float
    height: float
    texts: tuple[Text, ...]
    markers: tuple[Marker, ...]
    lines: tuple[tuple[Point, ...], ...]
    dashed: tuple[tuple[Point, ...], ...]
    left_arrows: tuple[Point, ...]
    down_arrows: tuple[Point, ...]


def lay_out(tree: Branch, *, top: float) -> Layout:
    """The layout of a tree."""

    def middle(row: float) -> float:
        return top + _ROW * (row + 0.5)

    everything = list(_all(_placed(tree, _MARGIN + MARKER, 0.0, gap=_PART_GAP)))
    texts: list[Text] = []
    lines: list[tuple[Point, ...]] = []
    for place in everything:
        y = middle(place.row)
        texts += _labels(place, y)
        trunk = place.right + _ELBOW
        for each in place.below:
            name = Text(each.branch.edge, trunk + 2 * _GAP, middle(each.row), None)
            texts.append(name)
            start = (place.right + _SPACE, y)
            lines.append((start, (trunk, y), (trunk, name.middle), (name.left - _SPACE, name.middle)))
            lines.append(((name.right + _SPACE, name.middle), (each.x - MARKER, name.middle)))
    dashed, lefts, downs = _references(everything, middle)
    return Layout(
        width=max([place.right for place in everything] + [x for points in dashed for x, _ in points]) + _MARGIN,
        height=top + _ROW * (everything[0].last + 1) + _MARGIN,
        texts=tuple(texts),
        markers=tuple(
            Marker((each.x, middle(each.row)), each.branch.role, each.branch.is_reference) for each in everything
        ),
        lines=tuple(lines),
        dashed=tuple(dashed),
        left_arrows=tuple(lefts),
        down_arrows=tuple(downs),
    )


def _labels(place: Place, y: float) -> Iterator[Text]:
    if place.branch.label:
        yield Text(place.branch.label, place.x + MARKER + _GAP, y, place.branch.role)
    count = _hidden(place.branch)
    if count:
        yield Text(count, place.right - _width_of(count), y, None)


@dataclass(frozen=True)
class Place:
    """Where a branch is.

    Attributes:
        row: of its marker; rows are counted from 0, and can be fractions.
        first: row of the first leaf below it.
        last: row of the last one.
    """

    branch: Branch
    x: float
    row: float
    first: float
    last: float
    below: tuple[Place, ...]

    @property
    def right(self) -> float:
        """Right edge of the label, or of the marker if there is none."""
        return _right(self.branch, self.x)


def _width_of(text: str) -> float:
    """Width of a text."""
    return CELL * cell_len(text)


def _hidden(branch: Branch) -> str:
    """What stands beside the label of an object whose edges are not all drawn, or ""."""
    return f"+{branch.hidden}" if branch.hidden else ""


def _right(branch: Branch, x: float) -> float:
    label = " ".join(part for part in (branch.label, _hidden(branch)) if part)
    return x + MARKER + (_GAP + _width_of(label) if label else 0.0)


def _placed(branch: Branch, x: float, row: float, *, gap: float = 0.0) -> Place:
    """The place of a branch whose first row is `row`; `gap` is that between its parts, in rows."""
    if not branch.branches:
        return Place(branch, x, row, row, row, ())
    names = max(_width_of(each.edge) for each in branch.branches)
    ahead = _right(branch, x) + _ELBOW + 2 * _GAP + names + 3 * _GAP + MARKER
    below: list[Place] = []
    for each in branch.branches:
        if below:
            row = below[-1].last + 1 + (gap if each.branches or below[-1].below else 0.0)
        below.append(_placed(each, ahead, row))
    return Place(branch, x, (below[0].row + below[-1].row) / 2, below[0].first, below[-1].last, tuple(below))


def _all(place: Place) -> Iterator[Place]:
    yield place
    for each in place.below:
        yield from _all(each)


def _references(
    places: Sequence[Place], middle: Callable[[float], float]
) -> tuple[list[tuple[Point, ...]], list[Point], list[Point]]:
    """The lines of all references, where those end that go left, and where those that go down.

    The references below one object share a track; those of shorter ones are left of those of longer ones.
    """
    targets = {each.branch.node: each for each in places if not each.branch.is_reference}
    groups = []
    for place in places:
        sources = [each for each in place.below if each.branch.refers_to in targets and not each.below]
        ends = {source.branch.refers_to: targets[source.branch.refers_to or 0] for source in sources}.values()
        rows = [source.row for source in sources] + [each.first - 0.5 if each.below else each.row for each in ends]
        if rows:
            groups.append((min(rows), max(rows), sources, ends))
    dashed: list[tuple[Point, ...]] = []
    lefts: list[Point] = []
    downs: list[Point] = []
    if len(groups) > _MOST_TRACKS:
        return dashed, lefts, downs
    leaves = [place for place in places if not place.below]
    tracks: list[tuple[float, float, float]] = []
    for first, last, sources, ends in sorted(groups, key=lambda group: group[1] - group[0]):
        passed = [leaf.right for leaf in leaves if first - 1 < leaf.row < last + 1]
        passed += [x for x, above, below in tracks if above <= last + 1 and first - 1 <= below]
        track = max(passed) + _TRACK
        tracks.append((track, first, last))
        dashed.append(((track, middle(first)), (track, middle(last))))
        dashed += [((source.right + _SPACE, middle(source.row)), (track, middle(source.row))) for source in sources]
        for end in ends:
            if end.below:
                edge = middle(end.first - 0.5)
                downs.append((end.x, middle(end.row) - MARKER - 1))
                dashed.append(((track, edge), (end.x, edge), downs[-1]))
            else:
                lefts.append((end.right + _SPACE, middle(end.row)))
                dashed.append(((track, middle(end.row)), lefts[-1]))
    return dashed, lefts, downs
