"""Replicas on several devices of one machine, by `tf.distribute.MirroredStrategy`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from embexp.errors import RunError
from embexp.specs.data import KNOWN
from embexp.strategies.gathered_rows import GatheredRows, divided, replica_number, sizes
from embexp.strategies.host_rows import HostRows
from embexp.strategies.replicated import Replicated
from embexp.training.replication import ReplicaBatch


class MirroredStrategy(Replicated, HostRows):
    """The dense part mirrored, rows once in the machine's memory; a `Strategy`.

    Batches are whole: the traced step divides each among the replicas, evenly or not.
    """

    def __init__(self, devices: Sequence[str], *, notes: Sequence[str] = ()) -> None:
        """Makes the replicas.

        Args:
            devices: TensorFlow's names of the replicas' devices, such as `CPU:0` or `GPU:0`.
            notes: warnings about them.
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
        """Number of replicas."""
        return len(self._devices)

    @property
    def devices(self) -> tuple[str, ...]:
        """TensorFlow's names of the replicas' devices."""
        return self._devices

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the devices."""
        return self._notes

    def backend(self, rows: Any) -> Any:
        """The backend of a step, around that of a single device, which holds the rows."""
        return GatheredRows(rows, self.replicas, self.host)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its share of a batch."""
        dense, labels = divided(batch.dense, self.replicas), divided(batch.labels, self.replicas)
        shares, known = _shares(batch.labels, self.replicas), self._known(batch)

        def replica() -> Any:
            number = replica_number()
            return function(ReplicaBatch(dense[number], labels[number], shares[number], known[number]))

        return self._strategy.run(tf.autograph.experimental.do_not_convert(replica))

    def _known(self, batch: Any) -> list[Any]:
        """Each replica's part of the known answers, which are ragged."""
        if KNOWN not in batch.ids:
            return [None] * self.replicas
        ends = [0, *itertools.accumulate(sizes(tf.shape(batch.labels)[0], self.replicas))]
        return [batch.ids[KNOWN][start:stop] for start, stop in itertools.pairwise(ends)]

    def total(self, results: Any) -> Any:
        """The sum of the replicas' results."""
        return tf.add_n(self._strategy.experimental_local_results(results))


def build(replicas: int) -> MirroredStrategy:
    """Replicas on the first GPUs; where there are too few, on logical processors, with a note that says so.

    Raises:
        RunError: TensorFlow is already running, with fewer devices.
    """
    found = len(tf.config.list_physical_devices("GPU"))
    if found >= replicas:
        return MirroredStrategy([f"GPU:{number}" for number in range(replicas)])
    logical_processors(replicas)
    seen = f"{found} GPU{'s' if found > 1 else ''}" if found else "no GPU"
    note = (
        f"strategy mirrored: TensorFlow sees {seen}, so the {replicas} replicas are logical processors of this machine,"
        " which share its cores: a run is no faster with them"
    )
    return MirroredStrategy([f"CPU:{number}" for number in range(replicas)], notes=[note])


def logical_processors(count: int) -> None:
    """Makes TensorFlow show this machine's processor as `count` logical ones, CPU:0 to CPU:count-1.

    Must come before TensorFlow's first operation, after which devices can't change. There may be more.

    Raises:
        RunError: TensorFlow is already running, with fewer.
    """
    if count == 1:
        return
    [processor] = tf.config.list_physical_devices("CPU")
    configured = tf.config.get_logical_device_configuration(processor)
    if configured is not None and len(configured) >= count:
        return
    try:
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:
        there = len(tf.config.list_logical_devices("CPU"))
        raise RunError(
            f"{count} logical processors are needed, and TensorFlow is already running in this process with {there};"
            " devices can't change any more: start the run in a new process (a sweep does), or before anything"
            " else that uses TensorFlow"
        ) from None


def _shares(labels: Any, replicas: int) -> list[Any]:
    """The fraction of the batch's examples that each replica has."""
    count = labels.shape[0]
    if count is not None:
        return [size / count for size in sizes(count, replicas)]
    total = tf.shape(labels)[0]
    return [tf.cast(size / total, tf.float32) for size in sizes(total, replicas)]
