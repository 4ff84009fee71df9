"""The columns of a report's tables: their headings, how their cells read, and which of them fit."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len

from embexp.reports.groups import CONFIDENCE, REPEATS, Estimate, Group
from embexp.reports.record import at, text_of
from embexp.reports.report import Report
from embexp.system import printable, terminal

_GAP = 2
"""Columns of the terminal between two columns of the table."""
_LONGEST = 24
"""Characters of a text, where room is short."""
_KEPT = 0
_SETTING, _COMPARED, _METRIC, _FACT = 1, 100, 200, 300
"""Ranks: where there is no room, the columns with the largest rank are left out first; `_KEPT` are never."""
_LARGE, _SMALL, _TINY = 1_000, 1e-3, 5e-5


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        cells: from the first row to the last.
        right: whether they end at the right, as numbers do.
        rank: columns with a larger rank are left out first; 0: never.
        short: a shorter name, or "".
        best: row of the best value, or None.
    """

    heading: str
    cells: tuple[str, ...]
    right: bool = False
    rank: int = _KEPT
    short: str = ""
    best: int | None = None

    @property
    def width(self) -> int:
        """Of the widest cell or the heading."""
        return max(map(cell_len, (self.heading, *self.cells)))


def runs(report: Report) -> list[Column]:
    """The table of runs with results: one row each."""
    records = report.results
    best = next((row for row, record in enumerate(records) if record is report.best), None)
    jobs = all(record.number is not None and record.name.rpartition("/")[2] == str(record.number) for record in records)
    numbered = jobs and len({record.number for record in records}) == len(records)
    names = [str(record.number) if numbered else record.name for record in records]
    found = [Column("job" if numbered else "run", tuple(names), right=numbered)]
    found += _settings(report.keys, [[setting(record.value(key)) for record in records] for key in report.keys])
    found.append(_fact("status", [record.status.value.replace("_", " ") for record in records], _SETTING))
    for place, name in enumerate(report.headlines):
        cells = tuple(figure(record.metrics.get(name)) for record in records)
        found.append(
            Column(
                name,
                cells,
                right=True,
                rank=_rank(report, name, place),
                best=best if name == f"validation {report.metric}" else None,
            )
        )
    for place, (key, heading) in enumerate(_compared_heads(report).items()):
        cells = tuple(cell(key, at(record.summary, key)) for record in records)
        found.append(Column(heading, cells, right=True, rank=_COMPARED + place))
    found.append(Column("record", tuple("changed" if record.changes else "" for record in records)))
    if report.seconds:
        seconds = ["" if record.seconds is None else f"{record.seconds:.1f}" for record in records]
        found.append(replace(_fact("seconds", seconds, _FACT), right=True))
    uniform = ("status", {"completed"})
    return [column for column in found if any(column.cells) and (column.heading, set(column.cells)) != uniform]


def groups(report: Report) -> list[Column]:
    """The table of settings over their repetitions: one row each."""
    found = report.groups
    keys = [key for key in report.keys if key not in REPEATS]
    best = next((row for row, group in enumerate(found) if group.best), None)
    made = _settings(keys, [[setting(group.first.value(key)) for group in found] for key in keys])
    made.append(Column("runs", tuple(str(len(group.runs)) for group in found), right=True))
    for place, name in enumerate(report.headlines):
        made.append(
            Column(
                name,
                tuple(spread(group.values.get(name)) for group in found),
                right=True,
                rank=_rank(report, name, place),
                best=best if name == f"validation {report.metric}" else None,
            )
        )
        if name == report.tested or (not report.tested and place == 0):
            interval = tuple(_interval(group.values.get(name)) for group in found)
            made.append(Column(f"{CONFIDENCE:.0%} interval", interval, rank=_METRIC, short="interval"))
            made += _comparison(found) if report.tested else []
    for place, (key, heading) in enumerate(_compared_heads(report).items()):
        cells = tuple(spread(group.values.get(key), key) for group in found)
        made.append(Column(heading, cells, right=True, rank=_COMPARED + place))
    return [column for column in made if any(column.cells)]


