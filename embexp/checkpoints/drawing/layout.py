"""The drawing of a tree as texts, markers and lines. All lengths are in points, from the top left corner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embexp.checkpoints.drawing.places import ELBOW, GAP, MARGIN, MARKER, ROW, Place, hidden, places, width_of
from embexp.checkpoints.drawing.references import references
from embexp.checkpoints.drawing.tree import Branch
from embexp.checkpoints.roles import Role

Point = tuple[float, float]
_SPACE = 2.0
"""Between a text and the line that leads on."""


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
    """The layout of a tree.

    Args:
        tree: what is drawn.
        top: room for a heading.
    """

    def middle(row: float) -> float:
        return top + ROW * (row + 0.5)

    everything = places(tree)
    texts: list[Text] = []
    lines: list[tuple[Point, ...]] = []
    for place in everything:
        y = middle(place.row)
        texts += _labels(place, y)
        trunk = place.right + ELBOW
        for each in place.below:
            name = Text(each.branch.edge, trunk + 2 * GAP, middle(each.row), None)
            texts.append(name)
            start = (place.right + _SPACE, y)
            lines.append((start, (trunk, y), (trunk, name.middle), (name.left - _SPACE, name.middle)))
            lines.append(((name.right + _SPACE, name.middle), (each.x - MARKER, name.middle)))
    dashed: list[tuple[Point, ...]] = []
    lefts: list[Point] = []
    downs: list[Point] = []
    for line in references(everything):
        dashed.append(((line.track, middle(line.first)), (line.track, middle(line.last))))
        dashed += [((x + _SPACE, middle(row)), (line.track, middle(row))) for x, row in line.sources]
        for x, row in line.leaves:
            lefts.append((x + _SPACE, middle(row)))
            dashed.append(((line.track, middle(row)), lefts[-1]))
        for x, row, edge in line.others:
            downs.append((x, middle(row) - MARKER - 1))
            dashed.append(((line.track, middle(edge)), (x, middle(edge)), downs[-1]))
    return Layout(
        width=max([place.right for place in everything] + [x for points in dashed for x, _ in points]) + MARGIN,
        height=top + ROW * (everything[0].last + 1) + MARGIN,
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
        yield Text(place.branch.label, place.x + MARKER + GAP, y, place.branch.role)
    count = hidden(place.branch)
    if count:
        yield Text(count, place.right - width_of(count), y, None)
