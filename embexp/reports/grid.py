"""The columns of a report's tables, for the terminal, LaTeX and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from embexp.reports import columns
from embexp.reports.groups import REPEATS, Group
from embexp.reports.query import at
from embexp.reports.report import Report
from embexp.reports.statistics import CONFIDENCE

_GAP = 2
"""Columns of the terminal between two columns of the table."""
_LONGEST = 24
"""Characters of a text, where room is short."""
_KEPT = 0
_SETTING, _COMPARED, _METRIC, _FACT = 1, 100, 200, 300
"""Ranks: where there is no room, the columns with the largest rank are left out first; `_KEPT` are never."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        heading: its name.
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
    found += _settings(report.keys, [[columns.setting(record.value(key)) for record in records] for key in report.keys])
    found.append(_fact("status", [record.status.value.replace("_", " ") for record in records], _SETTING))
    for place, name in enumerate(report.headlines):
        cells = tuple(columns.figure(record.metrics.get(name)) for record in records)
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
        cells = tuple(columns.cell(key, at(record.summary, key)) for record in records)
        found.append(Column(heading, cells, right=True, rank=_COMPARED + place))
    found.append(Column("record", tuple("changed" if record.changes else "" for record in records)))
    if report.seconds:
        seconds = ["" if record.seconds is None else f"{record.seconds:.1f}" for record in records]
        found.append(replace(_fact("seconds", seconds, _FACT), right=True))
    return [column for column in found if any(column.cells) and not _uniform_status(column)]


def groups(report: Report) -> list[Column]:
    """The table of settings over their repetitions: one row each."""
    found = report.groups
    keys = [key for key in report.keys if key not in REPEATS]
    best = next((row for row, group in enumerate(found) if group.best), None)
    made = _settings(keys, [[columns.setting(group.first.value(key)) for group in found] for key in keys])
    made.append(Column("runs", tuple(str(len(group.runs)) for group in found), right=True))
    for place, name in enumerate(report.headlines):
        made.append(
            Column(
                name,
                tuple(columns.spread(group.values.get(name)) for group in found),
                right=True,
                rank=_rank(report, name, place),
                best=best if name == f"validation {report.metric}" else None,
            )
        )
        if name == report.tested or (not report.tested and place == 0):
            interval = tuple(columns.interval(group.values.get(name)) for group in found)
            made.append(Column(f"{CONFIDENCE:.0%} interval", interval, rank=_METRIC, short="interval"))
            made += _comparison(found) if report.tested else []
    for place, (key, heading) in enumerate(_compared_heads(report).items()):
        cells = tuple(columns.spread(group.values.get(key), key) for group in found)
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
    short = columns.short_keys(keys)
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
    ps = tuple("" if each is None else columns.probability(each.adjusted) for each in results)
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
    return columns.heads(present, taken=["job", "run", "runs", "status", "seconds", *report.keys, *report.headlines])


def _fact(heading: str, cells: Sequence[str], rank: int) -> Column:
    return Column(heading, tuple(cells), rank=rank)


def _uniform_status(column: Column) -> bool:
    return column.heading == "status" and set(column.cells) == {"completed"}


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
