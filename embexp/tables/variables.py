"""Variables of embedding rows: created without a copy, read and written by rows; and tables of any layout, as read.

Which rows training has looked up: each training step sets flags in a variable. The rows of earlier flags are kept in
this process, so that the flags can be cleared, and so that a resumed run goes on with those of its checkpoint.

How rows and slots are stored: in float32, or in 16 bits, to which a step rounds them stochastically.

A small step is lost if each result is rounded to the nearest of 16 bits: a bfloat16 has 8 bits of precision, so that a
step of less than a 512th of a number leaves it as it is. Stochastic rounding goes up with the probability of the part
that is cut off, so that the mean of many steps is exact (Gupta et al. 2015: "Deep learning with limited numerical
precision"). The random bits are those of Philox4x32-10 (Salmon et al. 2011: "Parallel random numbers: as easy as 1, 2,
3") with a key of seed and table, at a counter of variable, column, row and step: a run that is resumed, or whose rows
are stored another way or shared by workers, has the same. `native_code/narrow.h` computes the same bits.
"""

from __future__ import annotations

import ctypes
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.system import arrays, digests
from embexp.system.arrays import SomeRows
from embexp.system.parallel import Progress, quiet

_COLUMNS = 8
"""Columns whose random bits, 16 each, come from one counter."""


@dataclass(frozen=True)
class Precision:
    """How a table is stored.

    Attributes:
        rows: type of the rows: float32, bfloat16 or float16.
        slots: the same of slots with a number for each parameter; others are float32.
        key: two words of 32 bits; None: steps round to the nearest.
        numbered: of a part of a table, returns the numbers that its rows, integers [n], have in the whole table; None:
            they have their own.
    """

    rows: tf.DType = tf.float32
    slots: tf.DType = tf.float32
    key: tuple[int, int] | None = None
    numbered: Callable[[Any], Any] | None = None

    @property
    def narrow(self) -> bool:
        """Whether anything has 16 bits."""
        return bool(self.rows != tf.float32 or self.slots != tf.float32)

    @property
    def rounds(self) -> bool:
        """Whether steps round stochastically."""
        return self.narrow and self.key is not None


SINGLE = Precision()
"""All float32."""


def rounded(values: Any, dtype: tf.DType, precision: Precision, *, ids: Any, variable: int, step: Any) -> Any:
    """Values as a step writes them.

    Args:
        values: float32 [n, dim].
        dtype: what they are stored as.
        ids: integers [n], their rows.
        variable: 0 for the rows themselves, 1 for the first slot, …
        step: number of the step, int64 scalar, tensor or variable.

    Returns:
        [n, dim] of `dtype`.
    """
    if dtype == tf.float32:
        return values
    if precision.key is None:
        return tf.cast(values, dtype)
    numbers = ids if precision.numbered is None else precision.numbered(ids)
    random = random_bits(precision.key, numbers, variable, step, int(values.shape[1]))
    bits = tf.bitcast(values, tf.uint32)
    finite = tf.math.is_finite(values)
    if dtype == tf.bfloat16:
        kept = tf.bitwise.bitwise_and(bits + random, tf.constant(0xFFFF0000, tf.uint32))
        return tf.cast(tf.where(finite, tf.bitcast(kept, tf.float32), values), dtype)
    kept = tf.bitwise.bitwise_and(
        bits + tf.bitwise.right_shift(random, _words(3)), tf.constant(0xFFFFE000, tf.uint32)
    )  # 10 bits of the mantissa are left
    size = tf.abs(values)
    tiny = tf.floor(size * 2.0**24 + tf.cast(random, tf.float32) * 2.0**-16) * 2.0**-24
    tiny = tf.where(tf.bitwise.right_shift(bits, _words(31)) == 1, -tiny, tiny)
    small = tf.where(size < 2.0**-14, tiny, tf.bitcast(kept, tf.float32))
    return tf.cast(tf.where(finite, small, values), dtype)


