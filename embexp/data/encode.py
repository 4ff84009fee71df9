"""Encodes a stream of examples as fixed-width arrays on disk.

Tokens become codes in the order in which they are first seen. Vocabularies turn codes into rows afterwards, when it is
known which examples train. So a source is read once for all splits.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.arrays import ArrayWriter
from embexp.data.columns import Columns
from embexp.data.examples import Layout
from embexp.data.readers import Chunk
from embexp.errors import DataError
from embexp.system.progress import Progress

GROUP = ""
"""Name under which the codes of the groups of leave-one-out are kept; no table has it."""


class _Codes:
    """Numbers tokens in the order in which they come; 0 is a missing one."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self._numbers[""]

    def encode(self, values: pa.Array) -> np.ndarray:
        """int64 code of each value; a missing or empty one is 0."""
        encoded = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)
        texts = pc.fill_null(encoded.dictionary.cast(pa.large_string()), "").to_pylist()
        # Only values that do occur: a file's dictionary may hold others.
        used = np.unique(pc.drop_null(encoded.indices).to_numpy(zero_copy_only=False))
        codes = np.zeros(len(texts) + 1, np.int64)
        codes[used] = np.fromiter(map(self._numbers.__getitem__, map(texts.__getitem__, used)), np.int64, len(used))
        places: np.ndarray = pc.fill_null(encoded.indices.cast(pa.int64()), len(texts)).to_numpy(zero_copy_only=False)
        return np.asarray(codes[places])

    def write(self, path: Path) -> None:
        """Writes the tokens in the order of their codes, as an Arrow file."""
        table = pa.table({"token": pa.array(self._numbers, pa.large_string(), size=len(self._numbers))})
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())


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
        chunks: the examples.
        folder: where to.
        columns: what the run reads.
        lists: columns that hold several values per example.
        progress: called as the work goes on.
        label_threshold: labels become 1 where they are at least this, else 0; None: they stay as they are.
        timestamp: column for `timestamps.npy`, float64 [count], if wanted.
        group: column for `groups.npy`, int64 [count], if wanted.
    """
    scalar = [name for name in columns.ids if name not in lists]
    several = [name for name in columns.ids if name in lists]
    codes = {table: _Codes() for table in (*columns.ids.values(), *([GROUP] if group else []))}
    count = 0
    files: list[tuple[str, int]] = []
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
        for chunk in chunks:
            ids.append(
                _matrix([codes[columns.ids[name]].encode(chunk.tokens[name].values) for name in scalar], chunk.count)
            )
            for number, name in enumerate(several):
                values[number].append(codes[columns.ids[name]].encode(chunk.tokens[name].values))
                splits[number].append(chunk.tokens[name].splits)
            for number, name in enumerate(columns.weights):
                weights[number].append(chunk.numbers[name].values)
            dense.append(_matrix([chunk.numbers[name].values for name in columns.dense], chunk.count))
            if bucketed is not None:
                bucketed.append(_matrix([chunk.numbers[name].values for name in columns.bucketed], chunk.count))
            if labels is not None and columns.label is not None:
                label = chunk.numbers[columns.label].values
                labels.append(label if label_threshold is None else label >= label_threshold)
            if timestamps is not None and timestamp is not None:
                timestamps.append(chunk.numbers[timestamp].values)
            if groups is not None and group is not None:
                groups.append(codes[GROUP].encode(chunk.tokens[group].values))
            count += chunk.count
            if files and files[-1][0] == chunk.file.name:
                files[-1] = (files[-1][0], files[-1][1] + chunk.count)
            else:
                files.append((chunk.file.name, chunk.count))
            progress("reading the data", chunk.done)
    if not count:
        raise DataError("the data holds no examples")
    tables = list(dict.fromkeys(columns.ids.values()))
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
        files=files,
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


def _matrix(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.empty((count, 0))
