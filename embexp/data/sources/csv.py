"""CSV and TSV files with a header line. The config names the columns with several values per example."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from embexp.data import files
from embexp.data.columnar import ColumnarSource
from embexp.data.files import Files
from embexp.data.text_table import Dialect, TextTable, header_fields, with_examples
from embexp.data.wanted import Wanted
from embexp.specs.data import CSV


def source(data: CSV) -> ColumnarSource:
    """The source that a config describes."""
    dialect = Dialect(data.delimiter, quoted=True, list_separator=data.list_separator)
    locate = partial(_locate, dialect, data.list_columns)
    return ColumnarSource(data, data.kind, locate, [data.delimiter, data.list_separator, sorted(data.list_columns)])


def _locate(dialect: Dialect, list_columns: Sequence[str], path: Path, wanted: Sequence[Wanted]) -> Files:
    tables = tuple(_table(file, dialect, frozenset(list_columns)) for file in files.data_files(path))
    located = Files(tables)
    lists = [Wanted(name, "data.list_columns") for name in list_columns]
    faults = [fault for table in tables for fault in files.missing(table.path, table.names, wanted)]
    files.stop_at(faults + files.missing(path, tables[0].names, lists))
    files.stop_at(files.shape_faults(located, wanted))
    return located


def _table(path: Path, dialect: Dialect, lists: frozenset[str]) -> TextTable:
    names = tuple(header_fields(path, dialect))
    return with_examples(TextTable(path, dialect, names, names, lists.intersection(names)))
