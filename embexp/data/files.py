"""Where the wanted columns of a source on disk are: files found, headers read, columns assigned to files.

Everything that is wrong is found at once and told as config faults. pyarrow is imported only for Parquet.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.data.text_table import Dialect, TextTable, header_fields, holds_examples
from embexp.data.wanted import Wanted
from embexp.errors import Fault
from embexp.specs.data import CSV, Parquet, RecBole

_ATOMIC = Dialect(delimiter="\t", quoted=False, list_separator=" ")
_ATOMIC_TYPES = ("token", "token_seq", "float", "float_seq")


@dataclass(frozen=True)
class ParquetTable:
    """One Parquet file.

    Attributes:
        path: of the file.
        names: of its columns.
        lists: those that hold several values per row.
        tokens: those whose values may be tokens (text or integers).
        numbers: those whose values are numbers.
    """

    path: Path
    names: tuple[str, ...]
    lists: frozenset[str]
    tokens: frozenset[str]
    numbers: frozenset[str]


@dataclass(frozen=True)
class Side:
    """A RecBole file beside the interactions (.user or .item), joined by its first token column, `key`."""

    table: TextTable
    key: str


@dataclass(frozen=True)
class Source:
    """The files that hold the examples, in order, and those joined to them.

    Attributes:
        tables: text or Parquet files; their rows, one file after the other, are the examples.
        sides: joined files.
        side_of: column -> index in `sides` of the file that holds it, for columns that `tables` lack.
    """

    tables: tuple[TextTable | ParquetTable, ...]
    sides: tuple[Side, ...] = ()
    side_of: Mapping[str, int] | None = None

    def lists(self) -> frozenset[str]:
        """Names of the columns that hold several values per example (the first file decides)."""
        beside = {name for name, number in (self.side_of or {}).items() if name in self.sides[number].table.lists}
        return self.tables[0].lists | beside

    def files(self) -> list[Path]:
        """Every file whose content matters."""
        used = sorted(set((self.side_of or {}).values()))
        return [table.path for table in self.tables] + [self.sides[number].table.path for number in used]


class Unreadable(Exception):  # noqa: N818 - carries faults to the functions of this package, never to the user
    """Faults that keep a source from being read."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = list(faults)


def locate(data: RecBole | CSV | Parquet, wanted: Sequence[Wanted], *, path: Path | None = None) -> Source:
    """Finds files and columns.

    Args:
        data: the source.
        wanted: the columns that are needed.
        path: read this instead of `data.path`.

    Raises:
        Unreadable: with every fault found.
    """
    path = Path(data.path) if path is None else path
    match data:
        case RecBole():
            source, missing = _atomic(path, wanted)
        case CSV():
            dialect = Dialect(data.delimiter, quoted=True, list_separator=data.list_separator)
            tables = tuple(_csv_table(file, dialect, frozenset(data.list_columns)) for file in _files(path))
            source = Source(tables)
            missing = [fault for table in tables for fault in _missing(table.path, table.names, wanted)]
            missing += _missing(
                path, tables[0].names, [Wanted(name, "data.list_columns") for name in data.list_columns]
            )
        case Parquet():
            parquet = tuple(_parquet_table(file) for file in _files(path))
            source = Source(parquet)
            missing = [fault for table in parquet for fault in _missing(table.path, table.names, wanted)]
            missing += [fault for table in parquet for fault in _types(table, wanted)]
    if missing:
        raise Unreadable(list(dict.fromkeys(missing)))
    # Of a CSV file, the config says which columns are lists, so that was checked without it.
    shapes = _shapes(source, wanted) + ([] if isinstance(data, CSV) else _single(source, wanted))
    if shapes:
        raise Unreadable(shapes)
    return source


def _fault(path: Path, rule: str, remedy: str = "") -> Unreadable:
    return Unreadable([Fault("data.path", repr(str(path)), rule, remedy)])


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise _fault(
            path, "there is no such file or folder", f"looked in {Path.cwd()}" if not path.is_absolute() else ""
        )
    if path.is_file():
        return [path]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    for entry in entries:
        if entry.is_dir():
            raise _fault(path, f"a folder of data files holds files only, not the folder {entry.name!r}")
    if not entries:
        raise _fault(path, "the folder holds no files")
    return entries


def _header(path: Path, dialect: Dialect) -> list[str]:
    if path.stat().st_size == 0:
        raise _fault(path, "the file is empty; its first line must name the columns")
    try:
        fields = header_fields(path, dialect)
    except UnicodeDecodeError as error:
        raise _fault(path, "line 1: found bytes that are not UTF-8, expected the names of the columns") from error
    if not fields:
        raise _fault(path, "the file holds empty lines only; its first line must name the columns")
    return fields


def _csv_table(path: Path, dialect: Dialect, lists: frozenset[str]) -> TextTable:
    names = _header(path, dialect)
    table = TextTable(path, dialect, tuple(names), tuple(names), lists.intersection(names))
    return _with_examples(table)


def _with_examples(table: TextTable) -> TextTable:
    if not holds_examples(table):
        raise _fault(table.path, "the file has a header line but no examples below it")
    return table


