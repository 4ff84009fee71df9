"""JSON Lines; lists in it hold several values per example, and objects in it make columns named `a.b`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from embexp.data.columns import Wanted
from embexp.data.files import json_lines, table_files
from embexp.data.files.arrow_table import checked
from embexp.data.files.dates import dated
from embexp.data.files.json_lines import JSONTable
from embexp.data.files.table_files import Files
from embexp.data.sources.columnar import ColumnarSource
from embexp.errors import DataError
from embexp.specs.data import JSONLines


def source(data: JSONLines) -> ColumnarSource:
    """The source that a config describes."""
    return ColumnarSource(data, data.kind, dated(locate, data.dates))


def locate(paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
    """The files, their columns found; raises `ConfigError` with every fault found."""
    names = [one.name for one in wanted]
    return checked(tuple(table(path, names) for path in table_files.data_files(paths)), wanted)


def table(path: Path, wanted: Iterable[str] = ()) -> JSONTable:
    """A file, the columns found; raises `ConfigError` if it can't be read. See `json_lines.table`."""
    try:
        found = json_lines.table(path, wanted)
    except DataError as error:
        raise table_files.unreadable(path, str(error).removeprefix(f"{path}").lstrip(":, ")) from error
    if not found.names:
        raise table_files.unreadable(path, "the file holds no examples")
    return found
