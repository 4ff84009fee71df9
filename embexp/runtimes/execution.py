"""An experiment put into execution by one of the runtimes: its variables made and filled, its step ready."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, assert_never

import numpy as np
import tensorflow as tf

from embexp import estimator
from embexp.checkpoints import dense_part, graph_saver, store
from embexp.freezing.policies import TablePolicy
from embexp.initialization import filling, scaffolding
from embexp.pretrained.earlier import Earlier
from embexp.pretrained.tables import Pretrained
from embexp.runs.assembly import Assembly
from embexp.runtimes import session, table_values
from embexp.runtimes.estimator import EstimatorRuntime, Program
from embexp.runtimes.function import FunctionRuntime
from embexp.runtimes.table_values import TableElsewhere
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.strategies.placement import Placement
from embexp.strategies.tpu import TPUPlacement
from embexp.system.rows import MappableRows
from embexp.tables.reading import ReadableTable
from embexp.tables.tpu_backend import TPUBackend


class Executing(Protocol):
    """Executes steps and forward passes."""

    @property
    def graph_def_bytes(self) -> int | None:
        """Size of the GraphDef that holds the training step, in bytes; None before the first step."""
        ...

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps and returns the sum of their losses."""
        ...

    def predict(self, batches: Any) -> Any:
        """For each batch its labels and logits."""
        ...


@dataclass(frozen=True)
class Execution:
    """An experiment that can be trained, read and saved, whatever executes it.

    Attributes:
        runtime: executes steps.
        tables: their values, by name.
        save: writes all that is learned into a directory, as an object-based checkpoint.
        restore: takes all that is learned from such a directory.
        seconds: how long making and filling the tables has taken, so far.
        graph_def_bytes: bytes that tables and their initialization take in the graph.
        close: gives back what the runtime holds.
        dataset: what to iterate over in place of a dataset of whole batches, to train on it.
        embedding: on a TPU, its `TPUEmbedding`.
    """

    runtime: Executing
    tables: Mapping[str, ReadableTable]
    save: Callable[[Path], object]
    restore: Callable[[Path], object]
    seconds: Callable[[], float]
    graph_def_bytes: Callable[[], int]
    close: Callable[[], object] = lambda: None
    dataset: Callable[[Any], Any] = lambda batches: batches
    embedding: Any = None
    notes: list[str] = field(default_factory=list)
    """What the user should know of how it began."""


@dataclass(frozen=True)
class Blueprint:
    """What every runtime needs to make an experiment's variables, in whatever graph it makes them.

    Attributes:
        spec: what the user asked for.
        given: what files have for which table.
        sources: first values of each table.
        policies: which rows of each table move, and its layout.
        tables: makes the tables.
        assemble: makes all else around them; takes the tables, the counter of steps and, on a TPU, the `backend`.
        training_spec: `element_spec` of the training data.
        prediction_spec: `element_spec` of the data that is predicted.
        placement: where all this is to be, and where steps run.
        total_steps: length of the training.
        dense: what the dense part is taken over from; None: it begins with its own values.
    """

    spec: RunSpec
    given: Pretrained
    sources: Mapping[str, MappableRows]
    policies: Mapping[str, TablePolicy]
    tables: Callable[[], Mapping[str, filling.Table]]
    assemble: Callable[..., Assembly]
    training_spec: Any
    prediction_spec: Any
    placement: Placement
    total_steps: int
    dense: Earlier | None = None

    def taken_over(self, parts: Assembly) -> dense_part.TakenOver:
        """What the dense part is given before the first step.

        Raises:
            CheckpointError: the earlier one does not fit.
        """
        if self.dense is None:
            return dense_part.TakenOver([])
        same = self.spec.dense_optimizer.kind == self.dense.spec.dense_optimizer.kind
        return dense_part.taken_over(parts.checkpoint, self.dense.index, same_optimizer=same)


