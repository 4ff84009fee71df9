"""Where everything of a tree is drawn: from left to right, a row for each leaf, so that no two labels overlap.

An object stands left of everything below it, and no other object has a place in the rows of that. All lengths are in
points (1/72 inch), from the top left corner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from embexp.checkpoints.drawing.tree import Branch
from embexp.checkpoints.roles import Role

FONT_SIZE = 9.0
CELL = 0.61 * FONT_SIZE
"""Width of a character: the widest of the common monospaced fonts has 0.602 of the size."""
ROW = 16.0
MARGIN = 14.0
MARKER = 3.2
"""Radius of the marker of an object."""
_GAP = 4.0
"""Between a line, a text, and a marker."""
_ELBOW = 8.0
"""From a label to the line from which its edges branch."""
_TRACK = 8.0
"""Between two dashed lines."""
_PART_GAP = 0.6
"""Rows between the parts of a checkpoint."""
_MOST_TRACKS = 40
"""With more dashed lines than this, none are drawn: the labels of references name their objects anyway."""

Point = tuple[float, float]


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
        return self.left + width_of(self.text)


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
        markers: of objects and references.
        lines: points that are joined: edges.
        dashed: the same, for what references refer to.
        arrows: where dashed lines end, and whether there they go left (else down).
    """

    width: float
    height: float
    texts: tuple[Text, ...]
    markers: tuple[Marker, ...]
    lines: tuple[tuple[Point, ...], ...]
    dashed: tuple[tuple[Point, ...], ...]
    arrows: tuple[tuple[Point, bool], ...]


@dataclass(frozen=True)
class _Place:
    """Where a branch is: its marker at `x` and in `row`, and all it has in the rows `first` to `last`."""

    branch: Branch
    x: float
    row: float
    first: float
    last: float
    below: tuple[_Place, ...]

    @property
    def right(self) -> float:
        """Right edge of the label, or of the marker if there is none."""
        label = " ".join(part for part in (self.branch.label, _hidden(self.branch)) if part)
        return self.x + MARKER + (_GAP + width_of(label) if label else 0.0)


def width_of(text: str) -> float:
    """Width of a text."""
    return CELL * cell_len(text)


def lay_out(tree: Branch, *, top: float) -> Layout:
    """The layout of a tree.

    Args:
        tree: what is drawn.
        top: room for a heading.
    """
    places = list(_all(_placed(tree, MARGIN + MARKER, 0.0, gap=_PART_GAP)))
    texts: list[Text] = []
    lines: list[tuple[Point, ...]] = []
    for place in places:
        y = _middle(place.row, top)
        if place.branch.label:
            texts.append(Text(place.branch.label, place.x + MARKER + _GAP, y, place.branch.role))
        if _hidden(place.branch):
            texts.append(Text(_hidden(place.branch), place.right - width_of(_hidden(place.branch)), y, None))
        trunk = place.right + _ELBOW
        for each in place.below:
            name = Text(each.branch.edge, trunk + 2 * _GAP, _middle(each.row, top), None)
            texts.append(name)
            lines.append(((place.right + 2, y), (trunk, y), (trunk, name.middle), (name.left - 2, name.middle)))
            lines.append(((name.right + 2, name.middle), (each.x - MARKER, name.middle)))
    dashed, arrows = _referring(places, top)
    right = max([place.right for place in places] + [x for line in dashed for x, _ in line])
    return Layout(
        right + MARGIN,
        top + ROW * (places[0].last + 1) + MARGIN,
        tuple(texts),
        tuple(Marker((each.x, _middle(each.row, top)), each.branch.role, each.branch.is_reference) for each in places),
        tuple(lines),
        tuple(dashed),
        tuple(arrows),
    )


def _hidden(branch: Branch) -> str:
    return f"+{branch.hidden}" if branch.hidden else ""


def _middle(row: float, top: float) -> float:
    return top + ROW * (row + 0.5)


def _placed(branch: Branch, x: float, row: float, *, gap: float = 0.0) -> _Place:
    """The place of a branch whose first row is `row`; `gap` is that between the parts below it, in rows."""
    if not branch.branches:
        return _Place(branch, x, row, row, row, ())
    right = _Place(branch, x, row, row, row, ()).right
    names = max(width_of(each.edge) for each in branch.branches)
    ahead = right + _ELBOW + 2 * _GAP + names + 3 * _GAP + MARKER
    below: list[_Place] = []
    for each in branch.branches:
        if below:
            row = below[-1].last + 1 + (gap if each.branches or below[-1].below else 0.0)
        below.append(_placed(each, ahead, row))
    return _Place(branch, x, (below[0].row + below[-1].row) / 2, below[0].first, below[-1].last, tuple(below))


def _all(place: _Place) -> Iterator[_Place]:
    yield place
    for each in place.below:
        yield from _all(each)


def _referring(places: list[_Place], top: float) -> tuple[list[tuple[Point, ...]], list[tuple[Point, bool]]]:
    """The dashed lines: those of all references below one object share one track, right of all labels that it passes.

    An object with nothing below it is reached from the right, where its row is empty; any other from above its marker,
    along the upper edge of its first row, where no text is.
    """
    targets = {each.branch.node: each for each in places if not each.branch.is_reference}
    groups = []
    for place in places:
        sources = [each for each in place.below if each.branch.refers_to in targets and not each.below]
        if sources:
            ends = {each.branch.refers_to: targets[each.branch.refers_to] for each in sources}
            rows = [each.row for each in sources]
            rows += [each.first - 0.5 if each.below else each.row for each in ends.values()]
            groups.append((max(rows) - min(rows), rows, sources, list(ends.values())))
    if len(groups) > _MOST_TRACKS:
        return [], []
    leaves = [place for place in places if not place.below]
    tracks: list[tuple[float, float, float]] = []
    dashed: list[tuple[Point, ...]] = []
    arrows: list[tuple[Point, bool]] = []
    for _, rows, sources, ends in sorted(groups, key=lambda group: group[0]):
        low, high = min(rows), max(rows)
        passed = [each.right for each in leaves if low - 1 < each.row < high + 1]
        passed += [x for x, first, last in tracks if first <= high + 1 and last >= low - 1]
        track = max(passed) + _TRACK
        tracks.append((track, low, high))
        dashed.append(((track, _middle(low, top)), (track, _middle(high, top))))
        dashed += [((each.right + 2, _middle(each.row, top)), (track, _middle(each.row, top))) for each in sources]
        for each in ends:
            y = _middle(each.row, top)
            if each.below:
                edge, end = _middle(each.first - 0.5, top), (each.x, y - MARKER - 1)
                dashed.append(((track, edge), (each.x, edge), end))
            else:
                end = (each.right + 2, y)
                dashed.append(((track, y), end))
            arrows.append((end, not each.below))
    return dashed, arrows
