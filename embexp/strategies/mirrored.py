"""Replicas on several devices of one machine, by `tf.distribute.MirroredStrategy`, with one copy of the rows for all.

One copy of the rows for all replicas of a step. The host looks up the whole batch at once and hands each replica the
activations of its examples. Gradients are gathered over the replicas and applied at once. So each row is updated once,
by the operations that a single device executes, and nothing can differ between replicas.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from embexp.errors import RunError, plural
from embexp.specs.strategies import GPU, Mirrored
from embexp.specs.tasks import KNOWN
from embexp.strategies.strategy import OneDevice, Replicated, Strategy
from embexp.training.step import ReplicaBatch, relations_of


class MirroredStrategy(Replicated):
    """The dense part mirrored, rows once in the machine's memory; a `Strategy`.

    Batches are whole: the traced step divides each among the replicas, evenly or not.
    """

    def __init__(self, devices: Sequence[str], *, notes: Sequence[str] = ()) -> None:
        """Makes the replicas.

        Args:
            devices: TensorFlow's names of the replicas' devices, such as `CPU:0` or `GPU:0`.
        """
        self.devices, self.notes = tuple(devices), tuple(notes)
        # On processors there is nothing to gain from collective operations, and the order of sums stays ours.
        reduction = None if self.devices[0].startswith("GPU") else tf.distribute.ReductionToOneDevice()
        self._strategy = tf.distribute.MirroredStrategy(self.devices, cross_device_ops=reduction)

    @property
    def strategy(self) -> Any:
        """The `tf.distribute.MirroredStrategy`."""
        return self._strategy

    def backend(self, rows: Any) -> Any:
        """The backend of a step, around that of a single device, which holds the rows."""
        return GatheredRows(rows, self.replicas, self.host)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its share of a batch."""
        dense, labels = divided(batch.dense, self.replicas), divided(batch.labels, self.replicas)
        shares, known = _shares(batch.labels, self.replicas), self._known(batch)
        asked = relations_of(batch)
        relations = [None] * self.replicas if asked is None else divided(asked, self.replicas)

        def replica() -> Any:
            number = _replica_number()
            mine = (each[number] for each in (dense, labels, shares, known, relations))
            return function(ReplicaBatch(*mine))

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


def build_gpu(spec: GPU, *, traced: bool = False) -> Strategy:
    """A strategy for one GPU, or for several that mirror the dense part; rows stay in the machine's memory.

    Raises:
        RunError: there are fewer GPUs; the message says what is missing.
    """
    count, found = spec.devices, len(tf.config.list_physical_devices("GPU"))
    if found < count:
        raise RunError(_missing(count, found, cuda=bool(tf.test.is_built_with_gpu_support())))
    # Operations without a GPU kernel, such as counters of some types, go to the processor; sessions need this setting.
    tf.config.set_soft_device_placement(True)
    if count == 1:
        return OneDevice("/GPU:0")
    return MirroredStrategy([f"GPU:{number}" for number in range(count)])


def _missing(count: int, found: int, *, cuda: bool) -> str:
    if found:
        return (
            f"strategy=gpu with strategy.devices={count}: TensorFlow sees {plural(found, 'GPU')};"
            f" set strategy.devices={found}, or check which GPUs CUDA_VISIBLE_DEVICES leaves visible"
        )
    if not cuda:
        return (
            "strategy=gpu: this TensorFlow was built without GPU support; install one that has it (pip install "
            "'embexp[gpu]'), or set strategy=cpu"
        )
    return (
        "strategy=gpu: TensorFlow sees no GPU. It needs a GPU that CUDA supports, its driver (nvidia-smi lists it), the"
        " CUDA libraries (pip install 'embexp[gpu]') and no CUDA_VISIBLE_DEVICES that hides it; or set strategy=cpu"
    )


