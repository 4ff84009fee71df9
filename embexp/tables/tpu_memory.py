"""Where a TPU keeps tables: behind `TPUEmbedding` of TensorFlow, or on SparseCores behind `TPUEmbeddingV2`.

A `Memory` looks up what its host was given for a replica, and takes the gradients. Of the first generation, the
variables of the hosts are copies, which are loaded and retrieved. On SparseCores the variables are the memory: a part
on each chip, of several tables of one width and optimizer one after the other, in which rows have other places.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.errors import RunError
from embexp.specs.sparse_cores import Chips, Limits, Vectors, settle
from embexp.system import arrays
from embexp.system.tensor_bundle import stacked
from embexp.tables.variables import TableVariable, gather_rows, scatter_rows


@dataclass(frozen=True, eq=False)
class Shards:
    """The variables that hold a device table, or one of its slots.

    Attributes:
        variables: float32 [rows, width], one after the other; a width may exceed that of the table.
        places: from the numbers of a table's rows to their places in all variables; None: these are the same.
    """

    variables: Sequence[Any]
    places: Callable[[np.ndarray], np.ndarray] | None = None

    def read(self, numbers: np.ndarray, dim: int) -> np.ndarray:
        """Rows with these numbers, int64 [n], rising: float32 [n, dim]."""
        values = arrays.empty((len(numbers), dim), np.float32)
        for shard, rows, local in self._parts(numbers):
            # The TPU of a host's copies reads them whole, which must not copy them.
            read = tf.gather(shard.read_value(), local) if self.places is None else gather_rows(shard, local)
            values[rows] = read.numpy()[:, :dim]
        return values

    def write(self, table: str, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`; `table` is for errors."""
        for shard, rows, local in self._parts(np.arange(start, start + len(values))):
            if self.places is None:
                TableVariable(table, shard, read_whole=True).write(int(local[0]), values[rows])
            else:
                padding = ((0, 0), (0, int(shard.shape[1]) - values.shape[1]))
                scatter_rows(shard, tf.constant(local), tf.constant(np.pad(values[rows], padding)))

    def _parts(self, numbers: np.ndarray) -> Any:
        """Each variable with some of the rows: where these are in `numbers`, and in the variable."""
        places = numbers if self.places is None else self.places(numbers)
        order = None if self.places is None else np.argsort(places, kind="stable")
        rising, first = places if order is None else places[order], 0
        for shard in self.variables:
            last = first + int(shard.shape[0])
            low, high = np.searchsorted(rising, (first, last))
            if low < high:
                yield shard, slice(low, high) if order is None else order[low:high], rising[low:high] - first
            first = last


