"""Converts a feature's input to a form that a TPU takes.

Allowed inputs are those of the row engine (see the table in `inputs`), with the same meaning. A TPU takes fewer forms,
so the host converts some inputs, without loss:

| input                     | becomes                                                                               |
|---------------------------|---------------------------------------------------------------------------------------|
| dense [B]                 | itself                                                                                |
| dense [B, ...]            | dense [B, ..., 1]: a TPU drops the last dimension                                     |
| ragged                    | itself                                                                                |
| sparse                    | ragged, a row for each row of the result: a TPU takes no mixture of sparse and ragged |
| any, of a table with some | two ragged ones, for the two device tables, with a row for each row of the result and |
| frozen rows               | weights w / denominator: each device table sums its rows, then the sums are added     |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from embexp.specs.tables import Combiner, Feature
from embexp.tables import bounds, inputs
from embexp.tables.device_tables import DeviceTable
from embexp.tables.inputs import Occurrences
from embexp.tables.tpu_tables import TPUTable


@dataclass(frozen=True)
class TPUInput:
    """The form in which a feature's input goes to a TPU, derived from its type.

    Attributes:
        output: shape of the feature's activations on one replica, without dim.
        as_is: the TPU takes the ragged input unchanged, with the feature's own settings; else each row of the converted
            input is one row of the result.
        dense: the input is dense.
        rows: number of rows of the input.
    """

    output: tuple[int, ...]
    as_is: bool
    dense: bool
    rows: int

    @property
    def enqueued(self) -> Any:
        """The shape for `TPUEmbedding.build`, which drops the last dimension."""
        return tf.TensorShape([*self.output, 1])


def input_form(name: str, feature: Feature, table: TPUTable, spec: Any) -> TPUInput:
    """The form in which a feature goes to a TPU.

    Args:
        name: of the feature, for errors.
        feature: its settings; an `output_shape` is that of one replica.
        table: its table.
        spec: `tf.TypeSpec` of its ids on one replica.

    Raises:
        ValueError: the shape of its activations is not fully known, which a TPU needs.
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
            f"feature {name!r}: a TPU must know the shape of its activations beforehand, but {output} is not fully"
            " known; give batches of one size, or the feature an output_shape"
        )
    whole = table.index is None
    # Sequences of 1 would be taken for bags, as there are as many results as rows.
    bags = isinstance(spec, tf.RaggedTensorSpec) and not (
        feature.max_sequence_length and output.num_elements() == shape[0]
    )
    return TPUInput(tuple(output.as_list()), whole and bags, whole and dense, shape[0])


@dataclass(frozen=True, eq=False)
class Enqueued:
    """One replica's inputs in the form that a TPU takes.

    Attributes:
        ids: by the TPU's feature, dense or ragged.
        weights: by the TPU's feature, ragged like the ids; None for all 1.
        checks: operations that must have succeeded before the ids are looked up.
        read: by feature.
    """

    ids: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    checks: list[Any] = field(default_factory=list)
    read: dict[str, Occurrences] = field(default_factory=dict)


def add(into: Enqueued, name: str, feature: Feature, table: TPUTable, form: TPUInput, value: Any) -> None:
    """Adds one feature to a replica's inputs.

    Args:
        into: the replica's inputs.
        name: of the feature.
        feature: its settings; an `output_shape` is that of one replica.
        table: its table.
        form: from `input_form`.
        value: ids, or a pair (ids, weights).

    Raises:
        ValueError: `inputs` does not allow the input.
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
            _add_to_both(into, name, table, form, read)


def _add_to_both(into: Enqueued, name: str, table: TPUTable, form: TPUInput, read: Occurrences) -> None:
    places = tf.gather(table.index.read_value(), read.ids)
    rows = _segments(read)
    factors = _normalised(read)
    for device_table in table.device_tables:
        mine = places >= 0 if device_table.frozen else places < 0
        own = tf.boolean_mask(places, mine)
        own_rows = tf.boolean_mask(rows, mine)
        key = feature_of(name, table, device_table)
        into.ids[key] = _ragged(own if device_table.frozen else -1 - own, own_rows, form)
        into.weights[key] = None if factors is None else _ragged(tf.boolean_mask(factors, mine), own_rows, form)


def feature_of(name: str, table: TPUTable, device_table: DeviceTable) -> str:
    """Name of the TPU's feature for one device table."""
    return f"{name}/fixed" if table.index is not None and device_table.frozen else name


def combiner_of(table: TPUTable) -> Combiner:
    """The combiner of the device tables: weights for two of them are normalised beforehand."""
    return table.combiner if table.index is None else Combiner.SUM


def _segments(read: Occurrences) -> Any:
    return tf.range(tf.size(read.ids)) if read.segments is None else read.segments


def _normalised(read: Occurrences) -> Any:
    """Weight / denominator of each occurrence; None if all are 1."""
    if read.denominator is None:
        return read.weights
    of_rows = tf.gather(read.denominator, read.segments)
    return tf.math.divide_no_nan(tf.ones_like(of_rows) if read.weights is None else read.weights, of_rows)


def _ragged(values: Any, rows: Any, form: TPUInput) -> Any:
    """A ragged tensor with a row for each row of the result; `rows` are the row numbers of `values`, rising."""
    count = tf.TensorShape(form.output).num_elements()
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, count)
    splits = tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)
    return tf.RaggedTensor.from_row_splits(values, tf.ensure_shape(splits, [count + 1]), validate=False)
