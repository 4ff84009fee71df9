"""A program that trains one table on a TPU of either generation, for inputs of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding_v3_utils

from embexp.strategies.tpu import reported
from tests.strategies.simulation.reference import RULES, Ids

api = tf.tpu.experimental.embedding
ROWS, DIM, SAMPLES = 11, 3, 4
COMBINERS = ("sum", "mean", "sqrtn")
KINDS = ("dense", "ragged", "ragged with weights", "sparse", "sparse with weights")
GRADIENT = np.arange(SAMPLES * DIM, dtype=np.float32).reshape(SAMPLES, DIM) / 4 - 0.5


def of_kind(kind: str, lists: Ids) -> Ids:
    """One id for each sample where ids are dense, and weights of 1 where there are none."""
    if kind == "dense":
        return [[(one[0][0] if one else 0, 1.0)] for one in lists]
    return lists if "weights" in kind else [[(number, 1.0) for number, _ in one] for one in lists]


def as_tensors(kind: str, lists: Ids) -> tuple[Any, Any]:
    """Ids, and weights or None."""
    numbers, weights = ([[each[part] for each in one] for one in lists] for part in (0, 1))
    if kind == "dense":
        return tf.constant([one[0] for one in numbers], tf.int32), None
    ids = tf.RaggedTensor.from_row_lengths(
        tf.constant(list(itertools.chain(*numbers)), tf.int32), [len(one) for one in numbers]
    )
    own = ids.with_values(tf.constant(list(itertools.chain(*weights)), tf.float32))
    if kind.startswith("sparse"):
        ids, own = (tf.sparse.reorder(each.to_sparse()) for each in (ids, own))
    return ids, own if "weights" in kind else None


def optimizer_of(name: str) -> Any:
    rule = RULES[name]
    return getattr(api, name)(rule.rate, **rule.own)


def train(strategy: Any, rule: str, combiner: str, kind: str, batches: Sequence[Sequence[Ids]]) -> Any:
    """Trains a table of the TPU's own hardware, V1 or V2.

    The gradient of an activation is its number among all of a replica, less one half.

    Args:
        batches: for each step the ids of each replica.

    Returns:
        Activations by step and replica, and the table and its slots after all steps.
    """
    feature = reported(strategy)
    make = api.TPUEmbedding if feature == "V1" else api.TPUEmbeddingV2
    with strategy.scope():
        config = api.TableConfig(ROWS, DIM, tf.constant_initializer(0.75), combiner=combiner, name="items")
        features = {"seen": api.FeatureConfig(config, output_shape=[SAMPLES], name="seen")}
        embedding = make(features, optimizer_of(rule))
        embedding.build()

    def first() -> Any:
        found = embedding.dequeue()
        embedding.apply_gradients({"seen": tf.constant(GRADIENT)})
        return found["seen"]

    def second(ids: Any, weights: Any) -> Any:
        found, kept = embedding({"seen": ids}, None if weights is None else {"seen": weights})
        embedding.apply_gradients({"seen": tf.constant(GRADIENT)}, kept)
        return found["seen"]

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(ids: Any, weights: Any) -> Any:
        own = strategy.experimental_distribute_values_from_function(
            lambda context: (ids[context.replica_id_in_sync_group], weights[context.replica_id_in_sync_group])
        )
        if feature == "V1":
            embedding.enqueue({"seen": own[0]}, None if weights[0] is None else {"seen": own[1]}, training=True)
            return strategy.experimental_local_results(strategy.run(first))
        return strategy.experimental_local_results(strategy.run(second, args=own))

    found = []
    for batch in batches:
        ids, weights = zip(*(as_tensors(kind, each) for each in batch), strict=True)
        found.append([value.numpy() for value in step(list(ids), list(weights))])
    slots = ["parameters", *RULES[rule].slots]
    if feature == "V2":
        return found, {slot: rows_of(embedding, "items", slot) for slot in slots}
    embedding._retrieve_variables()
    return found, {slot: embedding._variables["items"][slot].variables[0].numpy() for slot in slots}


def rows_of(embedding: Any, name: str, slot: str = "parameters") -> np.ndarray:
    """All rows of a table in their order, by TensorFlow's own function."""
    layout = embedding.embedding_layouts[name]
    parts = [part.numpy() for part in embedding.variables[layout.stacked_table_name][slot].values]
    whole = tpu_embedding_v3_utils.unshuffle_from_sc_to_cpu(
        tf.constant(np.concatenate(parts)),
        layout.num_sparse_cores,
        layout.sparse_core_shard_row_offset,
        layout.unsharded_padded_shape[0] // layout.num_sparse_cores,
        layout.sparse_core_shard_rotation,
    )
    rows: np.ndarray = whole.numpy()[: layout.unsharded_shape[0], : layout.unsharded_shape[1]]
    return rows
