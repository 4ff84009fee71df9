"""Allowed inputs of features, how they are read, and checks of ids while the step runs.

Ids are int32 or int64. The reference is TensorFlow's serving path (`serving_embedding_lookup`); where it and the
TPU path differ, or silently drop something, this table shows what embexp does:

| input                               | here                          | serving path        | TPU path                |
|-------------------------------------|-------------------------------|---------------------|-------------------------|
| dense [B, ...]                      | [B, ..., dim]                 | the same            | last dimension dropped, |
|                                     |                               |                     | must be 1 (but for [B]) |
| sparse [..., n]                     | combined over n: [..., dim]   | the same            | the same                |
| sparse of rank 1                    | error                         | one vector          | error                   |
| sparse, validate                    | ids < 0 dropped, and weights  | the same            | nothing dropped         |
|                                     | <= 0 too unless `sum`         |                     |                         |
| sparse, no validate                 | nothing dropped; a row without| rows after the last | rows kept               |
|                                     | ids gives zeros               | id are lost; rank 3 |                         |
|                                     |                               | drops nonetheless   |                         |
| ragged [B, None]                    | combined: [B, dim]; nothing   | the same            | the same                |
|                                     | dropped                       |                     |                         |
| sequence (max_sequence_length L):   | [B, L, dim], cut or padded    | the same            | the same                |
| sparse [B, n] or ragged [B, None]   | with zeros; ids beyond L are  | (checks cut         |                         |
|                                     | ignored                       | ragged ids)         |                         |
| sequence, sparse of another rank    | error                         | L ignored           | L ignored               |
| sequence, dense                     | error                         | error               | no sequence             |
| output_shape, dense or sparse       | must be the input's own shape | ignored             | must be the input's own |
| output_shape, ragged                | B values: combined, reshaped; | the same, but       | the same                |
|                                     | k B values: sequences of k,   | weights and L are   |                         |
|                                     | then no weights and L, if     | ignored             |                         |
|                                     | set, must be k                |                     |                         |
| float ids                           | error                         | error               | cast                    |
| weights of a dense input or of a    | error                         | error               | error                   |
| sequence                            |                               |                     |                         |
| weights at other positions than     | error while it runs           | accepted if as many | accepted if as many     |
| the ids                             |                               |                     |                         |

A shape that `output_shape` contradicts is a ValueError while tracing, or, where only the running step knows the
size, an error then. The ids of one example in a sparse input must be in order, as TensorFlow asks everywhere.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import tensorflow as tf

from embexp.errors import RunError, VocabularyError
from embexp.specs.tables import Combiner, Feature

_OUTSIDE = re.compile(r"\[ids of feature (.*?) in table (.*?) of (\d+) rows, int(32|64)\] \[(\d+)\]")
UNCOMPILED = "a TPU can't compile this step:"
"""How the message begins of an error about operations that no TPU compiles."""
_INPUT = re.compile(r"(?:feature|table) '[^']*': [^\]\n]*")
_F = TypeVar("_F", bound=Callable[..., Any])
without_autograph: Callable[[_F], _F] = tf.autograph.experimental.do_not_convert
"""Decorator of traced functions that need no rewriting: AutoGraph warns about those that it can't rewrite."""


