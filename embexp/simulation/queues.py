"""What lies between the host, which enqueues ids, and the cores, which look them up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

_numbers = itertools.count()


class Queue:
    """Batches of one replica and one kind, first in, first out, in the memory of this process.

    A batch is a list of tensors of given types; putting it in copies nothing.
    """

    def __init__(self, dtypes: Sequence[Any]) -> None:
        """Makes an empty queue, outside of any graph that is being traced."""
        self._dtypes = list(dtypes)
        with ops.init_scope(), tf.device("/device:CPU:0"):
            # The operation and not tf.queue: a traced function may outlive this object, and the queue has to as well.
            self._handle = tf.raw_ops.FIFOQueueV2(
                component_types=self._dtypes, shared_name=f"simulated_tpu_{next(_numbers)}"
            )

    def put(self, batch: Sequence[Any]) -> Any:
        """Puts a batch behind the others; returns the operation."""
        return tf.raw_ops.QueueEnqueueV2(handle=self._handle, components=list(batch))

    def take(self) -> list[Any]:
        """Takes the first batch out; an InvalidArgumentError while it runs if there is none."""
        with tf.control_dependencies([self._not_empty()]):
            taken: list[Any] = tf.raw_ops.QueueDequeueV2(handle=self._handle, component_types=self._dtypes)
        return taken

    def _not_empty(self) -> Any:
        return tf.raw_ops.Assert(
            condition=tf.raw_ops.QueueSizeV2(handle=self._handle) > 0,
            data=[
                "a TPU would wait for ever: a step dequeues embeddings, but no batch of the kind it was traced for "
                "has been enqueued; call TPUEmbedding.enqueue before each strategy.run, best in the same tf.function"
            ],
        )
