"""What init methods share: what one does, and the values of variables as arrays that TensorFlow uses in place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from embexp.errors import DataError, RunError
from embexp.specs.inits import CHUNK_BYTES, CustomInit
from embexp.system import arrays
from embexp.system.arrays import Rows
from embexp.system.user_code import NamedFunction, kind_of
from embexp.tables.variables import TableVariable

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
    """An init method. Each module of a method makes its own.

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


Source = np.ndarray | str | os.PathLike[str] | Rows
"""A variable's values: a matrix, the path of a `.npy` file, or rows that can be read by ranges.

The `memory_map` of rows is used where they have one, as a `MappableRows`, a `VectorSource`, or a tensor of a checkpoint
(`embexp.checkpoints.tensor`) has.
"""

Fills = Mapping[Any, Source] | Iterable[tuple[Any, Source]]
"""Variables, each with its values; as pairs for eager variables, which can't be keys."""


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
        DataError: the file is missing, or is no .npy matrix.
        RunError: there is no room for the file.
        ValueError: the source is no matrix of floating-point numbers.
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
            f" {error.strerror or error}; set TMPDIR to a folder with more room, or store the matrix as float32 .npy,"
            " which is mapped as it is"
        ) from error


def as_rows(source: Source) -> Rows:
    """A source as rows that can be read; a file is mapped.

    Raises:
        DataError: the file is missing, or is no .npy matrix.
        ValueError: the array is no matrix of floating-point numbers.
    """
    if isinstance(source, np.ndarray):
        return _Array(source, "the array")
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.suffix != ".npy":
            raise ValueError(f"{path}: only a .npy file can be given by its path; read others with embexp.vectors")
        try:
            return _Array(npy.open_memmap(path, mode="c"), str(path))
        except FileNotFoundError:
            raise DataError(f"{path}: there is no such file") from None
        except ValueError as error:
            raise DataError(f"{path}: found no .npy file of a matrix of floating-point numbers: {error}") from None
    return source


def pairs(fills: Fills) -> list[tuple[Any, Rows]]:
    """Variables and their sources as rows, checked.

    Raises:
        DataError: a file is missing, or is no .npy matrix.
        ValueError: a source doesn't have its variable's shape, or a variable has another type.
    """
    checked = []
    for variable, source in fills.items() if isinstance(fills, Mapping) else fills:
        rows = as_rows(source)
        if (kind := variable.dtype.base_dtype.name) not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"variable {variable.name!r} is {kind}, expected float32, bfloat16 or float16")
        if variable.shape.as_list() != [rows.rows, rows.dim]:
            shape = " × ".join(map(str, variable.shape.as_list()))
            raise ValueError(f"variable {variable.name!r} is {shape}, its source is {rows.rows} × {rows.dim}")
        checked.append((variable, rows))
    return checked


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
