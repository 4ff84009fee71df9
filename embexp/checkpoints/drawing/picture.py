"""The picture of an object graph, as SVG, PNG or PDF."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from embexp.checkpoints.drawing.layout import Layout, Point, lay_out
from embexp.checkpoints.drawing.places import FONT_SIZE, GAP, MARGIN, MARKER, ROW, width_of
from embexp.checkpoints.drawing.tree import Branch
from embexp.checkpoints.roles import Role
from embexp.system import files, printable

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


def write(tree: Branch, path: Path, *, title: str, note: str) -> None:
    """Draws a tree into a file, which is written whole or not at all.

    Args:
        tree: what is drawn.
        path: of the file; its ending is one of `FORMATS`.
        title: of the picture.
        note: below the title.
    """
    head = [title, note]
    layout = lay_out(tree, top=MARGIN + ROW * (len(head) + 1) + ROW / 2)
    legend = [*_NAMES.values(), _REFERENCE_NAME]
    width = max(layout.width, *(2 * MARGIN + width_of(line) for line in head), 2 * MARGIN + _legend_width(legend))
    figure = Figure(figsize=(width / 72, layout.height / 72), facecolor=_BACKGROUND)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(layout.height, 0)
    _text(axes, title, (MARGIN, MARGIN + ROW / 2), "#000000", weight="bold")
    _text(axes, note, (MARGIN, MARGIN + 1.5 * ROW), _EDGE_NAME)
    _draw_legend(axes, MARGIN + 2.5 * ROW)
    _draw(axes, layout)
    dots = min(160.0, 72 * _MOST_PIXELS / max(width, layout.height))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "embexp"}), warnings.catch_warnings():
        # The viewer of an SVG has fonts of its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        kind = path.suffix.removeprefix(".").lower()
        metadata = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": None}[kind]
        with files.written_whole(path) as file:
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
            points = [each.at for each in layout.markers if (each.role, each.is_hollow) == (role, hollow)]
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
    return sum(width_of(name) + 6 * MARKER + 8 for name in names)


def _draw_legend(axes: Axes, y: float) -> None:
    x = MARGIN
    for role, name in _NAMES.items():
        _markers(axes, [(x + MARKER, y)], "o", colour=COLOURS[role], size=2 * MARKER)
        _text(axes, name, (x + 2 * MARKER + GAP, y), COLOURS[role])
        x += width_of(name) + 6 * MARKER + 8
    _markers(axes, [(x + MARKER, y)], "o", colour=_EDGE_NAME, size=2 * MARKER, hollow=True)
    _text(axes, _REFERENCE_NAME, (x + 2 * MARKER + GAP, y), _EDGE_NAME)