def _atomic_table(path: Path) -> tuple[TextTable, str | None]:
    """An atomic file, and the name of its first token column."""
    header = _header(path, _ATOMIC)
    names, lists, key = [], set(), None
    for field in header:
        name, colon, kind = field.rpartition(":")
        untabbed = len(header) == 1 and field.count(":") > 1
        if not colon or not name or kind not in _ATOMIC_TYPES or untabbed:
            raise _fault(
                path,
                f"line 1: found {field!r}, expected name:type with a type among {', '.join(_ATOMIC_TYPES)}",
                "RecBole atomic files are separated by tabs" if len(header) == 1 else "",
            )
        names.append(name)
        if kind.endswith("_seq"):
            lists.add(name)
        if kind == "token" and key is None:
            key = name
    return _with_examples(TextTable(path, _ATOMIC, tuple(header), tuple(names), frozenset(lists))), key


def _atomic(path: Path, wanted: Sequence[Wanted]) -> tuple[Source, list[Fault]]:
    if path.is_dir():
        found = sorted(path.glob("*.inter"))
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise _fault(path, f"the folder must hold one file NAME.inter; found {names}")
        inter = found[0]
    else:
        [inter] = _files(path)
    main, _ = _atomic_table(inter)
    sides: list[Side] = []
    side_of: dict[str, int] = {}
    known = list(main.names)
    for suffix in (".user", ".item"):
        beside = inter.with_suffix(suffix)
        if not beside.exists():
            continue
        table, key = _atomic_table(beside)
        known.extend(table.names)
        taken = [one.name for one in wanted if one.name in table.names and one.name not in (*main.names, *side_of)]
        if not taken:
            continue
        if key is None or key not in main.names or key in main.lists:
            raise _fault(
                beside,
                f"its first token column, {key!r}, must be a token column of {inter.name} too, to join by",
            )
        side_of |= dict.fromkeys(taken, len(sides))
        sides.append(Side(table, key))
    missing = [one for one in wanted if one.name not in known]
    repeated = _repeated(inter, main.names, wanted)
    return Source((main,), tuple(sides), side_of), repeated + _missing(inter, known, missing)


def _parquet_table(path: Path) -> ParquetTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        raise _fault(path, "the file is empty")
    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowInvalid, OSError) as error:
        raise _fault(path, f"the file can't be read as Parquet: {error}") from error
    if metadata.num_rows == 0:
        raise _fault(path, "the file has columns but no examples")
    lists, tokens, numbers = set(), set(), set()
    for field in schema:
        kind: Any = field.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            lists.add(field.name)
            kind = kind.value_type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind):
            tokens.add(field.name)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            numbers.add(field.name)
        if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            numbers.add(field.name)
    return ParquetTable(path, tuple(schema.names), frozenset(lists), frozenset(tokens), frozenset(numbers))


def _types(table: ParquetTable, wanted: Sequence[Wanted]) -> list[Fault]:
    faults = []
    for one in wanted:
        if one.name not in table.names:
            continue
        if one.tokens and one.name not in table.tokens:
            faults.append(Fault(one.asked_by, repr(one.name), f"ids must be text or integers in {table.path}"))
        if one.numbers and one.name not in table.numbers:
            faults.append(Fault(one.asked_by, repr(one.name), f"the column must hold numbers in {table.path}"))
    return faults


def _missing(path: Path, names: Sequence[str], wanted: Sequence[Wanted]) -> list[Fault]:
    faults = _repeated(path, names, wanted)
    for one in wanted:
        if one.name in names:
            continue
        near = difflib.get_close_matches(one.name, dict.fromkeys(names), n=3, cutoff=0.6)
        listing = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        remedy = f"did you mean {' or '.join(repr(name) for name in near)}?" if near else f"its columns are: {listing}"
        faults.append(Fault(one.asked_by, repr(one.name), f"{path} has no such column", remedy))
    return faults


def _repeated(path: Path, names: Sequence[str], wanted: Sequence[Wanted]) -> list[Fault]:
    return [
        Fault(one.asked_by, repr(one.name), f"{path} has {names.count(one.name)} columns of this name; it must be one")
        for one in wanted
        if list(names).count(one.name) > 1
    ]


def _shapes(source: Source, wanted: Sequence[Wanted]) -> list[Fault]:
    faults = []
    lists = source.lists()
    for table in source.tables[1:]:
        for one in wanted:
            if (one.name in table.lists) != (one.name in lists):
                faults.append(
                    Fault(
                        one.asked_by,
                        repr(one.name),
                        f"{table.path} and {source.tables[0].path} must agree on whether "
                        "the column holds several values",
                    )
                )
    for one in wanted:
        if one.single and one.name in lists:
            faults.append(
                Fault(one.asked_by, repr(one.name), "the column holds several values per example; it must hold one")
            )
        if one.weighs is not None and (one.name in lists) != (one.weighs in lists):
            kinds = {True: "several values", False: "one value"}
            faults.append(
                Fault(
                    one.asked_by,
                    repr(one.name),
                    f"weights must come one for each id, but this column holds {kinds[one.name in lists]} per example "
                    f"and {one.weighs!r} {kinds[one.weighs in lists]}",
                )
            )
    return faults


def _single(source: Source, wanted: Sequence[Wanted]) -> list[Fault]:
    """Columns that hold one value per example where several are needed."""
    lists = source.lists()
    return [
        Fault(
            need.path,
            need.value,
            f"column {one.name!r} holds one id per example, {need.why}",
            "leave it out, or name a column that holds several",
        )
        for one in wanted
        if one.name not in lists
        for need in one.several
    ]
