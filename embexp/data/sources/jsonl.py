"""JSON Lines: a JSON object on each line, whose values become columns; the values of an object in it are named `a.b`.

Lists hold several values per example.

Arrow parses blocks of lines by the types that the first lines show. Where a block has others (whole numbers, and then
a fraction; numbers and texts), Python reads that block: what is read does not depend on where a block ends.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Wanted
from embexp.data.files import table_files
from embexp.data.files.arrow_table import BATCH_ROWS, ArrowTable, checked
from embexp.data.files.table_files import LONGEST, TOO_LONG, Files, UncutTable, lines_of
from embexp.data.sources.columnar import ColumnarSource, dated
from embexp.errors import DataError, excerpt
from embexp.specs.data import JSONLines
from embexp.system import compressed, files

if TYPE_CHECKING:
    import pyarrow as pa

Path_ = tuple[str, ...]
"""The keys that lead to a value."""
HEAD_ROWS = 1_000
"""Lines that are looked at for the columns; of those that a run reads and that these lack, all lines are."""
FORMS = (".jsonl", ".ndjson", ".json")
"""Suffixes of files whose lines may be objects."""
_BLOCK_BYTES = 1 << 22
_EXACT = 1 << 53
"""Whole numbers below it are exact as float64."""
_FLAGS = {bool: "bool", int: "int", float: "float", str: "text"}


@dataclass
class Found:
    """What the values of a column are.

    Attributes:
        single: whether some are no lists.
        lists: whether some are lists.
        kinds: of those that are not missing: bool, int, float, text, other.
    """

    single: bool = False
    lists: bool = False
    kinds: set[str] = field(default_factory=set)

    def add(self, value: Any) -> None:
        """Takes note of a value."""
        several = isinstance(value, list)
        self.lists |= several
        self.single |= not several and value is not None
        self.kinds |= {_FLAGS.get(type(each), "other") for each in (value if several else [value]) if each is not None}

    @property
    def unread(self) -> str:
        """What they are, if they can't be read; or ""."""
        return (
            "lists of lists or objects, or values that are objects only in some rows" if "other" in self.kinds else ""
        )


@dataclass(frozen=True)
class JSONTable(UncutTable, ArrowTable):
    """One file of JSON Lines.

    Attributes:
        found: the columns by the keys that lead to their values.
    """

    unreadable = "the file can't be read as JSON Lines"

    found: Mapping[Path_, Found] = field(default_factory=dict)

    def batches(self, wanted: Sequence[Wanted], rows: int) -> Iterator[tuple[float, pa.RecordBatch]]:
        """Blocks of lines; of a look at the first lines, these."""
        paths = {name_of(path): path for path in self.found}
        columns = [(one, paths[one.name], self.found[paths[one.name]]) for one in wanted]
        if rows < BATCH_ROWS:
            yield 1.0, _read_carefully(enumerate(itertools.islice(lines_of(self.path), rows), 1), self.path, columns)
            return
        schema = _schema(columns)
        for first, block, done in _blocks(self.path):
            batch = None if schema is None else _read_fast(block, schema, columns)
            if batch is None:
                batch = _read_carefully(enumerate(block.split(b"\n"), first), self.path, columns)
            yield done, batch


_Column = tuple[Wanted, Path_, Found]
"""What is read, the keys that lead to it, and what its values are."""


def name_of(path: Path_) -> str:
    """The name of a column."""
    return ".".join(path)


def is_lines(path: Path) -> bool:
    """Whether the first line of a file is an object in JSON, as that of JSON Lines is."""
    try:
        return next(records(path), None) is not None
    except DataError:
        return False


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file.

    Raises:
        DataError: it can't be read, or a line is no object.
    """
    return records_of(lines_of(path), path)


def records_of(lines: Iterable[bytes], path: Path) -> Iterator[dict[str, Any]]:
    """The objects of some lines of a file; raises `DataError` if a line is none."""
    return (record for _, record in _records(enumerate(lines, 1), path))


def values_of(record: Mapping[str, Any], before: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """The values of an object, and of the objects in it, and the keys that lead to them."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from values_of(value, (*before, key))
        else:
            yield (*before, key), value


