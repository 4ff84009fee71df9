"""The estimator runtime: `tf.estimator` trains, predicts and trains again, each from the checkpoint before.

An Estimator owns its loop: `train` returns when it is over. Here that loop runs in another thread and waits, after each
call to the session, for the next feeds.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf

from embexp import estimator
from embexp.checkpoints import naming, store, streaming
from embexp.checkpoints.store import plain_path
from embexp.errors import RunError
from embexp.initialization import filling
from embexp.runs.runtimes import session
from embexp.runs.runtimes.execution import Blueprint, Execution, Stopwatch
from embexp.runs.runtimes.session import Feeds, TableView, components, timed_scaffold
from embexp.specs.tables import Storage
from embexp.strategies import pieces
from embexp.system import arrays
from embexp.system.parallel import quiet
from embexp.tables import inputs
from embexp.tables.row_engine import AnyTable
from embexp.tables.variables import TouchedRows

_NAME = "model.ckpt"
_STOP = object()


@dataclass(frozen=True)
class Program:
    """What a `model_fn` makes in its graph.

    Attributes:
        train: `train(batch) -> loss`; every variable exists.
        counter: the global step, which `train` advances.
        scaffold: a `tf.compat.v1.train.Scaffold`, which fills the tables, and whose saver restores checkpoints.
        saver: writes checkpoints.
        every_session: called with each new session, before its first step.
        at_end: called with the session at the end of each training.
    """

    train: Callable[[Any], Any]
    predict: Callable[[Any], Any]
    counter: Any
    scaffold: Any
    saver: streaming.GraphSaver
    every_session: Sequence[Callable[[Any], None]]
    at_end: Callable[[Any], None]


def start(blueprint: Blueprint) -> Execution:
    """Makes an Estimator, whose checkpoints are in the blueprint's folder for them."""
    watch, strategy, opened = Stopwatch(), blueprint.strategy, contextlib.ExitStack()
    blueprint.estimator_folder.mkdir(parents=True, exist_ok=True)
    folder = opened.enter_context(plain_path(blueprint.estimator_folder))
    touched: dict[str, np.ndarray] = {}
    table_operations: list[Any] = []
    notes: list[str] = []
    names: dict[str, str] = {}

    def build() -> Program:
        graph = tf.compat.v1.get_default_graph()
        with strategy.counter_scope():
            counter = tf.compat.v1.train.get_or_create_global_step()
        before = len(graph.get_operations())
        with contextlib.nullcontext() if table_operations else watch, strategy.host():
            # Every prediction creates them again, but they are filled once.
            embeddings = blueprint.embeddings(counter)
            # Sessions run on one device, and its tables are variables of the graph.
            tables = cast(Mapping[str, AnyTable], embeddings.tables)
            fills = filling.fill_in_sessions(tables, blueprint.plans)
        table_operations[:] = graph.get_operations()[before:]
        parts = blueprint.assemble(embeddings, counter)
        fills.add(pieces.cut_in_session(), always=True)
        dense = blueprint.dense(parts.checkpoint)
        fills.once.append(dense.fill)
        names.update(naming.variable_names(parts.checkpoint))
        notes[:] = [*strategy.notes, *dense.notes]

        def remember_touched(open_session: Any) -> None:
            for name, table in tables.items():
                if table.touched is not None:
                    now = open_session.run(table.touched) != 0
                    touched[name] = now | touched.get(name, now)

        saver = streaming.saver_of(parts.checkpoint)
        return Program(
            train=parts.step.train,
            predict=parts.step.predict,
            counter=counter,
            scaffold=timed_scaffold(fills, saver.complete_saver(), watch),
            saver=saver,
            every_session=fills.always,
            at_end=remember_touched,
        )

    runtime = EstimatorRuntime(
        estimator.load(),
        folder,
        build,
        training_spec=blueprint.training_spec,
        prediction_spec=blueprint.prediction_spec(),
    )

    def close() -> None:
        with opened:
            runtime.pause()
        if not blueprint.keeps_checkpoints:
            shutil.rmtree(blueprint.estimator_folder, ignore_errors=True)

    def view(name: str) -> TableView:
        plan = blueprint.plans[name]
        stored = session.rows_in_checkpoint(name, runtime.last_checkpoint)

        def read(start: int, stop: int) -> np.ndarray:
            """The stored values of the rows. Until the first training, they are the initial values."""
            values = (stored if runtime.began and not plan.by_reference else plan.source.read)(start, stop)
            return arrays.widened(values.astype(plan.precision.rows.as_numpy_dtype, copy=False))

        def flags() -> np.ndarray:
            runtime.pause()  # the end of a training reads flags, and the next training starts without any
            return touched.get(name, np.zeros(plan.source.rows, np.bool_))

        def clear() -> None:
            runtime.pause()
            touched.pop(name, None)

        return TableView(
            name=name,
            rows=plan.source.rows,
            dim=plan.source.dim,
            frozen=plan.optimizer is None,
            storage=Storage.VARIABLE,
            reads=read,
            touched_state=None
            if plan.optimizer is None
            else TouchedRows(name, plan.source.rows, flags=flags, clear=clear),
            precision=plan.precision,
        )

    return Execution(
        runtime=runtime,
        tables={name: view(name) for name in blueprint.plans},
        save=lambda prefix, *, progress=quiet: store.copy(runtime.last_checkpoint(), prefix),
        restore=lambda saved: runtime.restore(partial(store.copy, store.prefix_in(saved))),
        names=lambda: names,
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: session.node_bytes(table_operations),
        close=close,
        notes=notes,
    )


