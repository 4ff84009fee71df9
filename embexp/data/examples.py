"""Encoded examples: fixed-width arrays in a folder of the cache, written in bounded memory and mapped.

Tokens become codes in the order in which they are first seen. Vocabularies turn codes into rows afterwards, when it is
known which examples train. So a source is read once for all splits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from embexp.data.columns import OF_LABELLED, Columns
from embexp.data.vocabularies.token_keys import Codes, packed
from embexp.errors import DataError
from embexp.system.arrays import ArrayWriter, mapped_array
from embexp.system.parallel import Progress, ahead

if TYPE_CHECKING:
    from embexp.data.files.arrow_columns import Chunk

FEW = 1_024
"""Examples of which fewer are read without threads."""
CLASSES = "classes.json"
"""File, in the folder, with the names of classes by label number, of a source that names them."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What an encoded folder holds; written next to the arrays as `layout.json`.

    Attributes:
        ids: id columns with one value per example, the columns of `ids.npy`, [count, len(ids)].
        lists: id columns with several, `list.N.values.npy` and `list.N.splits.npy` by their place N here.
        tables: id column -> table, for `tokens.N.arrow` by the place N of the table in `token_tables`.
        token_tables: tables whose ids are codes of tokens; others' are row numbers already.
        weights: weight column -> its id column; `weights.N.npy`, as many values as ids.
        dense: numeric columns, the columns of `dense.npy`, float32 [count, len(dense)].
        label: whether there is `labels.npy`, float32 [count].
        files: name and number of examples of each file, in order.
        weighted: whether there is `example_weights.npy`, float32 [count].
        bucketed: columns of numbers for buckets, the columns of `bucketed.npy`, float32 [count, len(bucketed)].
        skipped: rows that have no label, and were left out.
    """

    count: int
    ids: list[str]
    lists: list[str] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    token_tables: list[str] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    dense: list[str] = field(default_factory=list)
    label: bool
    files: list[tuple[str, int]] = field(default_factory=list)
    bucketed: list[str] = field(default_factory=list)
    weighted: bool = False
    skipped: int = 0

    def write(self, folder: Path) -> None:
        """Writes `layout.json`."""
        (folder / "layout.json").write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> Layout:
        """Reads `layout.json`."""
        return Layout(**json.loads((folder / "layout.json").read_text("utf-8")))

    def place(self, example: int) -> str:
        """File and row of an example, for errors."""
        for name, count in self.files:
            if example < count:
                return f"{name}, row {example + 1}{OF_LABELLED if self.skipped else ''}"
            example -= count
        return f"example {example + 1}"


@dataclass(frozen=True)
class Encoded:
    """All examples of a source, encoded; not divided yet.

    Attributes:
        digest: of the source's content.
        only_ones: whether only examples with label 1 belong to a split.
    """

    folder: Path
    key: str
    digest: str
    only_ones: bool = False

    def divided(self) -> np.ndarray | None:
        """int64, the examples that belong to a split; None: all."""
        return np.flatnonzero(mapped_array(self.folder / "labels.npy") == 1) if self.only_ones else None

    @cached_property
    def layout(self) -> Layout:
        """What the folder holds."""
        return Layout.read(self.folder)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by label number, of a source that names them."""
        file = self.folder / CLASSES
        return tuple(json.loads(file.read_text("utf-8"))) if file.exists() else ()


def read_tokens(folder: Path, layout: Layout, table: str) -> pa.LargeStringArray:
    """The tokens of a table in the order of their codes; the first is empty and stands for missing values."""
    path = folder / f"tokens.{layout.token_tables.index(table)}.arrow"
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)["token"]


