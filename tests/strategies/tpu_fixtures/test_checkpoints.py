"""Checkpoints: what is on the TPU is saved, what is restored gets there, the processor reads the same keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding
ROWS = 2  # as many as there are cores


def feature_of(value: float, rows: int = ROWS) -> tuple[Any, ...]:
    """One feature on `table`, [rows, 4], all of one value."""
    values = tf.constant_initializer(np.full((rows, 4), value))
    return (
        api.FeatureConfig(api.TableConfig(rows, 4, initializer=values, combiner="sum", name="table"), name="feature"),
    )


def built(strategy: Any, value: float) -> Any:
    """An embedding on the TPU whose table is all of one value."""
    with strategy.scope():
        embedding = api.TPUEmbedding(feature_of(value), api.SGD(0.1))
        embedding.build(64)
    embedding._load_variables()
    return embedding


def parameters(embedding: Any) -> np.ndarray:
    """The host's copy of the table."""
    return embedding._variables["table"]["parameters"].variables[0].numpy()


def saved_table(embedding: Any, folder: Path) -> np.ndarray:
    """Saves the embedding, and returns the only [ROWS, 4] entry of the checkpoint."""
    tf.train.Checkpoint(model=embedding).save(str(folder / "save"))
    path = tf.train.latest_checkpoint(str(folder))
    (name,) = (name for name, shape in tf.train.list_variables(path) if shape == [ROWS, 4])
    return tf.train.load_variable(path, name)


def again(strategy: Any) -> None:
    """Initialises the TPU anew, which empties it."""
    tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)


@original(("v2_checkpoint", "test_checkpoint_save_retrieves"))
def test_checkpoint_save_retrieves(case: Case, strategy: Any, tmp_path: Path) -> None:
    """Saving fetches what the TPU holds under the table's name, whoever put it there."""
    first = built(strategy, 1.0)
    np.testing.assert_array_equal(saved_table(first, tmp_path / "before"), np.full((ROWS, 4), 1.0))
    again(strategy)
    built(strategy, 2.0)
    np.testing.assert_array_equal(saved_table(first, tmp_path / "after"), np.full((ROWS, 4), 2.0))


@original(("v2_checkpoint", "test_checkpoint_restore_loads"))
def test_checkpoint_restore_loads(case: Case, strategy: Any, tmp_path: Path) -> None:
    """Restoring puts the values on the TPU: they are still there when fetched."""
    tf.train.Checkpoint(model=built(strategy, 1.0)).save(str(tmp_path / "save"))
    again(strategy)
    second = built(strategy, 2.0)
    np.testing.assert_array_equal(parameters(second), np.full((ROWS, 4), 2.0))
    tf.train.Checkpoint(model=second).restore(str(tmp_path / "save-1"))
    second._retrieve_variables()
    np.testing.assert_array_equal(parameters(second), np.full((ROWS, 4), 1.0))


class Holder(tf.Module):
    """A module that makes its embedding at once and the variables later."""

    def __init__(self, initializer: Any, rows: int) -> None:
        super().__init__()
        table = api.TableConfig(rows, 4, initializer=initializer, combiner="sum", name="table")
        self.embedding = api.TPUEmbedding((api.FeatureConfig(table, name="feature"),), api.SGD())


@original(("v2_checkpoint", "test_checkpoint_restore_before_variable_creation"))
def test_checkpoint_restore_before_variable_creation(case: Case, strategy: Any, tmp_path: Path) -> None:
    """Restored first and built then: the variables come up with the saved values, here and on the TPU."""
    rows = 2 * ROWS
    with strategy.scope():
        first = Holder(tf.ones_initializer(), rows)
        first.embedding.build(64)
    tf.train.Checkpoint(test_module=first).save(str(tmp_path / "save"))
    again(strategy)
    with strategy.scope():
        second = Holder(tf.zeros_initializer(), rows)
    tf.train.Checkpoint(test_module=second).restore(str(tmp_path / "save-1"))
    with strategy.scope():
        second.embedding.build(64)
    np.testing.assert_array_equal(parameters(second.embedding), np.ones((rows, 4)))
    second.embedding._retrieve_variables()
    np.testing.assert_array_equal(parameters(second.embedding), np.ones((rows, 4)))


def serving_of(features: Any, optimizer: Any) -> Any:
    """The same tables on the processor."""
    serving = api.TPUEmbeddingForServing(features, optimizer)
    serving.build()
    return serving


