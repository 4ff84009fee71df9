"""A report of runs: `embexp.report` compares them; its rows and columns, its tables in terminals and notebooks.

It is written as CSV, JSON and LaTeX, too. At the end of a sweep it is written and printed.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, overload

from rich.console import Console
from rich.text import Text

from embexp.errors import CommandLineError, RunError
from embexp.records.folder import LEDGER, RESULTS, finite
from embexp.records.outputs import PAGE, PAGE_MARK, Output, output
from embexp.reports import grid, searches
from embexp.reports import groups as grouping
from embexp.reports.claims import checked
from embexp.reports.collected import collect, varying
from embexp.reports.grid import Column
from embexp.reports.groups import FEW, REPEATS, Group, of_setting
from embexp.reports.jobs import changed_tables, in_use
from embexp.reports.record import (
    Record,
    Status,
    at,
    compared_keys,
    condition,
    mapping,
    ordered,
    reader,
    select,
    text_of,
)
from embexp.specs.tasks import Direction
from embexp.system import files, printable, terminal
from embexp.training.baseline import OTHERS, worse
from embexp.training.significance import CONFIDENCE

_SHOWN = 3
"""Metrics of the test split that are shown; files have all."""
_DIGITS = 8
"""Digits of a digest that are shown."""
_MOST = 12
"""Numbers of jobs, and causes, that are listed."""
_BASELINES = {"constant": "a constant prediction", **OTHERS}
"""The baselines that every run should beat, in words."""
_WORDS = {
    Status.FAILED: "failed",
    Status.INTERRUPTED: "interrupted",
    Status.CANCELLED: "cancelled",
    Status.PRUNED: "pruned",
    Status.SKIPPED: "skipped",
    Status.RUNNING: "running",
    Status.QUEUED: "queued",
    Status.PLANNED: "not started",
}
"""In the order of the output."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "–": r"\textendash{}",
    "…": r"\dots{}",
}
_LIGATURE = re.compile(r"-(?=-)|,(?=,)|'(?=')|[`!?](?=`)")
"""Characters that LaTeX joins with the next one: -- to a dash, '' to a quotation mark."""
_CSV = "sweep.csv"

Tables = Callable[[Sequence[Record]], Sequence[Mapping[str, Any]]]
"""Reads the tables of runs for the page: see `embexp.runs.table_maps`."""