def random_bits(key: tuple[int, int], ids: Any, variable: int, step: Any, dim: int) -> Any:
    """Random numbers of 16 bits for each column of some rows: uint32 [n, dim]."""
    blocks = -(-dim // _COLUMNS)
    row = tf.cast(ids, tf.uint64)[:, None] + tf.zeros([1, blocks], tf.uint64)
    number = tf.cast(tf.range(blocks, dtype=tf.int32), tf.uint32) + _words(variable << 24)
    counter = [
        tf.zeros_like(row, tf.uint32) + number[None],
        _low(row),
        _low(tf.bitwise.right_shift(row, tf.constant(32, tf.uint64))),
        tf.zeros_like(row, tf.uint32) + _low(tf.cast(tf.convert_to_tensor(step), tf.uint64)),
    ]
    for turn in range(10):
        first = tf.cast(counter[0], tf.uint64) * tf.constant(0xD2511F53, tf.uint64)
        second = tf.cast(counter[2], tf.uint64) * tf.constant(0xCD9E8D57, tf.uint64)
        one, two = ((key[0] + turn * 0x9E3779B9) & 0xFFFFFFFF, (key[1] + turn * 0xBB67AE85) & 0xFFFFFFFF)
        xor, high = tf.bitwise.bitwise_xor, tf.constant(32, tf.uint64)
        counter = [
            xor(xor(_low(tf.bitwise.right_shift(second, high)), counter[1]), _words(one)),
            _low(second),
            xor(xor(_low(tf.bitwise.right_shift(first, high)), counter[3]), _words(two)),
            _low(first),
        ]
    words = tf.stack(counter, 2)  # [n, blocks, 4]
    halves = [tf.bitwise.bitwise_and(words, _words(0xFFFF)), tf.bitwise.right_shift(words, _words(16))]
    return tf.reshape(tf.stack(halves, 3), [-1, blocks * _COLUMNS])[:, :dim]


def _words(number: int) -> Any:
    return tf.constant(number, tf.uint32)


def _low(words: Any) -> Any:
    """The low 32 bits of uint64."""
    return tf.cast(tf.bitwise.bitwise_and(words, tf.constant(0xFFFFFFFF, tf.uint64)), tf.uint32)


_LARGE = 16 * 1024 * 1024
"""Bytes from which on it pays to write in two threads."""


class WritableRows(Protocol):
    """Rows that can be assigned by ranges: all that an init method needs of a table."""

    @property
    def name(self) -> str:
        """Name of the table or slot."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def dim(self) -> int:
        """Width of a row."""

    def write(self, start: int, values: np.ndarray, /) -> None:
        """Assigns float32 [n, dim] to the rows from `start`."""


@dataclass(frozen=True, eq=False)
class TableVariable:
    """A variable with rows of a table or slot, to be filled; `WritableRows`.

    Attributes:
        variable: float32 [rows, dim].
        read_whole: whether the variable is also read whole, which must not copy it.
    """

    name: str
    variable: Any
    read_whole: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.variable.shape[0])

    @property
    def dim(self) -> int:
        """Width of a row."""
        return int(self.variable.shape[1])

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`; see `write_rows`."""
        write_rows(self.variable, self.name, start, values)
        if self.read_whole:  # once rows were assigned, TensorFlow would copy the variable at each reading
            tf.raw_ops.DisableCopyOnRead(resource=self.variable.handle)


@dataclass(frozen=True, eq=False)
class RowVariables:
    """The variables of a table whose rows move, for fused operations.

    Attributes:
        parts: float32 [rows, dim]: one with all rows; or one with those that may move and some others, and one with the
            rest.
        places: of two parts, one integer variable [rows]: the row of the second part, or -1 - the row of the first.
        slots: by name, float32 [rows that may move, dim], or [rows that may move, 1].
        touched: uint8 [rows], see `flags_of_rows`; None: there is none.
    """

    parts: Sequence[Any]
    places: Sequence[Any]
    slots: Mapping[str, Any]
    touched: Any


def is_writable(variable: Any) -> bool:
    """Whether `gather_rows` and `scatter_rows` take it: a `tf.Variable`, or a reference variable of TensorFlow 1."""
    return hasattr(variable, "handle") or isinstance(variable, tf.compat.v1.Variable)


def in_keras(variable: Any) -> Any:
    """The `tf.Variable` inside a Keras variable; anything else as it is."""
    inside = getattr(variable, "value", None)
    return inside if is_writable(inside) else variable


def gather_rows(variable: Any, ids: Any) -> Any:
    """Rows of a variable, as float32: reading it whole first would copy it."""
    if not hasattr(variable, "handle"):
        return tf.cast(tf.gather(variable, ids), tf.float32)  # a reference variable's memory is read in place
    rows = tf.raw_ops.ResourceGather(resource=variable.handle, indices=ids, dtype=variable.dtype)
    if not tf.executing_eagerly():
        rows.set_shape([*ids.shape.as_list(), *variable.shape.as_list()[1:]])
    return tf.cast(rows, tf.float32)


def read_without_copy(variable: Any) -> Any:
    """All rows of a variable, float32 [rows, dim], without a copy.

    After rows were read or written by their numbers, TensorFlow copies a variable at each reading, unless told not to.
    A later update copies it instead if somebody still holds what was read.
    """
    with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=variable.handle)]):
        return variable.read_value()