@dataclass(frozen=True, eq=False)
class EveryRow:
    """Dense ids [1, C] that are known to be 0 to C - 1: in a table of C rows, nothing needs to look for them.

    Attributes:
        ids: int32 or int64 [1, C].
    """

    ids: Any


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Each place at which a feature's input names a row.

    Attributes:
        source: inputs with equal `source` have the same `ids`, so they are looked up once.
        ids: int32 or int64 [n].
        segments: int32 [n]: which row of the result, flattened, each occurrence adds to;
            None: occurrence i is row i.
        weights: float32 [n], None for all 1.
        denominator: float32 [rows of the result], divides the sum (the result is 0 where it is 0); None for 1.
        shape: int32, shape of the result without dim.
        static_shape: the part of it that is known while tracing.
        every_row: whether the ids are 0 to n - 1.
        rising: whether the segments are in order.
    """

    source: tuple[Any, ...]
    ids: Any
    segments: Any
    weights: Any
    denominator: Any
    shape: Any
    static_shape: Any
    every_row: bool = False
    rising: bool = True


def occurrences(name: str, feature: Feature, combiner: Combiner, value: Any) -> Occurrences:
    """Reads one feature's input.

    Args:
        combiner: of the feature's table.
        value: ids, `EveryRow`, or a pair (ids, weights).

    Raises:
        ValueError: the table above does not allow the input.
    """
    if isinstance(value, EveryRow):
        return replace(_dense(name, feature, value.ids), every_row=True)
    ids, weights = value if isinstance(value, tuple) else (value, None)
    _check_ids(name, ids)
    _check_weights(name, feature, ids, weights)
    if isinstance(ids, tf.RaggedTensor):
        return _ragged(name, feature, combiner, ids, weights)
    if isinstance(ids, tf.SparseTensor):
        return _sparse(name, feature, combiner, ids, weights)
    return _dense(name, feature, ids)


def _check_ids(name: str, ids: Any) -> None:
    if not isinstance(ids, (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)):
        raise ValueError(
            f"feature {name!r}: ids are a {type(ids).__name__}, not a tf.Tensor, tf.SparseTensor or tf.RaggedTensor"
        )
    if ids.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"feature {name!r}: ids are {ids.dtype.name}; they must be int32 or int64")
    if ids.shape.rank is None:
        raise ValueError(f"feature {name!r}: the rank of the ids must be known")


def _check_weights(name: str, feature: Feature, ids: Any, weights: Any) -> None:
    if weights is None:
        return
    if isinstance(ids, tf.Tensor):
        raise ValueError(f"feature {name!r}: weights need sparse or ragged ids, but these ids are dense")
    if feature.max_sequence_length:
        raise ValueError(f"feature {name!r}: a sequence is not combined, so it can't have weights")
    kind = tf.RaggedTensor if isinstance(ids, tf.RaggedTensor) else tf.SparseTensor
    if not isinstance(weights, kind):
        raise ValueError(f"feature {name!r}: weights are a {type(weights).__name__}, but the ids are a {kind.__name__}")
    if not weights.dtype.is_floating:
        raise ValueError(f"feature {name!r}: weights are {weights.dtype.name}; they must be floating-point numbers")


def _dense(name: str, feature: Feature, ids: Any) -> Occurrences:
    if feature.max_sequence_length:
        raise ValueError(f"feature {name!r} is a sequence, so its ids must be sparse or ragged, not dense")
    if ids.shape.rank < 1:
        raise ValueError(f"feature {name!r}: ids are a scalar; they need a batch dimension")
    shape = _own_shape(name, feature, tf.shape(ids), ids.shape)
    flat = ids if ids.shape.rank == 1 else tf.reshape(ids, [-1])
    return Occurrences(("all", id(ids)), flat, None, None, None, shape, ids.shape)


def _sparse(name: str, feature: Feature, combiner: Combiner, ids: Any, weights: Any) -> Occurrences:
    rank = ids.shape.rank
    if rank < 2:
        raise ValueError(f"feature {name!r}: sparse ids must have rank 2 or more, got rank {rank}")
    if weights is not None and weights.indices is not ids.indices:
        with tf.control_dependencies([_same(name, ids.indices, weights.indices, "indices")]):
            weights = weights.with_values(tf.identity(weights.values))
    if feature.max_sequence_length:
        return _sparse_sequence(name, feature, ids)
    dense_shape = tf.cast(ids.dense_shape, tf.int32)
    shape = _own_shape(name, feature, dense_shape[:-1], ids.shape[:-1])
    positions = tf.cast(ids.indices, tf.int32)
    segments = positions[:, 0]
    for axis in range(1, rank - 1):
        segments = segments * dense_shape[axis] + positions[:, axis]
    values = ids.values
    factors = None if weights is None else tf.cast(weights.values, tf.float32)
    source: tuple[Any, ...] = ("all", id(ids))
    if feature.validate_weights_and_indices:
        source = ("valid", id(ids))
        valid = values >= 0
        if factors is not None and combiner is not Combiner.SUM:
            source = ("valid", id(ids), id(weights))
            valid &= factors > 0
        values, segments = tf.boolean_mask(values, valid), tf.boolean_mask(segments, valid)
        factors = None if factors is None else tf.boolean_mask(factors, valid)
    rows = tf.reduce_prod(shape)
    denominator = denominator_of(combiner, factors, segments, rows)
    return Occurrences(source, values, segments, factors, denominator, shape, ids.shape[:-1])


def _sparse_sequence(name: str, feature: Feature, ids: Any) -> Occurrences:
    length = feature.max_sequence_length
    if ids.shape.rank != 2:
        raise ValueError(f"feature {name!r}: a sparse sequence must have rank 2, got rank {ids.shape.rank}")
    static = tf.TensorShape([ids.shape[0], length])
    shape = _own_shape(name, feature, tf.stack([tf.cast(ids.dense_shape[0], tf.int32), length]), static)
    positions = tf.cast(ids.indices, tf.int32)
    kept = positions[:, 1] < length
    segments = tf.boolean_mask(positions[:, 0] * length + positions[:, 1], kept)
    source = ("first", length, id(ids))
    return Occurrences(source, tf.boolean_mask(ids.values, kept), segments, None, None, shape, static)


def _ragged(name: str, feature: Feature, combiner: Combiner, ids: Any, weights: Any) -> Occurrences:
    if ids.shape.rank != 2:
        raise ValueError(f"feature {name!r}: ragged ids must have rank 2, got rank {ids.shape.rank}")
    if weights is not None and weights.row_splits is not ids.row_splits:
        with tf.control_dependencies([_same(name, ids.row_splits, weights.row_splits, "row splits")]):
            weights = weights.with_values(tf.identity(weights.values))
    length, shape, static = _ragged_shape(name, feature, ids, weights)
    segments = row_numbers(ids.row_splits, tf.size(ids.values))
    if length:
        starts = tf.cast(ids.row_starts(), tf.int32)
        place = tf.range(tf.size(segments)) - tf.gather(starts, segments)
        kept = place < length
        segments = tf.boolean_mask(segments * length + place, kept)
        source = ("first", length, id(ids))
        return Occurrences(source, tf.boolean_mask(ids.values, kept), segments, None, None, shape, static)
    factors = None if weights is None else tf.cast(weights.values, tf.float32)
    if factors is None and combiner is not Combiner.SUM:
        counts = tf.cast(ids.row_lengths(), tf.float32)
        denominator = counts if combiner is Combiner.MEAN else tf.sqrt(counts)
    else:
        denominator = denominator_of(combiner, factors, segments, tf.cast(ids.nrows(), tf.int32))
    return Occurrences(("all", id(ids)), ids.values, segments, factors, denominator, shape, static)


def _ragged_shape(name: str, feature: Feature, ids: Any, weights: Any) -> tuple[int, Any, Any]:
    """Length of the sequence (0: combined), and shape and static shape of the result without dim."""
    batch, length = ids.shape[0], feature.max_sequence_length
    if feature.output_shape is None:
        shape = tf.cast(ids.nrows(), tf.int32)[None]
        static = tf.TensorShape([batch])
        return (length, tf.concat([shape, [length]], 0), [*static, length]) if length else (0, shape, static)
    output, size = feature.output_shape, math.prod(feature.output_shape)
    if batch is None:
        raise ValueError(
            f"feature {name!r} has output_shape {output}, so the batch size of its ragged ids must be known "
            "while tracing: batch with drop_remainder=True"
        )
    repeats, rest = divmod(size, batch) if batch else (0, size)
    if rest or repeats < 1:
        raise ValueError(
            f"feature {name!r}: output_shape {output} holds {size} vectors, which is not a multiple of the "
            f"batch size {batch}"
        )
    if length and repeats != length:
        raise ValueError(
            f"feature {name!r}: output_shape {output} makes sequences of {repeats} of a batch of {batch}, "
            f"but max_sequence_length is {length}"
        )
    if repeats > 1 and weights is not None:
        raise ValueError(
            f"feature {name!r}: output_shape {output} makes sequences of {repeats} of a batch of {batch}; "
            "a sequence is not combined, so it can't have weights"
        )
    return (repeats if repeats > 1 or length else 0), tf.constant(output, tf.int32), tf.TensorShape(output)


def row_numbers(splits: Any, count: Any) -> Any:
    """Row of each value: the number of inner splits at or before it; `value_rowids` pads every row to the longest."""
    inner = tf.cast(splits[1:-1], tf.int32)
    starting = tf.math.unsorted_segment_sum(tf.ones_like(inner), inner, count + 1)
    return tf.cumsum(starting)[:count]


def _own_shape(name: str, feature: Feature, shape: Any, static: Any) -> Any:
    """The input's shape, which `output_shape` must not contradict."""
    if feature.output_shape is None:
        return shape
    output = feature.output_shape
    if not static.is_compatible_with(output):
        raise ValueError(f"feature {name!r}: output_shape is {output}, but the input's shape is {static}")
    message = f"feature {name!r}: output_shape is {output}, but the input has a different shape"
    with tf.control_dependencies([tf.debugging.assert_equal(shape, tf.constant(output, tf.int32), message)]):
        return tf.constant(output, tf.int32) + 0


