"""The session runtime: a graph of TensorFlow 1, one `session.run` a step, its batch fed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf

from embexp.checkpoints import naming, store, streaming
from embexp.initialization import filling, scaffolding
from embexp.initialization.method import Fill, SessionFills
from embexp.runs.runtimes.execution import Blueprint, Execution, Stopwatch
from embexp.strategies import pieces
from embexp.system import native
from embexp.system.parallel import quiet
from embexp.tables import inputs
from embexp.tables.row_engine import AnyTable
from embexp.tables.variables import SINGLE, Precision, ReadableTable, TouchedRows
from embexp.vectors import array_files


def start(blueprint: Blueprint) -> Execution:
    """Makes a graph of TensorFlow 1 and a session, a monitored one where a table has init=scaffold."""
    watch, strategy = Stopwatch(), blueprint.strategy
    prediction_spec = blueprint.prediction_spec()
    graph = tf.Graph()
    with graph.as_default():
        with strategy.counter_scope():
            counter = tf.compat.v1.train.get_or_create_global_step()
        before = len(graph.get_operations())
        with watch, strategy.host():
            embeddings = blueprint.embeddings(counter)
            # Sessions run on one device, whose tables are variables of the graph.
            tables = cast(Mapping[str, AnyTable], embeddings.tables)
            fills = filling.fill_in_sessions(tables, blueprint.plans)
        of_tables = graph.get_operations()[before:]
        parts = blueprint.assemble(embeddings, counter)
        runtime = SessionRuntime(
            parts.step.train,
            parts.step.predict,
            training_spec=blueprint.training_spec,
            prediction_spec=prediction_spec,
        )
        values = {name: table_in_session(table, runtime.call) for name, table in tables.items()}
        fills.add(pieces.cut_in_session(), always=True)
        dense = blueprint.dense(parts.checkpoint)
        fills.once.append(dense.fill)
        restored = blueprint.restored(parts.checkpoint)
        if restored is not None:

            def restore_named(session: Any) -> None:
                restored.run_restore_ops(session)

            fills.once.append(restore_named)
        saver = streaming.saver_of(parts.checkpoint)
        names = naming.variable_names(parts.checkpoint)
        scaffold = timed_scaffold(fills, saver.saver, Stopwatch()) if fills.scaffold else None
    with watch:
        runtime.open(fills.always if scaffold else [*fills.once, *fills.always], filled=fills.whole, scaffold=scaffold)

    def restore(directory: Path) -> None:
        runtime.call(partial(saver.restore, prefix=store.prefix_in(directory)))

    return Execution(
        runtime=runtime,
        tables=values,
        save=lambda prefix, *, progress=quiet: runtime.call(partial(saver.save, prefix=prefix, progress=progress)),
        restore=restore,
        names=lambda: names,
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: node_bytes(of_tables),
        close=runtime.close,
        notes=[*strategy.notes, *dense.notes],
        restored=None if restored is None else restored.now,
    )


class SessionRuntime:
    """Executes one traced step, over and over, inside a `tf.compat.v1.Session`.

    Its graph, in which all variables exist, is the default one when it is made. `open` comes before everything else.

    Attributes:
        fused_operations: the libraries of fused operations that the training step calls.
    """

    def __init__(
        self,
        train: Callable[[Any], Any],
        predict: Callable[[Any], Any],
        *,
        training_spec: Any,
        prediction_spec: Any,
    ) -> None:
        """Adds the functions of a step to the graph.

        Args:
            train: `train(batch) -> loss`.
            training_spec: `element_spec` of the dataset that trains.
            prediction_spec: `element_spec` of the datasets to predict.
        """
        self._graph = tf.compat.v1.get_default_graph()
        # One traced function each: operations that Keras' optimizers inline into such a graph change no variable.
        self._train_feeds, self._predict_feeds = Feeds(training_spec), Feeds(prediction_spec)
        step = tf.function(train, autograph=False)
        self._loss = step(self._train_feeds.batch)
        self.fused_operations = called(step, self._train_feeds.batch)
        self._logits = tf.function(predict, autograph=False)(self._predict_feeds.batch)
        self._session: Any = None

    def open(self, fills: Sequence[Fill], *, filled: Sequence[Any] = (), scaffold: Any = None) -> None:
        """Makes the session: initializes every variable, then calls `fills`.

        Args:
            fills: called in their order.
            filled: variables whose initial values come from `fills`; without a scaffold, nothing else initializes them.
            scaffold: a `tf.compat.v1.train.Scaffold`, for a `MonitoredTrainingSession`, which calls its init functions
                before `fills`. None: a plain `Session`.
        """
        with self._graph.as_default():
            if scaffold is None:
                self._session = tf.compat.v1.Session()
                variables = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
                others = [variable for variable in variables if not any(variable is one for one in filled)]
                self._session.run(tf.compat.v1.variables_initializer(others))
            else:
                self._session = tf.compat.v1.train.MonitoredTrainingSession(
                    scaffold=scaffold, save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None
                )
        for fill in fills:
            self.call(fill)

    def call(self, function: Callable[[Any], Any]) -> Any:
        """Calls a function with the `Session`, its graph being the default one, and returns its result."""
        with self._graph.as_default():
            if isinstance(self._session, tf.compat.v1.Session):
                return function(self._session)
            return self._session.run_step_fn(lambda step_context: function(step_context.session))

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps and returns the sum of their losses.

        Raises:
            VocabularyError: an id is outside its table.
            RunError: another fault of the inputs.
        """
        total = 0.0
        with inputs.translated_errors():
            for _ in range(steps):
                total += float(self._session.run(self._loss, self._train_feeds.feed_dict(components(next(iterator)))))
        return total

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels, float32 [B], and logits, [B] or [B, C]."""
        for batch in batches:
            with inputs.translated_errors():
                logits = self._session.run(self._logits, self._predict_feeds.feed_dict(components(batch)))
            yield batch.labels.numpy(), logits

    @property
    def graph_def_bytes(self) -> int:
        """Size of the whole graph's GraphDef in bytes."""
        return int(self._graph.as_graph_def().ByteSize())

    def close(self) -> None:
        """Frees the session's memory."""
        if self._session is not None:
            self._session.close()