class EstimatorRuntime:
    """Executes steps inside an Estimator.

    A training lasts until the next prediction, which ends it and so writes a checkpoint into the model's directory. The
    next step begins another training from there.

    Attributes:
        graph_def_bytes: size of the training graph's GraphDef in bytes; None before the first step.
        fused_operations: the libraries of fused operations that the training step calls; None before the first step.
        began: whether there has been a training.
    """

    began = False

    def __init__(
        self, estimator: Any, directory: Path, build: Callable[[], Program], *, training_spec: Any, prediction_spec: Any
    ) -> None:
        """Makes the Estimator; builds nothing yet.

        Args:
            estimator: the module `tensorflow_estimator` from `embexp.estimator.load`.
            directory: the model's directory, for checkpoints.
            build: makes all variables and the step in the current graph; called for every training and prediction.
            training_spec: `element_spec` of the dataset that trains.
            prediction_spec: `element_spec` of the datasets to predict.
        """
        self._module, self._directory, self._build = estimator, directory, build
        self._specs = {True: training_spec, False: prediction_spec}
        self._training: LoopThread | None = None
        self.graph_def_bytes: int | None = None
        self.fused_operations: list[str] | None = None
        self._estimator = estimator.Estimator(
            self._model,
            config=estimator.RunConfig(
                model_dir=str(directory),
                # Saved at the end of each training only, not at its beginning.
                save_checkpoints_steps=None,
                save_checkpoints_secs=None,
                save_summary_steps=None,
                log_step_count_steps=None,
            ),
        )

    def last_checkpoint(self) -> str:
        """Prefix of the checkpoint of the last step; ends a training that is under way.

        Raises:
            RunError: there has been no training.
        """
        self.pause()
        prefix: str | None = tf.train.latest_checkpoint(str(self._directory))
        if prefix is None:
            raise RunError("nothing was trained, so the Estimator has no checkpoint")
        return prefix

    def restore(self, copy: Callable[[str], object]) -> None:
        """Makes an earlier checkpoint the last one; `copy(prefix)` copies it to a prefix."""
        self.pause()
        self.began = True
        target = str(self._directory / "earlier")
        copy(target)
        tf.compat.v1.train.update_checkpoint_state(str(self._directory), target)

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps and returns the sum of their losses.

        Raises:
            VocabularyError: an id is outside its table.
            RunError: another fault of the inputs.
        """
        self.began = True
        if self._training is None:
            self._training = LoopThread(
                lambda hook: self._estimator.train(self._input(training=True), hooks=[hook]), self._prepared
            )
        with inputs.translated_errors():
            return sum(float(self._training.step(components(next(iterator)))) for _ in range(steps))

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels, float32 [B], and logits, [B] or [B, C], after the last step."""
        self.pause()

        def predict_all(hook: Any) -> None:
            for _ in self._estimator.predict(self._input(training=False), hooks=[hook], yield_single_examples=False):
                pass

        predicting = LoopThread(predict_all, self._prepared)
        try:
            for batch in batches:
                with inputs.translated_errors():
                    yield batch.labels.numpy(), predicting.step(components(batch))
        finally:
            predicting.stop()

    def pause(self) -> None:
        """Ends a training that is under way, which writes its checkpoint."""
        if self._training is not None:
            self._training.stop()
            self._training = None

    def _input(self, *, training: bool) -> Callable[[], Any]:
        def feeds() -> Any:
            self._feeds = Feeds(self._specs[training])
            return {"batch": self._feeds.batch}, None

        return feeds

    def _prepared(self, graph: Any) -> tuple[Any, Callable[[Any], Any]]:
        return self._fetched, self._feeds.feed_dict

    def _model(self, features: Any, labels: Any, mode: str) -> Any:
        program = self._build()
        hooks = [_EachSession(program.every_session)]
        keys = self._module.ModeKeys
        if mode == keys.PREDICT:
            self._fetched = tf.function(program.predict, autograph=False)(features["batch"])
            return self._module.EstimatorSpec(
                mode, predictions={"logits": self._fetched}, scaffold=program.scaffold, prediction_hooks=hooks
            )
        step = tf.function(program.train, autograph=False)
        self._fetched = loss = step(features["batch"])
        with tf.control_dependencies([loss]):
            stepped = program.counter.read_value()
        if self.graph_def_bytes is None:
            self.graph_def_bytes = tf.compat.v1.get_default_graph().as_graph_def().ByteSize()
            self.fused_operations = session.called(step, features["batch"])
        saving = _AtEnd(program, self._directory / _NAME)
        return self._module.EstimatorSpec(
            mode, loss=loss, train_op=stepped, scaffold=program.scaffold, training_hooks=[*hooks, saving]
        )