def _same(name: str, ours: Any, theirs: Any, what: str) -> Any:
    message = f"feature {name!r}: the {what} of the weights differ from those of the ids"
    with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(ours), tf.shape(theirs), message)]):
        return tf.debugging.assert_equal(ours, tf.cast(theirs, ours.dtype), message)


def denominator_of(combiner: Combiner, weights: Any, segments: Any, rows: Any) -> Any:
    """Divisor of each row's weighted sum: for mean sum(w), for sqrtn sqrt(sum(w^2)), for sum None."""
    if combiner is Combiner.SUM:
        return None
    weights = tf.ones_like(segments, tf.float32) if weights is None else weights
    if combiner is Combiner.MEAN:
        return tf.math.unsorted_segment_sum(weights, segments, rows)
    return tf.sqrt(tf.math.unsorted_segment_sum(weights * weights, segments, rows))


def check(feature: str, table: str, rows: int, ids: Any) -> Any:
    """An operation that fails if any id is outside [0, rows); `translated_errors` turns this into a VocabularyError.

    Args:
        rows: the table's vocabulary size.
        ids: int32 or int64 [n].
    """
    # As an unsigned number a negative id is huge: one pass over the ids checks both bounds.
    unsigned = tf.uint32 if ids.dtype == tf.int32 else tf.uint64
    largest = tf.reduce_max(tf.bitcast(ids, unsigned))
    # The bare operation: tf.debugging would add a condition with two branches, several times as slow.
    return tf.raw_ops.Assert(
        condition=largest < tf.constant(min(rows, unsigned.max), unsigned),
        data=[subject(feature, table, rows, ids.dtype), largest],
    )