class Memory(Protocol):
    """The tables of a TPU, and the calls of a step.

    Attributes:
        embedding: TensorFlow's object.
    """

    embedding: Any

    def enqueue(self, replica: int, ids: Any, weights: Any, *, training: bool) -> None:
        """On the host: takes a replica's ids, by feature of the TPU."""

    def run(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """On the host: calls a function in every replica, where it may call the next two."""

    def dequeue(self) -> dict[str, Any]:
        """In a replica: the activations, by feature."""

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In a replica: takes the gradients, by feature."""

    def shards(self, table: str) -> dict[str, Shards]:
        """The variables of a device table: "parameters" and its slots."""

    def retrieve(self) -> None:
        """Updates the variables."""

    def load(self) -> None:
        """Has the TPU see what was assigned to the variables."""


class HostCopies:
    """Tables in the memory of a TPU of the first generation, with copies on its hosts; a `Memory`."""

    def __init__(self, strategy: Any, configs: Any, shapes: Mapping[str, Any], *, pipelined: bool) -> None:
        """Sets the TPU up.

        Args:
            configs: `FeatureConfig` by feature.
            shapes: of the features, see `TPUEmbedding.build`.
            pipelined: see `TPUBackend`.

        Raises:
            RunError: the TPU was set up for embeddings before.
        """
        self._strategy = strategy
        self.embedding = tf.tpu.experimental.embedding.TPUEmbedding(
            configs, optimizer=None, pipeline_execution_with_tensor_core=pipelined
        )
        try:
            self.embedding.build(shapes)
        except RuntimeError as error:
            if "already initialized" not in str(error):
                raise
            raise RunError(
                "the TPU is already set up for embeddings: since it was last initialised, a TPUEmbedding has "
                "placed its tables in its memory, and a second one can't; start a new process, or call "
                "tf.tpu.experimental.initialize_tpu_system again, which clears the TPU"
            ) from error
        self.run, self.dequeue = strategy.run, self.embedding.dequeue
        self.apply_gradients = self.embedding.apply_gradients
        self.retrieve, self.load = self.embedding._retrieve_variables, self.embedding._load_variables

    def enqueue(self, replica: int, ids: Any, weights: Any, *, training: bool) -> None:
        """Takes a replica's ids; see `Memory`."""
        device = self._strategy.extended.worker_devices[replica]
        self.embedding.enqueue(ids, weights=weights, training=training, device=device)

    def shards(self, table: str) -> dict[str, Shards]:
        """The variables of the hosts."""
        return {slot: Shards(list(parts.variables)) for slot, parts in self.embedding._variables[table].items()}


class OnSparseCores:
    """Tables on the SparseCores of a TPU; a `Memory`."""

    def __init__(
        self,
        strategy: Any,
        configs: Mapping[str, Any],
        vectors: Mapping[str, Vectors],
        limits: Limits,
        chips: Chips,
        *,
        pipelined: bool,
    ) -> None:
        """Makes the tables, full of zeros.

        Args:
            configs: `FeatureConfig` by feature, each with an `output_shape`.
            vectors: what each feature looks up.
            limits: of a step's ids.
            chips: of the TPU.

        Raises:
            RunError: the SparseCores of a chip can't share the vectors of a feature equally.
        """
        self._strategy, self._received = strategy, None
        self._prepared: list[Any] = []
        self._kept: Any = None
        for name, own in vectors.items():
            if own.count % chips.cores:
                raise RunError(
                    f"feature {name!r}: each chip has {own.count} vectors of it, and its {chips.cores} SparseCores"
                    " can't share them equally; choose a batch size and numbers of negatives that are multiples of"
                    f" {chips.partitions}"
                )
        make = functools.partial(
            tf.tpu.experimental.embedding.TPUEmbeddingV2, configs, pipeline_execution_with_tensor_core=pipelined
        )
        stacks: defaultdict[str, list[str]] = defaultdict(list)
        for table, layout in make().embedding_layouts.items():
            stacks[layout.stacked_table_name].append(table)
        settled = settle(limits, vectors.values(), stacks, chips)
        config = tf.tpu.experimental.embedding.SparseCoreEmbeddingConfig(**asdict(settled))
        self.embedding = make(sparse_core_embedding_config=config)
        self.embedding.build()

    def enqueue(self, replica: int, ids: Any, weights: Any, *, training: bool) -> None:
        """Divides a replica's ids over the SparseCores; see `Memory`."""
        del self._prepared[replica:]
        device = self._strategy.extended.worker_devices[replica]
        self._prepared.append(self.embedding.enqueue(ids, weights=weights, device=device))

    def run(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Calls a function in every replica, which is given what was enqueued for it."""
        prepared = self._prepared

        def replica(received: Any, *own: Any) -> Any:
            self._received = received
            return function(*own)

        given = self._strategy.experimental_distribute_values_from_function(
            lambda context: prepared[context.replica_id_in_sync_group]
        )
        return self._strategy.run(tf.autograph.experimental.do_not_convert(replica), args=(given, *args))

    def dequeue(self) -> dict[str, Any]:
        """The activations, by feature."""
        found, self._kept = self.embedding.dequeue(self._received)
        return dict(found)

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Takes the gradients of what was looked up last."""
        self.embedding.apply_gradients(dict(gradients), self._kept)

    def shards(self, table: str) -> dict[str, Shards]:
        """The parts of the chips, with the places of the table's rows in them."""
        layout = self.embedding.embedding_layouts[table]

        def places(numbers: np.ndarray) -> np.ndarray:
            cores, rows = layout.num_sparse_cores, layout.total_rows_per_sparse_core_shard
            offset, rotation = layout.sparse_core_shard_row_offset, layout.sparse_core_shard_rotation
            return np.asarray(stacked.place_of(numbers, cores, rows, offset, rotation))

        stack = self.embedding.variables[layout.stacked_table_name]
        return {slot: Shards(list(parts.values), places) for slot, parts in stack.items()}

    def retrieve(self) -> None:
        """Nothing to do."""

    load = retrieve
