"""What init methods share: what one does, and the values of variables as arrays that TensorFlow uses in place.

With `init=assign`, and for slots with any method, rows are assigned chunk by chunk, with one copy of the table in
memory and one chunk in flight.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.lib import format as npy
from tensorflow.python.ops.variables import PartitionedVariable

from embexp.errors import DataError, RunError
from embexp.specs.inits import CHUNK_BYTES, Assign, CustomInit, MemoryMap
from embexp.specs.pretrained import Format, Match
from embexp.system import arrays, caching
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import ahead
from embexp.system.user_code import NamedFunction, kind_of
from embexp.tables.variables import TableVariable, WritableRows, in_keras, scatter_rows
from embexp.vectors import alignment
from embexp.vectors.file_source import open_vectors

_CHUNK_BYTES = 16 * 1024 * 1024
_BYTES_PER_VALUE = 4
Fill = Callable[[Any], None]
"""Fills variables in the session that it is called with."""
Pairs = list[tuple[Any, Rows]]
"""Variables of a graph, each with its initial values."""


@dataclass(frozen=True)
class SessionFills:
    """What fills tables in sessions of a graph.

    Attributes:
        once: called with the first session.
        always: called with every new session.
        scaffold: variables that a Scaffold fills, each with its initial values.
        whole: variables that the others fill whole, so that nothing else needs to initialize them.
    """

    once: list[Fill] = field(default_factory=list)
    always: list[Fill] = field(default_factory=list)
    scaffold: Pairs = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)

    def add(self, fill: Fill, *, always: bool, whole: Iterable[tuple[Any, object]] = ()) -> None:
        """Adds what is called with every new session, or the first only; `whole` are variables that it fills whole."""
        (self.always if always else self.once).append(fill)
        self.whole.extend(variable for variable, _ in whole)


@dataclass(frozen=True)
class InitMethod:
    """An init method. The module of each method creates one.

    Attributes:
        eagerly: fills one part of a table; None: the method does not work eagerly.
        in_session: adds what fills variables of the current graph, in every new session or in the first only
            (`always`); None: the method does not work in sessions.
        initial_value: from all rows of a table, the initial value of its variable, a function as `tf.Variable` takes
            it; None: the variable is made with untouched memory.
        check: raises RunError if tables of these rows and dims, by name, can't all be filled.
        chunk_bytes: largest chunk of rows that is read at once.
    """

    eagerly: Callable[[TableVariable, Rows], None] | None = None
    in_session: Callable[[Pairs, SessionFills, bool], None] | None = None
    initial_value: Callable[[Rows], Callable[..., Any]] | None = None
    check: Callable[[Mapping[str, tuple[int, int]]], None] = lambda sizes: None
    chunk_bytes: int = CHUNK_BYTES


def custom(init: CustomInit, path: str) -> InitMethod:
    """`init=custom`: what the user's own function returns.

    Raises:
        ConfigError: it can't be imported or called, or returns something else.
    """
    function = NamedFunction(path, init.function, init.args, "")
    method = function()
    if not isinstance(method, InitMethod):
        raise function.fault(f"it must return an embexp.initialization.InitMethod, but returned {kind_of(method)}")
    return method


Source = Any
"""A variable's values [rows, dim]: a matrix, a list of lists, a data frame of numeric columns (pandas, Polars, Arrow),
the path of a file of vectors, or rows that can be read by ranges (an object with `rows`, `dim` and `read`).