def subject(feature: str, table: str, rows: int, dtype: tf.DType) -> str:
    """How the message of an id outside of a table begins, in brackets; the id follows, unsigned, in brackets."""
    return f"ids of feature {feature} in table {table} of {rows} rows, {dtype.name}"


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translates TensorFlow's errors about a step's inputs into embexp's.

    Raises:
        VocabularyError: an id is outside its table; names feature, table, id and vocabulary size.
        RunError: weights or an output shape do not fit the ids; names the feature. Or a TPU can't compile a step, or
            its SparseCores have no room for the ids of a table.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        text = str(error).replace("\\'", "'")  # TensorFlow escapes quotes
        if found := _OUTSIDE.search(text):
            feature, table, rows, bits, unsigned = found.groups()
            number = int(unsigned) - (1 << int(bits)) * (int(unsigned) >= 1 << (int(bits) - 1))
            raise VocabularyError(
                f"feature '{feature}' looks up id {number} in table '{table}', whose ids are 0 to {int(rows) - 1}"
                f" (vocabulary size {rows})"
            ) from error
        _, begun, rest = text.partition(UNCOMPILED)
        if begun:
            lines = [line.strip() for line in rest.splitlines() if line.strip()]  # AutoGraph indents them
            raise RunError("\n  ".join([begun, *lines])) from error
        if found := _INPUT.search(text):
            raise RunError(found.group()) from error
        raise


def check_names(call: str, values: Mapping[str, Any], features: Mapping[str, Feature]) -> None:
    """Raises ValueError unless a call got every feature once."""
    missing, unknown = sorted(set(features) - set(values)), sorted(set(values) - set(features))
    if missing or unknown:
        raise ValueError(f"{call} needs every feature exactly once: missing {missing}, unknown {unknown}")
