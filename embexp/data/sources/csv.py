"""CSV and TSV files, with a header line or without. The config names the columns with several values per example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embexp.data.columns import Wanted
from embexp.data.files import table_files
from embexp.data.files.dialect import Dialect, excerpt, is_number, plural
from embexp.data.files.table_files import Files
from embexp.data.files.text_table import TextTable, header_fields, with_examples
from embexp.data.sources.columnar import ColumnarSource
from embexp.errors import Fault
from embexp.specs.data import CSV

_DELIMITERS = {"\t": "tab", ";": "semicolon", "::": "'::'", "|": "'|'", ",": "','", " ": "whitespace"}
"""What may separate columns, and how it is written in a config."""
_REMEDY = ": set data.encoding, such as latin-1, if it is in another encoding"


def source(data: CSV) -> ColumnarSource:
    """The source that a config describes."""
    dialect = Dialect(data.delimiter, data.quoted, data.list_separator, data.encoding, _REMEDY)
    form = _Form(dialect, tuple(data.list_columns), data.names, data.timestamp_format)
    written = [data.delimiter, data.list_separator, sorted(data.list_columns)]
    more = [data.names, data.quoted, data.encoding, data.timestamp_format]
    return ColumnarSource(data, data.kind, form.located, [*written, *more])


@dataclass(frozen=True)
class _Form:
    """How CSV files are written, beyond what they show."""

    dialect: Dialect
    list_columns: tuple[str, ...]
    names: tuple[str, ...] | None
    timestamp_format: str | None

    def located(self, paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
        """The files, their columns checked."""
        tables = tuple(self._table(file, wanted) for file in table_files.data_files(paths))
        located = Files(tables)
        lists = [Wanted(name, "data.list_columns") for name in self.list_columns]
        faults = [fault for table in tables for fault in _missing(table, wanted)]
        table_files.stop_at(faults + table_files.missing(tables[0].path, tables[0].names, lists))
        table_files.stop_at(table_files.shape_faults(located, wanted))
        return located

    def _table(self, path: Path, wanted: Sequence[Wanted]) -> TextTable:
        dated = {one.name: self.timestamp_format for one in wanted if one.time}
        if self.names is None:
            names = tuple(header_fields(path, self.dialect))
            table = TextTable(path, self.dialect, names, names, frozenset(self.list_columns).intersection(names))
            return with_examples(table, dated)
        first = header_fields(path, self.dialect, what="it must hold examples")
        self._check(path, first, wanted)
        lists = frozenset(self.list_columns).intersection(self.names)
        return with_examples(TextTable(path, self.dialect, self.names, self.names, lists, headed=False), dated)

    def _check(self, path: Path, first: Sequence[str], wanted: Sequence[Wanted]) -> None:
        """Raises Unreadable if the first line has another number of fields than there are names, or is a header."""
        names = self.names or ()
        if len(first) != len(names):
            fields = plural(len(first), "field")
            rule = f"{path} has {fields} in its first line, and these are {plural(len(names), 'name')}"
            remedy = f"its first line is: {', '.join(map(repr, first[:20]))}"
            stop = Fault("data.names", f"[{', '.join(names)}]", rule, remedy)
            table_files.stop_at([stop])
        found = dict(zip(names, first, strict=True))
        numbers = [found[one.name] for one in wanted if one.numbers and one.name in found and not one.time]
        letters = [text for text in numbers if text and not is_number(text)]
        same = [name.casefold() for name in names] == [text.strip().casefold() for text in first]
        if same or (letters and len(letters) == len(numbers)):
            rule = f"the first line of {path} looks like a header: {', '.join(map(repr, first[:20]))}"
            remedy = "with data.names every line is an example; leave it out, or remove the header from the file"
            table_files.stop_at([Fault("data.names", f"[{', '.join(names)}]", rule, remedy)])


def _missing(table: TextTable, wanted: Sequence[Wanted]) -> list[Fault]:
    """Wanted columns that a file lacks, and what its first line tells of the reason."""
    faults = table_files.missing(table.path, table.names, wanted)
    other = [word for mark, word in _DELIMITERS.items() if mark in table.names[0]] if len(table.names) == 1 else []
    if other:
        remedy = f"its first line is one field: {excerpt(table.names[0])}; perhaps data.delimiter={other[0]}"
    elif table.headed and any(is_number(name) for name in table.names):
        remedy = "its first line looks like data; if it has no header, name its columns: data.names=[…]"
    else:
        return faults
    return [replace(fault, remedy=remedy) if "no such column" in fault.rule else fault for fault in faults]
