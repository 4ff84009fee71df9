"""`embexp.report`: the table of a sweep, or of the runs in directories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from embexp.errors import CommandLineError
from embexp.reports import groups as grouping
from embexp.reports.collected import collect, varying
from embexp.reports.groups import FEW, REPEATS, Group
from embexp.reports.record import Record, at, condition, ordered, reader, select
from embexp.reports.table import Report
from embexp.specs.metrics import Direction


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
    ranked = sorted(ended, key=lambda each: grouping.rank(each.validation, direction)) if direction else ended
    has_best = direction is not None and ranked and grouping.rank(ranked[0].validation, direction) < math.inf
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
        best=ranked[0] if has_best else None,
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
