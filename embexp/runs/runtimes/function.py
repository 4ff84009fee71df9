"""The function runtime: a `tf.function` of many steps a call, so that Python costs little even if steps are small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import naming, restoring, streaming
from embexp.initialization import filling
from embexp.runs.runtimes.execution import Blueprint, Execution, Stopwatch
from embexp.tables import inputs


def start(blueprint: Blueprint) -> Execution:
    """Makes eager variables and a `tf.function`, in any strategy."""
    watch, strategy = Stopwatch(), blueprint.strategy
    with strategy.counter_scope():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    with watch, strategy.host():
        embeddings = blueprint.embeddings(counter)
        filled = {name: table for name, table in embeddings.tables.items() if blueprint.fills_all or table.by_reference}
        if filling.fill_tables(filled, blueprint.plans):
            embeddings.load()
    parts = blueprint.assemble(embeddings, counter)
    dense = blueprint.dense(parts.checkpoint)
    dense.assign()
    restored = blueprint.restored(parts.checkpoint)
    if restored is not None:
        embeddings.load()
    runtime = FunctionRuntime(parts.step.train, parts.step.predict, dataset=strategy.dataset, labels=strategy.labels)

    def restore(directory: Path) -> None:
        restoring.read_run(parts.checkpoint, directory)
        embeddings.load()

    return Execution(
        runtime=runtime,
        tables=embeddings.tables,
        save=partial(streaming.write, parts.checkpoint),
        restore=restore,
        checkpoint=parts.checkpoint,
        names=partial(naming.variable_names, parts.checkpoint),
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: 0,  # tables are filled eagerly: no graph holds anything of them
        dataset=strategy.dataset,
        graph=runtime.graph,
        embedding=embeddings.embedding,
        notes=[*strategy.notes, *dense.notes],
        restored=None if restored is None else restored.now,
    )


class FunctionRuntime:
    """Executes one traced step, over and over, on the iterator of a dataset.

    All variables must exist: tracing creates none.

    Attributes:
        graph_def_bytes: size of the training function's GraphDef in bytes; None before the first step.
    """

    def __init__(
        self,
        train: Callable[[Any], Any],
        predict: Callable[[Any], Any],
        *,
        dataset: Callable[[Any], Any] = lambda batches: batches,
        labels: Callable[[Any], Any] = lambda batch: batch.labels,
    ) -> None:
        """Takes the functions of one step.

        Args:
            train: `train(batch) -> loss`.
            predict: `predict(batch) -> logits [B]`.
            dataset: what predictions iterate over, from a dataset of whole batches.
            labels: all labels of an element of that, float32 [B].
        """
        # A sum in double precision, so the mean over an interval does not depend on the number of calls.
        loss_sum = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="loss_sum")

        # Without AutoGraph, which would take longer to rewrite the functions of a step than TensorFlow to trace them.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def train_steps(iterator: Any, steps: Any) -> Any:
            def step(done: Any) -> Any:
                loss_sum.assign_add(tf.cast(train(next(iterator)), tf.float64))
                return done + 1

            loss_sum.assign(0.0)
            tf.while_loop(lambda done: done < steps, step, [tf.constant(0, tf.int64)])
            return loss_sum.read_value()

        self._train_steps = train_steps
        self._predict = tf.function(predict, autograph=False)
        self._dataset, self._labels = dataset, labels
        self.graph_def_bytes: int | None = None

    def graph(self, iterator: Any) -> Any:
        """The graph of the training function, traced unless it is already."""
        return self._train_steps.get_concrete_function(iterator, tf.constant(1, tf.int64)).graph

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps and returns the sum of their losses.

        Raises:
            VocabularyError: an id is outside its table.
            RunError: another fault of the inputs.
        """
        count = tf.constant(steps, tf.int64)
        if self.graph_def_bytes is None:
            self.graph_def_bytes = self.graph(iterator).as_graph_def().ByteSize()
        with inputs.translated_errors():
            return float(self._train_steps(iterator, count))

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels and logits, float32 [B] both."""
        shared = self._dataset(batches)
        # One graph for batches of every size, such as the last one of each split.
        predict = self._predict.get_concrete_function(shared.element_spec)
        for batch in shared:
            with inputs.translated_errors():
                logits = predict(batch).numpy()
            yield self._labels(batch).numpy(), logits
