"""Data cut into files by the values of a column, such as one for each day: lines and rows go over as they are."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.files import table_files, text_table
from embexp.data.files.dialect import NULLS, Dialect
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs.data import CSV, JSONLines, Parquet
from embexp.specs.studies import PARTS, DailyStudy, Period
from embexp.system import compressed, files
from embexp.system.parallel import Progress, quiet

if TYPE_CHECKING:
    import pyarrow as pa

_MOST, _FEWEST = 500, 3
"""Files: each is open while the data are cut, and leads to several runs. The third is the first that shows anything."""
_MILLISECONDS = 1e11
"""Numbers from here on are milliseconds since 1970: as seconds, they would be in the year 5138."""
_NO_NAME = re.compile(r"[^\w.+-]+", re.ASCII)
_SETTING = "study.column"

Labelled = Callable[[str], str]
"""Which part a row belongs to, by the value that it has in the column; raises ValueError if that is none."""


def cut_for(study: object, data: object, directory: Path, progress: Progress = quiet) -> bool:
    """Cuts the data of a study by its column; returns whether it has one. See `cut`.

    Args:
        study, data: of a spec.
    """
    if not isinstance(study, DailyStudy) or study.column is None:
        return False
    assert isinstance(data, CSV | JSONLines | Parquet)  # see `DailyStudy.faults`
    progress(f"splitting the data by {study.column}", None)
    cut(data, study.column, study.period, directory)
    return True


def cut(data: CSV | JSONLines | Parquet, column: str, period: Period | None, folder: Path) -> None:
    """Cuts the files of `data.path` into one for each value of a column, or for each day, week or month.

    They are in `parts` in the folder, in the order of the values, and have the rows in the order of the data. They are
    there all or not at all; if they are there, nothing is done. A few rows are in memory at a time.

    Args:
        period: null: values are in order as numbers if all are numbers, else as text.

    Raises:
        ConfigError: there is no such column, or it has too few or too many values.
        DataError: a row has no value, or one that is no date; or a file can't be read.
    """
    if (folder / PARTS).exists():
        return
    paths = table_files.data_files([Path(each) for each in data.paths])
    with files.atomic_directory(folder / PARTS) as temporary:
        parts = _Parts(temporary, column)
        label = _labelling(column, period, _form_of(data, column))
        with contextlib.closing(parts):
            for path in paths:
                if isinstance(data, CSV):
                    _cut_text(data, path, label, parts)
                elif isinstance(data, JSONLines):
                    _cut_lines(path, label, parts)
                else:
                    _cut_rows(path, label, parts)
        parts.name_in_order(dated=period is not None)


class _Parts:
    """The files that are being written, by the label of what each holds."""

    def __init__(self, folder: Path, column: str) -> None:
        self.column = column
        self._folder, self._opened = folder, dict[str, Any]()
        self._head: tuple[Path, object] | None = None

    def file(self, label: str, ending: str, opened: Callable[[Path], Any]) -> Any:
        """The file of a label, opened at the first call."""
        if label not in self._opened:
            if len(self._opened) == _MOST:
                rule = f"column {self.column} has more than {_MOST} values, but each value would need its own runs"
                raise ConfigError([Fault("study.period", "null", rule, "set study.period=day, week or month")])
            self._opened[label] = opened(self._folder / f"{len(self._opened)}{ending}")
        return self._opened[label]

    def check_head(self, path: Path, head: object) -> None:
        """Checks that a file has the columns of the others, as rows of several go into one."""
        if self._head is None:
            self._head = path, head
        elif self._head[1] != head:
            rule = f"its columns differ from those of {self._head[0]}, but one part would have rows of both"
            raise table_files.unreadable(path, rule)

    def no_column(self, path: Path, names: Sequence[str]) -> ConfigError:
        """What is raised where a file lacks the column."""
        rule = f"{path} has no such column, its columns are {', '.join(names)}"
        return ConfigError([Fault(_SETTING, repr(self.column), rule, "name one of them")])

    def close(self) -> None:
        """Closes the files."""
        for each in self._opened.values():
            each.close()

    def name_in_order(self, *, dated: bool) -> None:
        """Renames the files: a number, and what each holds."""
        labels = list(self._opened)
        if len(labels) < _FEWEST:
            rule = (
                f"the column has only {', '.join(labels) or 'no value'}, but the study needs at least {_FEWEST} values"
            )
            remedy = "name another column, or set a shorter study.period"
            raise ConfigError([Fault(_SETTING, repr(self.column), rule, remedy)])
        numbers = not dated and all(map(text_table.is_number, labels))
        order = sorted(range(len(labels)), key=lambda place: (float(labels[place]) if numbers else 0, labels[place]))
        for number, place in enumerate(order, 1):
            [file] = self._folder.glob(f"{place}.*")
            named = _NO_NAME.sub("_", labels[place])[:80]
            file.rename(self._folder / f"{number:03d}-{named}{file.suffix}")


def _form_of(data: CSV | JSONLines | Parquet, column: str) -> str | None:
    """The format of the dates in a column; None: ISO 8601."""
    if column in data.dates:
        return data.dates[column].format
    return data.timestamp_format if isinstance(data, CSV) and column == data.timestamp else None


def _labelling(column: str, period: Period | None, form: str | None) -> Labelled:
    """Which part a row belongs to; values that were met are remembered."""
    known: dict[str, str] = {}

    def label(value: str) -> str:
        if value not in known:
            if len(known) > 1 << 16:
                known.clear()
            known[value] = _label(value, period, form)
        return known[value]

    return label


def _label(value: str, period: Period | None, form: str | None) -> str:
    """Raises ValueError, whose text says what was found."""
    text = value.strip()
    if text in NULLS:
        raise ValueError("found no value")
    if period is None:
        return text
    seconds = text_table.seconds_of(text, form)
    if seconds is None and form is None and text_table.is_number(text):
        seconds = float(text) / (1000 if abs(float(text)) >= _MILLISECONDS else 1)
    if seconds is None or not math.isfinite(seconds):
        raise ValueError(f"found {value[:40]!r}, expected {form or f'{text_table.ISO}, or seconds since 1970'}")
    day = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date()
    if period is Period.DAY:
        return day.isoformat()
    return f"{day:%Y-%m}" if period is Period.MONTH else "{}-W{:02d}".format(*day.isocalendar())


def _of_row(label: Labelled, value: str, path: Path, place: str, column: str) -> str:
    try:
        return label(value)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}, {place}: {error} in column {column}, which cuts the data") from None


def _cut_text(data: CSV, path: Path, label: Labelled, parts: _Parts) -> None:
    dialect = Dialect(data.delimiter, data.quoted, encoding=data.encoding)
    encoding, errors = ("utf-8-sig", "surrogateescape") if dialect.utf8 else (dialect.encoding, "strict")
    written = "utf-8" if dialect.utf8 else dialect.encoding
    lines: list[str] = []

    def kept(text: Iterator[str]) -> Iterator[str]:
        for line in text:
            lines.append(line)
            yield line

    with (
        compressed.opened(path) as (file, _),
        io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="") as text,
    ):
        records = text_table.records(text_table.without_separator_line(kept(table_files.bounded(text))), dialect)
        try:
            names, head = list(data.names or ()), ""
            if data.names is None:
                names = text_table.names_of(next(records, (0, []))[1])
                head = "".join(lines)
                lines.clear()
            if parts.column not in names:
                raise parts.no_column(path, names)
            parts.check_head(path, names)
            at = names.index(parts.column)

            def opened(part: Path) -> Any:
                new = part.open("w", encoding=written, errors=errors, newline="")
                new.write(head)
                return new

            for line, fields in records:
                value = fields[at] if at < len(fields) else ""
                part = parts.file(_of_row(label, value, path, f"line {line:,}", parts.column), ".csv", opened)
                row = "".join(lines)
                part.write(row if row.endswith("\n") else f"{row}\n")
                lines.clear()
        except text_table.BadLine as error:
            raise DataError(f"{path}, {error}") from None


def _cut_lines(path: Path, label: Labelled, parts: _Parts) -> None:
    for number, line in enumerate(table_files.lines_of(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            for key in [parts.column] if parts.column in value else parts.column.split("."):
                value = value.get(key) if isinstance(value, dict) else None
        except (ValueError, TypeError, RecursionError):
            raise DataError(f"{path}, line {number:,}: found no object in JSON") from None
        found = "" if value is None else str(value)
        part = parts.file(
            _of_row(label, found, path, f"line {number:,}", parts.column), ".jsonl", lambda new: new.open("wb")
        )
        part.write(line if line.endswith(b"\n") else line + b"\n")


def _cut_rows(path: Path, label: Labelled, parts: _Parts) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from embexp.data.files import arrow_table

    names = arrow_table.table(path).names
    if parts.column not in names:
        raise parts.no_column(path, names)
    with pq.ParquetFile(path) as file:
        parts.check_head(path, file.schema_arrow.remove_metadata())
        start = 0
        for batch in file.iter_batches(1 << 16):
            for name, rows in _rows_by_part(batch.column(parts.column), label, path, start, parts.column):
                part = parts.file(name, ".parquet", lambda new: pq.ParquetWriter(new, file.schema_arrow))
                part.write_batch(batch.take(pa.array(rows)))
            start += len(batch)


def _rows_by_part(
    values: pa.Array, label: Labelled, path: Path, start: int, column: str
) -> Iterator[tuple[str, list[int]]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type):
        values = pc.divide(values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64()), 1_000_000)
    found: dict[str, list[int]] = {}
    for row, value in enumerate(values.to_pylist()):
        text = "" if value is None else str(value)
        found.setdefault(_of_row(label, text, path, f"row {start + row + 1:,}", column), []).append(row)
    yield from found.items()
