"""`Report`: the table of a sweep or of any runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from embexp.errors import RunError
from embexp.reports.groups import Group
from embexp.reports.query import at
from embexp.reports.record import Record
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
        from embexp.reports import terminal_table

        return terminal_table.as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The tables for a notebook."""
        from embexp.reports import notebook

        return notebook.as_html(self)

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
