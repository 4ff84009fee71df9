"""Pictures of what vectors are worth, and of how alike several are: of what `embexp vectors` prints as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import IO, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from embexp.reports.plots import TABLES, one_line, write_png

_ADD, _MUL, _CHANCE = TABLES[0], TABLES[1], "#6b6b6b"
_COLUMNS = 3
_MOST_NUMBERED = 16
_MOST_PANELS = 12
_Draw = Callable[[Axes], None]


def write(content: Mapping[str, Any], file: IO[bytes]) -> None:
    """Draws an evaluation or a comparison as PNG.

    Args:
        content: of `quality.evaluate` or `comparison.as_json` in `embexp.vectors`.
    """
    write_png(evaluation_figure(content) if "vectors" in content else comparison_figure(content), file)


def evaluation_figure(content: Mapping[str, Any]) -> Figure:
    """A panel per test: ratings against cosines, right answers by section, purity next to chance."""
    tests = [(each, "similarity") for each in content["similarity"] if each["spearman"] is not None]
    tests += [(each, "analogies") for each in content["analogies"] if each["sections"][-1]["add"] is not None]
    draw = {"similarity": _similarity, "analogies": _analogies}
    panels: list[_Draw] = [partial(draw[kind], each) for each, kind in tests]
    if categories := [each for each in content["categories"] if each["purity"] is not None]:
        panels.append(partial(_categories, categories))
    longest = max((len(each["sections"]) for each, kind in tests if kind == "analogies"), default=0)
    heading = f"{one_line(content['vectors'], 60)}  ·  {content['rows']:,} rows of dimension {content['dim']}"
    return _figure(panels, heading, height=max(3.6, 1.2 + 0.26 * longest))


def comparison_figure(content: Mapping[str, Any]) -> Figure:
    """Of two sets neighbors, drift and lengths by frequency, and the tokens that moved most; of more, all pairs."""
    names = _short([each["name"] for each in content["shapes"]])
    pairs = content["pairs"]
    heading = f"{content['shared']:,} shared tokens"
    if len(pairs) > 1:
        stability = content["stability"]
        heading += f"  ·  {stability['mean']:.1%} of {content['count']} neighbors shared by two of {len(names)} sets"
        panels: list[_Draw] = [partial(_matrix, names, pairs, each) for each in ("overlap", "cka", "distance")]
        return _figure(panels, heading, height=min(1.8 + 0.35 * len(names), 8.0))
    heading = f"{names[0]} → {names[1]}  ·  {heading}"
    (pair,) = pairs
    panels = [
        partial(_overlap, pair, content),
        partial(_lengths, pair, names),
        partial(_distances, pair),
        *([partial(_moved, pair)] if pair["most"] else []),
    ]
    return _figure(panels, heading, height=3.6, columns=2)


def _figure(panels: Sequence[_Draw], heading: str, *, height: float, columns: int = _COLUMNS) -> Figure:
    """Panels in rows, below a heading."""
    drawn = panels[:_MOST_PANELS]
    columns = max(1, min(columns, len(drawn)))
    rows = max(1, -(-len(drawn) // columns))
    figure = Figure(figsize=(4.7 * columns + 0.8, height * rows + 0.5), dpi=150, layout="constrained")
    for place, draw in enumerate(drawn, 1):
        axes = figure.add_subplot(rows, columns, place)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_axisbelow(True)
        draw(axes)
    left_out = f"  ·  {len(panels) - len(drawn)} more are not drawn" if len(panels) > len(drawn) else ""
    figure.suptitle(f"{heading}{left_out}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _title(axes: Axes, title: str, more: str = "") -> None:
    axes.set_title(f"{one_line(title, 38)}{more}", loc="left", fontsize=10.5, fontweight="bold")


def _similarity(each: Mapping[str, Any], axes: Axes) -> None:
    known = [(pair["score"], pair["cosine"]) for pair in each["each"] if pair["cosine"] == pair["cosine"]]
    scores, cosines = np.array(known).T
    axes.plot(scores, cosines, ".", color=_ADD, alpha=0.35, markeredgecolor="none", markersize=6)
    edges = np.quantile(scores, np.linspace(0, 1, 9))
    places = np.clip(np.searchsorted(edges, scores, "right") - 1, 0, 7)
    means = [(scores[places == each].mean(), cosines[places == each].mean()) for each in np.unique(places)]
    axes.plot(*zip(*means, strict=True), "o-", color=_MUL, markersize=4, linewidth=1.6, label="mean of an eighth")
    interval = "" if each["low"] is None else f" ({each['low']:.2f} to {each['high']:.2f})"
    _title(axes, PurePath(each["file"]).name)
    axes.set_xlabel("similarity that people gave", fontsize=9)
    axes.set_ylabel("cosine", fontsize=9)
    axes.grid(color="#ececec", linewidth=0.8)
    said = f"Spearman {each['spearman']:.3f}{interval}, {each['covered']:,} of {each['pairs']:,} pairs"
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none", title=said, title_fontsize=8)


def _analogies(each: Mapping[str, Any], axes: Axes) -> None:
    sections = [section for section in each["sections"] if section["add"] is not None]
    places = np.arange(len(sections))
    for way, name, colour, shift in (("add", "3CosAdd", _ADD, -0.2), ("mul", "3CosMul", _MUL, 0.2)):
        shares = [section[way] for section in sections]
        values = np.array([share["share"] for share in shares])
        ends = np.array([[share["share"] - share["low"], share["high"] - share["share"]] for share in shares]).T
        style = {"ecolor": "#555555", "elinewidth": 0.8}
        axes.barh(places + shift, values, 0.4, color=colour, label=name, xerr=np.maximum(ends, 0), error_kw=style)
    labels = [f"{one_line(section['name'], 26)} ({section['covered']:,})" for section in sections]
    axes.set_yticks(places, labels)
    axes.set_ylim(len(sections) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("right answers (questions in brackets)", fontsize=9)
    axes.grid(axis="x", color="#ececec", linewidth=0.8)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none", loc="lower right")
    _title(axes, PurePath(each["file"]).name)


def _categories(tests: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    places = np.arange(len(tests))
    for key, name, colour, shift in (("purity", "k-means", _ADD, -0.2), ("chance", "by chance", "#c9c9c9", 0.2)):
        axes.barh(places + shift, [each[key] for each in tests], 0.4, color=colour, label=name)
    labels = [f"{one_line(PurePath(each['file']).name, 24)} ({each['categories']})" for each in tests]
    axes.set_yticks(places, labels)
    axes.set_ylim(max(len(tests), 4) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xlabel("purity (categories in brackets)", fontsize=9)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none")
    _title(axes, "Categories")


def _overlap(pair: Mapping[str, Any], content: Mapping[str, Any], axes: Axes) -> None:
    bands = [band for band in pair["bands"] if band["overlap"] is not None]
    _by_band(axes, bands, [("", _ADD, [band["overlap"] for band in bands])])
    mean = pair["overlap"]["mean"]
    axes.axhline(mean, color=_MUL, linewidth=1.3, linestyle=(0, (5, 3)), label=f"all: {mean:.1%}")
    axes.axhline(content["chance"], color=_CHANCE, linewidth=1.3, label=f"unrelated vectors: {content['chance']:.2%}")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1)
    axes.set_ylabel(f"of the {content['count']} nearest", fontsize=9)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none")
    _title(axes, "Neighbors in common")


def _lengths(pair: Mapping[str, Any], names: Sequence[str], axes: Axes) -> None:
    bands = pair["bands"]
    lines = [
        (name, colour, [band["norms"][place] for band in bands])
        for place, (name, colour) in enumerate(zip(names, (_ADD, _MUL), strict=True))
    ]
    _by_band(axes, bands, lines)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean norm", fontsize=9)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none")
    _title(axes, "Lengths by frequency")


def _by_band(axes: Axes, bands: Sequence[Mapping[str, Any]], lines: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    for name, colour, values in lines:
        axes.plot(values, "o-", color=colour, markersize=4, linewidth=1.8, label=name or None)
    axes.set_xticks(range(len(bands)), [f"to {band['last']:,}" for band in bands], rotation=30, ha="right")
    axes.set_xlabel("rank of the row", fontsize=9)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)


def _distances(pair: Mapping[str, Any], axes: Axes) -> None:
    axes.fill_between(range(101), pair["distance_percentiles"], color=_ADD, alpha=0.25, linewidth=0)
    axes.plot(range(101), pair["distance_percentiles"], color=_ADD, linewidth=1.8)
    mean = pair["distance"]
    axes.axhline(mean, color=_MUL, linewidth=1.3, linestyle=(0, (5, 3)), label=f"mean: {mean:.3f}")
    if pair["unaligned"] is not None:
        label = f"mean without turning: {pair['unaligned']:.3f}"
        axes.axhline(pair["unaligned"], color=_CHANCE, linewidth=1.3, label=label)
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens, those that moved least first", fontsize=9)
    axes.xaxis.set_major_formatter(PercentFormatter(100))
    axes.set_ylabel("cosine distance after Procrustes", fontsize=9)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none", loc="lower right")
    _title(axes, "Drift of each row")


def _moved(pair: Mapping[str, Any], axes: Axes) -> None:
    most, least = pair["most"][:10], pair["least"][:10]
    rows = [*((each, _MUL) for each in most), *((each, _ADD) for each in reversed(least))]
    for place, (each, colour) in enumerate(rows):
        axes.barh(place, each["distance"], 0.75, color=colour)
    axes.set_yticks(range(len(rows)), [one_line(each["token"], 22) for each, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("cosine distance after Procrustes", fontsize=9)
    axes.grid(axis="x", color="#ececec", linewidth=0.8)
    _title(axes, "Tokens that moved most, and least")


def _matrix(names: Sequence[str], pairs: Sequence[Mapping[str, Any]], key: str, axes: Axes) -> None:
    count = len(names)
    values = np.full((count, count), np.nan)
    places = [(a, b) for a in range(count) for b in range(a + 1, count)]
    for (a, b), pair in zip(places, pairs, strict=True):
        values[a, b] = values[b, a] = pair[key]["mean"] if key == "overlap" else pair[key]
    axes.imshow(values, cmap="Blues", vmin=0, vmax=max(1.0, float(np.nanmax(values))))
    for a, b in places if count <= _MOST_NUMBERED else ():
        for row, column in ((a, b), (b, a)):
            colour = "white" if values[row, column] > 0.6 else "black"
            axes.text(column, row, f"{values[row, column]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(count), [one_line(name, 18) for name in names], rotation=40, ha="right")
    axes.set_yticks(range(count), [one_line(name, 18) for name in names])
    titles = {"overlap": "Neighbors in common", "cka": "Linear CKA", "distance": "Mean distance after Procrustes"}
    _title(axes, titles[key])


def _short(names: Sequence[str]) -> list[str]:
    """The last parts of paths, where these tell them apart."""
    last = [PurePath(name).name or name for name in names]
    return last if len(set(last)) == len(names) else list(names)