def scatter_rows(variable: Any, ids: Any, rows: Any) -> Any:
    """Assigns rows of a variable, each at most once; in a graph of TensorFlow 1 the operation that does.

    Rows of another type than the variable's are rounded to the nearest.
    """
    rows = tf.cast(rows, variable.dtype.base_dtype)
    if not hasattr(variable, "handle"):
        # Its tensor is the whole variable, so only the operation is run.
        return tf.compat.v1.scatter_update(variable, ids, rows).op
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids, updates=rows)


def write_rows(variable: Any, name: str, start: int, values: np.ndarray) -> None:
    """Assigns `values` [n, dim] float32 to the rows of an eager variable from `start`, rounded to its type.

    Values that `arrays.can_be_taken_over` are copied once, into the variable; others once more on the way.

    Args:
        variable: [rows, dim], float32 or of 16 bits.
        values: inside the variable's rows.

    Raises:
        ValueError: the values' dtype or shape does not fit.
    """
    dim = variable.shape[1]
    if values.dtype != np.float32 or values.ndim != 2 or values.shape[1] != dim:
        raise ValueError(f"table {name!r} takes float32 rows of {dim}, got {values.dtype} of shape {values.shape}")
    if not len(values):
        return
    if variable.dtype != tf.float32:
        values = values.astype(variable.dtype.as_numpy_dtype)
    if variable.dtype != tf.float32 or not arrays.can_be_taken_over(values):
        _assign(variable, start, tf.constant(values))
        return
    # Two threads, as touching memory for the first time takes most of the time. Both halves are aligned.
    half = len(values) // 2 // arrays.ALIGNMENT * arrays.ALIGNMENT if values.nbytes >= _LARGE else 0
    parts = [(low, values[low:high]) for low, high in ((0, half), (half, len(values))) if high > low]

    def assign(part: tuple[int, np.ndarray]) -> None:
        _assign(variable, start + part[0], tf.experimental.dlpack.from_dlpack(part[1].__dlpack__()))

    with ThreadPoolExecutor(len(parts)) as threads:
        list(threads.map(assign, parts))


def _assign(variable: Any, start: int, values: Any) -> None:
    # Takes a third of the time of assigning to a slice.
    narrow = tf.int32 if variable.shape[0] <= tf.int32.max else tf.int64
    stop = start + int(values.shape[0])
    scatter_rows(variable, tf.range(tf.constant(start, narrow), tf.constant(stop, narrow)), values)


def variable_over(name: str, values: np.ndarray) -> Any:
    """A variable that uses an array's memory: eagerly at once, in a graph of TensorFlow 1 once a session is fed it.

    In a graph of TensorFlow 1 it is a local variable. Don't write to it, and read it by `read_value`: a gather from the
    variable itself would first copy its memory.

    Args:
        values: an array that `arrays.can_be_taken_over`.
    """
    shape = list(values.shape)
    if tf.executing_eagerly():
        dtype = tf.as_dtype(values.dtype)
        memory = values.view(_seen_as(dtype).as_numpy_dtype).__dlpack__()
        return variable(name, tf.bitcast(tf.experimental.dlpack.from_dlpack(memory), dtype), shape)
    # No page of this memory is touched before the array replaces it.
    return variable(name, functools.partial(empty, shape, tf.as_dtype(values.dtype)), shape, local=True)


def variable(name: str, value: Any, shape: list[int], *, local: bool = False) -> Any:
    """Creates a variable that no gradient tape watches, in the current graph.

    Args:
        value: its initial value, or a callable that returns it.
        local: in a graph of TensorFlow 1, make it a local variable instead of a global one.
    """
    if not local or tf.executing_eagerly():
        return tf.Variable(value, trainable=False, shape=shape, name=name)
    collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return tf.compat.v1.Variable(
        value, trainable=False, shape=shape, name=name, use_resource=True, collections=collections
    )