def export_and_predict(saved: Any, features: Any, folder: Path) -> np.ndarray:
    """Restores a checkpoint of `saved` on the processor, exports that, and looks up rows 1 and 0 of the export."""
    serving = serving_of(features, api.SGD(0.1))
    tf.train.Checkpoint(model=saved).save(str(folder / "save"))
    for variable in serving.embedding_tables.values():
        variable.assign(tf.zeros_like(variable))  # so that only restoring can bring the values
    tf.train.Checkpoint(model=serving).restore(str(folder / "save-1"))

    @tf.function(input_signature=[(tf.TensorSpec((2,), tf.int32, name="feature"),)])
    def serve(ids: Any) -> Any:
        return api.serving_embedding_lookup(ids, None, serving.embedding_tables, serving._feature_config)[0]

    signatures = {"serving_default": serve.get_concrete_function()}
    tf.saved_model.save(serving, str(folder / "exported"), signatures=signatures)
    predict = tf.saved_model.load(str(folder / "exported")).signatures["serving_default"]
    return predict(tf.constant([1, 0]))["output_0"].numpy()


@original(("v2_checkpoint", "test_model_export_cpu"))
def test_model_export_cpu(case: Case, strategy: Any, tmp_path: Path) -> None:
    """TPU → checkpoint → processor → SavedModel → lookup."""
    embedding = built(strategy, 1.0)
    np.testing.assert_allclose(export_and_predict(embedding, feature_of(1.0), tmp_path), np.ones((2, 4)))


@original(("v2_checkpoint", "test_check_checkpoint_variable_names_are_same_on_cpu_and_tpu"))
def test_variable_names_are_same_on_cpu_and_tpu(case: Case, strategy: Any, tmp_path: Path) -> None:
    """Names and shapes of all entries, slots too, are those of the processor's checkpoint."""
    make = {"sgd": api.SGD, "adagrad": api.Adagrad, "adam": api.Adam, "ftrl": api.FTRL}[case.variant]
    with strategy.scope():
        embedding = api.TPUEmbedding(feature_of(1.0), make(0.1))
        embedding.build(64)
    names_agree(embedding, serving_of(feature_of(1.0), make(0.1)), tmp_path)


def names_agree(embedding: Any, serving: Any, folder: Path) -> None:
    """Both save the same entries."""
    entries = []
    for name, saved in (("tpu", embedding), ("cpu", serving)):
        path = tf.train.Checkpoint(model=saved).save(str(folder / name / "save"))
        entries.append(tf.train.list_variables(path))
    assert entries[0] == entries[1]


def built_without_hardware(strategy: Any, value: float, optimizer: Any) -> Any:
    """A TPUEmbeddingV0, which looks up with plain TensorFlow operations, of one table."""
    with strategy.scope():
        embedding = api.TPUEmbeddingV0(feature_of(value, rows=4), optimizer)
        embedding.build()
    return embedding


@original(("v1_checkpoint", "test_checkpoint_save_and_restore"))
def test_v1_checkpoint_save_and_restore(case: Case, strategy: Any, tmp_path: Path) -> None:
    """One TPUEmbeddingV0's rows in another's."""
    first = built_without_hardware(strategy, 1.0, api.SGD(0.1))
    tf.train.Checkpoint(model=first).save(str(tmp_path / "save"))
    second = built_without_hardware(strategy, 2.0, api.SGD(0.1))
    tf.train.Checkpoint(model=second).restore(str(tmp_path / "save-1"))
    np.testing.assert_array_equal(second._variables["table"]["parameters"].numpy(), np.ones((4, 4)))


@original(("v1_checkpoint", "test_model_export_cpu"))
def test_v1_model_export_cpu(case: Case, strategy: Any, tmp_path: Path) -> None:
    """TPUEmbeddingV0 → checkpoint → processor → SavedModel → lookup."""
    embedding = built_without_hardware(strategy, 1.0, api.SGD(0.1))
    np.testing.assert_allclose(export_and_predict(embedding, feature_of(1.0, rows=4), tmp_path), np.ones((2, 4)))


@original(("v1_checkpoint", "test_check_checkpoint_variable_names_are_same_on_cpu_and_tpu"))
def test_v1_variable_names_are_same_on_cpu_and_tpu(case: Case, strategy: Any, tmp_path: Path) -> None:
    """TPUEmbeddingV0 saves the entries that the processor saves."""
    make = {"sgd": api.SGD, "adagrad": api.Adagrad, "adam": api.Adam, "ftrl": api.FTRL}[case.variant]
    embedding = built_without_hardware(strategy, 1.0, make(0.1))
    names_agree(embedding, serving_of(feature_of(1.0, rows=4), make(0.1)), tmp_path)
