"""The dashed lines from references to the objects that they refer to, around all labels.

The references below one object share a track, a vertical line right of all labels that it passes. An object with
nothing below it is reached from the right, where its row is empty; any other one from above its marker, along the upper
edge of its first row, where no text is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embexp.checkpoints.drawing.places import Place

_TRACK = 8.0
"""Between two tracks."""
_MOST_TRACKS = 40
"""If there were more tracks than this, none are drawn: the labels of references name their objects anyway."""


@dataclass(frozen=True)
class Reference:
    """The lines of the references below one object. Points are x, in points, and y, in rows.

    Attributes:
        track: x of the vertical line.
        first: row where it begins.
        last: row where it ends.
        sources: where the lines to it begin.
        leaves: where the lines from it to objects with nothing below them end.
        others: markers of other objects that it refers to, and the y along which the lines lead there.
    """

    track: float
    first: float
    last: float
    sources: tuple[tuple[float, float], ...]
    leaves: tuple[tuple[float, float], ...]
    others: tuple[tuple[float, float, float], ...]


def references(places: Sequence[Place]) -> list[Reference]:
    """The lines of all references, the shorter ones first, which are left of longer ones.

    Args:
        places: of all branches.
    """
    targets = {each.branch.node: each for each in places if not each.branch.is_reference}
    groups = [group for group in (_group(place, targets) for place in places) if group is not None]
    if len(groups) > _MOST_TRACKS:
        return []
    leaves = [place for place in places if not place.below]
    found: list[Reference] = []
    for sources, ends in sorted(groups, key=_length):
        first, last = _rows(sources, ends)
        passed = [each.right for each in leaves if first - 1 < each.row < last + 1]
        passed += [each.track for each in found if each.first <= last + 1 and first - 1 <= each.last]
        found.append(
            Reference(
                max(passed) + _TRACK,
                first,
                last,
                tuple((each.right, each.row) for each in sources),
                tuple((each.right, each.row) for each in ends if not each.below),
                tuple((each.x, each.row, each.first - 0.5) for each in ends if each.below),
            )
        )
    return found


_Group = tuple[list[Place], list[Place]]
"""References below one object, and the objects that they refer to."""


def _group(place: Place, targets: Mapping[int, Place]) -> _Group | None:
    sources = []
    ends: dict[int, Place] = {}
    for each in place.below:
        number = each.branch.refers_to
        if number is not None and number in targets and not each.below:
            sources.append(each)
            ends[number] = targets[number]
    return (sources, list(ends.values())) if sources else None


def _rows(sources: list[Place], ends: list[Place]) -> tuple[float, float]:
    """The rows between which the track of a group lies."""
    rows = [each.row for each in sources] + [each.first - 0.5 if each.below else each.row for each in ends]
    return min(rows), max(rows)


def _length(group: _Group) -> float:
    first, last = _rows(*group)
    return last - first
