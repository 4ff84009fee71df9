"""Encodes files of columns, or any stream of examples, as fixed-width arrays on disk, in bounded memory.

Tokens become codes in the order in which they are first seen. Vocabularies turn codes into rows afterwards, when it is
known which examples train. So a source is read once for all splits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.columns import Columns, Wanted
from embexp.data.examples import Layout
from embexp.data.files.arrow_columns import BadValue, Column, finite_numbers, flat, row_splits
from embexp.data.files.table_files import Files, Side, Table
from embexp.data.vocabularies.token_keys import Codes, packed
from embexp.errors import DataError
from embexp.system.arrays import ArrayWriter
from embexp.system.parallel import Progress, ahead

LIBRARY_ERRORS = (BadValue, pa.ArrowException, UnicodeError, OverflowError, MemoryError)
"""What a value, or bytes, that can't be read lead to."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive examples of one file.

    Attributes:
        done: fraction of the whole source that has been read with this chunk, 0 to 1.
        tokens: columns of tokens, by name.
        numbers: columns of finite numbers, by name.
    """

    file: Path
    count: int
    done: float
    tokens: Mapping[str, Column]
    numbers: Mapping[str, Column]


def chunks_of_files(files: Files, wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    """The examples of all files, in order.

    Raises:
        DataError: a line or value can't be read; names the file, the line, what was found and what was expected.
    """
    sides = [_joined(side, number, files, wanted) for number, side in enumerate(files.sides)]
    beside = files.side_of or {}
    keys = [Wanted(side.key, "", tokens=True) for side in files.sides]
    main = [one for one in wanted if one.name not in beside]
    read = main + [key for key in keys if not any(one.name == key.name and one.tokens for one in main)]
    sizes = [table.path.stat().st_size for table in files.tables]
    before = 0
    for table, size in zip(files.tables, sizes, strict=True):
        first = 0
        try:
            for block in table.blocks(read):
                for side in sides:
                    side.join(block.tokens, block.numbers)
                yield Chunk(
                    table.path,
                    block.count,
                    (before + block.done * size) / sum(sizes),
                    {one.name: flat(block.tokens[one.name]) for one in wanted if one.tokens},
                    finite_numbers(block.numbers, wanted, row_splits(block.tokens)),
                )
                first += block.count
        except LIBRARY_ERRORS as error:
            raise _explained(table, wanted, error, first) from error
        before += size


def _explained(table: Table, wanted: Sequence[Wanted], error: Exception, first: int) -> DataError:
    if text := table.explain(wanted):
        return DataError(f"{table.path}, {text}")
    if isinstance(error, BadValue):
        place = f"{table.path}, row {first + error.row + 1}"
        return DataError(f"{place}: found {error.found}, expected {error.expected}")
    return DataError(f"{table.path}, after row {first}: {' '.join(str(error).split())}")


class _SideColumns:
    """Columns of a file beside the examples' own, looked up by its key."""

    def __init__(self, key: str, keys: pa.Array, columns: tuple[dict[str, pa.Array], dict[str, pa.Array]]) -> None:
        self._key, self._keys, self._columns = key, keys, columns

    def join(self, tokens: dict[str, pa.Array], numbers: dict[str, pa.Array]) -> None:
        """Adds the columns to those of a chunk; null where the file has no line for the key."""
        used = pc.dictionary_encode(tokens[self._key])
        place = pc.index_in(used.dictionary, value_set=self._keys).take(used.indices)
        for found, mine in zip((tokens, numbers), self._columns, strict=True):
            found.update({name: array.take(place) for name, array in mine.items()})


