"""Replicas on several devices of one machine, by `tf.distribute.MirroredStrategy`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies import host_tables, logical_devices
from embexp.strategies.gathered_rows import GatheredRows, divided, replica_number, sizes
from embexp.strategies.replicated import Replicated
from embexp.strategies.strategy import Embeddings
from embexp.training.replication import ReplicaBatch


class MirroredStrategy(Replicated):
    """The dense part mirrored, rows once in the machine's memory; a `Strategy`.

    Batches are whole. Each is cut into the replicas' parts in the traced step, so it needs not divide evenly.
    """

    def __init__(self, devices: Sequence[str], *, notes: Sequence[str] = ()) -> None:
        """Makes the replicas.

        Args:
            devices: of the replicas, in TensorFlow's words: `CPU:0` or `GPU:0` and so on.
            notes: what the user should know of them.
        """
        self._devices, self._notes = tuple(devices), tuple(notes)
        # On processors there is nothing to gain from collective operations, and the order of sums stays ours.
        reduction = None if self._devices[0].startswith("GPU") else tf.distribute.ReductionToOneDevice()
        self._strategy = tf.distribute.MirroredStrategy(self._devices, cross_device_ops=reduction)

    @property
    def strategy(self) -> Any:
        """The `tf.distribute.MirroredStrategy`."""
        return self._strategy

    @property
    def replicas(self) -> int:
        """See `Strategy`."""
        return len(self._devices)

    @property
    def devices(self) -> tuple[str, ...]:
        """See `Strategy`."""
        return self._devices

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Strategy`."""
        return self._notes

    def active(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return contextlib.nullcontext()

    def counter_scope(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return self.host()

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
    ) -> Embeddings:
        """Makes the tables in this machine's memory; see `Strategy.embeddings`."""
        return host_tables.embeddings(plans, features, counter, total_steps, self.backend)

    def dataset(self, batches: Any) -> Any:
        """See `Strategy`."""
        return batches

    def backend(self, rows: Any) -> Any:
        """The backend to be used here, around the one of a single device that holds the rows."""
        return GatheredRows(rows, self.replicas, self.host)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """See `Strategy`."""
        dense, labels = divided(batch.dense, self.replicas), divided(batch.labels, self.replicas)
        shares = _shares(batch.labels, self.replicas)

        def replica() -> Any:
            number = replica_number()
            return function(ReplicaBatch(dense[number], labels[number], shares[number]))

        return self._strategy.run(tf.autograph.experimental.do_not_convert(replica))

    def total(self, results: Any) -> Any:
        """See `Strategy`."""
        return tf.add_n(self._strategy.experimental_local_results(results))

    def labels(self, batch: Any) -> Any:
        """See `Strategy`."""
        return batch.labels


def build(replicas: int) -> MirroredStrategy:
    """Over the first GPUs where there are as many, and otherwise over logical processors, which it notes.

    Raises:
        RunError: TensorFlow is already running, with fewer devices.
    """
    found = len(tf.config.list_physical_devices("GPU"))
    if found >= replicas:
        return MirroredStrategy([f"GPU:{number}" for number in range(replicas)])
    logical_devices.processors(replicas)
    seen = f"{found} GPU{'s' if found > 1 else ''}" if found else "no GPU"
    note = (
        f"strategy mirrored: TensorFlow sees {seen}, so the {replicas} replicas are logical processors of this machine,"
        " which share its cores: a run is no faster with them"
    )
    return MirroredStrategy([f"CPU:{number}" for number in range(replicas)], notes=[note])


def _shares(labels: Any, replicas: int) -> list[Any]:
    """Part of the batch's examples that each replica has."""
    count = labels.shape[0]
    if count is not None:
        return [size / count for size in sizes(count, replicas)]
    total = tf.shape(labels)[0]
    return [tf.cast(size / total, tf.float32) for size in sizes(total, replicas)]