@dataclass(frozen=True)
class ListColumn:
    """Several values per example: those of example i are values[splits[i]:splits[i + 1]]."""

    values: np.ndarray
    splits: np.ndarray

    def taken(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the values of some examples are, int64 [n]; and the row splits of these, int64 [len(rows) + 1]."""
        starts = self.splits[rows]
        lengths = self.splits[rows + 1] - starts
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths), ends


@dataclass(frozen=True)
class History(ListColumn):
    """Ids of other examples with the same user: those of user u are values[splits[u]:splits[u + 1]].

    Attributes:
        user: the column of the user.
    """

    user: str


@dataclass(frozen=True)
class Examples:
    """Encoded examples, memory-mapped.

    Attributes:
        id_columns: names of the columns of `ids`.
        ids: int32 or int64 [count, len(id_columns)], rows of the tables.
        lists: id columns with several values per example.
        weights: weight column -> float32, one for each id of its id column.
        dense: float32 [count, number of dense columns].
        labels: float32 [count]; None if there are none.
        example_weights: float32 [count], none below 0; None: all count the same.
        key: of the folder in the cache that has what is not rows of tables; "" of examples that are in none.
        histories: id columns that follow from the user of an example.
        codes: id column -> int32 codes of the tokens that its ids stand for, in the same order; 0 is a missing value.
            Only columns of tokens have some, of examples as they were read.
    """

    count: int
    id_columns: tuple[str, ...]
    ids: np.ndarray
    lists: Mapping[str, ListColumn]
    weights: Mapping[str, np.ndarray]
    dense: np.ndarray
    labels: np.ndarray | None
    key: str = ""
    example_weights: np.ndarray | None = None
    histories: Mapping[str, History] = field(default_factory=dict)
    codes: Mapping[str, np.ndarray] = field(default_factory=dict)

    def column(self, name: str, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """int64: the ids of a column with one value per example, of some examples."""
        return self.ids[rows, self.id_columns.index(name)].astype(np.int64)

    def counts(self, name: str, rows: np.ndarray, values: int) -> np.ndarray:
        """How often some examples have each id of a column, int64 [values]; rows in any order, also several times."""
        times = np.bincount(rows, minlength=self.count)
        column = self.histories.get(name) or self.lists.get(name)
        if column is None:
            return np.bincount(self.column(name), times, values).astype(np.int64)
        if isinstance(column, History):
            times = np.bincount(self.column(column.user), times, len(column.splits) - 1)
        return np.bincount(column.values, np.repeat(times, np.diff(column.splits)), values).astype(np.int64)


def examples(folder: Path, rows: Path, buckets: Sequence[str] = ()) -> Examples:
    """Maps encoded examples.

    Args:
        folder: what `encode` wrote.
        rows: folder with `ids.npy` and `list.N.values.npy` that hold rows of the tables instead of codes.
        buckets: names of further columns of that `ids.npy`: buckets of numbers.
    """
    layout, codes = Layout.read(folder), mapped_array(folder / "ids.npy")
    coded = {name: codes[:, number] for number, name in enumerate(layout.ids)}
    coded |= {name: mapped_array(folder / f"list.{number}.values.npy") for number, name in enumerate(layout.lists)}
    return Examples(
        count=layout.count,
        id_columns=(*layout.ids, *buckets),
        ids=mapped_array(rows / "ids.npy"),
        lists={
            name: ListColumn(
                mapped_array(rows / f"list.{number}.values.npy"), mapped_array(folder / f"list.{number}.splits.npy")
            )
            for number, name in enumerate(layout.lists)
        },
        weights={name: mapped_array(folder / f"weights.{number}.npy") for number, name in enumerate(layout.weights)},
        dense=mapped_array(folder / "dense.npy"),
        labels=mapped_array(folder / "labels.npy") if layout.label else None,
        key=folder.name,
        example_weights=mapped_array(folder / "example_weights.npy") if layout.weighted else None,
        codes={name: each for name, each in coded.items() if layout.tables.get(name) in layout.token_tables},
    )


GROUP = ""
"""Name under which the codes of the groups of leave-one-out are kept; no table has it."""

_Coded = Callable[["Chunk"], dict[str, np.ndarray]]
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
    known_classes: Sequence[str] = (),
) -> None:
    """Writes a source's examples into an empty folder.

    Args:
        lists: columns that hold several values per example.
        label_threshold: labels become 1 where they are at least this, else 0; None: they stay as they are.
        timestamp: column for `timestamps.npy`, float64 [count], if wanted.
        group: column for `groups.npy`, int64 [count], if wanted.
        known_classes: names of the classes of a finished run, by label; empty: they follow from the labels.
    """
    from embexp.data.class_labels import LabelNumbers

    names = None
    if columns.label is not None and columns.classes is not None:
        names = LabelNumbers(columns.classes, columns.label, known_classes)
    scalar = [name for name in columns.ids if name not in lists]
    several = [name for name in columns.ids if name in lists]
    tables = list(dict.fromkeys(columns.ids.values()))
    codes = {table: Codes() for table in (*tables, *([GROUP] if group is not None else []))}
    count = skipped = 0
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
        own = writer("example_weights", np.float32) if columns.example_weight is not None else None
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
            if labels is not None and columns.label is not None and names is not None:
                labels.append(names.encode(chunk.tokens[columns.label].values))
            elif labels is not None and columns.label is not None:
                label = chunk.numbers[columns.label].values
                labels.append(label if label_threshold is None else label >= label_threshold)
            if own is not None and columns.example_weight is not None:
                own.append(chunk.numbers[columns.example_weight].values)
            if timestamps is not None and timestamp is not None:
                timestamps.append(chunk.numbers[timestamp].values)
            if groups is not None:
                groups.append(found[GROUP])
            count += chunk.count
            skipped += chunk.skipped
            files[chunk.file] = files.get(chunk.file, 0) + chunk.count
            progress("reading the data", chunk.done)
    if not count:
        without = f": all {skipped:,} rows lack a label" if skipped else ""
        raise DataError(f"the data holds no examples{without}")
    for number, table in enumerate(tables):
        codes[table].write(folder / f"tokens.{number}.arrow")
    layout = Layout(
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
        weighted=own is not None,
        skipped=skipped,
    )
    if names is not None:
        names.finish(folder, layout)
    layout.write(folder)


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
    reads = {table: [(name, name) for name, of in tables.items() if of == table] for table in codes}
    if group is not None:
        reads[GROUP] = [(GROUP, group)]

    with ThreadPoolExecutor(os.cpu_count() or 1, "codes") as pool:

        def of_chunk(chunk: Chunk) -> dict[str, np.ndarray]:
            def of_table(table: str) -> list[tuple[str, np.ndarray]]:
                encode = codes[table].encode
                return [(name, encode(packed(chunk.tokens[column].values))) for name, column in reads[table]]

            several = map if chunk.count < FEW else pool.map  # to start a thread takes longer than a few rows
            return {name: found for pairs in several(of_table, codes) for name, found in pairs}

        yield of_chunk


def _matrix(columns: Sequence[np.ndarray], count: int, kind: type) -> np.ndarray:
    matrix: np.ndarray = np.empty((count, len(columns)), kind)
    for number, column in enumerate(columns):
        matrix[:, number] = column
    return matrix
