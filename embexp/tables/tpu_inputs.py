"""A feature's input as a TPU takes it.

What a feature may be given is what the row engine takes (see the table in `inputs`), and means the same. A TPU takes
less, so some inputs are put into another form on the host, without a loss:

| input                     | becomes                                                                               |
|---------------------------|---------------------------------------------------------------------------------------|
| dense [B]                 | itself                                                                                |
| dense [B, ...]            | dense [B, ..., 1]: a TPU drops the last dimension                                     |
| ragged                    | itself                                                                                |
| sparse                    | ragged, a row for each row of the result: a TPU takes no mixture of sparse and ragged |
| any, of a table whose     | two ragged ones, for the two parts of the table, with a row for each row of the       |
| rows partly never move    | result and weights w / denominator: both parts are summed, and then their sums        |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from embexp.specs.tables import Combiner, Feature
from embexp.tables import bounds, inputs
from embexp.tables.inputs import Occurrences
from embexp.tables.tpu_tables import TPUPart, TPUTable


@dataclass(frozen=True)
class Shaped:
    """How a feature's input goes to a TPU, as far as its type tells.

    Attributes:
        output: shape of the feature's activations on one replica without dim.
        as_is: the TPU takes the ragged input as it is, with the feature's own settings; else every row of the input
            that it is sent is one row of the result.
        dense: the input is dense.
        rows: of the input.
    """

    output: tuple[int, ...]
    as_is: bool
    dense: bool
    rows: int

    @property
    def enqueued(self) -> Any:
        """The shape that `TPUEmbedding.build` asks for: its last dimension is dropped."""
        return tf.TensorShape([*self.output, 1])


def shaped(name: str, feature: Feature, table: TPUTable, spec: Any) -> Shaped:
    """Says how a feature goes to a TPU.

    Args:
        name: of the feature, for errors.
        feature: how it is to be looked up; an `output_shape` is that of one replica.
        table: of its rows.
        spec: `tf.TypeSpec` of its ids on one replica.

    Raises:
        ValueError: the shape of its activations is not known in full, which a TPU needs.
    """
    shape = tf.TensorShape(spec.shape)
    dense = isinstance(spec, tf.TensorSpec)
    output = shape if dense else shape[:-1]
    if feature.output_shape is not None:
        output = tf.TensorShape(feature.output_shape)
    elif feature.max_sequence_length and not dense:
        output = tf.TensorShape([shape[0], feature.max_sequence_length])
    if not output.is_fully_defined() or shape[0] is None:
        raise ValueError(
            f"feature {name!r}: a TPU must know the shape of its activations beforehand, and {output} is not known in"
            " full; give batches of one size, or the feature an output_shape"
        )
    whole = table.index is None
    # Sequences of 1 would be taken for bags, as there are as many results as rows.
    bags = isinstance(spec, tf.RaggedTensorSpec) and not (
        feature.max_sequence_length and output.num_elements() == shape[0]
    )
    return Shaped(tuple(output.as_list()), whole and bags, whole and dense, shape[0])


@dataclass(frozen=True, eq=False)
class Enqueued:
    """What one replica's features are to a TPU.

    Attributes:
        ids: by the TPU's feature: dense or ragged.
        weights: by the TPU's feature, ragged as the ids; None for all 1.
        checks: operations that must have succeeded before the ids are looked up.
        read: by feature, what it names.
    """

    ids: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    checks: list[Any] = field(default_factory=list)
    read: dict[str, Occurrences] = field(default_factory=dict)


def add(into: Enqueued, name: str, feature: Feature, table: TPUTable, form: Shaped, value: Any) -> None:
    """Adds one feature to what a replica enqueues.

    Args:
        into: takes it.
        name: of the feature.
        feature: how it is to be looked up; an `output_shape` is that of one replica.
        table: of its rows.
        form: see `shaped`.
        value: ids, or a pair (ids, weights).

    Raises:
        ValueError: the input is none that `inputs` allows.
    """
    read = inputs.occurrences(name, feature, table.combiner, value)
    into.read[name] = read
    check = bounds.check(name, table.name, table.rows, read.ids)
    into.checks.append(check)
    with tf.control_dependencies([check]):
        ids, weights = value if isinstance(value, tuple) else (value, None)
        if form.dense:
            ids = tf.identity(ids)
            into.ids[name] = ids if ids.shape.rank == 1 else ids[..., None]
            into.weights[name] = None
        elif form.as_is:
            # tf.data does not always know how many rows a batch has.
            splits = tf.ensure_shape(ids.row_splits, [form.rows + 1])
            into.ids[name] = tf.RaggedTensor.from_row_splits(tf.identity(ids.values), splits, validate=False)
            into.weights[name] = weights
        elif table.index is None:
            rows = tf.identity(_segments(read))
            into.ids[name] = _ragged(read.ids, rows, form)
            into.weights[name] = None if read.weights is None else _ragged(read.weights, rows, form)
        else:
            _add_parts(into, name, table, form, read)


def _add_parts(into: Enqueued, name: str, table: TPUTable, form: Shaped, read: Occurrences) -> None:
    places = tf.gather(table.index.read_value(), read.ids)
    rows = _segments(read)
    factors = _normalised(read)
    for part in table.parts:
        mine = places >= 0 if part.still else places < 0
        own = tf.boolean_mask(places, mine)
        own_rows = tf.boolean_mask(rows, mine)
        key = feature_of(name, table, part)
        into.ids[key] = _ragged(own if part.still else -1 - own, own_rows, form)
        into.weights[key] = None if factors is None else _ragged(tf.boolean_mask(factors, mine), own_rows, form)


def feature_of(name: str, table: TPUTable, part: TPUPart) -> str:
    """Name of the TPU's feature for one part of a table."""
    return f"{name}/fixed" if table.index is not None and part.still else name


def combiner_of(table: TPUTable) -> Combiner:
    """The combiner of the TPU's tables: weights of a table in parts are normalised beforehand."""
    return table.combiner if table.index is None else Combiner.SUM


def _segments(read: Occurrences) -> Any:
    return tf.range(tf.size(read.ids)) if read.segments is None else read.segments


def _normalised(read: Occurrences) -> Any:
    """Weight / denominator of each occurrence; None if all are 1."""
    if read.denominator is None:
        return read.weights
    of_rows = tf.gather(read.denominator, read.segments)
    return tf.math.divide_no_nan(tf.ones_like(of_rows) if read.weights is None else read.weights, of_rows)


def _ragged(values: Any, rows: Any, form: Shaped) -> Any:
    """Values of rows that rise, with a row for each row of the result."""
    count = tf.TensorShape(form.output).num_elements()
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, count)
    splits = tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)
    return tf.RaggedTensor.from_row_splits(values, tf.ensure_shape(splits, [count + 1]), validate=False)
