"""No two texts overlap, and no line crosses a text, whatever the graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from embexp.checkpoints.object_graph import ObjectGraph, spanning_tree, walk
from embexp.checkpoints.picture import FONT_SIZE, MARKER, Layout, Text, lay_out
from tests import object_graphs
from tests.thoroughness import examples

TOP = 50.0
HALF = 0.6 * FONT_SIZE
"""Half the height of a line of text, with a little room."""
Box = tuple[float, float, float, float]


def box(text: Text) -> Box:
    return text.left, text.middle - HALF, text.right, text.middle + HALF


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share an inner point; of a line, the box has no height or no width."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def faults(layout: Layout) -> list[str]:
    boxes = {index: box(text) for index, text in enumerate(layout.texts) if text.text}
    marks = [(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in (each.at for each in layout.markers)]
    found = [
        f"{layout.texts[one].text!r} and {layout.texts[other].text!r}"
        for one in boxes
        for other in boxes
        if one < other and overlap(boxes[one], boxes[other])
    ]
    found += [
        f"{layout.texts[one].text!r} and a marker" for one in boxes for mark in marks if overlap(boxes[one], mark)
    ]
    for line in (*layout.lines, *layout.dashed):
        for (x0, y0), (x1, y1) in pairwise(line):
            segment = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            found += [f"{layout.texts[one].text!r} and a line" for one in boxes if overlap(boxes[one], segment)]
    for left, top, right, bottom in [*boxes.values(), *marks]:
        if left < 0 or top < TOP - HALF or right > layout.width or bottom > layout.height:
            found.append("beyond the edge")
    return found


@examples(80)
@given(object_graphs.graphs(), st.booleans())
def test_nothing_overlaps(graph: ObjectGraph, everything: bool) -> None:
    tree = spanning_tree(graph, everything=everything)
    layout = lay_out(tree, top=TOP)
    assert not faults(layout)
    names = sorted(text.text for text in layout.texts if text.role is None and not text.text.startswith("+"))
    edges = sorted(branch.edge for branch in walk(tree) if not branch.edge.startswith("+"))
    assert [""] * (len(edges) - len(names)) + names == edges
    assert len(layout.markers) == sum(1 for _ in walk(tree))


def test_the_faults_are_found() -> None:
    """The check above sees two texts on top of each other, and a line through a text."""
    texts = (Text("one", 10, 60, None), Text("two", 12, 62, None))
    assert faults(Layout(100, 100, texts, (), (), (), (), ())) == ["'one' and 'two'"]
    line = ((0.0, 60.0), (100.0, 60.0))
    assert faults(Layout(100, 100, texts[:1], (), (), (line,), (), ())) == ["'one' and a line"]


def test_wide_characters_have_the_width_of_two() -> None:
    assert Text("表", 0, 0, None).right == pytest.approx(Text("ab", 0, 0, None).right)


def test_no_text_is_wider_than_its_box() -> None:
    """The width in the font that PNG and PDF have; those of SVG viewers are narrower, or as wide."""
    font = FontProperties(family="DejaVu Sans Mono", size=FONT_SIZE)
    for text in ("MMMM", "iiii", "adam/top.0_kernel_momentum [51, 64] float32", "→ model/_operations/5/_kernel"):
        assert TextPath((0, 0), text, prop=font).get_extents().x1 <= Text(text, 0, 0, None).right
