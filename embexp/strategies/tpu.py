"""Replicas on the cores of a TPU, by `tf.distribute.TPUStrategy`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from embexp.errors import RunError
from embexp.strategies.replicated import Replicated
from embexp.strategies.strategy import Part

Opened = AbstractContextManager[Any]
"""Gives a `tf.distribute.TPUStrategy`."""


class TPUPlacement(Replicated):
    """Rows in the TPU, the dense part mirrored over its cores; a `Placement`.

    A batch is what a distributed dataset gives: each replica's part of a whole batch, still on its host, as a TPU
    takes ids from there. All parts have one size, as a TPU computes nothing else.

    It is of use inside of `opened` only.

    Attributes:
        devices: see `Placement`.
        pipelined: rows are looked up while the step before is computed.
    """

    def __init__(
        self, name: str, open_: Callable[[], Opened], devices: Sequence[str], *, pipelined: bool = False
    ) -> None:
        """Takes what opens the TPU.

        Args:
            name: what to call it in errors.
            open_: gives the context in which it is there.
            devices: its cores, in words for people.
            pipelined: see above.
        """
        self._name, self._open, self._strategy = name, open_, None
        self.devices, self.pipelined = tuple(devices), pipelined

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The time in which the TPU is there."""
        with self._open() as strategy:
            self._strategy = strategy
            try:
                yield
            finally:
                self._strategy = None

    @property
    def strategy(self) -> Any:
        """The `tf.distribute.TPUStrategy`.

        Raises:
            RuntimeError: the TPU is not open.
        """
        if self._strategy is None:
            raise RuntimeError(f"{self._name}: the TPU is used outside of `opened`")
        return self._strategy

    @property
    def replicas(self) -> int:
        """See `Placement`."""
        return len(self.devices)

    @property
    def hosts(self) -> int:
        """Machines over which the TPU spreads its tables."""
        return int(self.strategy.extended.num_hosts)

    def dataset(self, batches: Any) -> Any:
        """See `Placement`.

        Raises:
            RunError: batches can't be divided into equal parts.
        """
        replicas = self.replicas
        self._check(batches.element_spec.labels.shape[0])

        def of_host(context: Any) -> Any:
            parts = batches.flat_map(lambda batch: _parts(batch, replicas))
            if context.num_input_pipelines == 1:
                return parts
            each, own = replicas // context.num_input_pipelines, context.input_pipeline_id
            numbered = parts.enumerate().filter(lambda number, _: number % replicas // each == own)
            return numbered.map(lambda _, part: part)

        # Ids must stay on the hosts, which send them to the TPU themselves.
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        return self.strategy.distribute_datasets_from_function(of_host, options=options)

    def part_spec(self, spec: Any) -> Any:
        """`tf.TypeSpec` of a replica's part of a tensor of whole batches.

        Args:
            spec: of the whole, whose first dimension is the batch, or 1 for what replicas share.
        """
        shape = spec.shape.as_list()
        if shape[0] != 1:
            self._check(shape[0])
            shape[0] //= self.replicas
        if isinstance(spec, tf.RaggedTensorSpec):
            return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
        if isinstance(spec, tf.SparseTensorSpec):
            return tf.SparseTensorSpec(shape, spec.dtype)
        return tf.TensorSpec(shape, spec.dtype)

    def backend(self, rows: Any) -> Any:
        """See `Placement`: the rows are in the TPU already."""
        return rows

    def run(self, function: Callable[[Part], Any], batch: Any) -> Any:
        """See `Placement`."""
        share = 1.0 / self.replicas

        def replica(dense: Any, labels: Any) -> Any:
            return function(Part(dense, labels, share))

        whole = tf.autograph.experimental.do_not_convert(replica)
        return self.strategy.run(whole, args=(batch.dense, batch.labels))

    def total(self, results: Any) -> Any:
        """See `Placement`."""
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, results, axis=None)

    def labels(self, batch: Any) -> Any:
        """See `Placement`."""
        return self.joined(batch.labels)

    def _check(self, batch: int | None) -> None:
        replicas = self.replicas
        if batch is None:
            raise RunError(f"{self._name}: a TPU takes batches of one size, and theirs is not known beforehand")
        if batch % replicas:
            raise RunError(
                f"{self._name}: {replicas} cores share each batch equally, and train.batch_size = {batch} does not"
                f" divide by {replicas}; set it to {max(1, round(batch / replicas)) * replicas}"
            )


def _parts(batch: Any, replicas: int) -> Any:
    """A batch as a dataset of the replicas' parts."""
    count = batch.labels.shape[0]

    def part(whole: Any) -> Any:
        if whole.shape[0] == 1 != count:  # what all examples share
            return tf.repeat(whole[None], replicas, 0)
        if isinstance(whole, tf.RaggedTensor):
            return tf.RaggedTensor.from_uniform_row_length(whole, count // replicas)
        if isinstance(whole, tf.SparseTensor):
            inner = whole.dense_shape[1:]
            return tf.sparse.reshape(whole, tf.concat([[replicas, count // replicas], inner], 0))
        return tf.reshape(whole, [replicas, count // replicas, *whole.shape[1:]])

    return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(part, batch))
