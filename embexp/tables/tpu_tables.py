"""Tables as a TPU holds them, in shards of consecutive rows: one device table each, or two if some rows are frozen.

A TPU applies a table's optimizer to all rows that were looked up in it. So frozen rows have their own device table,
whose optimizer is plain SGD and whose gradients are zeros: w - lr * 0 is w to the last bit, which a learning rate of 0
does not give (-0.0 becomes 0.0, an infinite gradient NaN). Arithmetic flushes subnormal numbers to 0, so frozen rows
that hold any are refused.

A `Memory` is where a TPU keeps tables: behind `TPUEmbedding` of TensorFlow, or on SparseCores behind `TPUEmbeddingV2`.
It looks up what its host was given for a replica, and takes the gradients. Of the first generation, the variables of
the hosts are copies, which are loaded and retrieved. On SparseCores the variables are the memory: a part on each chip,
of several tables of one width and optimizer one after the other, in which rows have other places.
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
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.sparse_cores import Chips, Limits, Vectors, settle
from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.arrays import Rows, SomeRows
from embexp.system.tensor_bundle import stacked
from embexp.tables import optimizers as rules
from embexp.tables.checkpointing import StreamedTable
from embexp.tables.table import split_index
from embexp.tables.variables import (
    ReadableTable,
    TableVariable,
    WritableRows,
    flags_of_rows,
    gather_rows,
    scatter_rows,
    variable_over,
)


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


class TPUTable(ReadableTable):
    """`rows` × `dim` float32 values and their slots, on a TPU.

    Values are read from the variables of the TPU's hosts, after `attach`'s `retrieve` has updated them.

    Attributes:
        optimizer: of the rows that may move; None: none may.
        by_reference: the rows can be read again from their source, so no checkpoint holds them.
        device_tables: the rows that may move, then the frozen rows; or one table of either.
        slots: the optimizer's slots, with their initial values.
        chunk_bytes: most bytes of initial values that are read at once.
    """

    def __init__(
        self,
        name: str,
        source: Rows,
        rows: int,
        dim: int,
        *,
        combiner: Combiner = Combiner.MEAN,
        optimizer: TableOptimizer | None,
        frozen_rows: np.ndarray | None = None,
        by_reference: bool = False,
        hosts: int = 1,
        chunk_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Describes what the TPU will hold; creates only an index and a byte per row, in this machine's memory.

        Args:
            optimizer: of the rows that may move; None: none may.
            frozen_rows: bool [rows], which rows are frozen; None: all, or none.
            by_reference: leave the table out of checkpoints; only if frozen.
            hosts: machines over which the TPU spreads its tables.
            chunk_bytes: most bytes of initial values that are read at once.

        Raises:
            ValueError: the arguments contradict each other.
        """
        if optimizer is None and frozen_rows is not None:
            raise ValueError(f"table {name!r} has no optimizer, so all its rows are frozen")
        if by_reference and optimizer is not None:
            raise ValueError(
                f"table {name!r} is kept by reference, so it must be frozen, or trained rows would be lost"
            )
        if frozen_rows is not None and (frozen_rows.dtype != np.bool_ or frozen_rows.shape != (rows,)):
            raise ValueError(
                f"table {name!r}: frozen_rows is {frozen_rows.dtype} {frozen_rows.shape}, expected bool ({rows},)"
            )
        if frozen_rows is not None and not 0 < np.count_nonzero(frozen_rows) < rows:
            raise ValueError(f"table {name!r} can be split only if some rows are frozen and some are trainable")
        self.name, self.source, self.rows, self.dim = name, source, rows, dim
        self.combiner, self.optimizer, self.by_reference = combiner, optimizer, by_reference
        self.chunk_bytes = chunk_bytes
        self.frozen = optimizer is None
        self.index: Any = None
        self.device_tables: tuple[DeviceTable, ...] = (DeviceTable(name, rows, frozen=self.frozen),)
        self.storage = "sharded" if hosts > 1 else Storage.VARIABLE.value
        if frozen_rows is not None:
            self.storage = Storage.SPLIT.value
            moving, fixed = np.flatnonzero(~frozen_rows), np.flatnonzero(frozen_rows)
            self.device_tables = (
                DeviceTable(name, len(moving), False, moving),
                DeviceTable(f"{name}/fixed", len(fixed), True, fixed),
            )
            self._places, _ = split_index(frozen_rows)
            self.index = variable_over(f"{name}/index", self._places)
        self.slots = {} if optimizer is None else rules.slots_of(optimizer)
        self._values: dict[str, Mapping[str, Shards]] = {}
        self._retrieve: Callable[[], object] = lambda: None
        self.touched = None if self.frozen else flags_of_rows(name, rows)

    def initial_values(self, device_table: DeviceTable) -> Rows:
        """Initial values of a device table."""
        numbers = device_table.numbers
        return self.source if numbers is None else SomeRows(self.source, numbers)

    def attach(self, values: Mapping[str, Mapping[str, Shards]], retrieve: Callable[[], object]) -> None:
        """Sets the variables that hold the values.

        Args:
            values: by device table, then "parameters" or slot.
            retrieve: copies what the TPU has learned into them; called before each read.
        """
        self._values = {device_table.name: values[device_table.name] for device_table in self.device_tables}
        self._retrieve = retrieve

    def mark_touched(self, ids: Any) -> None:
        """Records that training looked up these rows; ignores frozen ones."""
        if self.index is not None:
            ids = tf.boolean_mask(ids, tf.gather(self.index.read_value(), ids) < 0)
        super().mark_touched(ids)

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers, rising, of the table, or of one slot, float32; see `read`."""
        self._retrieve()
        return self._take(numbers, slot)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32; slots of frozen rows have their initial value."""
        self.check_range(start, stop)
        return self.take(np.arange(start, stop), slot)

    def fills(self, source: Rows) -> list[tuple[TableVariable, Rows]]:
        """None: `TPUBackend` creates the variables with their initial values."""
        return []

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[WritableRows, Rows]]:
        """The slots to fill, in the variables of the hosts, each with its values; `TPUBackend.load` must follow."""
        return [
            (_Slot(f"{self.name}/{slot}", self.rows, self.dim, functools.partial(self.write, slot=slot)), source)
            for slot, source in slots.items()
        ]

    def checkpointed(self, slot: str | None = None) -> StreamedTable:
        """The table, or one slot, as a checkpoint holds it; after restoring, `TPUBackend.load` must follow."""
        read, write = functools.partial(self.read, slot=slot), functools.partial(self.write, slot=slot)
        return StreamedTable(self, slot, self.variables(slot), read, write)

    def _take(self, numbers: np.ndarray, slot: str | None) -> np.ndarray:
        if self.index is None:
            return self._shards(self.device_tables[0], slot).read(numbers, self.dim)
        places = self._places[numbers]
        values = arrays.empty((len(numbers), self.dim), np.float32)
        moving = places < 0
        values[moving] = self._shards(self.device_tables[0], slot).read(-1 - places[moving], self.dim)
        if slot is None:
            values[~moving] = self._shards(self.device_tables[1], None).read(places[~moving], self.dim)
        else:
            values[~moving] = self.slots[slot]
        return values

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, dim] to the rows from `start`, in the variables of the hosts.

        `TPUBackend.load` must follow. Slots of frozen rows are ignored.
        """
        stop = start + len(values)
        for device_table in self.device_tables:
            if slot is not None and device_table.frozen:
                continue
            low, own = start, values
            if device_table.numbers is not None:
                low, high = (int(place) for place in np.searchsorted(device_table.numbers, (start, stop)))
                own = values[device_table.numbers[low:high] - start]
            self._shards(device_table, slot).write(self.name, low, own)

    def variables(self, slot: str | None = None) -> list[Any]:
        """The variables of the hosts that hold the table, or one slot."""
        return [
            shard
            for device_table in self.device_tables
            if slot is None or not device_table.frozen
            for shard in self._shards(device_table, slot).variables
        ]

    def _shards(self, device_table: DeviceTable, slot: str | None) -> Shards:
        return self._values[device_table.name][slot or "parameters"]


@dataclass(frozen=True)
class _Slot:
    """A slot of a table, as `WritableRows`."""

    name: str
    rows: int
    dim: int
    write: Callable[[int, np.ndarray], None]


@dataclass(frozen=True, eq=False)
class DeviceTable:
    """A table in a TPU's memory: all rows of an embedding table, or its frozen rows, or the others.

    Attributes:
        numbers: which rows of the embedding table they are, rising; None: all.
    """

    name: str
    rows: int
    frozen: bool
    numbers: np.ndarray | None = None


def check_normal(table: str, values: np.ndarray) -> None:
    """Raises RunError for frozen rows with a subnormal number, which a TPU would change."""
    if ((np.abs(values) < np.finfo(np.float32).tiny) & (values != 0)).any():
        raise RunError(
            f"table {table!r}: frozen rows hold numbers below {np.finfo(np.float32).tiny:.2g} that are not 0; a "
            f"TPU turns them into 0 when it first updates the row. Set them to 0 in the pretrained file, or set "
            f"strategy=cpu"
        )
