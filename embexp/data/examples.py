"""Encoded examples: fixed-width arrays in a folder of the cache, written in bounded memory and mapped.

Tokens become codes in the order in which they are first seen. Vocabularies turn codes into rows afterwards, when it is
known which examples train. So a source is read once for all splits.

Labels that are names of classes, such as `yes` and `no`, or `cat`, `cow` and `dog`, as numbers.

Labels that tasks take, the names of classes, and metrics that labels leave undefined.

The histories of users: the items of their training examples, in whatever example a user stands.

How much each training example counts in the loss: its own weight times that of its class, 1 on average.

The loss of a batch is the mean over its examples of weight times loss. Its expectation is the weighted mean over the
training split, sum(w loss) / sum(w), as the weights are divided by their mean once, over the whole split. Divided by
their sum in each batch instead, an example would count more in the batches that happen to have light ones. And as the
mean is 1, steps are as long as without weights, whatever the unit of the weights.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from embexp.data.columns import OF_LABELLED, SKIP_UNLABELLED, ClassNames, Columns
from embexp.data.files.dialect import NULLS
from embexp.data.files.text_table import is_number
from embexp.data.vocabularies.token_keys import Codes, packed
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError, Fault, excerpt
from embexp.specs.base import summarize_names
from embexp.specs.data import POSITIVE
from embexp.specs.tasks import Labels, Task
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
        label: whether there is `labels.npy`, float32 [count], or [count, 1 + n] with n further labels.
        files: name and number of examples of each file, in order.
        weighted: whether there is `npy`, float32 [count].
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
        examples_digest: of what the examples themselves are in, where others are joined to it; None: `digest`.
    """

    folder: Path
    key: str
    digest: str
    examples_digest: str | None = None
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
    path = folder / (GROUPS if table == GROUP else f"tokens.{layout.token_tables.index(table)}.arrow")
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
        labels: float32 [count], or [count, 1 + n] with n further labels; None if there are none.
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
GROUPS = "groups.arrow"
"""File, in the folder of a part, with the groups in the order of their codes."""

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
    further_classes: bool | None = None,
    part: bool = False,
) -> None:
    """Writes a source's examples into an empty folder.

    Args:
        lists: columns that hold several values per example.
        label_threshold: labels become 1 where they are at least this, else 0; None: they stay as they are.
        timestamp: column for `timestamps.npy`, float64 [count], if wanted.
        group: column for `groups.npy`, int64 [count], if wanted.
        known_classes: names of the classes of a finished run, by label; empty: they follow from the labels.
        further_classes: whether there may be others, which follow them; None: the run does not go on from another.
        part: whether others are put behind these examples: then names of classes, and groups, are written as they come.
    """
    names = None
    if columns.label is not None and columns.classes is not None:
        names = LabelNumbers(columns.classes, columns.label, known_classes, extends=further_classes)
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
        width = 1 + len(columns.further_labels) if columns.further_labels else None
        labels = writer("labels", np.float32, width) if columns.label is not None else None
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
                label = label if label_threshold is None else label >= label_threshold
                further = [chunk.numbers[name].values for name in columns.further_labels]
                labels.append(_matrix([label, *further], chunk.count, np.float32) if further else label)
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
    if not count and not part:
        raise no_examples(skipped)
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
    if part and group is not None:
        codes[GROUP].write(folder / GROUPS)
    if names is not None:
        names.write(folder) if part else names.finish(folder, layout)
    layout.write(folder)


def no_examples(skipped: int) -> DataError:
    """The error for data without examples."""
    without = f": all {skipped:,} rows lack a label" if skipped else ""
    return DataError(f"the data holds no examples{without}")


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


_MOST_CLASSES = 10_000
"""More different labels are a mistake, such as an amount for task classification."""
_MISSING = -1
_ROWS = 1 << 20


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names of classes, each once: by number if all are whole numbers, else by code point."""
    distinct = set(names)
    if not all(name.isascii() and name.isdigit() for name in distinct):
        return tuple(sorted(distinct))
    # As numbers, but not by `int`, which takes none of thousands of digits.
    return tuple(sorted(distinct, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name)))


def extended(known: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Names of classes by label: those that are known, then others in their order."""
    return (*known, *in_order([name for name in dict.fromkeys(names) if name not in known]))


