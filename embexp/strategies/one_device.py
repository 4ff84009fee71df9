"""One replica: this machine's processor, or one GPU beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.specs.data import KNOWN
from embexp.specs.strategies import CPU
from embexp.strategies.strategy import HostRows
from embexp.training.step import ReplicaBatch


@dataclass(frozen=True)
class OneDevice(HostRows):
    """Rows in the machine's memory, the dense part on one device; a `Strategy`.

    It works in graphs of TensorFlow 1 as well.

    Attributes:
        device: TensorFlow's name of the dense part's device; None: its default, for rows too.
    """

    device: str | None = None

    @property
    def replicas(self) -> int:
        """One."""
        return 1

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of the dense part."""
        return (self.device or "CPU:0",)

    @property
    def notes(self) -> tuple[str, ...]:
        """None: there is nothing to warn of."""
        return ()

    def host(self) -> AbstractContextManager[Any]:
        """The processor, which holds the rows."""
        return contextlib.nullcontext() if self.device is None else tf.device("/CPU:0")

    def scope(self) -> AbstractContextManager[Any]:
        """The device of the dense part."""
        return contextlib.nullcontext() if self.device is None else tf.device(self.device)

    def backend(self, rows: Any) -> Any:
        """The backend of a step, around the one that holds the rows."""
        return rows if self.device is None else _OnHost(rows, self.host)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` once, with the whole batch."""
        with self.scope():
            return function(ReplicaBatch(batch.dense, batch.labels, known=batch.ids.get(KNOWN)))

    def total(self, results: Any) -> Any:
        """The result of the one replica."""
        return results

    def joined(self, results: Any) -> Any:
        """The result of the one replica."""
        return results

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the one replica."""
        return list(gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """Changes nothing, as one replica always agrees."""
        return  # not an empty body, which AutoGraph can't read


def build_cpu(spec: CPU, *, traced: bool) -> OneDevice:
    """This machine's processor."""
    return OneDevice()


@dataclass(frozen=True)
class _OnHost:
    """A backend whose operations all run where the rows are."""

    engine: Any
    host: Callable[[], AbstractContextManager[Any]]

    def enqueue(self, features: Any, *, training: bool) -> None:
        with self.host():
            self.engine.enqueue(features, training=training)

    def activations(self) -> Any:
        with self.host():
            return self.engine.activations()

    def rows(self, feature: str, start: int, stop: int) -> Any:
        with self.host():
            return self.engine.rows(feature, start, stop)

    def apply_gradients(self, gradients: Any) -> None:
        with self.host():
            self.engine.apply_gradients(gradients)