@dataclass(frozen=True)
class Report(Sequence[Mapping[str, Any]]):
    """Runs to compare, sorted. A sequence of rows; a row is a mapping from `columns` to values.

    Attributes:
        results: runs whose training ended normally, in the order of the table.
        others: all others: failed, skipped, interrupted, pruned, running, planned.
        keys: settings that vary among all runs.
        metrics: names of all metrics of any run, such as "test rmse".
        compared: keys of `output.compare` of any run, and of the figures of vectors by tests.
        metric: which chooses the best, such as "rmse"; "" where runs have different ones, or none on validation data.
        direction: which way it gets better, or None.
        best: the run with the best validation value of `metric`, or None; of runs on several data, of those on the data
            of most.
        bests: it, and the best of the runs on each other data, if there are several.
        repeats: settings whose values repeat an experiment.
        groups: settings with their repetitions, the best first, or in the order of the runs if that was asked for; none
            if nothing was repeated. They are compared with others on the same data.
        tested: the metric of the paired tests, or "".
        notes: what the reader should know, each a sentence.
        seconds: whether the table that is shown has the seconds of each job and of its training.
    """

    results: tuple[Record, ...]
    others: tuple[Record, ...]
    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    compared: tuple[str, ...]
    metric: str = ""
    direction: Direction | None = None
    best: Record | None = None
    bests: tuple[Record, ...] = ()
    repeats: tuple[str, ...] = REPEATS
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
        times = ("seconds", "train_seconds")
        data = ("data_digest",) if self.data_differs else ()
        facts = ("status", "best", *self.metrics, *self.compared, *data, *times, "directory", "reason", "record")
        return ("job", "run", *(key for key in self.keys if key not in facts), *facts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows; values that a run lacks are None."""
        return [self.row(record) for record in self.records]

    @property
    def data_differs(self) -> bool:
        """Whether runs with results read data of different content."""
        return len({record.data_digest for record in self.results} - {None}) > 1

    @property
    def judges(self) -> tuple[str, ...]:
        """The metrics that runs are judged by: one, unless their tasks differ."""
        return tuple(dict.fromkeys([self.metric] if self.metric else [record.metric for record in self.results]))

    @property
    def headlines(self) -> tuple[str, ...]:
        """The metrics to show: that of the best on validation and test data, then others of the test split.

        Of metrics that are the same in all runs, such as recall and hit rate of one held-out item each, one is shown.
        """
        main = [
            name for judge in self.judges for name in (f"validation {judge}", f"test {judge}") if name in self.metrics
        ]
        test = [name for name in self.metrics if name.startswith("test ") and name not in main]
        values = {name: repr([record.metrics.get(name) for record in self.results]) for name in (*main, *test)}
        first = {each: name for name, each in reversed(values.items())}
        test = [name for name in test if first[values[name]] == name]
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
        return terminal.as_text(partial(show, self))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The tables of runs and of settings over seeds, and the lines below them, for a notebook. Text is escaped."""
        tables = [run_columns(self)] if self.results else []
        tables += [setting_columns(self)] if self.groups else []
        below = "".join(f"<p>{escape(line.strip().removeprefix(grid.MARK).strip())}</p>" for line in _lines(self))
        return f"<div>{''.join(map(grid.as_html, tables))}{below}</div>"

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
            "best": any(record is each for each in self.bests),
            **{name: record.metrics.get(name) for name in self.metrics},
            **{key: at(record.summary, key) for key in self.compared},
            "seconds": record.seconds,
            "train_seconds": record.train_seconds,
            "directory": None if record.directory is None else str(record.directory),
            "reason": record.reason,
            "record": record.record,
            "data_digest": record.data_digest,
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
    """Compares all runs in the given directories, at any depth. TensorFlow is not loaded.

    Args:
        directories: one or several directories of runs or sweeps, or folders that contain them at any depth.
        sort: a setting, metric, `seconds`, `train_seconds`, `job` or key of summary.json; append `:desc` for descending
            order. None: the best validation value first.
        filters: conditions such as `optimizer=sgd,adam` or `test rmse<0.95`; all must hold.
        baseline: a condition that selects the setting to compare the others with over seeds; None: the best one.
        seconds: whether the table shows how long each job and its training took; without times, equal runs give an
            equal table.

    Returns:
        The table. It prints as text, and is shown as a table in notebooks.

    Raises:
        NotARunError: a directory does not exist, or there are no runs.
        CommandLineError: a condition or key names something that the runs don't have.
    """
    given = [directories] if isinstance(directories, str | Path) else list(directories)
    found = tabulate(collect(given), sort=sort, filters=filters, baseline=baseline)
    return found if seconds else replace(found, seconds=False)


def _changed_tables(records: Sequence[Record]) -> Iterator[str]:
    """A line for each sweep whose tables were changed since it wrote them."""
    folders = [record.directory.absolute() for record in records if record.directory is not None]
    for sweep in dict.fromkeys(
        parent for folder in folders for parent in folder.parents if (parent / LEDGER).is_file()
    ):
        if not in_use(sweep) and (changed := changed_tables(sweep)):
            files, command = (
                ", ".join(str(sweep / name) for name in changed),
                shlex.join(["embexp", "resume", str(sweep)]),
            )
            yield f"{files}: changed or removed since the sweep wrote it; `{command}` writes it again"


def tabulate(
    records: Sequence[Record], *, sort: str | None = None, filters: Sequence[str] = (), baseline: str | None = None
) -> Report:
    """The report of runs; see `report`.

    Raises:
        CommandLineError: a condition or key names something that the runs don't have.
    """
    if isinstance(filters, str):
        filters = [filters]
    selected = select(records, [condition(each) for each in filters])
    if records and not selected:
        raise CommandLineError(f"none of the {len(records)} runs satisfies {' and '.join(filters)}")
    ended = [record for record in selected if record.status.has_results]
    metric, direction, notes = _primary(ended)
    repeats = grouping.repeating(ended)
    by_data = grouping.by_data(ended, repeats)
    ranked, bests = _ranked(by_data, direction) if direction else (ended, [])
    keys = varying(selected)
    compared = compared_keys(selected)
    results = ordered(ended, sort) if sort else ranked
    found = grouping.groups(results, compared, repeats)
    parts = grouping.by_data([group.first for group in found], repeats)
    by_first = {id(group.first): group for group in found}
    of_data = [[by_first[id(record)] for record in part] for part in parts]
    repeated, tested, doubts = _repeated(of_data, results, metric, direction, baseline)
    if sort:
        repeated.sort(key=lambda group: list(by_first).index(id(group.first)))
    return Report(
        results=tuple(results),
        others=tuple(record for record in selected if not record.status.has_results),
        keys=tuple(keys),
        metrics=tuple(_metric_names(selected)),
        compared=tuple(compared),
        metric=metric,
        direction=direction,
        best=next((record for record in bests if by_data and record in by_data[0]), None),
        bests=tuple(bests),
        repeats=repeats,
        groups=tuple(repeated),
        tested=tested,
        notes=(
            *notes,
            *searches.notes(selected),
            *_other_data(by_data, repeats),
            *doubts,
            *_inert(selected),
            *_changed_tables(selected),
            *_claims(results),
        ),
    )


def _ranked(by_data: Sequence[Sequence[Record]], direction: Direction) -> tuple[list[Record], list[Record]]:
    """The runs, those on the same data together and the best of them first; and the best on each data.

    Where data differ, a run that is alone on its data is not the best of any.
    """
    ranked, bests = list[Record](), list[Record]()
    for records in by_data:
        best_first = sorted(records, key=lambda each: grouping.rank(each.validation, direction))
        ranked += best_first
        if len(by_data) == 1 or len(records) > 1:
            bests += [each for each in best_first[:1] if grouping.rank(each.validation, direction) < math.inf]
    return ranked, bests


def _repeated(
    of_data: Sequence[Sequence[Group]],
    results: Sequence[Record],
    metric: str,
    direction: Direction | None,
    baseline: str | None,
) -> tuple[list[Group], str, list[str]]:
    """The settings of runs that were repeated, the metric of their tests or "", and notes.

    Args:
        of_data: the settings by their data: only those on the same data are compared.
    """
    found = [group for part in of_data for group in part]
    if not found:
        if baseline is not None:
            raise CommandLineError(
                "--baseline compares settings over seeds, and no setting here was run with several\n"
                "    run each with several, such as 'seed=range(0,5)'"
            )
        return [], "", []
    named = None if baseline is None else _baseline(found, baseline, results)
    tested = next((name for name in (f"test {metric}", f"validation {metric}") if name in found[0].values), "")
    tested = tested if any(len(part) > 1 for part in of_data) else ""
    judged: list[Group] = []
    for part in of_data:
        best = grouping.best(part, f"validation {metric}", direction) if direction else None
        reference = best if named is None else named if any(named is group for group in part) else None
        compares = tested and len(part) > 1
        marked = best if len(of_data) == 1 or len(part) > 1 else None
        these = grouping.judged(part, marked, reference if compares else None, tested)
        judged += grouping.ranked(these, f"validation {metric}", direction) if direction else these
    notes = []
    fewest = min(len(group.runs) for group in found)
    if fewest < FEW:
        notes.append(
            f"some settings have only {fewest} {'repetition' if fewest == 1 else 'repetitions'}: fewer than {FEW} say"
            " almost nothing about a difference, and get no interval"
        )
    if tested.startswith("validation "):
        notes.append(
            "there are no test values, so settings are compared by the metric that chose the best one: p is too small"
        )
    if any(len({repr(run.settings.get(REPEATS[0])) for run in group.runs}) > 1 for group in found):
        notes.append("folds share training examples, so intervals and p-values over folds are too small")
    return judged, tested, notes


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
        return metric, direction, []
    return "", None, []


def _other_data(by_data: Sequence[Sequence[Record]], repeats: Sequence[str]) -> Iterator[str]:
    """A line for the runs on each other data than those of most runs: what differs."""
    for records in by_data[1 : 1 + _MOST]:
        first, own = (grouping.evaluated(each[0], repeats) for each in (by_data[0], records))
        keys = [key for key in dict.fromkeys([*own, *first]) if own.get(key) != first.get(key)]
        paths = [at_path for each in (records, by_data[0]) if isinstance(at_path := each[0].value("data.path"), str)]
        files = f" of {paths[0]}, not {paths[1]}" if len(set(paths)) == 2 else ""
        parts = [
            f"the content of the data{files} (digest {own[key][:_DIGITS]}, not {first[key][:_DIGITS]})"
            if key == grouping.CONTENT and key in own and key in first
            else f"{key} {own.get(key, 'unset')}, not {first.get(key, 'unset')}"
            for key in keys
        ]
        verb = "was" if len(records) == 1 else "were"
        yield (
            f"{_named(records)} {verb} evaluated on different data from {_named(by_data[0])}, and not ranked with"
            f" {'it' if len(by_data[0]) == 1 else 'them'}: {'; '.join(parts)}"
        )
    if len(by_data) > 1 + _MOST:
        yield f"{len(by_data) - 1 - _MOST} more groups of runs have different data, and are ranked separately"


def _inert(records: Sequence[Record]) -> Iterator[str]:
    """A line for each setting that has no effect in some jobs of a sweep."""
    without: dict[str, list[Record]] = {}
    for record in records:
        for key in record.inert:
            without.setdefault(key, []).append(record)
    for key, runs in without.items():
        yield f"{key} has no effect in {_named(runs)}, whose choices have no such setting"


def _claims(records: Sequence[Record]) -> Iterator[str]:
    """A line for each claim that a setting, in the mean over its repetitions, does not meet, and how many are met."""
    claiming = [record for record in records if any(key.startswith("expect.") for key in record.settings)]
    found = [(each.name, claim) for each in checked(claiming) for claim in each.claims]
    missed = [f"{name}: {claim}" for name, claim in found if not claim.met]
    yield from missed[:_MOST]
    if found:
        yield f"{len(found) - len(missed)} of {len(found)} claims are met"


def _metric_names(records: Sequence[Record]) -> list[str]:
    """Metrics of all runs: test, validation, then the others; the loss, which often repeats another metric, last."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    splits = ("test", "validation")
    order = {name: splits.index(name.split()[0]) if name.split()[0] in splits else len(splits) for name in names}
    return sorted(names, key=lambda name: (order[name], name.endswith(" loss")))


def show(report: Report, console: Console) -> None:
    """Prints a report."""
    if report.results:
        grid.print_table(run_columns(report), console)
    if report.groups:
        grid.print_table(setting_columns(report), console)
    for line in _lines(report):
        console.print(Text(line), soft_wrap=True)


def run_columns(report: Report) -> list[Column]:
    """The table of runs with results: one row each."""
    records = report.results
    best = [row for row, record in enumerate(records) if any(record is each for each in report.bests)]
    jobs = all(record.number is not None and record.name.rpartition("/")[2] == str(record.number) for record in records)
    numbered = jobs and len({record.number for record in records}) == len(records)
    names = [str(record.number) if numbered else record.name for record in records]
    status = [record.status.value.replace("_", " ") for record in records]
    found = [
        Column("job" if numbered else "run", tuple(names), right=numbered),
        *_settings(report.keys, records),
        *_data(report, records),
        Column("status", tuple(status) if set(status) != {"completed"} else ("",)),
        *_metrics(report, best, lambda name: [grid.figure(record.metrics.get(name)) for record in records]),
        *_compared(report, lambda key: [grid.cell(key, at(record.summary, key)) for record in records]),
        Column("record", tuple("changed" if record.changes else "" for record in records)),
    ]
    if report.seconds:
        times = {
            "seconds": [record.seconds for record in records],
            "train_seconds": [record.train_seconds for record in records],
        }
        for name, values in times.items():
            found.append(Column(name, tuple("" if value is None else f"{value:.1f}" for value in values), right=True))
    return [column for column in found if any(column.cells)]


def setting_columns(report: Report) -> list[Column]:
    """The table of settings over their repetitions: one row each."""
    groups = report.groups
    best = [row for row, group in enumerate(groups) if group.best]
    keys = [key for key in report.keys if of_setting(key, report.repeats)]
    found = _settings(keys, [group.first for group in groups])
    found += _data(report, [group.first for group in groups])
    found.append(Column("runs", tuple(str(len(group.runs)) for group in groups), right=True))
    for column in _metrics(report, best, lambda name: [grid.spread(group.values.get(name)) for group in groups]):
        found.append(column)
        if column.heading == (report.tested or report.headlines[0]):
            interval = tuple(grid.interval(group.values.get(column.heading)) for group in groups)
            found.append(Column(f"{CONFIDENCE:.0%} interval", interval))
            found += _comparison(groups) if report.tested else []
    found += _compared(report, lambda key: [grid.spread(group.values.get(key), key) for group in groups])
    return [column for column in found if any(column.cells)]


def _settings(keys: Sequence[str], records: Sequence[Record]) -> list[Column]:
    """The columns of settings; one with the same value in all of several rows tells nothing, and is left out."""
    found = []
    for key in keys:
        cells = grid.settings([record.value(key) for record in records])
        if len(cells) < 2 or len(set(cells)) > 1:
            found.append(Column(key, cells, right=all(map(grid.numeric, cells))))
    return found


def _data(report: Report, records: Sequence[Record]) -> list[Column]:
    """A column with the digest of the data, if the runs have different data."""
    cells = tuple((record.data_digest or "")[:_DIGITS] for record in records)
    return [Column("data", cells)] if report.data_differs else []


def _metrics(report: Report, best: Sequence[int], cells: Callable[[str], Sequence[str]]) -> Iterator[Column]:
    """The columns of the metrics that are shown."""
    for name in report.headlines:
        marked = best if name == f"validation {report.metric}" else ()
        yield Column(name, tuple(cells(name)), right=True, best=marked)


def _compared(report: Report, cells: Callable[[str], Sequence[str]]) -> Iterator[Column]:
    """The columns of `output.compare`."""
    present = [key for key in report.compared if any(at(record.summary, key) is not None for record in report.results)]
    taken = ["job", "run", "runs", "status", "seconds", "train_seconds", *report.keys, *report.headlines]
    for key, heading in grid.headings(present, taken=taken).items():
        yield Column(heading, tuple(cells(key)), right=True)


def _comparison(groups: Sequence[Group]) -> list[Column]:
    results = [group.comparison for group in groups]
    several = sum(result is not None and result.p is not None for result in results) > 1
    differences = tuple(
        "reference"
        if group.reference
        else ""
        if group.comparison is None or group.comparison.difference is None
        else f"{group.comparison.difference:+.4f}"
        for group in groups
    )
    ps = tuple("" if result is None else grid.probability(result.adjusted) for result in results)
    return [
        Column("difference", differences, right=True),
        Column("p (Holm)" if several else "p", ps, right=True),
    ]


def _lines(report: Report) -> Iterator[str]:
    """What stands below the tables: the mark, tests, notes, and the runs without results, each cause in one line."""
    if report.bests and report.direction is not None:
        better = "lower" if report.direction is Direction.LOWER else "higher"
        each = " for each data set" if len(report.bests) > 1 else ""
        yield f"{grid.MARK} best by validation {report.metric} ({better} is better){each}"
    if report.tested:
        several = sum(group.comparison is not None for group in report.groups) > 1
        corrected = ", corrected for multiple comparisons (Holm)" if several else ""
        yield (
            f"interval (Student's t), difference from the reference, and p: of {report.tested}; p comes from a paired"
            f" t-test{corrected}"
        )
    for note in report.notes:
        yield f"note: {note}"
    for record in report.records:
        if record.changes and record.same_as is None:
            what = f"the record of {_named([record])} was changed since it ended"
            command = "" if record.directory is None else f"; {shlex.join(['embexp', 'verify', str(record.directory)])}"
            yield f"warning: {what} ({grid.one_line_of(record.changes)}){command}"
    yield from _worse_than_baselines(report.results)
    yield from _without_results(report.others, report.keys)
    for key in report.compared:
        if report.results and all(at(record.summary, key) is None for record in report.results):
            yield f"output.compare: no summary.json of these runs has the key {key}"


def _worse_than_baselines(records: Sequence[Record]) -> Iterator[str]:
    """A line for each way in which runs are worse than a baseline."""
    same: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        for baseline, words in _BASELINES.items():
            by_split = at(record.summary, f"baselines.{baseline}")
            by_part = {
                split: worse(mapping(at(record.summary, f"metrics.{split}")), mapping(values))
                for split, values in mapping(by_split).items()
                if split != "train"
            }
            if judged := {split: [record.metric] for split, names in by_part.items() if record.metric in names}:
                by_part = judged  # the other metrics mostly say the same, each run with others of them
            if parts := [f"{split} {', '.join(names)}" for split, names in by_part.items() if names]:
                same.setdefault((words, "; ".join(parts)), []).append(record)
    for (words, metrics), runs in list(same.items())[:_MOST]:
        yield f"warning: {_named(runs)} {'is' if len(runs) == 1 else 'are'} worse than {words}: {metrics}"


def _without_results(records: Sequence[Record], keys: Sequence[str]) -> Iterator[str]:
    """A line for each status and cause, with the runs that have it."""
    for status, word in _WORDS.items():
        same: dict[str, list[Record]] = {}
        for record in records:
            if record.status is status:
                same.setdefault(record.reason, []).append(record)
        for reason, runs in list(same.items())[:_MOST]:
            yield f"{_named(runs)} {word}{_described(runs, keys)}" + (f": {grid.one_line_of(reason)}" if reason else "")
            if status is Status.FAILED and runs[0].directory is not None and (runs[0].directory / "run.log").is_file():
                yield f"    {runs[0].directory / 'run.log'}"
        if rest := [record for runs in list(same.values())[_MOST:] for record in runs]:
            yield f"{_named(rest)} {word} for other reasons; --csv FILE lists them"


def _named(runs: Sequence[Record]) -> str:
    jobs = all(record.number is not None and record.name.isdecimal() for record in runs)
    names = [str(record.number) if jobs else record.name for record in runs]
    listed = ", ".join(names if len(names) <= _MOST else [*names[:_MOST], f"… {len(names) - _MOST} more"])
    what = "job" if jobs else "run"
    return f"{what} {listed}" if len(runs) == 1 else f"{len(runs)} {what}s ({listed})"


def _described(runs: Sequence[Record], keys: Sequence[str]) -> str:
    """The settings of a single run, if they are few."""
    values = [f"{key}={grid.setting(runs[0].value(key))}" for key in keys if runs[0].value(key) is not None]
    return f" [{' '.join(values)}]" if len(runs) == 1 and 0 < len(values) <= 6 else ""


def as_csv(report: Report, *, by_number: bool = False) -> str:
    """One line for each run, with all columns and all digits.

    Args:
        by_number: whether runs are in the order of their jobs, and not in that of the table.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [name for name in report.columns if name != "best"]
    writer.writerow([printable.safe_cell("number" if name == "job" else name) for name in columns])
    for record in _sorted(report, by_number):
        row = report.row(record)
        writer.writerow([_csv_cell(name, row[name]) for name in columns])
    return text.getvalue()


def as_json(report: Report, *, by_number: bool = False) -> str:
    """Runs, settings over seeds, and the best, as JSON; numbers that JSON lacks are null."""
    content = {
        "metric": report.metric or None,
        "direction": None if report.direction is None else report.direction.value,
        "best": None if report.best is None else report.best.name,
        "jobs": [_job(record, report.compared) for record in _sorted(report, by_number)],
        "means": [_mean(group, report) for group in report.groups],
        "tested": report.tested or None,
        "notes": list(report.notes),
        "searches": searches.as_json(report.records),
    }
    return json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_latex(report: Report) -> str:
    r"""A `tabular` for the package booktabs: settings over seeds, or the runs where nothing was repeated.

    The best value is bold. All text is escaped.

    Raises:
        RunError: no run has ended.
    """
    if not report.results:
        raise RunError("no run has ended normally, so there is no table for LaTeX")
    table = setting_columns(report) if report.groups else run_columns(report)
    lines = ["% needs \\usepackage{booktabs}"]
    lines += [f"\\begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in table)}}}", "\\toprule"]
    lines += [_latex_row([latex(column.heading) for column in table]), "\\midrule"]
    for row in range(len(table[0].cells)):
        cells = [latex(column.cells[row]) for column in table]
        bold = [row in column.best for column in table]
        lines.append(
            _latex_row([f"\\textbf{{{cell}}}" if best else cell for cell, best in zip(cells, bold, strict=True)])
        )
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """Text with the characters escaped that LaTeX takes as commands, and those apart that it would join."""
    return _LIGATURE.sub(r"\g<0>{}", "".join(_LATEX.get(each, each) for each in grid.one_line_of(text)))


def _latex_row(cells: Sequence[str]) -> str:
    # A row that began with [ would be read as an argument of the \\ before it.
    return " & ".join(f"{{{cell}}}" if cell.startswith("[") else cell for cell in cells) + r" \\"


def _sorted(report: Report, by_number: bool) -> Sequence[Record]:
    if not by_number:
        return report.records
    return sorted(report.records, key=lambda record: (record.number is None, record.number or 0))


def _csv_cell(name: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.3f}" if name in ("seconds", "train_seconds") else repr(value)
        case _:
            return printable.safe_cell(text_of(value))


def _job(record: Record, compared: Sequence[str]) -> dict[str, Any]:
    return {
        "number": record.number,
        "name": record.name,
        "overrides": dict(record.overridden),
        "status": record.status.value,
        "reason": record.reason,
        "directory": None if record.directory is None else str(record.directory),
        "seconds": None if record.seconds is None else round(record.seconds, 3),
        "train_seconds": None if record.train_seconds is None else round(record.train_seconds, 3),
        "metrics": dict(record.metrics),
        "compared": {key: at(record.summary, key) for key in compared},
        "same_as": record.same_as,
        "record": record.record,
    }


def _mean(group: Group, report: Report) -> dict[str, Any]:
    return {
        "overrides": {key: group.first.value(key) for key in report.keys if of_setting(key, report.repeats)},
        "jobs": len(group.runs),
        "runs": [run.name for run in group.runs],
        "best": group.best,
        "metrics": {name: asdict(estimate) for name, estimate in group.values.items()},
        "comparison": None if group.comparison is None else asdict(group.comparison),
    }


def write_reports(directory: Path, console: Console, tables: Tables) -> None:
    """Writes the results of a sweep and prints its table.

    The sweep has ended, so a report that can't be written is a warning, not an error.
    """
    with terminal.naming("comparing the runs", console):
        found = report(directory)
    if not console.is_terminal:
        console.print()
    show(found, console)
    written = []
    try:
        with terminal.naming(f"writing {_CSV} and {RESULTS}", console):
            write_results(found, directory)
        written.append(directory / _CSV)
        write_page(found, page_in(directory), tables, console)
        written.append(directory / PAGE)
    except (OSError, CommandLineError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        console.print(Text(f"warning: the report can't be written to {directory}: {why}"), soft_wrap=True)
    console.print(Text(f"results in {' and '.join(map(str, written)) or directory}"), soft_wrap=True)


def write_results(found: Report, directory: Path) -> None:
    """Writes sweep.csv and sweep.json, by the numbers of the jobs, whole or not at all."""
    files.write_text(directory / _CSV, as_csv(found, by_number=True))
    files.write_text(directory / RESULTS, as_json(found, by_number=True))


def page_in(directory: Path, *, force: bool = False) -> Output:
    """The page of a folder of runs, which replaces an earlier page and nothing else.

    Raises:
        CommandLineError: there is something else of that name.
    """
    return output(directory / PAGE, "report", force=force, mark=PAGE_MARK)


def write_page(found: Report, out: Output, tables: Tables, console: Console) -> None:
    """Writes the HTML page, whole or not at all.

    Args:
        console: shows what is being done, if it is a terminal.
    """
    from embexp.reports import page

    with terminal.naming(f"making maps of tables for {Path(out.named).name}", console):
        maps = tables(found.records)
    with terminal.naming(f"writing {Path(out.named).name}", console):
        out.write(page.page_of(found.records, maps=maps, notes=found.notes))