class _EachSession(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow is untyped
    def __init__(self, calls: Sequence[Callable[[Any], None]]) -> None:
        self._calls = calls

    def after_create_session(self, session: Any, coord: Any) -> None:
        for call in self._calls:
            call(session)


class _AtEnd(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow is untyped
    """Saves a training, and replaces the earlier ones."""

    def __init__(self, program: Program, path: Path) -> None:
        self._program, self._path = program, path

    def end(self, session: Any) -> None:
        self._program.at_end(session)
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True)
        prefix = Path(f"{self._path}-{int(session.run(self._program.counter))}")
        for left_over in folder.glob(f"{prefix.name}.*"):  # an earlier checkpoint has been restored since then
            left_over.unlink()
        self._program.saver.save(session, str(prefix))
        tf.compat.v1.train.update_checkpoint_state(str(folder), str(prefix))
        for file in folder.glob(f"{self._path.name}-*"):
            if not file.name.startswith(f"{prefix.name}."):
                file.unlink()


class LoopThread:
    """A monitored loop in another thread, which takes feeds and returns the fetches of each."""

    def __init__(
        self, loop: Callable[[Any], object], prepare: Callable[[Any], tuple[Any, Callable[[Any], Any]]]
    ) -> None:
        """Starts the thread.

        Args:
            loop: runs until its session requests a stop; takes the `SessionRunHook` that it must pass on.
            prepare: from the hook's graph, once it is built, the fetches, and a function that makes the `feed_dict` of
                `step`'s values.
        """
        self._inbox: queue.Queue[Any] = queue.Queue(1)
        self._outbox: queue.Queue[Any] = queue.Queue(1)
        hook = _FeedingHook(self._inbox, self._outbox, prepare)
        self._thread = threading.Thread(target=self._run, args=(loop, hook), name="embexp-estimator", daemon=True)
        self._thread.start()

    def _run(self, loop: Callable[[Any], object], hook: Any) -> None:
        try:
            loop(hook)
        except BaseException as error:  # `step` or `stop` raises it again
            self._outbox.put(error)

    def step(self, values: Any) -> Any:
        """Lets the loop do one call with these values fed, and returns its fetches.

        Raises:
            BaseException: the loop ended with it.
        """
        self._inbox.put(values)
        result = self._outbox.get()
        if isinstance(result, BaseException):
            self._thread.join()
            raise result
        return result

    def stop(self) -> None:
        """Ends the loop and waits for it.

        Raises:
            BaseException: the loop ended with it.
        """
        if self._thread.is_alive():
            self._inbox.put(_STOP)
            self._thread.join()
        if not self._outbox.empty():
            raise self._outbox.get()


class _FeedingHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow is untyped
    def __init__(
        self,
        inbox: queue.Queue[Any],
        outbox: queue.Queue[Any],
        prepare: Callable[[Any], tuple[Any, Callable[[Any], Any]]],
    ) -> None:
        self._inbox, self._outbox, self._prepare = inbox, outbox, prepare
        self._next: Any = None

    def begin(self) -> None:
        self._fetches, self._feed = self._prepare(tf.compat.v1.get_default_graph())

    def before_run(self, run_context: Any) -> Any:
        if self._next is None:
            self._next = self._inbox.get()
        return tf.compat.v1.train.SessionRunArgs(self._fetches, feed_dict=self._feed(self._next))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._outbox.put(run_values.results)
        self._next = self._inbox.get()
        if self._next is _STOP:
            run_context.request_stop()
