"""What puts an experiment into execution takes, and what it gives, whichever runtime it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from embexp.checkpoints.dense_part import TakenOver
from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.tables.values import TableValues
from embexp.training.runtime import Runtime
from embexp.training.step import Assembly


class Assemble(Protocol):
    """Makes all that is around the tables, in the graph that is current."""

    def __call__(self, embeddings: Embeddings, counter: Any) -> Assembly:
        """Makes the dense model, the step and the checkpoint; `counter` is the number of steps done."""
        ...


@dataclass(frozen=True)
class Blueprint:
    """What every runtime needs to make an experiment's variables, in whatever graph it makes them.

    Attributes:
        plans: what each table is made and filled from.
        features: what looks the tables up, by name.
        columns: the column of the data that each feature reads.
        assemble: makes all else around the tables.
        training_spec: `element_spec` of the training data.
        prediction_spec: `element_spec` of the data that is predicted.
        strategy: where all this is to be, and where steps run.
        total_steps: length of the training.
        estimator_folder: where an Estimator keeps its own checkpoints.
        keeps_checkpoints: whether these are to stay when the run has ended.
        dense: from the assembly's checkpoint to what an earlier one gives the dense part before the first step.
    """

    plans: Mapping[str, TablePlan]
    features: Mapping[str, Feature]
    columns: Mapping[str, str]
    assemble: Assemble
    training_spec: Any
    prediction_spec: Any
    strategy: Strategy
    total_steps: int
    estimator_folder: Path
    keeps_checkpoints: bool = True
    dense: Callable[[Any], TakenOver] = lambda checkpoint: TakenOver([])

    def embeddings(self, counter: Any) -> Embeddings:
        """Makes the tables where the strategy keeps them; `counter` is the number of steps done."""
        inputs = {name: self.training_spec.ids[column] for name, column in self.columns.items()}
        return self.strategy.embeddings(self.plans, self.features, inputs, counter, self.total_steps)


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
        graph: the graph of the training step for an iterator of that, traced and not run; None: it can't be traced.
        embedding: on a TPU, its `TPUEmbedding`.
        notes: what the user should know of how it began.
    """

    runtime: Runtime
    tables: Mapping[str, TableValues]
    save: Callable[[Path], object]
    restore: Callable[[Path], object]
    seconds: Callable[[], float]
    graph_def_bytes: Callable[[], int]
    close: Callable[[], object] = lambda: None
    dataset: Callable[[Any], Any] = lambda batches: batches
    graph: Callable[[Any], Any] | None = None
    embedding: Any = None
    notes: list[str] = field(default_factory=list)