def fitted(table: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """The columns that fit into a width, and the headings of those left out.

    Headings become shorter first, then long texts, and then columns go.
    """
    kept = list(table)
    if _width(kept) > width:
        kept = [replace(column, heading=column.short or column.heading) for column in kept]
    if _width(kept) > width:
        kept = [replace(column, heading=_cut(column.heading), cells=tuple(map(_cut, column.cells))) for column in kept]
    left_out = []
    while _width(kept) > width and (last := max(kept, key=lambda column: column.rank)).rank != _KEPT:
        left_out.append(last.heading)
        kept.remove(last)
    return kept, left_out[::-1]


def _settings(keys: Sequence[str], cells: Sequence[Sequence[str]]) -> list[Column]:
    """The columns of settings; one with the same value in all of several rows tells nothing, and is left out."""
    short = short_keys(keys)
    return [
        Column(key, tuple(each), right=all(map(_numeric, each)), rank=_SETTING + place, short=short[key])
        for place, (key, each) in enumerate(zip(keys, cells, strict=True))
        if len(each) < 2 or len(set(each)) > 1
    ]


def _comparison(found: Sequence[Group]) -> list[Column]:
    results = [group.comparison for group in found]
    several = sum(each is not None and each.p is not None for each in results) > 1
    differences = tuple(
        "reference" if each is None else "" if each.difference is None else f"{each.difference:+.4f}"
        for each in results
    )
    ps = tuple("" if each is None else _probability(each.adjusted) for each in results)
    return [
        Column("difference", differences, right=True, rank=_METRIC),
        Column("p (Holm)" if several else "p", ps, right=True, rank=_METRIC),
    ]


def _rank(report: Report, metric: str, place: int) -> int:
    """Kept is what the runs are judged by, on validation data, and of a single such metric also on test data."""
    split, _, name = metric.partition(" ")
    judged = name in report.judges and (split == "validation" or name == report.metric)
    return _KEPT if judged or place == 0 else _METRIC + place


def _compared_heads(report: Report) -> dict[str, str]:
    present = [key for key in report.compared if any(at(record.summary, key) is not None for record in report.results)]
    return headings(present, taken=["job", "run", "runs", "status", "seconds", *report.keys, *report.headlines])


def _fact(heading: str, cells: Sequence[str], rank: int) -> Column:
    return Column(heading, tuple(cells), rank=rank)


def _width(table: Sequence[Column]) -> int:
    return sum(column.width + _GAP for column in table)


def _cut(text: str) -> str:
    half = (_LONGEST - 1) // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}…{text[-half:]}"


def _numeric(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def headings(keys: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """The heading of each key's column: the fewest last parts of the key that are unique among keys and `taken`.

    `initialization.peak_anonymous_bytes` gets `peak anonymous`; its cells show the unit.
    """
    found = {}
    for key in keys:
        others = [each for each in keys if each != key]
        parts = key.split(".")
        lengths = range(1, len(parts) + 1)
        short = (_words(parts[-length:]) for length in lengths if not _clash(parts[-length:], others, taken))
        found[key] = next(short, key)
    return found


def short_keys(keys: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Settings by the fewest last parts that are unique among keys and `taken`, spelled as in the config."""
    found = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
        others = [f".{each}" for each in keys if each != key]
        found[key] = next((e for e in ends if e not in taken and not any(o.endswith(f".{e}") for o in others)), key)
    return found


def cell(key: str, value: Any) -> str:
    """A value of summary.json in the unit that its key names."""
    match value:
        case None:
            return ""
        case bool():
            return text_of(value)
        case int() | float() if key.endswith("bytes"):
            return terminal.byte_size(value)
        case int() | float() if key.endswith("seconds"):
            return terminal.duration(value)
        case int():
            return f"{value:,}"
        case float():
            return figure(value)
        case _:
            return text_of(value)


def setting(value: Any) -> str:
    """A setting, in one line."""
    return "" if value is None else one_line_of(text_of(value))


def one_line_of(text: str) -> str:
    """A text in one line, without what a terminal would obey."""
    return printable.visible(" ".join(text.split()))


def figure(value: float | None) -> str:
    """A metric: four decimals, fewer of a large value, and three digits of a small one."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) >= _LARGE:
        return f"{value:,.1f}"
    return f"{value:.4f}" if abs(value) >= _SMALL else f"{value:.3g}"


def spread(estimate: Estimate | None, key: str = "") -> str:
    """A mean with its standard deviation, in the unit that the key names."""
    if estimate is None:
        return ""
    if estimate.std is None:
        return cell(key, estimate.mean)
    if key.endswith(("bytes", "seconds")) or not _SMALL <= abs(estimate.mean) < _LARGE or 0 < estimate.std < _TINY:
        return f"{cell(key, estimate.mean)} ± {cell(key, estimate.std)}"
    return f"{estimate.mean:.4f} ± {estimate.std:.4f}"


def _interval(estimate: Estimate | None) -> str:
    """The ends of a confidence interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{figure(estimate.low)} – {figure(estimate.high)}"


def _probability(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _words(parts: Sequence[str]) -> str:
    return " ".join([*parts[:-1], parts[-1].removesuffix("_bytes")]).replace("_", " ")


def _clash(parts: Sequence[str], others: Sequence[str], taken: Collection[str]) -> bool:
    words = _words(parts)
    return words in taken or any(_words(other.split(".")[-len(parts) :]) == words for other in others)
