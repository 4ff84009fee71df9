"""The runtimes' `start`, its input and its result: a blueprint, and its execution. And the function runtime.

That is a `tf.function` of many steps a call, so that Python costs little even if steps are small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.checkpoints import naming, restoring, streaming
from embexp.checkpoints.account import Account, LiveAccount
from embexp.checkpoints.restoring import DenseValues
from embexp.initialization import filling
from embexp.initialization.filling import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.system import native
from embexp.system.parallel import Progress, quiet
from embexp.tables import inputs
from embexp.tables.optimizers import StepsInAll
from embexp.tables.variables import ReadableTable
from embexp.training.loop import Runtime
from embexp.training.step import Assembly


@dataclass(frozen=True)
class Blueprint:
    """What every runtime needs to make an experiment's variables, in any graph.

    Attributes:
        plans: the tables before their variables are made, by name.
        features: the features that look them up, by name.
        columns: the column of the data that each feature reads.
        assemble: makes everything but the tables in the current graph, from these and the number of steps done.
        training_spec: `element_spec` of the training data; None: nothing is trained.
        prediction_spec: makes `element_spec` of the evaluation data, which only sessions need, outside of any graph.
        estimator_folder: where an Estimator writes its checkpoints; TensorFlow takes its path as it is.
        keeps_checkpoints: whether these stay when the run has ended.
        dense: from the assembly's checkpoint, the values of the dense part that an earlier checkpoint has.
        restored: restores variables into the assembly's checkpoint, in a graph when its account is run; returns None
            where nothing is to be restored.
        fills_all: whether all tables are filled, or only those that checkpoints lack, as one is restored next.
        steps_before: those of earlier runs that schedules go on from.
        most_ids: of features whose examples have several ids each, the most that one has, as far as it is known.
    """

    plans: Mapping[str, TablePlan]
    features: Mapping[str, Feature]
    columns: Mapping[str, str]
    assemble: Callable[[Embeddings, Any], Assembly]
    strategy: Strategy
    total_steps: int
    training_spec: Any = None
    prediction_spec: Callable[[], Any] = lambda: None
    estimator_folder: Path = Path("unused")
    keeps_checkpoints: bool = True
    dense: Callable[[Any], DenseValues] = lambda checkpoint: DenseValues([])
    restored: Callable[[Any], LiveAccount | None] = lambda checkpoint: None
    fills_all: bool = True
    steps_before: int = 0
    most_ids: Mapping[str, int] = field(default_factory=dict)

    def embeddings(self, counter: Any) -> Embeddings:
        """Makes the tables, as the strategy does; `counter` is the number of steps done."""
        inputs = {name: self.training_spec.ids[column] for name, column in self.columns.items()}
        counted = StepsInAll(counter, self.steps_before) if self.steps_before else counter
        return self.strategy.embeddings(self.plans, self.features, inputs, counted, self.total_steps, self.most_ids)


class Save(Protocol):
    """Writes a checkpoint to a prefix."""

    def __call__(self, prefix: str, *, progress: Progress = quiet) -> object:
        """`progress` is called as rows of tables are written."""


@dataclass(frozen=True)
class Execution:
    """An experiment in a runtime, ready to be trained, read and saved.

    Attributes:
        tables: the tables, to be read, by name.
        save: writes everything that is learned to a prefix, as an object-based checkpoint; see `store.write_by`.
        restore: restores everything that is learned from the directory of such a checkpoint.
        checkpoint: the `tf.train.Checkpoint` that `save` writes, if its variables are eager.
        names: returns the global name of each variable in a checkpoint, by its key; see `naming.variable_names`.
        seconds: how long making and filling the tables has taken so far.
        graph_def_bytes: bytes that tables and their initialization take in the graph.
        close: frees the runtime's resources.
        dataset: what the training iterates over, from a dataset of whole batches.
        graph: the graph of the training step for such an iterator, traced and not run; None: it can't be traced.
        embedding: on a TPU, its `TPUEmbedding`.
        notes: warnings of the strategy and of the restored dense part.
        restored: what was restored before the first step; None: nothing.
        reset: gives rows that start again with an epoch their initial values; see `Strategy.reset`.
    """

    runtime: Runtime
    tables: Mapping[str, ReadableTable]
    save: Save
    restore: Callable[[Path], object]
    names: Callable[[], Mapping[str, str]]
    seconds: Callable[[], float]
    graph_def_bytes: Callable[[], int]
    close: Callable[[], object] = lambda: None
    checkpoint: Any = None
    dataset: Callable[[Any], Any] = lambda batches: batches
    graph: Callable[[Any], Any] | None = None
    embedding: Any = None
    notes: list[str] = field(default_factory=list)
    restored: Account | None = None
    reset: Callable[[], Mapping[str, int]] = dict


class Stopwatch:
    """Counts the seconds that pass inside its blocks.

    Attributes:
        seconds: the sum over all blocks so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def start_function(blueprint: Blueprint) -> Execution:
    """Makes eager variables and a `tf.function`, in any strategy."""
    watch, strategy = Stopwatch(), blueprint.strategy
    with strategy.counter_scope():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    with watch, strategy.host():
        embeddings = blueprint.embeddings(counter)
    parts = blueprint.assemble(embeddings, counter)  # first: a fault of a user's own model need not wait for the rows
    with watch, strategy.host():
        filled = {name: table for name, table in embeddings.tables.items() if blueprint.fills_all or table.by_reference}
        if filling.fill_tables(filled, blueprint.plans):
            embeddings.load()
    dense = blueprint.dense(parts.checkpoint)
    dense.assign()
    restored = blueprint.restored(parts.checkpoint)
    if restored is not None:
        embeddings.load()
    function = FunctionRuntime(parts.step.train, parts.step.predict, dataset=strategy.predicted, labels=strategy.labels)
    runtime = strategy.conducted(function, parts)

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
        graph=function.graph,
        embedding=embeddings.embedding,
        notes=[*strategy.notes, *dense.notes],
        restored=None if restored is None else restored.now,
        reset=partial(strategy.reset, embeddings.tables, blueprint.plans),
    )


class FunctionRuntime:
    """Executes one traced step, over and over, on the iterator of a dataset.

    All variables must exist: tracing creates none.

    Attributes:
        graph_def_bytes: size of the training function's GraphDef in bytes; None before the first step.
        fused_operations: the libraries of fused operations that this function calls; None before the first step.
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
        self.fused_operations: list[str] | None = None

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
            graph = self.graph(iterator).as_graph_def()
            self.graph_def_bytes, self.fused_operations = graph.ByteSize(), native.used(graph)
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