def one_of(classes: Sequence[str], *, extends: bool | None) -> str:
    """What a label is expected to be, for messages.

    Args:
        extends: whether a run that goes on from another adds classes; None: it can't.
    """
    remedy = "; add others with parent.classes=extend" if extends is False else ""
    return f"one of the classes {summarize_names(classes)}{remedy}"


class LabelNumbers:
    """Numbers names of classes as they come; at the end, when all are known, gives each its label."""

    def __init__(self, how: ClassNames, column: str, known: Sequence[str] = (), *, extends: bool | None = None) -> None:
        """Takes the rules.

        Args:
            column: of the label, for messages.
            known: names of the classes of a finished run, by label; empty: they follow from the values.
            extends: whether there may be others, which follow them; None: the run does not go on from another.
        """
        self._how, self._column, self._known, self._extends = how, column, tuple(known), extends
        self._numbers: dict[str, int] = {}

    def encode(self, values: pa.Array) -> np.ndarray:
        """float32: the number of each value, in the order in which they come; -1 for a missing one.

        Args:
            values: text, numbers, truth values, or a dictionary of these.

        Raises:
            DataError: there are too many different values.
        """
        distinct = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)
        names = [_name(value) for value in distinct.dictionary.to_pylist()]
        numbers = [_MISSING if name is None else self._numbers.setdefault(name, len(self._numbers)) for name in names]
        if len(self._numbers) > _MOST_CLASSES:
            some = ", ".join(map(excerpt, islice(self._numbers, 3)))
            raise DataError(
                f"data.label: column {self._column!r} has over {_MOST_CLASSES:,} different values ({some}, …), "
                f"too many for classes; name another column, or set task=regression for a number"
            )
        places = pc.fill_null(distinct.indices.cast(pa.int64()), len(numbers)).to_numpy(zero_copy_only=False)
        found: np.ndarray = np.array([*numbers, _MISSING], np.float32)[places]
        return found

    def write(self, folder: Path) -> None:
        """Writes the names in the order of their numbers, for `values_of_part`."""
        (folder / CLASSES).write_text(json.dumps(list(self._numbers)), "utf-8")

    def finish(self, folder: Path, layout: Layout) -> None:
        """Writes the labels over their numbers, and the names of the classes.

        Args:
            folder: of the examples, with the numbers in `npy`.

        Raises:
            DataError: a label is missing or is none of the classes, or it is not known which value is label 1.
        """
        names = list(self._numbers)
        self._check_numbers(names)
        classes = self._two(names) if self._how.two else self._known or in_order(names)
        if self._extends and not self._how.two:
            classes = extended(classes, names)
        labels = np.array([*(self._label(name, classes) for name in names), _MISSING], np.float32)
        written = np.lib.format.open_memmap(folder / "labels.npy", "r+")
        for start in range(0, len(written), _ROWS):
            numbers = written[start : start + _ROWS].astype(np.int64)  # -1 is the last of `labels`
            found = labels[numbers]
            if len(wrong := np.flatnonzero(found < 0)):
                number, place = int(numbers[wrong[0]]), layout.place(start + int(wrong[0]))
                value = "nothing" if number == _MISSING else excerpt(names[number])
                expected = one_of(classes, extends=None if self._how.two else self._extends)
                if number == _MISSING:
                    expected += f"; {SKIP_UNLABELLED}"
                raise DataError(f"{place}: found {value} in column {self._column!r}, expected {expected}")
            written[start : start + _ROWS] = found
        written.flush()
        (folder / CLASSES).write_text(json.dumps(classes), "utf-8")

    def _check_numbers(self, names: Sequence[str]) -> None:
        """Raises DataError for amounts; classes that are numbers are whole ones."""
        if self._how.two or self._known or not all(map(is_number, names)):
            return
        if broken := [name for name in names if not float(name).is_integer()]:
            raise DataError(
                f"task classification needs class names or whole numbers as labels, but column {self._column!r} "
                f"has numbers such as {broken[0]}; set task=regression, or name another column"
            )

    def _label(self, name: str, classes: Sequence[str]) -> int:
        if self._how.positive is not None:
            return int(name == self._how.positive)
        return classes.index(name) if name in classes else _MISSING

    def _two(self, names: Sequence[str]) -> tuple[str, str]:
        """The names of labels 0 and 1."""
        positive = self._how.positive
        if self._known:
            return self._known[0], self._known[1]
        listed = summarize_names([excerpt(name) for name in in_order(names)])
        if positive is not None:
            if positive not in names:
                raise DataError(f"data.positive={positive}: column {self._column!r} has no such value; it has {listed}")
            others = [name for name in names if name != positive]
            return (others[0] if len(others) == 1 else f"not {positive}"), positive
        meant = {name.casefold(): name for name in names}
        for yes, no in POSITIVE.items():
            if len(names) == 2 and meant.keys() == {yes, no}:
                return meant[no], meant[yes]
        remedy = (
            f"set data.positive to the value that means label 1, such as data.positive='{names[0] if names else 1}'"
        )
        if len(names) > 2:
            remedy += ", or set task=classification to predict all of them"
        raise DataError(
            f"task binary needs labels 0 and 1, yes and no, or true and false, but column {self._column!r} has"
            f" {listed}; {remedy}"
        )