A path may have any format of `embexp vectors`; its rows are taken in order, see `read_vectors` for other ways. The
`memory_map` of rows is used where they have one, as a `MappableRows`, a `VectorSource`, or a tensor of a checkpoint
(`embexp.checkpoints.tensor`) has.
"""

Fills = Mapping[Any, Source] | Iterable[tuple[Any, Source]]
"""Variables, each with its values; as pairs for eager variables, which can't be keys. A partitioned variable, or a list
of its parts, stands for the whole."""


def mapped(source: Source, *, folder: str | os.PathLike[str] | None = None) -> np.ndarray:
    """The matrix as one array: float32 [rows, dim], C-contiguous, aligned to 64 bytes.

    TensorFlow uses such an array in place, and copies it only when it first writes to it. So an array or a mapped file
    of this form is returned unchanged, and must not be changed as long as a variable may use it. Other sources are
    written, a few megabytes at a time, into a temporary file, which is mapped and deleted with the last array that uses
    it. There is never a copy in anonymous memory.

    Args:
        source: the values; numbers of another precision are converted.
        folder: folder of the temporary file; None: the system's. On tmpfs the file is in memory.

    Raises:
        DataError: the file is missing, or is not a file of vectors.
        RunError: there is no space for the file.
        ValueError: the source is not a matrix of floating-point numbers.
    """
    rows = as_rows(source)
    memory_map = getattr(rows, "memory_map", None)
    array: np.ndarray | None = None if memory_map is None else memory_map()
    if array is not None and array.dtype == np.float32 and arrays.is_aligned(array):
        return array
    size = rows.rows * rows.dim * _BYTES_PER_VALUE
    folder = Path(tempfile.gettempdir() if folder is None else folder)
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="embexp-") as file:
            if hasattr(os, "posix_fallocate"):  # a full disk shows now: later it would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            step = max(_CHUNK_BYTES // (_BYTES_PER_VALUE * rows.dim), 1)
            for start in range(0, rows.rows, step):
                stop = min(start + step, rows.rows)
                values = rows.read(start, stop)
                if values.shape != (stop - start, rows.dim):
                    raise ValueError(
                        f"a source gave values of shape {values.shape}, expected {(stop - start, rows.dim)}"
                    )
                file.write(np.ascontiguousarray(values, np.float32).data)
            file.flush()
            return np.asarray(np.memmap(file, np.float32, mode="c", shape=(rows.rows, rows.dim)))
    except OSError as error:
        raise RunError(
            f"a temporary file of {size:,} bytes for a matrix of {rows.rows} × {rows.dim} can't be written to {folder}:"
            f" {error.strerror or error}; set TMPDIR to a folder with more space, or store the matrix as "
            f"float32 .npy, which is mapped in place"
        ) from error


def as_rows(source: Source) -> Rows:
    """A source as rows that can be read; a file is mapped, or opened.

    Raises:
        DataError: the file is missing, or is not a file of vectors.
        ValueError: the source is no matrix of numbers.
    """
    if isinstance(source, np.ndarray):
        return _Array(source, "the array")
    if isinstance(source, str | os.PathLike):
        return _of_file(Path(source))
    if all(hasattr(source, name) for name in ("rows", "dim", "read")):
        rows: Rows = source
        return rows
    if hasattr(source, "__arrow_c_stream__"):
        return _Frame(source)
    if isinstance(source, Sequence):
        return _of_sequence(source)
    if hasattr(source, "to_numpy") or (hasattr(source, "__array__") and hasattr(source, "numpy")):
        return _Array(source.to_numpy() if hasattr(source, "to_numpy") else source.numpy(), type(source).__name__)
    raise ValueError(
        f"found a {type(source).__name__} as the values of a variable, expected a matrix, a list of lists, a data"
        " frame, the path of a file, or an object with rows, dim and read(start, stop)"
    )


def _of_file(path: Path) -> Rows:
    if path.suffix != ".npy":
        return open_vectors(path, cache=caching.cache_folder(None))
    try:
        return _Array(npy.open_memmap(path, mode="c"), str(path))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except ValueError as error:
        raise DataError(f"{path}: found no .npy file of a matrix of floating-point numbers: {error}") from None


def _of_sequence(source: Sequence[Any]) -> Rows:
    lengths = [
        len(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else -1 for row in source
    ]
    other = next((at for at, length in enumerate(lengths) if length != lengths[0]), None)
    if other is not None:
        raise ValueError(
            f"the list: row {other} has {lengths[other]} numbers, row 0 has {lengths[0]}; give all rows the same length"
        )
    values = np.asarray(source)
    if values.dtype.kind in "iu":  # Python's numbers, of which some just have no fraction
        values = values.astype(np.float64)
    return _Array(values, "the list")


def read_vectors(
    path: str | os.PathLike[str],
    *,
    vocabulary: Iterable[str] | None = None,
    missing: float | None = None,
    match: str = "exact",
    format: str | None = None,
    key: str | None = None,
) -> Rows:
    """The rows of a file of vectors, for all init methods: in order, or by the words of a vocabulary.

    The first reading converts text and other formats that can't be mapped into the user's cache.

    Args:
        path: of a file in any format of `embexp vectors`: GloVe and fastText text, word2vec, `.npy`, `.npz`,
            safetensors, HDF5, Parquet, Arrow, or a checkpoint.
        vocabulary: the word of each row, n words; None: the rows of the file, in order.
        missing: the value of rows whose word is not in the file; None: such a word is an error.
        match: how words are matched: `exact`, `lower` or `normalised`, like `pretrained.match` of a run.
        format: format of the file; None: according to its suffix.
        key: the matrix to read from a file with several, such as a checkpoint.

    Returns:
        Rows: `rows`, `dim`, and `read(start, stop)`, float32.

    Raises:
        DataError: the file is missing, or not of its format.
        ValueError: the file has no words, or lacks some of the vocabulary.
    """
    kind = None if format is None else Format(format)
    source = open_vectors(Path(path), cache=caching.cache_folder(None), format=kind, key=key)
    if vocabulary is None:
        return source
    if source.tokens is None:
        raise ValueError(
            f"{path}: the file has no words to match with a vocabulary; to take its rows by position, remove vocabulary"
        )
    words = pa.array(vocabulary, pa.large_string())
    found, _ = alignment.match(words, source.tokens, Match(match))
    lacking = np.flatnonzero(found < 0)
    if lacking.size and missing is None:
        shown = ", ".join(repr(words[int(at)].as_py()) for at in lacking[:3])
        raise ValueError(
            f"{path}: lacks {lacking.size:,} of the {len(words):,} words of the vocabulary, such as {shown}; "
            f"set missing=0.0 for rows of zeros, or remove these words"
        )
    return _Chosen(SomeRows(source, np.maximum(found, 0)), found < 0, 0.0 if missing is None else missing)


@dataclass(frozen=True)
class _Chosen:
    """Rows by words; those that are missing have one value."""

    found: SomeRows
    missing: np.ndarray
    value: float

    @property
    def rows(self) -> int:
        return self.found.rows

    @property
    def dim(self) -> int:
        return self.found.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        values = self.found.read(start, stop)
        values[self.missing[start:stop]] = self.value
        return values


def pairs(fills: Fills) -> list[tuple[Any, Rows]]:
    """Variables and their sources as rows, checked; of partitioned variables, the parts.

    Raises:
        DataError: a file is missing, or is no file of vectors.
        ValueError: sources don't have their variables' shapes, or variables have another type; all are named.
    """
    checked: list[tuple[Any, Rows]] = []
    faults = []
    for variable, source in fills.items() if isinstance(fills, Mapping) else fills:
        rows = as_rows(source)
        parts = _parts(variable)
        name, shape = _whole(variable, parts)
        kinds = {part.dtype.base_dtype.name for part, _, _ in parts}
        if kinds - {"float32", "bfloat16", "float16"}:
            faults.append(f"variable {name!r} is {', '.join(kinds)}, expected float32, bfloat16 or float16")
        elif shape != [rows.rows, rows.dim]:
            faults.append(_shape_fault(name, shape, [rows.rows, rows.dim]))
        for part, row, column in parts:
            is_whole = part.shape.as_list() == [rows.rows, rows.dim]
            checked.append((part, rows if is_whole else _Part(rows, row, column, *part.shape.as_list()[:2])))
    if faults:
        raise ValueError("\n".join(faults))
    return checked


def _parts(variable: Any) -> list[tuple[Any, int, int]]:
    """The parts of a variable, each with the row and column of the whole where it begins; one if it is whole."""
    if not isinstance(variable, list | tuple | PartitionedVariable):
        return [(in_keras(variable), 0, 0)]
    parts, begins = [in_keras(part) for part in variable], 0
    places = []
    for part in parts:
        if part.shape.rank != 2:
            raise ValueError(f"part {part.name!r} of a variable has shape {part.shape}, expected [rows, dim]")
        info = getattr(part, "_save_slice_info", None)  # a partitioner's; other parts follow each other
        places.append((part, *((begins, 0) if info is None else map(int, info.var_offset))))
        begins += int(part.shape[0])
    if not places:
        raise ValueError("found an empty list of parts of a variable, expected at least one")
    return places


def _whole(variable: Any, parts: list[tuple[Any, int, int]]) -> tuple[str, list[int]]:
    """The name and the shape of all parts together."""
    if not isinstance(variable, list | tuple | PartitionedVariable):
        return str(parts[0][0].name), parts[0][0].shape.as_list()
    ends = [[row + int(part.shape[0]), column + int(part.shape[1])] for part, row, column in parts]
    name = getattr(variable, "name", None) or f"{parts[0][0].name} and {len(parts) - 1} more parts"
    return str(name), [max(end[0] for end in ends), max(end[1] for end in ends)]


def _shape_fault(name: str, shape: list[int], source: list[int]) -> str:
    found = f"variable {name!r} is {' × '.join(map(str, shape))}, but its source is {source[0]} × {source[1]}"
    if shape == source[::-1]:
        return f"{found}: transpose the source"
    if len(shape) == 2 and shape[1] == source[1]:
        return (
            f"{found}: give the variable as many rows, or pass only the rows that it needs, such as matrix[:{shape[0]}]"
        )
    return f"{found}: create the variable with shape {source}"


@dataclass(frozen=True)
class _Part:
    """A part of a matrix: some neighbouring rows, and columns, of a source."""

    source: Rows
    row: int
    column: int
    rows: int
    dim: int

    def read(self, start: int, stop: int) -> np.ndarray:
        values = self.source.read(self.row + start, self.row + stop)
        return np.ascontiguousarray(values[:, self.column : self.column + self.dim])

    def memory_map(self) -> np.ndarray | None:
        of_all = getattr(self.source, "memory_map", None)
        array: np.ndarray | None = None if of_all is None else of_all()
        if array is None:
            return None
        return array[self.row : self.row + self.rows, self.column : self.column + self.dim]


class _Frame:
    """A data frame as rows."""

    def __init__(self, frame: Any) -> None:
        # pandas hands out an index that is no range as a column.
        table = pa.table(frame.reset_index(drop=True) if hasattr(frame, "reset_index") else frame)
        others = [
            field.name
            for field in table.schema
            if not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type))
        ]
        if others or not table.num_columns or not table.num_rows:
            found = f"columns that are not numeric: {', '.join(map(repr, others[:5]))}" if others else "no values"
            raise ValueError(
                f"the data frame: found {found}; select the columns of the vectors, such as frame[columns]"
            )
        gaps = [name for name in table.column_names if table[name].null_count]
        if gaps:
            raise ValueError(f"the data frame: column {gaps[0]!r} has missing values; fill them, or drop their rows")
        self.rows, self.dim, self._columns = table.num_rows, table.num_columns, table.columns

    def read(self, start: int, stop: int) -> np.ndarray:
        values = np.empty((stop - start, self.dim), np.float32)
        for place, column in enumerate(self._columns):
            values[:, place] = column.slice(start, stop - start).to_numpy()
        return values


class _Array:
    """An array as rows."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        kind = np.dtype(array.dtype)
        # NumPy counts bfloat16, which it knows from another package, among the types of kind V.
        if array.ndim != 2 or 0 in array.shape or not (kind.kind == "f" or kind.name == "bfloat16"):
            raise ValueError(
                f"{name}: found {kind} of shape {array.shape}, expected floating-point numbers of shape [rows, dim]"
            )
        self.rows, self.dim = map(int, array.shape)
        self._array = np.asarray(array)  # np.memmap itself is converted slowly

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(self._array[start:stop], np.float32)

    def memory_map(self) -> np.ndarray:
        return self._array


