"""CSV and TSV files, with a header line or without. The config names the columns with several values per example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from embexp.data.columns import Wanted
from embexp.data.files import table_files
from embexp.data.files.dialect import WHITESPACE, Dialect
from embexp.data.files.table_files import Files
from embexp.data.files.text_table import TextTable, header_fields, is_number, names_of, with_examples
from embexp.data.sources import adjacency
from embexp.data.sources.columnar import ColumnarSource, dated
from embexp.errors import Code, Fault, excerpt, plural
from embexp.specs.data import CSV

_DELIMITERS = {"\t": "tab", ";": "semicolon", "::": "colons", "|": "pipe", ",": "comma", " ": "whitespace"}
"""What may separate columns, and its word in a config; blanks are rarely single."""
_REMEDY = ": if it has another encoding, set data.encoding, such as latin-1"


def source(data: CSV) -> ColumnarSource:
    """The source that a config describes."""
    written = [data.delimiter, data.list_separator, sorted(data.list_columns)]
    more = [data.names, data.quoted, data.encoding, data.timestamp_format]
    if data.decimal != "." or data.thousands is not None:
        more += [data.decimal, data.thousands]
    separators = dict.fromkeys(data.list_columns, data.list_separator)
    locate = dated(partial(_located, data), data.dates)
    return ColumnarSource(data, data.kind, locate, [*written, *more], separators)


def _located(data: CSV, paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
    """The files, their columns checked."""
    tables = tuple(table(data, file, wanted) for file in table_files.data_files(paths))
    located = Files(tables)
    others = {one.name for one in wanted}  # what a feature reads, too, is one fault, which names the feature
    lists = [Wanted(name, "data.list_columns") for name in data.list_columns if name not in others]
    faults = [fault for table in tables for fault in _missing(table, wanted)]
    table_files.stop_at(faults + table_files.missing(tables[0].path, tables[0].names, lists))
    table_files.stop_at(table_files.shape_faults(located, wanted))
    return located


def table(data: CSV, path: Path, wanted: Sequence[Wanted] = ()) -> TextTable:
    """One of the files, its header read.

    Raises:
        ConfigError: it can't be read, has no examples, or does not fit `data.names`.
    """
    dialect = Dialect(data.delimiter, data.quoted, data.list_separator, data.encoding, _REMEDY, *data.number_marks)
    what = "its first line must name the columns" if data.names is None else "it must hold examples"
    first = header_fields(path, dialect, what=what)
    names = tuple(names_of(first)) if data.names is None else data.names
    if data.names is not None:
        names = _names_of(data.names, len(first), data, wanted)
        _check_names(path, first, names, wanted, may_lack=data.label if _label_unread(data, wanted) else None)
    lists = frozenset(data.list_columns).intersection(names)
    header = names if data.names is not None else tuple(first)
    found = TextTable(path, dialect, header, names, lists, headed=data.names is None)
    return with_examples(found, {one.name: data.timestamp_format for one in wanted if one.time})


def _names_of(names: tuple[str, ...], fields: int, data: CSV, wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """The names of a file's fields: all; or, of a file to predict, which has fewer fields, those that are left.

    Without one field, it is the label that is missing. Several may be missing where all that are read have the same
    places whichever of the others these are.
    """
    read, missing = {one.name for one in wanted}, len(names) - fields
    if not read or not _label_unread(data, wanted) or missing < 1:
        return names
    unread = [place for place, name in enumerate(names) if name not in read and name not in data.list_columns]
    left_out = {names.index(data.label)} if missing == 1 and data.label in names else set(unread[:missing])
    for place, name in enumerate(names):
        before = sum(each < place for each in unread)
        if name in read and missing > 1 and max(0, missing - len(unread) + before) != min(missing, before):
            return names
    return tuple(name for place, name in enumerate(names) if place not in left_out)


def _label_unread(data: CSV, wanted: Sequence[Wanted]) -> bool:
    """Whether a file is read to predict: its rows need no label."""
    return data.label is not None and all(one.name != data.label for one in wanted)


def _check_names(
    path: Path, first: Sequence[str], names: Sequence[str], wanted: Sequence[Wanted], *, may_lack: str | None
) -> None:
    """Raises ConfigError if the first line has another number of fields than there are names, or is a header.

    Args:
        may_lack: the column that may be omitted; None: none may.
    """
    line = ", ".join(map(repr, first[:20]))
    found = dict(zip(names, first, strict=False))
    numbers = [found[one.name] for one in wanted if one.numbers and one.name in found and not one.time]
    letters = [text for text in numbers if text and not is_number(text)]
    same = [name.casefold() for name in names] == [text.strip().casefold() for text in first]
    if len(first) != len(names):
        fields = plural(len(first), "field")
        rule = f"{path} has {fields} in its first line, but these are {plural(len(names), 'name')}"
        but = "" if may_lack is None else f"; {may_lack} may be omitted"
        remedy = (
            f"give one name per field, and an empty name to a field that is not used{but}; its first line is: {line}"
        )
    elif same or (letters and len(letters) == len(numbers)):
        rule = f"the first line of {path} looks like a header: {line}"
        remedy = "with data.names, every line is an example; remove data.names, or remove the header from the file"
    else:
        return
    table_files.stop_at([Fault("data.names", f"[{', '.join(names)}]", rule, remedy)])


def _missing(table: TextTable, wanted: Sequence[Wanted]) -> list[Fault]:
    """Wanted columns that a file lacks, and what its first line tells of the reason."""
    faults = table_files.missing(table.path, table.names, wanted)
    remedy = _hint(table) if faults else ""
    return [replace(fault, remedy=remedy) if remedy and fault.code is Code.NO_COLUMN else fault for fault in faults]


def _hint(table: TextTable) -> str:
    """What the first lines of a file tell of a delimiter, or a header, other than the config says; "" for nothing."""
    first = table.names[0]
    mark = next((mark for mark in _DELIMITERS if mark in first), None) if len(table.names) == 1 else None
    fields = table.names if mark is None else first.split(mark)
    headless = table.headed and any(map(is_number, fields))
    blank = " " in (mark, table.dialect.delimiter.replace(WHITESPACE, " "))
    if headless and blank and adjacency.looks_like(table.path):
        return "each line looks like a user with all its items: choose data=adjacency"
    if mark is not None:
        names = ", and, because it seems to have no header, data.names=[…]" if headless else ""
        return f"its first line is a single field: {excerpt(first)}; perhaps data.delimiter={_DELIMITERS[mark]}{names}"
    return "its first line looks like data; if it has no header, name its columns: data.names=[…]" if headless else ""