def json_table(path: Path, wanted: Iterable[str] = ()) -> JSONTable:
    """A file, its columns found; raises `DataError` if it can't be read.

    Args:
        wanted: columns for which all lines are looked at, until one shows what they hold.
    """
    status = path.stat()
    found = _found(str(path), status.st_mtime_ns, status.st_size, frozenset(wanted))
    named = [(name_of(keys), each) for keys, each in found.items()]
    return JSONTable(
        path,
        tuple(name for name, _ in named),
        lists=frozenset(name for name, each in named if each.lists),
        tokens=frozenset(name for name, each in named if not each.unread),
        numbers=frozenset(name for name, each in named if each.kinds and each.kinds <= {"bool", "int", "float"}),
        found=found,
    )


@functools.lru_cache(maxsize=256)
def _found(path: str, changed: int, size: int, wanted: frozenset[str]) -> dict[Path_, Found]:
    """The columns of a file that was changed at a time; see `json_table`."""
    found: dict[Path_, Found] = {}
    for number, record in enumerate(records(Path(path)), 1):
        for keys, value in values_of(record):
            if number <= HEAD_ROWS or name_of(keys) in wanted:
                found.setdefault(keys, Found()).add(value)
        if number >= HEAD_ROWS and wanted <= {name_of(keys) for keys, each in found.items() if each.kinds}:
            break
    return _settled(found)


def columns_of(records: Iterable[Mapping[str, Any]]) -> dict[Path_, Found]:
    """The columns of some objects."""
    found: dict[Path_, Found] = {}
    for record in records:
        for keys, value in values_of(record):
            found.setdefault(keys, Found()).add(value)
    return _settled(found)


def _settled(found: dict[Path_, Found]) -> dict[Path_, Found]:
    """The columns without those of keys that lead to objects, or to nothing; no column may be both object and value."""
    objects = {keys[:length] for keys in found for length in range(1, len(keys))}
    for keys in objects & found.keys():
        if found[keys].kinds:
            for other, each in found.items():
                if other[: len(keys)] == keys:
                    each.kinds.add("other")
    return {keys: each for keys, each in found.items() if each.kinds or keys not in objects}


def _blocks(path: Path) -> Iterator[tuple[int, bytes, float]]:
    """Whole lines: the number of the first one, their bytes, and the fraction of the file that is read with them."""
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    size, number, rest = max(1, path.stat().st_size), 1, b""
    with compressed.opened(path) as (data, packed):
        while piece := data.read(_BLOCK_BYTES):
            rest += piece
            end = rest.rfind(b"\n") + 1
            if not end and len(rest) > LONGEST:
                raise DataError(f"{path}, line {number}: found {TOO_LONG}")
            if end:
                yield number, rest[:end], min(1.0, packed.tell() / size)
                number += rest.count(b"\n", 0, end)
                rest = rest[end:]
    if rest:
        yield number, rest, 1.0


