"""Strategies, and what they share: where variables live, how rows are looked up, how replicas share batches.

The strategy of one replica, this machine's processor or one GPU beside it, is here.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from embexp.initialization import filling
from embexp.initialization.filling import TablePlan
from embexp.specs import strategies as specs
from embexp.specs.base import implementation
from embexp.specs.strategies import CPU
from embexp.specs.tables import Feature
from embexp.specs.tasks import KNOWN
from embexp.tables.inputs import without_autograph
from embexp.tables.row_engine import AnyTable, EmbeddingBackend, RowEngine
from embexp.training.loop import Runtime
from embexp.training.step import Assembly, ReplicaBatch, Replication, relations_of

if TYPE_CHECKING:
    from embexp.tables.tpu_tables import TPUTable
    from embexp.training.one_vs_all import Part


@dataclass(frozen=True)
class Embeddings:
    """The tables of a run, made by its strategy, and the backend that looks them up.

    Attributes:
        tables: by name; `filling.fill` then fills those that are variables of this process.
        backend: looks their rows up and moves them, for the steps of the strategy.
        load: copies the tables to where steps look them up; to be called after any assignment.
        embedding: on a TPU, its `TPUEmbedding`.
    """

    tables: Mapping[str, AnyTable | TPUTable]
    backend: EmbeddingBackend
    load: Callable[[], object] = lambda: None
    embedding: Any = None


@dataclass(frozen=True)
class Run:
    """What the workers of a cluster must know before they share a run.

    Attributes:
        facts: digests and versions on which they must agree, by name.
        folder: of the run.
        first_step: the number of steps done before.
        settings: that decide the results, and digests of files, by config path: to name what differs.
    """

    facts: Mapping[str, str]
    folder: Path
    first_step: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


class Strategy(Replication, ABC):
    """Where variables live, and how the replicas of a step share a batch.

    What is defined here is for one copy of the rows in this machine's memory, which the row engine looks up. A batch is
    an element of `dataset(...)`: an `embexp.data.batches.Batch`, or anything with its attributes.

    Attributes:
        devices: names of the replicas' devices, for people.
        notes: warnings about these devices.
    """

    devices: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return len(self.devices)

    def reading(self, facts: Mapping[str, str]) -> AbstractContextManager[Any]:
        """A context of the `Workers` that read the data together (`embexp.data.together`); None: this process alone.

        Args:
            facts: what all must agree on.
        """
        return contextlib.nullcontext()

    def active(self, run: Callable[[], Run] | None = None) -> AbstractContextManager[Any]:
        """A context in which the devices exist; variables are made and steps run only inside.

        Args:
            run: returns what is to be run, for those who must agree on it; None: steps are only traced or timed.
        """
        return contextlib.nullcontext()

    def host(self) -> AbstractContextManager[Any]:
        """A scope for rows, and for all else that no replica owns: the processor."""
        context: AbstractContextManager[Any] = tf.device("/CPU:0")
        return context

    @abstractmethod
    def scope(self) -> AbstractContextManager[Any]:
        """A scope in which the model and the dense optimizer are made."""

    def counter_scope(self) -> AbstractContextManager[Any]:
        """A scope in which the step counter is made, which learning rates of rows may read."""
        return self.host()

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
        most_ids: Mapping[str, int],
    ) -> Embeddings:
        """Makes the tables, within `host`, in the current graph.

        Args:
            features: features that look them up, by name.
            inputs: `tf.TypeSpec` of each feature's ids in a whole batch, by feature.
            counter: int64 variable, the number of steps done.
            total_steps: length of the training, for schedules that end with it.
            most_ids: of features whose examples have several ids each, the most that one has, as far as it is known.

        Raises:
            RunError: this strategy can't make the tables.
        """
        tables = filling.make_tables(plans)
        optimizers = {name: plan.optimizer for name, plan in plans.items() if plan.optimizer is not None}
        engine = RowEngine(tables, features, optimizers, step=counter, total_steps=total_steps)
        return Embeddings(tables, self.backend(engine))

    def backend(self, rows: Any) -> EmbeddingBackend:
        """The backend of a step, around the row engine."""
        backend: EmbeddingBackend = rows
        return backend

    def reset(self, tables: Mapping[str, Any], plans: Mapping[str, TablePlan]) -> dict[str, int]:
        """Gives rows that start again with an epoch their initial values; see `filling.reset_rows`."""
        return filling.reset_rows(tables, plans)

    def dataset(self, batches: Any) -> Any:
        """What steps iterate over, from a `tf.data.Dataset` of whole batches."""
        return batches

    def predicted(self, batches: Any) -> Any:
        """What predictions iterate over, from a dataset of whole batches."""
        return self.dataset(batches)

    def part(self, feature: str, rows: int) -> Part:
        """Of a feature's first rows, so many, those that this process has: all."""
        from embexp.training.one_vs_all import Part  # which most models don't need

        return Part.whole(rows)

    def share(self, batch_size: int) -> slice | None:
        """The examples of each batch of a training that this process reads; None: all."""
        return None

    @property
    def parts(self) -> int:
        """Into how many equal parts each column of a training batch is divided."""
        return 1

    def conducted(self, runtime: Runtime, parts: Assembly) -> Runtime:
        """The runtime of a run whose variables have their first values, with all that other processes do."""
        return runtime

    def labels(self, batch: Any) -> Any:
        """All labels of a batch, float32 [B]."""
        return batch.labels

    def number(self) -> Any:
        """In a replica: its number."""
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def facts(self) -> dict[str, Any]:
        """What it adds to the summary of a run, such as how rows are shared; `warnings` are added to the others."""
        return {}

    def timing(self) -> dict[str, Any]:
        """What a line of the log says of the time since the last one, beside the pace."""
        return {}


