"""Partitioned variables of TensorFlow 1: in a name-based checkpoint, their parts are slices of one tensor.

`tf.compat.v1.get_variable` makes them if it is given a `partitioner`. The parts in a program need not be those in the
checkpoint: `tf.compat.v1.train.Saver` restores any slice, and so does this module, by the same operation. In an
object-based checkpoint each part is an object of its own, and the parts must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.variables import PartitionedVariable

from embexp.errors import CheckpointError
from embexp.tensor_bundle.rekeying import Slice


@dataclass(frozen=True)
class Part:
    """What a part of a partitioned variable is of the whole.

    Attributes:
        name: global name of the whole.
        whole: its shape.
        start: in each dimension, where the part begins.
        shape: of the part.
    """

    name: str
    whole: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]

    def slice_of(self, key: str) -> Slice:
        """The tensor of that key as this part of the whole."""
        return Slice(key, self.start, self.shape, self.whole)


def part_of(variable: Any) -> Part | None:
    """What a variable is a part of; None: it is whole."""
    found = getattr(variable, "_save_slice_info", None)
    if found is None:
        return None
    numbers = (found.full_shape, found.var_offset, found.var_shape)
    whole, start, shape = (tuple(int(each) for each in some) for some in numbers)
    return Part(str(found.full_name), whole, start, shape)


def is_whole(value: Any) -> bool:
    """Whether this is a partitioned variable: what `get_variable` returned, or a list of parts of one variable."""
    if isinstance(value, list | tuple):
        parts = [part_of(each) for each in value]
        return bool(parts) and all(each is not None and each.name == getattr(parts[0], "name", "") for each in parts)
    return isinstance(value, PartitionedVariable)


def require_whole(parts: Mapping[str, Sequence[Part]]) -> None:
    """Checks that the parts of each variable, by name, are all of it.

    Raises:
        CheckpointError: some are missing: the checkpoint could not be restored.
    """
    for name, some in parts.items():
        found = sum(math.prod(each.shape) for each in some)
        if found != math.prod(some[0].whole):
            raise CheckpointError(
                f"the {len(some)} parts of {name} have {found:,} of its {math.prod(some[0].whole):,} values; give all"
                " parts of a partitioned variable"
            )


class Restored:
    """Parts that are restored from slices of a checkpoint, as `tf.compat.v1.train.Saver` restores them."""

    def __init__(self, prefix: str, names: Iterable[tuple[Any, str]]) -> None:
        """In a graph of TensorFlow 1, adds the operations; eagerly, nothing is restored yet.

        Args:
            prefix: of the checkpoint, whose path TensorFlow takes as it is.
            names: parts, each with the name of its whole in the checkpoint.
        """
        self._prefix, self._names = prefix, list(names)
        self._operations = [] if tf.executing_eagerly() else [self._assigned(*each).op for each in self._names]

    def run(self, session: Any = None) -> None:
        """Assigns the parts, in a graph those of the session."""
        if self._operations:
            session.run(self._operations)
        elif tf.executing_eagerly():
            for each in self._names:
                self._assigned(*each)

    def _assigned(self, variable: Any, name: str) -> Any:
        part = part_of(variable)
        assert part is not None
        extents = ":".join(f"{start},{size}" for start, size in zip(part.start, part.shape, strict=True))
        spec = f"{' '.join(map(str, part.whole))} {extents}"
        with tf.name_scope("restore_part"), tf.device("/cpu:0"):
            (value,) = tf.raw_ops.RestoreV2(
                prefix=self._prefix,
                tensor_names=[name],
                shape_and_slices=[spec],
                dtypes=[variable.dtype.base_dtype],
            )
            return variable.assign(tf.ensure_shape(value, part.shape))