def of(kind: RuntimeKind, blueprint: Blueprint, estimator_directory: Path) -> Execution:
    """Puts an experiment into execution.

    Args:
        kind: the runtime.
        blueprint: what makes its variables.
        estimator_directory: where an Estimator keeps its own checkpoints.
    """
    match kind:
        case RuntimeKind.FUNCTION:
            return in_function(blueprint)
        case RuntimeKind.SESSION:
            return in_session(blueprint)
        case RuntimeKind.ESTIMATOR:
            return in_estimator(blueprint, estimator_directory)
        case RuntimeKind.AUTO:
            raise ValueError("which runtime auto stands for is to be resolved before")
        case _:
            assert_never(kind)


class _Stopwatch:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def in_function(blueprint: Blueprint) -> Execution:
    """Eager variables and a `tf.function`."""
    watch, placement = _Stopwatch(), blueprint.placement
    if isinstance(placement, TPUPlacement):
        return _in_function_on_tpu(blueprint, placement)
    with watch, placement.host():
        tables = blueprint.tables()
        filling.fill(tables, blueprint.spec, blueprint.policies, blueprint.sources, blueprint.given)
    with placement.host():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    parts = blueprint.assemble(tables, counter)
    dense = blueprint.taken_over(parts)
    dense.assign()
    return Execution(
        runtime=FunctionRuntime(
            parts.step.train, parts.step.predict, dataset=placement.dataset, labels=placement.labels
        ),
        tables=tables,
        save=partial(store.write, parts.checkpoint),
        restore=partial(store.read, parts.checkpoint),
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: 0,  # tables are filled eagerly: no graph holds anything of them
        dataset=placement.dataset,
        notes=[*dense.notes],
    )


def _in_function_on_tpu(blueprint: Blueprint, placement: TPUPlacement) -> Execution:
    """A `tf.function` whose tables are a TPU's own, filled as they are made."""
    watch, spec = _Stopwatch(), blueprint.spec
    with placement.scope():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    with watch, placement.host():
        tables = filling.tpu_tables(spec, blueprint.given, blueprint.sources, blueprint.policies, hosts=placement.hosts)
        ids = blueprint.training_spec.ids
        backend = TPUBackend(
            placement.strategy,
            tables,
            spec.features,
            {name: placement.part_spec(ids[spec.column_of(name)]) for name in spec.features},
            step=counter,
            total_steps=blueprint.total_steps,
            pipelined=placement.pipelined,
        )
        if filling.fill_tpu_slots(tables, spec, blueprint.given):
            backend.load()
    parts = blueprint.assemble(tables, counter, backend=backend)

    def restore(directory: Path) -> None:
        store.read(parts.checkpoint, directory)
        backend.load()

    dense = blueprint.taken_over(parts)
    dense.assign()
    return Execution(
        runtime=FunctionRuntime(
            parts.step.train, parts.step.predict, dataset=placement.dataset, labels=placement.labels
        ),
        tables=tables,
        save=partial(store.write, parts.checkpoint),
        restore=restore,
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: 0,  # tables are filled eagerly: no graph holds anything of them
        dataset=placement.dataset,
        embedding=backend.embedding,
        notes=[*dense.notes],
    )


def in_session(blueprint: Blueprint) -> Execution:
    """A graph of TensorFlow 1 and a session; a monitored one where a table asks for a scaffold."""
    watch = _Stopwatch()
    graph, given = tf.Graph(), blueprint.given
    with graph.as_default():
        with blueprint.placement.host():
            counter = tf.compat.v1.train.get_or_create_global_step()
        before = len(graph.get_operations())
        with watch, blueprint.placement.host():
            tables = blueprint.tables()
            fills = filling.in_sessions(tables, blueprint.spec, blueprint.policies, blueprint.sources, given)
        of_tables = graph.get_operations()[before:]
        parts = blueprint.assemble(tables, counter)
        runtime = session.SessionRuntime(
            parts.step.train,
            parts.step.predict,
            training_spec=blueprint.training_spec,
            prediction_spec=blueprint.prediction_spec,
        )
        values = {name: table_values.in_session(table, runtime.call) for name, table in tables.items()}
        dense = blueprint.taken_over(parts)
        fills.once.append(dense.fill)
        saver = graph_saver.saver_of(parts.checkpoint)
        chosen = _scaffold(fills, saver.saver, _Stopwatch()) if fills.scaffold else None
    with watch:
        runtime.open(fills.always if chosen else [*fills.once, *fills.always], filled=fills.whole, scaffold=chosen)

    def restore(directory: Path) -> None:
        runtime.call(partial(saver.restore, prefix=store.prefix_in(directory)))

    return Execution(
        runtime=runtime,
        tables=values,
        save=partial(store.write_by, lambda prefix: runtime.call(partial(saver.save, prefix=prefix))),
        restore=restore,
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: session.node_bytes(of_tables),
        close=runtime.close,
        notes=[*dense.notes],
    )


