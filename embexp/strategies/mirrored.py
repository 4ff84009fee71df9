"""Replicas on several devices of one machine, by `tf.distribute.MirroredStrategy`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from embexp.strategies import logical_devices
from embexp.strategies.gathered_rows import GatheredRows, divided, replica_number, sizes
from embexp.strategies.replicated import Replicated
from embexp.strategies.strategy import Part


class MirroredPlacement(Replicated):
    """The dense part mirrored, rows once in the machine's memory; a `Placement`.

    Batches are whole. Each is cut into the replicas' parts in the traced step, so it needs not divide evenly.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        """Takes the replicas' devices, in TensorFlow's words: `CPU:0` or `GPU:0` and so on."""
        self._devices = tuple(devices)
        # On processors there is nothing to gain from collective operations, and the order of sums stays ours.
        reduction = None if self._devices[0].startswith("GPU") else tf.distribute.ReductionToOneDevice()
        self._strategy = tf.distribute.MirroredStrategy(self._devices, cross_device_ops=reduction)

    @property
    def strategy(self) -> Any:
        """The `tf.distribute.MirroredStrategy`."""
        return self._strategy

    @property
    def replicas(self) -> int:
        """See `Placement`."""
        return len(self._devices)

    @property
    def devices(self) -> tuple[str, ...]:
        """See `Placement`."""
        return self._devices

    def dataset(self, batches: Any) -> Any:
        """See `Placement`."""
        return batches

    def backend(self, rows: Any) -> Any:
        """See `Placement`."""
        return GatheredRows(rows, self.replicas, self.host)

    def run(self, function: Callable[[Part], Any], batch: Any) -> Any:
        """See `Placement`."""
        dense, labels = divided(batch.dense, self.replicas), divided(batch.labels, self.replicas)
        shares = _shares(batch.labels, self.replicas)

        def replica() -> Any:
            number = replica_number()
            return function(Part(dense[number], labels[number], shares[number]))

        return self._strategy.run(tf.autograph.experimental.do_not_convert(replica))

    def total(self, results: Any) -> Any:
        """See `Placement`."""
        return tf.add_n(self._strategy.experimental_local_results(results))

    def labels(self, batch: Any) -> Any:
        """See `Placement`."""
        return batch.labels


def placement(replicas: int) -> MirroredPlacement:
    """Over the first GPUs where there are as many, and otherwise over logical processors.

    Raises:
        RunError: TensorFlow is already running, with fewer devices.
    """
    if len(tf.config.list_physical_devices("GPU")) >= replicas:
        return MirroredPlacement([f"GPU:{number}" for number in range(replicas)])
    logical_devices.processors(replicas)
    return MirroredPlacement([f"CPU:{number}" for number in range(replicas)])


def _shares(labels: Any, replicas: int) -> list[Any]:
    """Part of the batch's examples that each replica has."""
    count = labels.shape[0]
    if count is not None:
        return [size / count for size in sizes(count, replicas)]
    total = tf.shape(labels)[0]
    return [tf.cast(size / total, tf.float32) for size in sizes(total, replicas)]
