"""`init=variable_load`: `Variable.load` in a session; eagerly, the whole matrix is assigned at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import deprecation

from embexp.initialization.method import Fills, InitMethod, Pairs, SessionFills, Source, mapped, pairs
from embexp.specs.inits import VariableLoad


def method(init: VariableLoad, path: str) -> InitMethod:
    """`init=variable_load`: eagerly and in sessions."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.add(lambda session: fill(session, variables), always=always, whole=variables)

    return InitMethod(eagerly=lambda part, source: assign_whole(part.variable, source), in_session=in_session)


def fill(session: Any, fills: Fills) -> None:
    """Loads variables, one after the other; usually after the global initializer.

    Args:
        session: a `tf.compat.v1.Session`, or a monitored one. The graph may be finalized.
        fills: variables with their values, see `Source`. A partitioned variable stands for all its parts.

    Raises:
        DataError: a file is missing, or is not a file of vectors.
        RunError: there is no space for the temporary file of a source that can't be mapped.
        ValueError: a source doesn't have its variable's shape, or a variable has another type.
    """
    # Outside the graph, `load` would assign eagerly, which fails for a variable of a graph.
    with session.graph.as_default(), deprecation.silence():
        for variable, source in pairs(fills):
            variable.load(mapped(source), session)


def assign_whole(variable: Any, source: Source) -> None:
    """Assigns the whole matrix to an eager variable, which uses its memory until TensorFlow first writes to it.

    Args:
        variable: a `tf.Variable` or Keras variable [rows, dim], or a list of parts, float32; or of 16 bits, to which
            the matrix is rounded.
        source: its values, see `embexp.initialization.Source`.

    Raises:
        DataError: the file is missing, or is not a file of vectors.
        RunError: there is no space for the temporary file of a source that can't be mapped.
        ValueError: the source doesn't have the variable's shape, or the variable has another type.
    """
    for part, rows in pairs([(variable, source)]):
        values = tf.experimental.dlpack.from_dlpack(_writable(mapped(rows)).__dlpack__())
        part.assign(tf.cast(values, part.dtype))


def _writable(array: np.ndarray) -> np.ndarray:
    """The same memory, marked writable, as DLPack requires; TensorFlow never writes to it."""
    return array if array.flags.writeable else np.asarray(_Writable(array))


class _Writable:
    def __init__(self, array: np.ndarray) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._array = array  # must live as long as the arrays that use its memory
