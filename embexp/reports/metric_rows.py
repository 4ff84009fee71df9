"""The table of a run's metrics, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SPLITS = ("train", "validation", "test", "test_new", "test_known")


@dataclass(frozen=True)
class MetricRows:
    """A row for each metric.

    Attributes:
        headings: of the columns; the first one has the names of the metrics.
        rows: their cells; none if nothing was measured.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def of(summary: Mapping[str, Any]) -> MetricRows:
    """The metrics of each split, beside those of a baseline and the best possible ones where they are known.

    Args:
        summary: the content of summary.json; all keys may be missing. `truth` holds the best possible values on the
            test split, under `bayes_` and the metric's name.
    """
    by_split = {split: values for split in _SPLITS if (values := (summary.get("metrics") or {}).get(split))}
    names = list(dict.fromkeys(name for split in reversed(by_split) for name in by_split[split]))
    truth = {
        key.removeprefix("bayes_"): value
        for key, value in (summary.get("truth") or {}).items()
        if key.startswith("bayes_") and value is not None
    }
    compared = any(name in truth for name in names)
    baseline, values_of_baseline = next(iter((summary.get("baselines") or {}).items()), ("", {}))
    known = {split: values for split, values in values_of_baseline.items() if split in by_split}
    # Of the split that a reader looks at last.
    against = next((split for split in ("test", "validation") if known.get(split)), None)
    headings = [] if against is None else [f"{baseline} on {against}"]
    headings += ["best possible on test", "difference"] if compared else []
    rows = []
    for name in names:
        cells = [_number(values.get(name)) for values in by_split.values()]
        if against is not None:
            cells.append(_number(known[against].get(name)))
        if compared:
            test, best = by_split.get("test", {}).get(name), truth.get(name)
            difference = "" if test is None or best is None else f"{test - best:+.4f}"
            cells += ["" if best is None else _number(best), difference]
        rows.append((name, *cells))
    return MetricRows(("metric", *by_split, *headings), tuple(rows))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
