"""One copy of the rows for all replicas of a step.

The host looks up the whole batch at once and hands each replica the activations of its examples. Gradients are gathered
over the replicas and applied at once. So each row is updated once, by the operations that a single device executes,
and nothing can differ between replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf


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
        replica = replica_number()
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
                name: None if each is None else self._gathered(name, strategy.experimental_local_results(each))
                for name, each in gradients.items()
            }
            self._rows.apply_gradients(gathered)

    def _gathered(self, name: str, parts: tuple[Any, ...]) -> Any:
        return tf.add_n(parts) if name in self._shared else tf.concat(parts, 0)


def replica_number() -> int:
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