def empty(shape: list[int], dtype: tf.DType = tf.float32) -> Any:
    """Memory no page of which is touched yet, eagerly in huge pages as far as the system has some.

    They are filled, and rows anywhere in them found, faster.
    """
    if not tf.executing_eagerly():
        return tf.raw_ops.Empty(shape=shape, dtype=dtype)
    result = tf.raw_ops.Empty(shape=shape, dtype=_seen_as(dtype))
    arrays.prefer_huge_pages(np.frombuffer(memoryview(result), np.uint8))
    return tf.bitcast(result, dtype)


def filled(shape: list[int], value: float, dtype: tf.DType = tf.float32) -> Any:
    """`tf.fill`, in memory that is `empty`."""
    if not tf.executing_eagerly():
        # A sum with what only a session can compute. A fill of constants would be computed when the graph is prepared,
        # and kept with it, so that the variable's first update would make a second copy.
        return tf.fill(shape, tf.raw_ops.Empty(shape=[], dtype=dtype, init=True) + tf.constant(value, dtype))
    result = empty(shape, _seen_as(dtype))
    memory = np.frombuffer(memoryview(result), np.uint8)
    # Nobody else has the tensor yet. NumPy's view of it is read-only, as tensors do not change.
    writable = (ctypes.c_uint8 * memory.size).from_address(memory.ctypes.data)
    np.ctypeslib.as_array(writable).view(dtype.as_numpy_dtype).fill(value)
    return tf.bitcast(result, dtype)


def _seen_as(dtype: tf.DType) -> tf.DType:
    """A type of the same size that NumPy has."""
    return tf.uint16 if dtype == tf.bfloat16 else dtype


def flags_of_rows(table: str, rows: int, *, local: bool = False) -> Any:
    """A variable with a byte per row of a table, uint8 [rows], all 0: 1 once training has looked the row up."""
    return variable(f"{table}/touched", functools.partial(filled, [rows], 0, tf.uint8), [rows], local=local)


