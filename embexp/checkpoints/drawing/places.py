"""Where the objects of a tree are: from left to right, a row for each leaf.

An object stands left of everything below it, and no other object has a place in the rows of that. So no two labels
overlap. All lengths are in points (1/72 inch), from the top left corner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from embexp.checkpoints.drawing.tree import Branch

FONT_SIZE = 9.0
CELL = 0.61 * FONT_SIZE
"""Width of a character: the widest of the common monospaced fonts has 0.602 of the size."""
ROW = 16.0
"""Height of a row."""
MARGIN = 14.0
MARKER = 3.2
"""Radius of the marker of an object."""
GAP = 4.0
"""Between a line, a text, and a marker."""
ELBOW = 8.0
"""From a label to the line from which its edges branch."""
_PART_GAP = 0.6
"""Rows between the parts of a checkpoint."""


@dataclass(frozen=True)
class Place:
    """Where a branch is.

    Attributes:
        branch: what is there.
        x: of its marker.
        row: of its marker; rows are counted from 0, and can be fractions.
        first: row of the first leaf below it.
        last: row of the last one.
        below: the places of its branches.
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


def places(tree: Branch) -> list[Place]:
    """The places of all branches of a tree, from top to bottom; the first is that of the root."""
    return list(_all(_placed(tree, MARGIN + MARKER, 0.0, gap=_PART_GAP)))


def width_of(text: str) -> float:
    """Width of a text."""
    return CELL * cell_len(text)


def hidden(branch: Branch) -> str:
    """What stands beside the label of an object whose edges are not all drawn, or ""."""
    return f"+{branch.hidden}" if branch.hidden else ""


def _right(branch: Branch, x: float) -> float:
    label = " ".join(part for part in (branch.label, hidden(branch)) if part)
    return x + MARKER + (GAP + width_of(label) if label else 0.0)


def _placed(branch: Branch, x: float, row: float, *, gap: float = 0.0) -> Place:
    """The place of a branch whose first row is `row`; `gap` is that between its parts, in rows."""
    if not branch.branches:
        return Place(branch, x, row, row, row, ())
    names = max(width_of(each.edge) for each in branch.branches)
    ahead = _right(branch, x) + ELBOW + 2 * GAP + names + 3 * GAP + MARKER
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