class Replicated(Strategy):
    """A `Strategy` around a `tf.distribute.Strategy`, without the methods that depend on its devices."""

    @property
    @abstractmethod
    def strategy(self) -> Any:
        """The `tf.distribute.Strategy`."""

    def scope(self) -> AbstractContextManager[Any]:
        """The scope of the `tf.distribute.Strategy`, which mirrors variables."""
        context: AbstractContextManager[Any] = self.strategy.scope()
        return context

    def joined(self, results: Any) -> Any:
        """The replicas' results as one tensor, in the batch's order."""
        return tf.concat(self.strategy.experimental_local_results(results), 0)

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """In a replica: the sums of tensors over all replicas."""
        return _reduced(tf.distribute.ReduceOp.SUM, gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """In a replica: sets each variable to its mean over all replicas."""
        if variables:
            means = _reduced(tf.distribute.ReduceOp.MEAN, [tf.convert_to_tensor(each) for each in variables])
            for variable, mean in zip(variables, means, strict=True):
                variable.assign(mean)


def _reduced(operation: Any, values: Sequence[Any]) -> list[Any]:
    present = [value for value in values if value is not None]
    results = iter(tf.distribute.get_replica_context().all_reduce(operation, present) if present else ())
    return [None if value is None else next(results) for value in values]


def build(spec: specs.Strategy, *, traced: bool = False) -> Strategy:
    """Makes a strategy, before anything else that a run does with TensorFlow, as devices can't change after that.

    Args:
        traced: steps are only traced.

    Raises:
        RunError: devices that the strategy needs are missing, or TensorFlow is already running without them.
    """
    strategy: Strategy = implementation(spec)(traced=traced)
    return strategy


@dataclass(unsafe_hash=True)
class OneDevice(Strategy):
    """Rows in the machine's memory, the dense part on one device. It works in graphs of TensorFlow 1 as well.

    Attributes:
        device: TensorFlow's name of the dense part's device; None: its default, for rows too.
    """

    device: str | None = None

    def __post_init__(self) -> None:
        """Names the device of the dense part."""
        self.devices = (self.device or "CPU:0",)

    def host(self) -> AbstractContextManager[Any]:
        """The processor, which holds the rows."""
        return contextlib.nullcontext() if self.device is None else super().host()

    def scope(self) -> AbstractContextManager[Any]:
        """The device of the dense part."""
        return contextlib.nullcontext() if self.device is None else tf.device(self.device)

    def backend(self, rows: Any) -> EmbeddingBackend:
        """The backend of a step, around the one that holds the rows."""
        return super().backend(rows if self.device is None else OnHost(rows, self.host))

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` once, with the whole batch."""
        with self.scope():
            known, relations = batch.ids.get(KNOWN), relations_of(batch)
            return function(ReplicaBatch(batch.dense, batch.labels, known=known, relations=relations))

    def total(self, results: Any) -> Any:
        """The result of the one replica."""
        return results

    joined = total

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the one replica."""
        return list(gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """Changes nothing, as one replica always agrees."""
        return  # not an empty body, which AutoGraph can't read


def build_cpu(spec: CPU, *, traced: bool) -> OneDevice:
    """This machine's processor."""
    return OneDevice()


class OnHost:
    """A backend whose operations all run where the rows are."""

    def __init__(self, engine: EmbeddingBackend, host: Callable[[], AbstractContextManager[Any]]) -> None:
        self._engine, self._host = engine, host

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._engine, name)

        @without_autograph
        def on_host(*args: Any, **settings: Any) -> Any:
            with self._host():
                return call(*args, **settings)

        return on_host