def in_estimator(blueprint: Blueprint, directory: Path) -> Execution:
    """`tf.estimator`, with checkpoints of its own in `directory`."""
    watch = _Stopwatch()
    spec, given, sources = blueprint.spec, blueprint.given, blueprint.sources
    touched: dict[str, np.ndarray] = {}
    of_tables: list[Any] = []
    notes: list[str] = []

    def build() -> Program:
        graph = tf.compat.v1.get_default_graph()
        with blueprint.placement.host():
            counter = tf.compat.v1.train.get_or_create_global_step()
        before = len(graph.get_operations())
        with contextlib.nullcontext() if of_tables else watch, blueprint.placement.host():
            # Made anew for every prediction, but filled once.
            tables = blueprint.tables()
            fills = filling.in_sessions(tables, spec, blueprint.policies, sources, given)
        of_tables[:] = graph.get_operations()[before:]
        parts = blueprint.assemble(tables, counter)
        dense = blueprint.taken_over(parts)
        fills.once.append(dense.fill)
        notes[:] = dense.notes

        def remember_touched(open_session: Any) -> None:
            for name, table in tables.items():
                if table.touched is not None:
                    now = open_session.run(table.touched) != 0
                    touched[name] = now | touched.get(name, now)

        return Program(
            train=parts.step.train,
            predict=parts.step.predict,
            counter=counter,
            scaffold=_scaffold(fills, graph_saver.saver_of(parts.checkpoint).alone(), watch),
            every_session=fills.always,
            at_end=remember_touched,
        )

    runtime = EstimatorRuntime(
        estimator.load(),
        directory,
        build,
        training_spec=blueprint.training_spec,
        prediction_spec=blueprint.prediction_spec,
    )

    def close() -> None:
        runtime.pause()
        if not spec.output.checkpoint:
            shutil.rmtree(directory, ignore_errors=True)

    def trained(name: str) -> Callable[[int, int], np.ndarray]:
        """Rows as they are now: until the first training, what the table will be filled with."""
        stored = table_values.rows_in_checkpoint(name, runtime.last_checkpoint)
        return lambda start, stop: (stored if runtime.began else sources[name].read)(start, stop)

    def looked_up(name: str) -> np.ndarray | None:
        runtime.pause()  # flags are read at the end of a training
        return touched.get(name)

    def elsewhere(name: str) -> TableElsewhere:
        read = sources[name].read if filling.by_reference(spec, given, name) else trained(name)
        return TableElsewhere(
            name=name,
            rows=sources[name].rows,
            dim=sources[name].dim,
            frozen=blueprint.policies[name].fully_frozen,
            storage=Storage.VARIABLE,
            ranges=read,
            flags=partial(looked_up, name),
        )

    return Execution(
        runtime=runtime,
        tables={name: elsewhere(name) for name in sources},
        save=partial(store.write_by, lambda prefix: store.copy(runtime.last_checkpoint(), prefix)),
        restore=lambda saved: runtime.go_back_to(partial(store.copy, store.prefix_in(saved))),
        seconds=lambda: watch.seconds,
        graph_def_bytes=lambda: session.node_bytes(of_tables),
        close=close,
        notes=notes,
    )


def _scaffold(fills: filling.SessionFills, saver: Any, watch: _Stopwatch) -> Any:
    """The scaffold of a run: what fills tables once, what it fills itself, and the saver; timed."""

    def fill_once(_: Any, open_session: Any) -> None:
        for fill in fills.once:
            fill(open_session)

    made = scaffolding.scaffold(fills.scaffold, init_fn=fill_once, saver=saver)
    untimed = made.init_fn

    def timed(open_session: Any) -> None:
        with watch:
            untimed(open_session)

    made._init_fn = timed  # a copy of the scaffold would not be of its class
    return made
