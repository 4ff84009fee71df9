"""`Variable.load` in a session; eagerly, its meaning in TensorFlow 2: the whole matrix is assigned at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import deprecation

from embexp.initialization.method import InitMethod, Pairs, SessionFills
from embexp.initialization.whole import Fills, Source, mapped, pairs


def method() -> InitMethod:
    """`init=variable_load`: eagerly and in sessions."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.add(lambda session: fill(session, variables), always=always)
        fills.whole.extend(variable for variable, _ in variables)

    return InitMethod(eagerly=lambda part, source: assign_whole(part.variable, source), in_session=in_session)


def fill(session: Any, fills: Fills) -> None:
    """Loads variables, one after the other; usually after the global initializer.

    Args:
        session: a `tf.compat.v1.Session`, or a monitored one. The graph may be finalized.
        fills: variables, and for each a matrix, the path of a `.npy` file, or rows; see `whole.Source`.

    Raises:
        DataError: a file is not what it should be.
        RunError: there is no room for a file of what can't be mapped as it is.
        ValueError: a source doesn't have its variable's shape, or a variable is not float32.
    """
    # Outside the graph, `load` would assign eagerly, which a variable of a graph can't.
    with session.graph.as_default(), deprecation.silence():
        for variable, source in pairs(fills):
            variable.load(mapped(source), session)


def assign_whole(variable: Any, source: Source) -> None:
    """Assigns the whole matrix to an eager variable, which shows its memory until it is first written to.

    Args:
        variable: a `tf.Variable`, float32 [rows, dim].
        source: a matrix, the path of a `.npy` file, or rows; see `whole.Source`.

    Raises:
        DataError: the file is not what it should be.
        RunError: there is no room for a file of what can't be mapped as it is.
        ValueError: the source doesn't have the variable's shape, or the variable is not float32.
    """
    [(variable, rows)] = pairs([(variable, source)])
    variable.assign(tf.experimental.dlpack.from_dlpack(_writable(mapped(rows)).__dlpack__()))


def _writable(array: np.ndarray) -> np.ndarray:
    """The same memory, called writable: DLPack hands over nothing else. TensorFlow never writes to what it is lent."""
    return array if array.flags.writeable else np.asarray(_Shown(array))


class _Shown:
    def __init__(self, array: np.ndarray) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._array = array  # must live as long as what shows it