def build_mirrored(spec: Mirrored, *, traced: bool = False) -> MirroredStrategy:
    """Replicas on the first GPUs; where there are too few, on logical processors, with a note that says so.

    Raises:
        RunError: TensorFlow is already running, with fewer devices.
    """
    replicas, found = spec.replicas, len(tf.config.list_physical_devices("GPU"))
    if found >= replicas:
        return MirroredStrategy([f"GPU:{number}" for number in range(replicas)])
    logical_processors(replicas)
    seen = plural(found, "GPU") if found else "no GPU"
    note = (
        f"strategy mirrored: TensorFlow sees {seen}, so the {replicas} replicas are logical processors of "
        f"this machine, which share its cores: they don't make a run faster"
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
            f"{count} logical processors are needed, but TensorFlow is already running in this process with "
            f"{there}; start the run in a new process (a sweep does), or before any other use of TensorFlow"
        ) from None


def _shares(labels: Any, replicas: int) -> list[Any]:
    """The fraction of the batch's examples that each replica has."""
    count = labels.shape[0]
    if count is not None:
        return [size / count for size in sizes(count, replicas)]
    total = tf.shape(labels)[0]
    return [tf.cast(size / total, tf.float32) for size in sizes(total, replicas)]


class GatheredRows:
    """An `EmbeddingBackend` for the replicas of a `tf.distribute.MirroredStrategy`, around one of a single device.

    `enqueue` takes the ids of the whole batch. Activations and gradients are a replica's: its examples
    in order, as `sizes` divides them. Activations whose first dimension is known to be 1 belong to the whole batch,
    such as candidates that all examples share: every replica gets them, and their gradients are added.
    """

    def __init__(self, rows: Any, replicas: int, host: Callable[[], AbstractContextManager[Any]]) -> None:
        """Wraps the backend `rows` of a single device; `host` is the scope of that device."""
        self._rows, self._replicas, self._host = rows, replicas, host
        self._shares: dict[str, list[Any]] = {}
        self._shared: set[str] = set()

    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Looks up the ids of the whole batch; called on the host."""
        with self._host():
            self._rows.enqueue(features, training=training)
            activations = self._rows.activations()
            self._shared = {name for name, value in activations.items() if value.shape[0] == 1}
            self._shares = {
                name: [value] * self._replicas if name in self._shared else divided(value, self._replicas)
                for name, value in activations.items()
            }

    def activations(self) -> dict[str, Any]:
        """The activations of the replica that is being traced, by feature."""
        replica = _replica_number()
        return {name: shares[replica] for name, shares in self._shares.items()}

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows of a feature's table; see `EmbeddingBackend.rows`."""
        with self._host():
            return self._rows.rows(feature, start, stop)

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Gathers the replicas' gradients and applies them once."""
        tf.distribute.get_replica_context().merge_call(self._apply, args=(dict(gradients),))

    def _apply(self, strategy: Any, gradients: Mapping[str, Any]) -> None:
        with self._host():
            gathered = {
                name: None if gradient is None else self._gathered(name, strategy.experimental_local_results(gradient))
                for name, gradient in gradients.items()
            }
            self._rows.apply_gradients(gathered)

    def _gathered(self, name: str, parts: tuple[Any, ...]) -> Any:
        return tf.add_n(parts) if name in self._shared else tf.concat(parts, 0)


def _replica_number() -> int:
    """The number of the replica that is being traced."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


def sizes(count: Any, replicas: int) -> list[Any]:
    """Number of examples of each replica, as equal as can be; the first replicas have one more.

    Args:
        count: number of examples, an int or an int32 scalar.
        replicas: number of replicas that share them.
    """
    each, rest = count // replicas, count % replicas
    if isinstance(count, int):
        return [each + (replica < rest) for replica in range(replicas)]
    return [each + tf.cast(replica < rest, tf.int32) for replica in range(replicas)]


def divided(value: Any, replicas: int) -> list[Any]:
    """A tensor [B, ...], divided among the replicas."""
    count = value.shape[0]
    if count is None:
        return list(tf.split(value, tf.stack(sizes(tf.shape(value)[0], replicas)), num=replicas))
    return list(tf.split(value, sizes(count, replicas)))
