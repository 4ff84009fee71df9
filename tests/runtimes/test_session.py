from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.checkpoints import restoring, store, streaming
from embexp.data.batches import Batch
from embexp.errors import VocabularyError
from embexp.fields.columns.tasks import BINARY
from embexp.runs.runtimes import session
from embexp.runs.runtimes import session as sessions
from embexp.runs.runtimes.execution import FunctionRuntime
from embexp.runs.runtimes.session import SessionRuntime
from embexp.specs.models import MLP
from embexp.specs.optimizers import Adagrad
from embexp.specs.tables import Feature
from embexp.strategies.strategy import OneDevice
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.training import models
from embexp.training.step import Input, Step
from tests.checkpoint_values import write_checkpoint

ROWS, DIM = 11, 3
VALUES = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def data(seed: int = 0, size: int = 5, batches: int = 4, largest: int = ROWS) -> tf.data.Dataset:
    random = np.random.default_rng(seed)

    def batch() -> Batch:
        lengths = random.integers(0, 4, size)
        bag = tf.RaggedTensor.from_row_lengths(random.integers(0, largest, lengths.sum()), lengths)
        ids = {"one": tf.constant(random.integers(0, largest, size)), "bag": bag}
        return Batch(ids, {}, tf.zeros([size, 0]), tf.constant(random.integers(0, 2, size), tf.float32))

    made = [batch() for _ in range(batches)]
    whole = tf.data.Dataset.from_tensors(made[0])
    for each in made[1:]:
        whole = whole.concatenate(tf.data.Dataset.from_tensors(each))
    return whole


def experiment() -> tuple[EmbeddingTable, Step, Any]:
    """The same in any graph, dropout included: what it draws is a state like any other."""
    rule = Adagrad(learning_rate=0.5)
    counter = tf.Variable(0, dtype=tf.int64, name="counter")
    table = EmbeddingTable("item", ROWS, DIM, slots=optimizers.slots_of(rule))
    features = {"one": Feature(table="item"), "bag": Feature(table="item")}
    engine = RowEngine({"item": table}, features, {"item": rule}, step=counter, total_steps=10)
    model = models.build_model(
        MLP(hidden=(4,), dropout=0.3), shapes=dict.fromkeys(features, (DIM,)), dense_width=0, output_bias=0.0, seed=1
    )
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    step = Step(
        engine,
        model,
        {name: Input(name) for name in features},
        OneDevice(),
        models.mean_loss(BINARY),
        optimizer,
        counter,
    )
    everything = tf.train.Checkpoint(
        embedding=TableCheckpoint([table]),
        model=model,
        optimizer=optimizer,
        random=models.random_state(model),
        step=counter,
    )
    return table, step, everything


class InSession:
    def __init__(self, spec: Any) -> None:
        with tf.Graph().as_default():
            table, step, self.checkpoint = experiment()
            self.runtime = SessionRuntime(step.train, step.predict, training_spec=spec, prediction_spec=spec)
            self.values = session.table_in_session(table, self.runtime.call)
            self.saver = streaming.saver_of(self.checkpoint)
        self.runtime.open([lambda session: table.variable.load(VALUES, session)])

    def save(self, prefix: str) -> None:
        self.runtime.call(lambda session: self.saver.save(session, prefix))


def in_function() -> tuple[EmbeddingTable, FunctionRuntime, Any]:
    table, step, checkpoint = experiment()
    table.write(0, VALUES)
    return table, FunctionRuntime(step.train, step.predict), checkpoint


def test_trains_as_the_function_runtime_does() -> None:
    table, function, _ = in_function()
    inside = InSession(data().element_spec)
    theirs, ours = iter(data()), iter(data())
    losses_of = [(function.train(theirs, 1), inside.runtime.train(ours, 1)) for _ in range(4)]
    np.testing.assert_allclose(*np.transpose(losses_of), rtol=1e-5)
    assert inside.runtime.train(iter(data(1)), 4) == pytest.approx(function.train(iter(data(1)), 4), rel=1e-5)
    rows = np.concatenate(list(inside.values.blocks()))
    np.testing.assert_allclose(rows, table.read(0, ROWS), atol=1e-5)
    assert np.any(rows != VALUES)
    assert inside.values.touched_rows() == table.touched_rows() > 0
    for (a, x), (b, y) in zip(function.predict(data(3)), inside.runtime.predict(data(3)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_its_checkpoint_is_restored_eagerly_and_the_other_way_round(tmp_path: Path) -> None:
    inside = InSession(data().element_spec)
    inside.runtime.train(iter(data()), 3)
    first = list(inside.runtime.predict(data(5)))
    (tmp_path / "saved").mkdir()
    inside.save(str(tmp_path / "saved" / "checkpoint"))

    table, function, checkpoint = in_function()
    restoring.read_run(checkpoint, tmp_path / "saved")
    assert table.digest() == inside.values.digest()
    for (_, x), (_, y) in zip(first, function.predict(data(5)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)

    function.train(iter(data(1)), 3)
    write_checkpoint(checkpoint, tmp_path / "eager")
    inside.runtime.call(lambda session: inside.saver.restore(session, store.prefix_in(tmp_path / "eager")))
    assert inside.values.digest() == table.digest()


def test_names_an_id_outside_the_vocabulary() -> None:
    inside = InSession(data().element_spec)
    with pytest.raises(VocabularyError, match=r"feature '(one|bag)' looks up id .* in table 'item'"):
        inside.runtime.train(iter(data(largest=10 * ROWS)), 4)


def test_a_monitored_session_is_filled_by_its_scaffold() -> None:
    spec = data().element_spec
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        table, step, _ = experiment()
        runtime = SessionRuntime(step.train, step.predict, training_spec=spec, prediction_spec=spec)
        values = session.table_in_session(table, runtime.call)
        scaffold = tf.compat.v1.train.Scaffold(init_fn=lambda _, session: table.variable.load(VALUES, session))
    runtime.open([], scaffold=scaffold)
    np.testing.assert_array_equal(np.concatenate(list(values.blocks())), VALUES)
    assert runtime.train(iter(data()), 2) > 0


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_bytes_of_operations_are_those_of_the_graph(size: int) -> None:
    def make(graph: tf.Graph) -> Callable[[], int]:
        with graph.as_default():
            tf.Variable(np.arange(size, dtype=np.float32), name="x" * 200)
        return lambda: graph.as_graph_def().ByteSize()

    empty, graph = tf.Graph(), tf.Graph()
    whole = make(graph)()
    assert sessions.node_bytes(graph.get_operations()) == whole - empty.as_graph_def().ByteSize()


def test_a_saver_that_would_leave_a_variable_without_a_value_is_refused() -> None:
    with tf.Graph().as_default():
        kept, lost = tf.Variable(1.0, name="kept"), tf.Variable(2.0, name="lost")
        with pytest.raises(ValueError, match="not part of the checkpoint: lost:0"):
            streaming.saver_of(tf.train.Checkpoint(kept=kept))
        streaming.saver_of(tf.train.Checkpoint(kept=kept, lost=lost))