def assign(init: Assign | MemoryMap, path: str) -> InitMethod:
    """Eagerly and in sessions, in chunks of at most `chunk_bytes`; a single row may be larger."""
    chunk_bytes = init.chunk_bytes

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.add(AssignInSession(variables, chunk_bytes).fill, always=always)

    return InitMethod(
        eagerly=partial(assign_rows, chunk_bytes=chunk_bytes), in_session=in_session, chunk_bytes=chunk_bytes
    )


def chunks(rows: int, dim: int, chunk_bytes: int) -> tuple[range, ...]:
    """The ranges of rows that are assigned one after the other."""
    size = max(chunk_bytes // (_BYTES_PER_VALUE * dim), 1)
    # Chunks of an aligned mapping are aligned too, so TensorFlow uses them in place, without another copy.
    aligned = arrays.ALIGNMENT // math.gcd(arrays.ALIGNMENT, _BYTES_PER_VALUE * dim)
    if size > aligned:
        size -= size % aligned
    return tuple(range(start, min(start + size, rows)) for start in range(0, rows, size))


def assign_rows(table: WritableRows, source: Rows, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Reads rows from the source and assigns them, until the table is full; what is next is read meanwhile.

    Args:
        chunk_bytes: most bytes of rows that are in flight; a single row may be larger.

    Raises:
        ValueError: the source's shape is not the table's.
    """
    if (source.rows, source.dim) != (table.rows, table.dim):
        raise ValueError(
            f"table {table.name!r} is {table.rows} × {table.dim}, its source of rows is {source.rows} × {source.dim}"
        )
    runs = source.runs() if isinstance(source, arrays.InRuns) else [range(table.rows)]
    halves = (  # one is read while the other is assigned
        range(run.start + each.start, run.start + each.stop)
        for run in runs
        for each in chunks(len(run), table.dim, chunk_bytes // 2)
    )
    with closing(ahead(((each.start, source.read(each.start, each.stop)) for each in halves), depth=1)) as parts:
        for start, values in parts:
            table.write(start, values)


class AssignInSession:
    """Fills variables of a graph chunk by chunk, in any of its sessions, any number of times."""

    def __init__(self, fills: Fills, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Adds operations to the variables' graph, which must be the current one and not be finalized.

        Args:
            fills: variables, each with its values, see `Source`; a partitioned variable stands for its parts.
            chunk_bytes: most bytes of rows that are in flight; a single row may be larger.

        Raises:
            DataError: a file is missing, or is no file of vectors.
            ValueError: a source doesn't have its variable's shape, or a variable has another type.
        """
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes is {chunk_bytes}, expected at least 1")
        self._chunk_bytes = chunk_bytes
        self._assignments = [_assignment(variable, rows) for variable, rows in pairs(fills)]

    def fill(self, session: Any) -> None:
        """Assigns every row.

        Args:
            session: a `tf.compat.v1.Session`, or a monitored one. The variables must be initialized; one whose
                initial value is `tf.raw_ops.Empty` takes no memory for that.
        """
        for assignment in self._assignments:
            # Half as much at once: of most arrays, TensorFlow makes a copy. None is kept while the next is read.
            for chunk in chunks(assignment.rows.rows, assignment.rows.dim, self._chunk_bytes // 2):
                session.run(
                    assignment.operation,
                    {
                        assignment.numbers: np.arange(chunk.start, chunk.stop),
                        assignment.values: np.asarray(assignment.rows.read(chunk.start, chunk.stop)),
                    },
                )


@dataclass(frozen=True)
class _Assignment:
    rows: Rows
    numbers: Any
    values: Any
    operation: Any


def _assignment(variable: Any, rows: Rows) -> _Assignment:
    with tf.name_scope("assign_rows"):
        numbers = tf.compat.v1.placeholder(tf.int64, [None], "numbers")
        values = tf.compat.v1.placeholder(tf.float32, [None, rows.dim], "values")
        operation = scatter_rows(variable, numbers, values)
    return _Assignment(rows, numbers, values, operation)