def values_of_part(numbers: np.ndarray, folder: Path) -> pa.DictionaryArray:
    """The values that `encode` had numbered in a part whose names `write` wrote."""
    names = json.loads((folder / CLASSES).read_text("utf-8"))
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32(), mask=numbers < 0), pa.array(names, pa.string()))


def _name(value: Any) -> str | None:
    """The name of a class, from a value of the label; None if it is missing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if np.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else str(value)
    name = "" if value is None else str(value).strip()
    return None if name in NULLS else name


def undefined(task: Task, labels: ArrayLike, listed: Collection[str] = ()) -> dict[str, str]:
    """The task's metrics that are undefined for these labels, each with the reason.

    Args:
        listed: keys of metrics that the config lists.
    """
    y = np.asarray(labels)
    if not y.size or np.any(y != y.flat[0]):
        return {}
    reason = f"all {y.size:,} labels are {y.flat[0]:g}, and"
    names = [name for name, metric, _ in task.named_metrics(listed=listed) if metric.both_classes]
    return {name: f"{reason} {name.upper()} compares two classes" for name in names}


def check_labels(task: Task, labels: np.ndarray, *, classes: int | None = None) -> None:
    """Checks that a task can be trained on these labels.

    Args:
        labels: of all examples, [N].
        classes: number of classes, for classification; None: one more than the largest label.

    Raises:
        DataError: it can't.
    """
    match task.labels:
        # Where candidates are compared, labels are made with the data.
        case Labels.NUMBER | None:
            return
        case Labels.BINARY:
            wrong = labels[(labels != 0) & (labels != 1)]
            if wrong.size:
                raise DataError(
                    f"task binary needs labels 0 and 1, but {wrong.size:,} of {labels.size:,} labels differ, "
                    f"such as {wrong[0]:g}; set data.positive to the value that means 1, or set "
                    f"data.label_threshold or task=regression"
                )
        case Labels.CLASS:
            # A label as large as the number of examples is a mistake, not the number of a class.
            count = labels.size if classes is None else classes
            wrong = labels[~((labels >= 0) & (labels < count) & (labels == np.floor(labels)))]
            if wrong.size:
                last = "" if classes is None else f" to {classes - 1}"
                raise DataError(
                    f"task classification needs class numbers as labels, 0, 1, 2, …{last}, but {wrong.size:,} "
                    f"of {labels.size:,} labels differ, such as {wrong[0]:g}"
                )
            if (labels.max() if classes is None else classes - 1) < 1:
                raise DataError("task classification needs at least two classes, but there is only one")


def class_names(task: Task, labels: np.ndarray | None, named: Sequence[str]) -> tuple[str, ...]:
    """The names of the classes by label; of task binary, if the data names them; none for other tasks.

    Args:
        named: the names in the source of data; without any, those of classification are named by their numbers.
    """
    if task.labels is Labels.BINARY:
        return tuple(named)
    if task.labels is not Labels.CLASS or labels is None:
        return ()
    return tuple(named) or tuple(str(number) for number in range(int(labels.max()) + 1))


def with_histories(
    examples: Examples, columns: Columns, train: np.ndarray, vocabularies: Mapping[str, Vocabulary]
) -> Examples:
    """The examples with the histories that the columns name, as Koren's SVD++ reads them (2008, eq. 15).

    They are of the training split only, whatever example is read: an item of the validation or test split is in none.

    Args:
        train: int64, rows of the training split.
        vocabularies: by table.
    """
    found = {}
    for name, history in columns.histories.items():
        users, items = examples.column(history.user, train), examples.column(history.column, train)
        vocabulary = vocabularies[columns.ids[history.user]]
        # The rows of unknown, rare and missing users stand for several people: they have no history.
        known = users >= vocabulary.first
        everyone, size = np.arange(vocabulary.size), int(items.max(initial=0)) + 1
        lists = lists_of(users[known], items[known], everyone, size)
        found[name] = History(lists.values.astype(np.int32), lists.splits, history.user)
    return replace(examples, histories=found) if found else examples


def lists_of(who: np.ndarray, what: np.ndarray, users: np.ndarray, size: int) -> ListColumn:
    """Items below `size` by user of `users`, each once, rising; other users, and items of -1, are left out."""
    place = np.minimum(np.searchsorted(users, who), len(users) - 1)
    kept = (users[place] == who) & (what >= 0)
    place, what = np.divmod(np.unique(place[kept] * size + what[kept]), size)
    return ListColumn(what, np.searchsorted(place, np.arange(len(users) + 1)))


_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ExampleWeights:
    """The weights of the examples in training.

    Attributes:
        own: of all examples, float32 [N], which may be memory-mapped; None: all count the same.
        of_class: factors of the classes by label, float32 [C], by which the mean of all weights is 1; without classes
            the factor of all examples, [1].
        label_mean: the weighted mean of the labels of the training split.
    """

    own: np.ndarray | None
    of_class: np.ndarray
    label_mean: float


def weights_of_examples(
    labels: np.ndarray,
    rows: np.ndarray,
    own: np.ndarray | None,
    of_classes: Literal["balanced"] | Mapping[str, float] | None,
    classes: Sequence[str],
) -> ExampleWeights | None:
    """The weights by which a training split trains; None: all examples count the same.

    Args:
        labels: of all examples, float32 [N].
        rows: int64, the training split.
        own: weights of all examples, float32 [N]; None: there are none.
        of_classes: balanced: all classes of the training split count the same in total, n / (C n_c) as in scikit-learn,
            with the examples' own weights counted. By name: a class that is not there counts 1.
        classes: names of the classes by label; empty where labels have no classes.

    Raises:
        ConfigError: there is no class of a name.
        DataError: all weights are 0.
    """
    if own is None and of_classes is None:
        return None
    number = max(1, len(classes)) if of_classes is not None else 1
    sums, means = np.zeros(number), np.zeros(number)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        place = labels[some].astype(np.int64) if number > 1 else np.zeros(len(some), np.int64)
        weights = np.ones(len(some)) if own is None else own[some].astype(np.float64)
        sums += np.bincount(place, weights, minlength=number)
        means += np.bincount(place, weights * labels[some], minlength=number)
    if isinstance(of_classes, str):
        factors = np.divide(1.0, sums, out=np.zeros(number), where=sums > 0)
    else:
        named = dict(of_classes or {})
        _check_names(named, classes)
        factors = np.array([named.get(name, 1.0) for name in classes]) if number > 1 else np.ones(1)
    total = float(factors @ sums)
    if total <= 0:
        raise DataError(f"the weights of all {len(rows):,} training examples are 0: see data.weight")
    return ExampleWeights(own, (factors * (len(rows) / total)).astype(np.float32), float(factors @ means) / total)


def check_weights(weights: np.ndarray, rows: np.ndarray, split: str) -> None:
    """Checks that something of a split counts.

    Raises:
        DataError: all weights are 0.
    """
    if len(rows) and not any(weights[rows[at : at + _AT_ONCE]].any() for at in range(0, len(rows), _AT_ONCE)):
        raise DataError(f"the weights of all {len(rows):,} examples of the {split} split are 0: see data.weight")


def _check_names(named: Mapping[str, float], classes: Sequence[str]) -> None:
    faults = []
    for name in named:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            rule = f"the classes of the data are {', '.join(classes[:20])}{', …' if len(classes) > 20 else ''}"
            faults.append(
                Fault(f"train.class_weights.{name}", repr(name), rule, f"did you mean {near[0]!r}?" if near else "")
            )
    if faults:
        raise ConfigError(faults)
