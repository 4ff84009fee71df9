"""The runtimes' `start`, its input and its result: a blueprint, and its execution."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from embexp.checkpoints.account import Account, LiveAccount
from embexp.checkpoints.restoring import DenseValues
from embexp.initialization.filling import TablePlan
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Feature
from embexp.strategies.strategy import Embeddings, Strategy
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
        prediction_spec: `element_spec` of the evaluation data, for a session.
        estimator_folder: where an Estimator writes its checkpoints; TensorFlow takes its path as it is.
        keeps_checkpoints: whether these stay when the run has ended.
        dense: from the assembly's checkpoint, the values of the dense part that an earlier checkpoint has.
        restored: restores variables into the assembly's checkpoint, in a graph when its account is run; returns None
            where nothing is to be restored.
        fills_all: whether all tables are filled, or only those that checkpoints lack, as one is restored next.
    """

    plans: Mapping[str, TablePlan]
    features: Mapping[str, Feature]
    columns: Mapping[str, str]
    assemble: Callable[[Embeddings, Any], Assembly]
    strategy: Strategy
    total_steps: int
    training_spec: Any = None
    prediction_spec: Any = None
    estimator_folder: Path = Path("unused")
    keeps_checkpoints: bool = True
    dense: Callable[[Any], DenseValues] = lambda checkpoint: DenseValues([])
    restored: Callable[[Any], LiveAccount | None] = lambda checkpoint: None
    fills_all: bool = True

    def embeddings(self, counter: Any) -> Embeddings:
        """Makes the tables, as the strategy does; `counter` is the number of steps done."""
        inputs = {name: self.training_spec.ids[column] for name, column in self.columns.items()}
        return self.strategy.embeddings(self.plans, self.features, inputs, counter, self.total_steps)


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
    """

    runtime: Runtime
    tables: Mapping[str, ReadableTable]
    save: Callable[[str], object]
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


def start(kind: RuntimeKind, blueprint: Blueprint) -> Execution:
    """Makes and fills all variables of an experiment, and its step, in a runtime.

    Raises:
        ValueError: the kind is `auto`; see `RunSpec.executing_runtime`.
    """
    match kind:
        case RuntimeKind.FUNCTION:
            from embexp.runs.runtimes import function

            return function.start(blueprint)
        case RuntimeKind.SESSION:
            from embexp.runs.runtimes import session

            return session.start(blueprint)
        case RuntimeKind.ESTIMATOR:
            from embexp.runs.runtimes import estimator

            return estimator.start(blueprint)
        case RuntimeKind.AUTO:
            raise ValueError("runtime=auto is not resolved")
        case _:
            assert_never(kind)
