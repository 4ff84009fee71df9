"""Encodes a stream of examples as fixed-width arrays on disk.

Tokens become codes in the order in which they are first seen. Vocabularies turn codes into rows afterwards, when it is
known which examples train. So a source is read once for all splits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np

from embexp.data.ahead import ahead
from embexp.data.arrays import ArrayWriter
from embexp.data.codes import Codes
from embexp.data.columns import Columns
from embexp.data.examples import Layout
from embexp.data.packed_tokens import packed
from embexp.data.readers import Chunk
from embexp.errors import DataError
from embexp.system.progress import Progress

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
        codes: by table.
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