class Feeds:
    """Placeholders for the batches of an eager dataset, in the current graph; ragged columns in their components.

    Attributes:
        batch: the placeholders, in the structure of the dataset's elements.
    """

    def __init__(self, element_spec: Any) -> None:
        """Makes a placeholder for each component of a dataset's `element_spec`."""
        parts = tf.nest.flatten(element_spec, expand_composites=True)
        self._placeholders = [tf.compat.v1.placeholder(part.dtype, part.shape) for part in parts]
        self.batch = tf.nest.pack_sequence_as(element_spec, self._placeholders, expand_composites=True)

    def feed_dict(self, values: list[np.ndarray]) -> dict[Any, np.ndarray]:
        """The `feed_dict` of a batch with these `components`."""
        return dict(zip(self._placeholders, values, strict=True))


def called(step: Any, batch: Any) -> list[str]:
    """The libraries of fused operations that a `tf.function` calls, which has been called with this batch."""
    return native.used(step.get_concrete_function(batch).graph.as_graph_def())


def components(batch: Any) -> list[np.ndarray]:
    """The arrays of an eager batch, which share its memory."""
    return [part.numpy() for part in tf.nest.flatten(batch, expand_composites=True)]


def timed_scaffold(fills: SessionFills, saver: Any, watch: Stopwatch) -> Any:
    """The `tf.compat.v1.train.Scaffold` of a run, whose init function fills tables while `watch` counts."""

    def fill_once(_: Any, session: Any) -> None:
        for fill in fills.once:
            fill(session)

    scaffold = scaffolding.scaffold(fills.scaffold, init_fn=fill_once, saver=saver)
    untimed = scaffold.init_fn

    def timed(session: Any) -> None:
        with watch:
            untimed(session)

    scaffold._init_fn = timed  # a copy of the scaffold would not be of its class
    return scaffold


def node_bytes(operations: Iterable[Any]) -> int:
    """Bytes that some operations of a graph take in its GraphDef, without the functions that they call.

    Counted one by one: a constant among them may be so large that a copy of the whole graph would not fit.
    """
    sizes = (operation.node_def.ByteSize() for operation in operations)
    # Each is a field of the GraphDef: a tag, its size as a varint, and the message itself.
    return sum(1 + max(1, -(-size.bit_length() // 7)) + size for size in sizes)


@dataclass(frozen=True)
class TableView(ReadableTable):
    """A table whose rows are read by functions.

    Attributes:
        reads: reads rows [start, stop), float32.
        takes: reads rows by rising numbers, float32; None: `reads` does.
        touched_state: which rows training steps have looked up, and when; None: not tracked.
    """

    name: str
    rows: int
    dim: int
    frozen: bool
    storage: str
    reads: Callable[[int, int], np.ndarray]
    takes: Callable[[np.ndarray], np.ndarray] | None = None
    touched_state: TouchedRows | None = None
    precision: Precision = SINGLE

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop), float32; slots can't be read."""
        if slot is not None:
            raise KeyError(slot)
        return self.reads(start, stop)

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers, rising, float32 [n, dim], at most some thousand; slots can't be read."""
        return super().take(numbers, slot) if self.takes is None or slot is not None else self.takes(numbers)


def table_in_session(table: Any, call: Callable[[Callable[[Any], Any]], Any]) -> TableView:
    """A table of the current graph, to be read in a session.

    Args:
        call: calls a function with the session; used only when values are read.
    """
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    rows = table.gather(ids)
    touched = None if table.touched is None else _touched_in_session(table, call)

    def take(numbers: np.ndarray) -> np.ndarray:
        values: np.ndarray = call(lambda session: session.run(rows, {ids: numbers}))
        return values

    return TableView(
        name=table.name,
        rows=table.rows,
        dim=table.dim,
        frozen=table.frozen,
        storage=table.storage,
        reads=lambda start, stop: take(np.arange(start, stop)),
        takes=take,
        touched_state=touched,
        precision=table.precision,
    )


def _touched_in_session(table: Any, call: Callable[[Callable[[Any], Any]], Any]) -> TouchedRows:
    flags, clear = tf.not_equal(table.touched, 0), table.touched.initializer
    return TouchedRows(
        table.name,
        table.rows,
        flags=lambda: np.asarray(call(lambda session: session.run(flags))),
        clear=lambda: call(lambda session: session.run(clear)),
    )


def rows_in_checkpoint(table: str, prefix: Callable[[], str]) -> Callable[[int, int], np.ndarray]:
    """A function that reads rows [start, stop) of a table from the checkpoint at `prefix()`, called at each read."""

    def read(start: int, stop: int) -> np.ndarray:
        stored = array_files.read_tensor(Path(f"{prefix()}.index"), f"embedding/{table}")
        return np.asarray(stored.read(start, stop))

    return read
