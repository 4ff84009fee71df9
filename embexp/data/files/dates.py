"""Columns that are made of the dates in another: weekday, month, hour and age, as tokens or numbers.

Weekday, month and hour are those of the clock of the date itself: of its own zone, if it has one. The age is in days of
24 hours, to midnight of the reference date in UTC; a date without a zone is taken as one in UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.data.columns import Wanted
from embexp.data.files.dialect import NULLS
from embexp.data.files.table_files import Files, Table, stop_at
from embexp.data.files.text_table import TextTable, seconds
from embexp.errors import Fault
from embexp.specs.data import DATE_PARTS, DateColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.files.table_files import Block

Locate = Callable[[Sequence[Path], Sequence[Wanted]], Files]
PERIODS = {"weekday": (7, 0), "month": (12, 1), "hour": (24, 0)}
"""How many values a part has, and the first."""
_DAY = 86_400
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"


def dated(locate: Locate, dates: Mapping[str, DateColumn]) -> Locate:
    """What locates files as `locate` does, whose tables also have the columns that dates make."""

    def located(paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
        files = locate(paths, _read(wanted, dates, as_numbers=False))
        for table in files.tables:
            made = [name for name in made_columns(dates) if name in table.names]
            rule = f"{table.path} already has a column with this name, and data.dates would make another one"
            stop_at([Fault("data.dates", repr(name), rule, "rename the column in the file") for name in made])
        return replace(files, tables=tuple(DatedTable(table, dates) for table in files.tables))

    return located


def made_columns(dates: Mapping[str, DateColumn]) -> dict[str, tuple[str, str]]:
    """The names of all columns that dates make -> the column of the dates, and what of them."""
    return {f"{column}_{part}": (column, part) for column in dates for part in DATE_PARTS}


def _read(wanted: Sequence[Wanted], dates: Mapping[str, DateColumn], *, as_numbers: bool) -> list[Wanted]:
    """What is read of a file: dates instead of what is made of them."""
    made, found = made_columns(dates), dict[str, Wanted]()
    for one in wanted:
        if one.name not in made:
            before = found.get(one.name, one)
            any_type = all(each.names for each in (before, one) if each.tokens)
            found[one.name] = replace(one, tokens=one.tokens or before.tokens, names=any_type)
            continue
        column = made[one.name][0]
        default = Wanted(column, one.asked_by, single=True, may_be_missing=True, names=True)
        known = found.get(column, default)
        numbers, tokens = known.numbers or as_numbers, known.tokens or not as_numbers
        found[column] = replace(known, numbers=numbers, tokens=tokens, names=known.names or not known.tokens, time=True)
    return list(found.values())


@dataclass(frozen=True)
class DatedTable:
    """A file, and the columns that its dates make; a `table_files.Table`."""

    table: Table
    dates: Mapping[str, DateColumn]

    @property
    def path(self) -> Path:
        """The file."""
        return self.table.path

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns, those of the file first."""
        return (
            *self.table.names,
            *made_columns({name: each for name, each in self.dates.items() if name in self.table.names}),
        )

    @property
    def lists(self) -> frozenset[str]:
        """The columns that hold several values per row."""
        return self.table.lists

    def holds_numbers(self, column: str, *, rows: int) -> bool:
        """Whether a column holds numbers, as far as so many rows show."""
        return column in made_columns(self.dates) or self.table.holds_numbers(column, rows=rows)

    def head_fault(self, wanted: Sequence[Wanted], *, rows: int) -> str:
        """The first of so many rows whose wanted columns can't be read, and why; "" for none."""
        table, read = self._careful(wanted)
        return table.head_fault(read, rows=rows)

    @property
    def first(self) -> int:
        """That of the file."""
        return self.table.first

    def cuts(self) -> Sequence[int]:
        """Those of the file."""
        return self.table.cuts()

    def piece(self, start: int, stop: int) -> DatedTable:
        """A piece of the file."""
        return replace(self, table=self.table.piece(start, stop))

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """The first row that can't be read; "" where there is none to take."""
        table, read = self._careful(wanted)
        return table.explain(read)

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All rows; see `table_files.Table`."""
        made, read = made_columns(self.dates), _read(wanted, self.dates, as_numbers=False)
        for block in self.table.blocks(read):
            clocks: dict[str, _Clock] = {}
            tokens, numbers = dict(block.tokens), dict(block.numbers)
            for one in wanted:
                if one.name in made:
                    column, part = made[one.name]
                    if column not in clocks:
                        clocks[column] = _Clock(block.tokens[column], self.dates[column])
                    values = clocks[column].values(part)
                    if one.tokens:
                        tokens[one.name] = values.cast("int32")
                    if one.numbers:
                        numbers[one.name] = values.cast("float64")
            yield replace(block, tokens=tokens, numbers=numbers)

    def _careful(self, wanted: Sequence[Wanted]) -> tuple[Table, list[Wanted]]:
        """A table of which dates are numbers, for a look at its rows, and what is read of it."""
        if not isinstance(self.table, TextTable):
            return self.table, [one for one in wanted if one.name not in made_columns(self.dates)]
        forms = {name: each.format for name, each in self.dates.items()}
        return replace(self.table, dates={**self.table.dates, **forms}), _read(wanted, self.dates, as_numbers=True)


class _Clock:
    """The dates of some rows."""

    def __init__(self, dates: pa.Array, settings: DateColumn) -> None:
        """Takes text, dates or times.

        Raises:
            ArrowInvalid: a text is no date.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(dates.type):
            dates = dates.dictionary_decode()
        if pa.types.is_integer(dates.type):  # digits, as a format has them; never a number of seconds
            dates = dates.cast(pa.string())
        if pa.types.is_string(dates.type) or pa.types.is_large_string(dates.type):
            trimmed = pc.utf8_trim_whitespace(dates)
            texts = pc.if_else(pc.is_in(trimmed, pa.array(NULLS, dates.type)), None, trimmed)
            self._seconds = seconds(texts, settings.format)
            if settings.format is not None:
                self._clock = pc.strptime(texts, format=settings.format, unit="us")
            else:
                self._clock = pc.replace_substring_regex(texts, _ZONE, "").cast(pa.timestamp("us"))
        else:
            self._clock = dates.cast(pa.timestamp("us", getattr(dates.type, "tz", None)), safe=False)
            self._seconds = pc.divide(self._clock.cast(pa.int64()).cast(pa.float64()), 1e6)
        self._reference = settings.reference

    def values(self, part: str) -> pa.Array:
        """int64 of weekday (0 is Monday), month (from 1) and hour, float64 of the others; null where missing."""
        import pyarrow.compute as pc

        name, _, wave = part.partition("_")
        if name == "age":
            assert self._reference is not None  # a rule between the settings
            year, month, day = map(int, self._reference.split("-"))
            last = datetime(year, month, day, tzinfo=UTC).timestamp()
            return pc.divide(pc.subtract(last, self._seconds), float(_DAY))
        if name == "weekday":
            found = pc.day_of_week(self._clock, count_from_zero=True, week_start=1)
        else:
            found = pc.month(self._clock) if name == "month" else pc.hour(self._clock)
        if not wave:
            return found
        period, first = PERIODS[name]
        angle = pc.multiply(pc.subtract(found.cast("float64"), float(first)), 2 * math.pi / period)
        return pc.sin(angle) if wave == "sin" else pc.cos(angle)