def _joined(side: Side, number: int, files: Files, wanted: Sequence[Wanted]) -> _SideColumns:
    mine = [one for one in wanted if (files.side_of or {}).get(one.name) == number]
    key = next((one for one in mine if one.name == side.key), Wanted(side.key, ""))
    others = [one for one in mine if one.name != side.key]
    read = [*others, replace(key, tokens=True)]
    own = [replace(one, weighs=one.weighs if one.weighs in side.table.names else None) for one in read]
    try:
        blocks = list(side.table.blocks(read))
        tokens, numbers = (
            {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
            for parts in ([block.tokens for block in blocks], [block.numbers for block in blocks])
        )
        finite_numbers(numbers, own, row_splits(tokens))
    except LIBRARY_ERRORS as error:
        raise _explained(side.table, own, error, 0) from error
    keys = tokens.pop(side.key)
    counts = pc.value_counts(keys)
    if len(counts) < len(keys):
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise DataError(f"{side.table.path}: {side.key} {repeated!r} has more than one line, expected one")
    return _SideColumns(side.key, keys, (tokens, numbers))


GROUP = ""
"""Name under which the codes of the groups of leave-one-out are kept; no table has it."""

_Coded = Callable[[Chunk], dict[str, np.ndarray]]
"""From a chunk to the int32 codes of its tokens, by column; those of the groups are under `GROUP`."""


def encode(
    chunks: Iterable[Chunk],
    folder: Path,
    columns: Columns,
    *,
    lists: frozenset[str],
    progress: Progress,
    label_threshold: float | None = None,
    timestamp: str | None = None,
    group: str | None = None,
) -> None:
    """Writes a source's examples into an empty folder.

    Args:
        lists: columns that hold several values per example.
        progress: called as the work goes on.
        label_threshold: labels become 1 where they are at least this, else 0; None: they stay as they are.
        timestamp: column for `timestamps.npy`, float64 [count], if wanted.
        group: column for `groups.npy`, int64 [count], if wanted.
    """
    scalar = [name for name in columns.ids if name not in lists]
    several = [name for name in columns.ids if name in lists]
    tables = list(dict.fromkeys(columns.ids.values()))
    codes = {table: Codes() for table in (*tables, *([GROUP] if group is not None else []))}
    count = 0
    files: dict[Path, int] = {}
    with ExitStack() as stack:

        def writer(name: str, kind: type, width: int | None = None) -> ArrayWriter:
            return stack.enter_context(ArrayWriter(folder / f"{name}.npy", kind, width))

        # Codes of a table must stay below 2^31; memory runs out long before.
        ids = writer("ids", np.int32, len(scalar))
        values = [writer(f"list.{number}.values", np.int32) for number in range(len(several))]
        splits = [SplitsWriter(writer(f"list.{number}.splits", np.int64)) for number in range(len(several))]
        weights = [writer(f"weights.{number}", np.float32) for number in range(len(columns.weights))]
        dense = writer("dense", np.float32, len(columns.dense))
        bucketed = writer("bucketed", np.float32, len(columns.bucketed)) if columns.bucketed else None
        labels = writer("labels", np.float32) if columns.label is not None else None
        timestamps = writer("timestamps", np.float64) if timestamp is not None else None
        groups = writer("groups", np.int64) if group is not None else None
        coded = stack.enter_context(_coding(codes, columns.ids, group))
        for chunk in stack.enter_context(closing(ahead(chunks))):
            found = coded(chunk)
            ids.append(_matrix([found[name] for name in scalar], chunk.count, np.int32))
            for number, name in enumerate(several):
                values[number].append(found[name])
                splits[number].append(chunk.tokens[name].splits)
            for number, name in enumerate(columns.weights):
                weights[number].append(chunk.numbers[name].values)
            dense.append(_matrix([chunk.numbers[name].values for name in columns.dense], chunk.count, np.float32))
            if bucketed is not None:
                values_of = [chunk.numbers[name].values for name in columns.bucketed]
                bucketed.append(_matrix(values_of, chunk.count, np.float32))
            if labels is not None and columns.label is not None:
                label = chunk.numbers[columns.label].values
                labels.append(label if label_threshold is None else label >= label_threshold)
            if timestamps is not None and timestamp is not None:
                timestamps.append(chunk.numbers[timestamp].values)
            if groups is not None:
                groups.append(found[GROUP])
            count += chunk.count
            files[chunk.file] = files.get(chunk.file, 0) + chunk.count
            progress("reading the data", chunk.done)
    if not count:
        raise DataError("the data holds no examples")
    for number, table in enumerate(tables):
        codes[table].write(folder / f"tokens.{number}.arrow")
    Layout(
        count=count,
        ids=scalar,
        lists=several,
        tables=dict(columns.ids),
        token_tables=tables,
        weights=dict(columns.weights),
        dense=list(columns.dense),
        label=columns.label is not None,
        files=[(file.name, rows) for file, rows in files.items()],
        bucketed=list(columns.bucketed),
    ).write(folder)


class SplitsWriter:
    """Writes row splits that come in pieces, each beginning at 0, as one."""

    def __init__(self, writer: ArrayWriter) -> None:
        self._writer = writer
        self._end = 0
        writer.append(np.zeros(1, np.int64))

    def append(self, splits: np.ndarray | None) -> None:
        """Adds a piece, int64 [n + 1]."""
        if splits is None:
            raise ValueError("a list column needs row splits")
        self._writer.append(splits[1:] + self._end)
        self._end += int(splits[-1])


@contextmanager
def _coding(codes: Mapping[str, Codes], tables: Mapping[str, str], group: str | None) -> Iterator[_Coded]:
    """What codes the tokens of a chunk, several tables at a time.

    Args:
        tables: id column -> table.
        group: column of the groups, or None.
    """
    reads: dict[str, list[tuple[str, str]]] = {table: [] for table in codes}
    for name, table in tables.items():
        reads[table].append((name, name))
    if group is not None:
        reads[GROUP].append((GROUP, group))

    with ThreadPoolExecutor(os.cpu_count() or 1, "codes") as pool:

        def of_chunk(chunk: Chunk) -> dict[str, np.ndarray]:
            def of_table(table: str) -> list[tuple[str, np.ndarray]]:
                encode = codes[table].encode
                return [(name, encode(packed(chunk.tokens[column].values))) for name, column in reads[table]]

            return {name: found for pairs in pool.map(of_table, codes) for name, found in pairs}

        yield of_chunk


def _matrix(columns: Sequence[np.ndarray], count: int, kind: type) -> np.ndarray:
    matrix: np.ndarray = np.empty((count, len(columns)), kind)
    for number, column in enumerate(columns):
        matrix[:, number] = column
    return matrix
