"""`embexp.report`: the table of a sweep, or of the runs in directories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

from embexp.errors import CommandLineError, RunError
from embexp.reports import groups as grouping
from embexp.reports.collected import collect, varying
from embexp.reports.groups import FEW, REPEATS, Group
from embexp.reports.record import Record, at, condition, ordered, reader, select
from embexp.training.metric_names import Direction

_SHOWN = 3
"""Metrics of the test split that are shown; files have all."""


@dataclass(frozen=True)
class Report(Sequence[Mapping[str, Any]]):
    """Runs to compare, sorted. A sequence of rows; a row is a mapping from `columns` to values.

    Attributes:
        results: runs whose training ended normally, in the order of the table.
        others: all others: failed, skipped, interrupted, pruned, running, planned.
        keys: settings that vary among all runs.
        metrics: names of all metrics of any run, such as "test rmse".
        compared: keys of `output.compare` of any run.
        metric: which chooses the best, such as "rmse"; "" where runs have different ones, or none on validation data.
        direction: which way it gets better, or None.
        best: the run with the best validation value of `metric`, or None.
        groups: settings with their repetitions, the best first, or in the order of the runs if that was asked for; none
            if nothing was repeated.
        tested: the metric of the paired tests, or "".
        notes: what the reader should know, each a sentence.
        seconds: whether the table that is shown has the seconds of each run.
    """

    results: tuple[Record, ...]
    others: tuple[Record, ...]
    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    compared: tuple[str, ...]
    metric: str = ""
    direction: Direction | None = None
    best: Record | None = None
    groups: tuple[Group, ...] = ()
    tested: str = ""
    notes: tuple[str, ...] = ()
    seconds: bool = True

    @property
    def records(self) -> tuple[Record, ...]:
        """All runs."""
        return self.results + self.others

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the values of a row."""
        facts = ("status", "best", *self.metrics, *self.compared, "seconds", "directory", "reason", "record")
        return ("job", "run", *(key for key in self.keys if key not in facts), *facts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows; values that a run lacks are None."""
        return [self.row(record) for record in self.records]

    @property
    def judges(self) -> tuple[str, ...]:
        """The metrics that runs are judged by: one, unless their tasks differ."""
        return tuple(dict.fromkeys([self.metric] if self.metric else [record.metric for record in self.results]))

    @property
    def headlines(self) -> tuple[str, ...]:
        """The metrics to show: that of the best on validation and test data, then others of the test split."""
        main = [
            name for judge in self.judges for name in (f"validation {judge}", f"test {judge}") if name in self.metrics
        ]
        test = [name for name in self.metrics if name.startswith("test ") and name not in main]
        others = [name for name in test if not name.endswith(" loss")] or test
        room = max(0, _SHOWN - sum(name.startswith("test ") for name in main))
        return (*main, *others[:room]) if main or others else self.metrics[:_SHOWN]

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        """A row, or several."""
        return self.rows[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        """The tables as `embexp report` prints them."""
        from embexp.reports import formats

        return formats.as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The tables for a notebook."""
        from embexp.reports import formats

        return formats.as_html(self)

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`.

        Raises:
            RunError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise RunError("to_pandas needs pandas, which is not installed\n    pip install pandas") from None
        return pd.DataFrame(self.rows, columns=list(self.columns))

    def row(self, record: Record) -> dict[str, Any]:
        """The row of a run."""
        values = {
            **{key: record.value(key) for key in self.keys},
            "job": record.number,
            "run": record.name,
            "status": record.status.value,
            "best": record is self.best,
            **{name: record.metrics.get(name) for name in self.metrics},
            **{key: at(record.summary, key) for key in self.compared},
            "seconds": record.seconds,
            "directory": None if record.directory is None else str(record.directory),
            "reason": record.reason,
            "record": record.record,
        }
        return {name: values[name] for name in self.columns}


def report(
    directories: str | Path | Iterable[str | Path],
    *,
    sort: str | None = None,
    filters: Sequence[str] = (),
    baseline: str | None = None,
    seconds: bool = True,
) -> Report:
    """Compares the runs in and beneath directories. TensorFlow is not loaded.

    Args:
        directories: of runs, of sweeps, or of any of these at any depth; one or several.
        sort: a setting, metric, `seconds`, `job` or key of summary.json; `:desc` behind it for descending. None: the
            best validation value first.
        filters: conditions such as `optimizer=sgd,adam` or `test rmse<0.95`; all must hold.
        baseline: a condition for the setting with which the others are compared over seeds; None: the best one.
        seconds: whether the table shows the seconds of each run; without them, equal runs give an equal table.

    Returns:
        The table. It prints as text, and is shown as a table in notebooks.

    Raises:
        NotARunError: a directory does not exist, or there are no runs.
        CommandLineError: a condition or key is not one that the runs have.
    """
    given = [directories] if isinstance(directories, str | Path) else list(directories)
    found = tabulate(collect(given), sort=sort, filters=filters, baseline=baseline)
    return found if seconds else replace(found, seconds=False)


def tabulate(
    records: Sequence[Record], *, sort: str | None = None, filters: Sequence[str] = (), baseline: str | None = None
) -> Report:
    """The report of runs; see `report`.

    Raises:
        CommandLineError: a condition or key is not one that the runs have.
    """
    if isinstance(filters, str):
        filters = [filters]
    selected = select(records, [condition(each) for each in filters])
    if records and not selected:
        raise CommandLineError(f"none of the {len(records)} runs satisfies {' and '.join(filters)}")
    ended = [record for record in selected if record.status.has_results]
    metric, direction, notes = _primary(ended)
    ranked = _by_validation(ended, direction) if direction else ended
    keys = varying(selected)
    compared = _compared_keys(selected)
    results = ordered(ended, sort) if sort else ranked
    repeated, tested, doubts = _repeated(results, compared, metric, direction, baseline)
    if direction and not sort:
        repeated = grouping.ranked(repeated, f"validation {metric}", direction)
    return Report(
        results=tuple(results),
        others=tuple(record for record in selected if not record.status.has_results),
        keys=tuple(keys),
        metrics=tuple(_metric_names(selected)),
        compared=tuple(compared),
        metric=metric,
        direction=direction,
        best=next((record for record in ranked[:1] if _is_number(record.validation)), None) if direction else None,
        groups=tuple(repeated),
        tested=tested,
        notes=(*notes, *doubts),
    )


def _repeated(
    results: Sequence[Record], compared: Sequence[str], metric: str, direction: Direction | None, baseline: str | None
) -> tuple[list[Group], str, list[str]]:
    """The groups that repetitions make, the metric of their tests or "", and notes."""
    found = grouping.groups(results, compared)
    if not found:
        if baseline is not None:
            raise CommandLineError(
                "--baseline compares settings over seeds, and no setting here was run with several\n"
                "    run each with several, such as 'seed=range(0,5)'"
            )
        return [], "", []
    best = grouping.best(found, f"validation {metric}", direction) if direction else None
    reference = best if baseline is None else _baseline(found, baseline, results)
    tested = next((name for name in (f"test {metric}", f"validation {metric}") if name in found[0].values), "")
    if len(found) < 2 or not tested:
        reference, tested = None, ""
    notes = []
    fewest = min(len(group.runs) for group in found)
    if fewest < FEW:
        notes.append(
            f"some settings have only {fewest} {'repetition' if fewest == 1 else 'repetitions'}: fewer than {FEW} say"
            " next to nothing of a difference"
        )
    if tested.startswith("validation "):
        notes.append("without test values, the settings are compared by the metric that chose the best: p is too small")
    if any(len({repr(run.settings.get(REPEATS[0])) for run in group.runs}) > 1 for group in found):
        notes.append("folds share training examples, so intervals and p-values over folds are too small")
    return grouping.judged(found, best, reference, tested), tested, notes


def _baseline(found: Sequence[Group], text: str, results: Sequence[Record]) -> Group:
    """The one group that satisfies a condition."""
    parsed = condition(text)
    read = reader(results, parsed.key)
    matching = [group for group in found if parsed.holds(read(group.first))]
    if len(matching) != 1:
        raise CommandLineError(
            f"--baseline {text!r} must name one setting, and {len(matching)} of {len(found)} satisfy it"
        )
    return matching[0]


def _primary(records: Sequence[Record]) -> tuple[str, Direction | None, list[str]]:
    """The metric that chooses the best of the runs, its direction, and notes."""
    metrics = dict.fromkeys((record.metric, record.direction) for record in records if record.validation is not None)
    if len(metrics) > 1:
        names = ", ".join(name for name, _ in metrics)
        return "", None, [f"the runs are judged by different metrics ({names}), so none is marked as the best"]
    for metric, direction in metrics:
        counts = {_validation_examples(record) for record in records} - {None}
        folds = any(record.settings.get("data.fold") is not None for record in records)
        different = ["the runs were validated on different examples, so their values compare badly"]
        return metric, direction, different if len(counts) > 1 and not folds else []
    return "", None, []


def _validation_examples(record: Record) -> int | None:
    count = at(record.summary, "examples.validation")
    return count if isinstance(count, int) else None


def _by_validation(records: Sequence[Record], direction: Direction) -> list[Record]:
    """The best first; runs without a value, or with NaN, last."""
    sign = -1.0 if direction is Direction.HIGHER else 1.0

    def rank(record: Record) -> tuple[bool, float]:
        value = record.validation
        return (False, sign * value) if value is not None and _is_number(value) else (True, 0.0)

    return sorted(records, key=rank)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _metric_names(records: Sequence[Record]) -> list[str]:
    """Metrics of all runs: test, validation, then the others; the loss, which often repeats another metric, last."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    splits = ("test", "validation")
    order = {name: splits.index(name.split()[0]) if name.split()[0] in splits else len(splits) for name in names}
    return sorted(names, key=lambda name: (order[name], name.endswith(" loss")))


def _compared_keys(records: Sequence[Record]) -> list[str]:
    """The keys of `output.compare` of all runs."""
    lists = (record.settings.get("output.compare") for record in records)
    return list(dict.fromkeys(key for each in lists if isinstance(each, list) for key in each if isinstance(key, str)))