class ReadableTable(ABC):
    """`rows` × `dim` float32 values that are read a block at a time.

    In a graph of TensorFlow 1, sessions hold the values of variables, so reading works only eagerly.

    Attributes:
        storage: how rows are kept: a `Storage`, or "sharded".
        row_slots: names of the slots that have one number for each row.
        precision: how rows and slots are stored; they are read as float32.
        shares: the rows' parts of the weight decay, an `optimizers.DecayShares`; None: each step decays all it touches.
        touched: uint8 [rows], 1 for each row that a training step looked up since `take_touched`; None when not
            tracked.
    """

    name: str
    rows: int
    dim: int
    frozen: bool
    storage: str
    touched: Any
    row_slots: Collection[str] = frozenset()
    precision: Precision = SINGLE
    shares: Any = None

    @abstractmethod
    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32 [stop - start, dim]; they may be read-only."""

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers, rising, of the table, or of one slot, float32 [n, dim]; at most some thousand."""
        if slot is not None:  # what has slots can gather them
            raise KeyError(slot)
        return SomeRows(self, numbers).read(0, len(numbers))

    def blocks(self, slot: str | None = None, *, rows: int = digests.ROWS_PER_BLOCK) -> Iterator[np.ndarray]:
        """The table, or one slot, as consecutive blocks of rows, one at a time in memory."""
        for start in range(0, self.rows, rows):
            yield self.read(start, min(start + rows, self.rows), slot)

    def digest(self, slot: str | None = None, *, progress: Progress = quiet) -> str:
        """Digest of all rows, in blocks; see `digests.of_rows`."""

        def read(start: int, stop: int) -> np.ndarray:
            progress("computing digests of the tables", start / self.rows)
            return self.read(start, stop, slot)

        return digests.of_float_rows(read, self.rows, self.width(slot))

    def width(self, slot: str | None = None) -> int:
        """Numbers in a row of the table, or of one slot."""
        return 1 if slot in self.row_slots else self.dim

    def dtype(self, slot: str | None = None) -> tf.DType:
        """What the rows of the table, or of one slot, are stored as."""
        if slot is None:
            return self.precision.rows
        return tf.float32 if slot in self.row_slots else self.precision.slots

    def slot_variables(self, rows: int, initial: Mapping[str, float]) -> dict[str, Any]:
        """New variables for slots of so many rows, by name, with their initial values."""
        return {
            slot: variable(
                f"{self.name}/{slot}",
                functools.partial(filled, [rows, self.width(slot)], value, self.dtype(slot)),
                [rows, self.width(slot)],
            )
            for slot, value in initial.items()
        }

    def looked_up(self) -> np.ndarray | None:
        """Bool [rows]: which rows training steps have looked up in the run so far; None: not tracked."""
        return None if self.touched_state is None else self.touched_state.ever()

    def take_touched(self) -> np.ndarray | None:
        """Bool [rows]: which rows training steps have looked up since the last call; None: not tracked.

        A call of `restore_touched` counts as one. With `adam` and `lazy_adam: false`, steps also move other rows.
        """
        return None if self.touched_state is None else self.touched_state.take()

    def restore_touched(self, looked_up: np.ndarray) -> None:
        """Sets which rows training steps have looked up in the run so far, for a run that is resumed.

        Args:
            looked_up: bool [rows], as `looked_up` returned it when the checkpoint was written.

        Raises:
            ValueError: the table does not track it, or the mask is not of that form.
        """
        if self.touched_state is None:
            raise ValueError(f"table {self.name!r} does not track which rows training looks up")
        self.touched_state.restore(looked_up)

    @cached_property
    def touched_state(self) -> TouchedRows | None:
        """Which rows training steps have looked up, and when; None: not tracked."""
        touched = self.touched
        if touched is None:
            return None
        return TouchedRows(
            self.name,
            self.rows,
            flags=lambda: touched.numpy() != 0,
            clear=lambda: touched.assign(tf.zeros([self.rows], tf.uint8)),
        )

    def touched_rows(self) -> int:
        """Number of rows that training steps have looked up; 0 for a frozen table."""
        looked_up = self.looked_up()
        return 0 if looked_up is None else int(np.count_nonzero(looked_up))

    def mark_touched(self, ids: Any) -> None:
        """Records that training looked up these rows."""
        if self.touched is not None:
            scatter_rows(self.touched, ids, tf.constant(1, tf.uint8))

    def check_range(self, start: int, stop: int) -> None:
        """Raises ValueError unless [start, stop) are rows of the table."""
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"table {self.name!r} has rows 0 to {self.rows - 1}, asked for [{start}, {stop})")


def gathered(table: Any, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
    """`take` of tables that can gather: rows with these numbers, float32 [n, dim]."""
    return in_place(table.gather(tf.constant(numbers), slot))


def in_place(tensor: Any) -> np.ndarray:
    """A tensor that nobody else has, as an array over its memory. `numpy()` would copy it."""
    return np.asarray(memoryview(tensor))


class TouchedRows:
    """The rows of one table that training has looked up."""

    def __init__(self, table: str, rows: int, flags: Callable[[], np.ndarray], clear: Callable[[], object]) -> None:
        """Reads nothing.

        Args:
            flags: returns bool [rows], the rows looked up since `clear` was last called.
        """
        self._table, self._rows, self._flags, self._clear = table, rows, flags, clear
        self._before: np.ndarray | None = None

    def ever(self) -> np.ndarray:
        """Bool [rows]: rows looked up in the run so far."""
        flags = self._flags()
        return flags if self._before is None else flags | self._before

    def take(self) -> np.ndarray:
        """Bool [rows]: rows looked up since the last `take` or `restore`, or in the run so far."""
        flags = self._flags()
        self._before = flags.copy() if self._before is None else self._before | flags
        self._clear()
        return flags

    def forget(self) -> None:
        """Counts from now on, as if no row was looked up before."""
        self._before = None
        self._clear()

    def restore(self, ever: np.ndarray) -> None:
        """Replaces the rows looked up in the run so far by those of a checkpoint; `take` then finds later ones.

        Args:
            ever: bool [rows], as `ever` returned it.

        Raises:
            ValueError: the mask is not of that form.
        """
        if ever.dtype != np.bool_ or ever.shape != (self._rows,):
            raise ValueError(f"table {self._table!r} takes bool ({self._rows},), got {ever.dtype} {ever.shape}")
        self._before = ever.copy()
        self._clear()