def _records(lines: Iterable[tuple[int, bytes]], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of lines with their numbers, without empty ones."""
    for number, line in lines:
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            record = json.loads(text) if text else None
        except UnicodeDecodeError as error:
            found = f"the byte 0x{line[error.start]:02X}"
            raise DataError(f"{path}, line {number}: found {found}, expected text in UTF-8") from None
        except (ValueError, RecursionError):
            record = text
        if isinstance(record, dict):
            yield number, record
        elif text:
            raise DataError(f"{path}, line {number}: found {excerpt(text)}, expected an object in JSON on each line")


def _schema(columns: Sequence[_Column]) -> pa.Schema | None:
    """The types by which Arrow reads columns; None: their values have several, which it does not read."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    fields: dict[str, Any] = {}
    for one, path, found in columns:
        seen = (
            {"float"} if found.kinds == {"int", "float"} or (found.kinds == {"int"} and not one.tokens) else found.kinds
        )
        if len(seen) > 1 or (found.lists and found.single):
            return None
        kind = kinds[next(iter(seen), "text")]
        inner = fields
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = pa.list_(kind) if found.lists else kind

    def struct(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
        return [(key, pa.struct(struct(kind)) if isinstance(kind, dict) else kind) for key, kind in fields.items()]

    return pa.schema(struct(fields))


def _read_fast(block: bytes, schema: pa.Schema, columns: Sequence[_Column]) -> pa.RecordBatch | None:
    """The rows of a block; None: some value has another type than the schema, or is none that Arrow reads exactly."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json

    from embexp.data.files.arrow_columns import flat

    try:
        read = pyarrow.json.read_json(
            pa.BufferReader(block),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        read.validate(full=True)
    except (pa.ArrowException, UnicodeError):
        return None
    if read.num_rows != sum(map(bool, map(bytes.strip, block.split(b"\n")))):
        return None  # several objects on a line
    arrays = []
    for one, path, _ in columns:
        array = read[path[0]].combine_chunks()
        array = pc.struct_field(array, list(path[1:])) if path[1:] else array
        if one.tokens and not one.names and pa.types.is_floating(flat(array).values.type):
            if any(
                not abs(value) < _EXACT
                for value in pc.min_max(flat(array).values).as_py().values()
                if value is not None
            ):
                return None
            array = _texts_of(array)
        arrays.append(array)
    return _batch(read.num_rows, arrays, columns)


def _texts_of(array: pa.Array) -> pa.Array:
    """Numbers, or lists of them, as tokens."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from embexp.data.files.arrow_columns import flat

    column = flat(array)
    used = pc.dictionary_encode(column.values)
    texts = pa.array([_token(value, names=False) for value in used.dictionary.to_pylist()], pa.string())
    taken = texts.take(used.indices)
    return taken if column.splits is None else pa.LargeListArray.from_arrays(pa.array(column.splits), taken)


def _batch(rows: int, arrays: Sequence[pa.Array], columns: Sequence[_Column]) -> pa.RecordBatch:
    import pyarrow as pa

    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(arrays), [one.name for one, _, _ in columns])


def _read_carefully(lines: Iterable[tuple[int, bytes]], path: Path, columns: Sequence[_Column]) -> pa.RecordBatch:
    """The rows of lines, parsed by Python."""
    values: list[list[Any]] = [[] for _ in columns]
    count = 0
    for number, record in _records(lines, path):
        count += 1
        for (one, keys, found), column in zip(columns, values, strict=True):
            try:
                column.append(value_of(record, keys, found))
            except TypeError as error:
                raise DataError(
                    f"{path}, line {number}: found {error.args[0]} in column {one.name!r}, expected {error.args[1]}"
                ) from None
    arrays = [_array(column, one, several=found.lists) for column, (one, _, found) in zip(values, columns, strict=True)]
    return _batch(count, arrays, columns)


def value_of(record: Mapping[str, Any], keys: Path_, found: Found) -> Any:
    """A value of a column, or a list of values.

    Raises:
        TypeError: there is something else; what was found, and what was expected.
    """
    value: Any = record
    for key in keys:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(excerpt(json.dumps(value)), f"an object with the key {key!r}")
        value = value.get(key)
    if found.lists and value is not None and not isinstance(value, list):
        value = [value]
    for each in value if found.lists and value is not None else [value]:
        if isinstance(each, dict | list):
            raise TypeError(excerpt(json.dumps(each)), "lists of single values" if found.lists else "one value")
    return value


def _array(values: list[Any], one: Wanted, *, several: bool) -> pa.Array:
    """A column, or one of lists: of numbers if only these are wanted and there are no others, else of text."""
    import pyarrow as pa

    parts = [each for value in values if value is not None for each in value] if several else values
    is_text = one.tokens or any(isinstance(each, str) for each in parts)
    convert: Callable[[Any], Any] = functools.partial(_token, names=one.names) if is_text else _number
    kind = pa.string() if is_text else pa.float64()
    if several:
        return pa.array([None if value is None else list(map(convert, value)) for value in values], pa.large_list(kind))
    return pa.array(map(convert, values), kind, size=len(values))


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _token(value: Any, *, names: bool) -> str | None:
    """A value as text: whole numbers as their digits, truth values as 0 and 1, as names true and false."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower() if names else str(int(value))
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)


def source(data: JSONLines) -> ColumnarSource:
    """The source that a config describes."""
    return ColumnarSource(data, data.kind, dated(locate, data.dates))


def locate(paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
    """The files, their columns found; raises `ConfigError` with every fault found."""
    names = [one.name for one in wanted]
    return checked(tuple(table(path, names) for path in table_files.data_files(paths)), wanted)


def table(path: Path, wanted: Iterable[str] = ()) -> JSONTable:
    """A file, the columns found; raises `ConfigError` if it can't be read. See `json_table`."""
    try:
        found = json_table(path, wanted)
    except DataError as error:
        raise table_files.unreadable(path, str(error).removeprefix(f"{path}").lstrip(":, ")) from error
    if not found.names:
        raise table_files.unreadable(path, "the file holds no examples")
    return found
