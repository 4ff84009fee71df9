"""The `EmbeddingBackend` of TPUs: TensorFlow's own `TPUEmbedding`, with embexp's tables and inputs.

Converts a feature's input to a form that a TPU takes. Allowed inputs are those of the row engine (see the table in
`inputs`), with the same meaning. A TPU takes fewer forms, so the host converts some inputs, without loss:

| input                     | becomes                                                                               |
|---------------------------|---------------------------------------------------------------------------------------|
| dense [B]                 | itself                                                                                |
| dense [B, ...]            | dense [B, ..., 1]: a TPU drops the last dimension                                     |
| ragged                    | itself                                                                                |
| sparse                    | ragged, a row for each row of the result: a TPU takes no mixture of sparse and ragged |
| any, of a table with some | two ragged ones, for the two device tables, with a row for each row of the result and |
| frozen rows               | weights w / denominator: each device table sums its rows, then the sums are added     |

Converts tables and features to TensorFlow's own objects, `tf.tpu.experimental.embedding`.

The optimizers of `TPUEmbeddingV2` have no weight decay, so on SparseCores the step of SGD takes it in its gradient:
w - d w - lr g = w - lr (g + (d / lr) w). The ids of a batch can't carry it, because a row decays once in a step,
whatever its occurrences, weights and combiners. So a further feature of the TPU looks up each distinct row of the batch
of all replicas, in a vector of its own in one of the replicas. Its activations are these rows, and (d / lr) times them
are its gradients, which the TPU adds to those of the other features.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.optimizers import FROZEN_ROWS_OPTIMIZER, SGD, TableOptimizer
from embexp.specs.sparse_cores import BAG, Chips, DistinctRows, Limits, Vectors, distinct_rows
from embexp.specs.tables import Combiner, Feature
from embexp.system import arrays
from embexp.system.arrays import Rows
from embexp.tables import optimizers as rules
from embexp.tables.inputs import Occurrences, check, check_names, occurrences, without_autograph
from embexp.tables.tpu_tables import DeviceTable, HostCopies, Memory, OnSparseCores, TPUTable, check_normal


@dataclass(frozen=True, eq=False)
class SparseCoreDecay:
    """Weight decay of a device table.

    Attributes:
        table: name of the table, for errors.
        part: name of the device table.
        features: those of the TPU that look its rows up.
    """

    table: str
    part: str
    features: Sequence[str]
    optimizer: SGD
    vectors: DistinctRows

    @property
    def key(self) -> str:
        """The TPU's name for its feature: after the others, because TensorFlow's layout depends on the first one."""
        return f"~decay/{self.part}"

    def deal(self, ids: Sequence[Any]) -> list[Any]:
        """Deals the distinct ids of a step out over the SparseCores of all replicas, evenly.

        Args:
            ids: of rows of the device table, integers of any shapes, with repetitions; none where nothing is trained.

        Returns:
            By replica, ragged int32 ids with at most one in each vector.

        Raises:
            tf.errors.InvalidArgumentError: there are more distinct ids than vectors, see `inputs.translated_errors`.
        """
        distinct = tf.zeros([0], tf.int32)
        if ids:
            distinct = tf.unique(tf.concat([tf.cast(tf.reshape(each, [-1]), tf.int32) for each in ids], 0)).y
        rows = tf.size(distinct, tf.int64)
        with tf.control_dependencies([] if self.vectors.enough else [self._room_for(rows)]):
            # The places of n ids in v vectors are floor(0 v / n), floor(1 v / n), …
            ends = tf.constant(np.arange(self.vectors.room + 1))
            splits = (ends * rows + (self.vectors.room - 1)) // self.vectors.room
        count = self.vectors.count
        dealt = []
        for start in range(0, self.vectors.room, count):
            own = splits[start : start + count + 1]
            values = distinct[own[0] : own[-1]]
            dealt.append(tf.RaggedTensor.from_row_splits(values, own - own[0], validate=False))
        return dealt

    def gradients(self, rows: Any, learning_rate: Any) -> Any:
        """The gradients of the rows, float32 [vectors, dim], with which a step decays them."""
        by_rate = self.optimizer.multiply_weight_decay_factor_by_learning_rate
        factor = self.optimizer.weight_decay_factor
        return rows * (factor if by_rate else factor / learning_rate)

    def _room_for(self, rows: Any) -> Any:
        message = (
            f"table '{self.table}': a step looks up {{}} distinct rows, but SparseCores have room for the weight decay"
            f" of {self.vectors.room}; set strategy.max_ids_per_chip_per_sample to {{}} or more"
        )
        described = tf.strings.format(message, (rows, self.vectors.sufficient(rows)))
        return tf.raw_ops.Assert(condition=rows <= self.vectors.room, data=[described])


@dataclass(frozen=True)
class TableShape:
    """Size, combiner and initializer of a table.

    Attributes:
        initializer: callable `(shape, dtype) -> tensor` with which a `TPUEmbedding` fills the table;
            None: TensorFlow's default, truncated normal of 1/sqrt(dim).
    """

    rows: int
    dim: int
    combiner: Combiner = Combiner.MEAN
    initializer: Callable[..., Any] | None = None


def to_tensorflow(
    tables: Mapping[str, TableShape],
    features: Mapping[str, Feature],
    optimizers: Mapping[str, TableOptimizer],
    *,
    step: Any = None,
    total_steps: int | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Builds fresh `TableConfig` and `FeatureConfig` objects.

    Each call builds new ones, because the constructor of `TPUEmbedding` changes its arguments.

    Args:
        features: by name; features of one table share its `TableConfig` object.
        step: int64 variable with the number of the step; needed if any learning rate changes over time.
        total_steps: length of the run; needed if any learning rate changes over time.

    Returns:
        TableConfig by table name and FeatureConfig by feature name.

    Raises:
        ValueError: a learning rate changes over time, but `step` or `total_steps` is missing.
    """
    embedding = tf.tpu.experimental.embedding
    rates: dict[Any, Any] = {}
    table_configs = {
        name: embedding.TableConfig(
            vocabulary_size=table.rows,
            dim=table.dim,
            initializer=table.initializer,
            optimizer=_optimizer(optimizers[name], _learning_rate(name, optimizers[name], step, total_steps, rates)),
            combiner=table.combiner.value,
            name=name,
        )
        for name, table in tables.items()
    }
    feature_configs = {
        name: embedding.FeatureConfig(
            table=table_configs[feature.table],
            max_sequence_length=feature.max_sequence_length,
            validate_weights_and_indices=feature.validate_weights_and_indices,
            output_shape=None if feature.output_shape is None else list(feature.output_shape),
            name=name,
        )
        for name, feature in features.items()
    }
    return table_configs, feature_configs


def _optimizer(optimizer: TableOptimizer, learning_rate: Any) -> Any:
    if optimizer.tensorflow is None:
        raise ValueError(f"TPUEmbedding has no optimizer {optimizer.kind}")
    if optimizer.clipnorm is not None:
        raise ValueError("TPUEmbedding does not clip the norm of a row's gradient")
    if optimizer.decays_per_epoch:
        raise ValueError("TPUEmbedding decays a row at every step that looks it up")
    settings = {name: getattr(optimizer, name) for name in type(optimizer).model_fields}
    for name in ("kind", "schedule", "clipnorm", "weight_decay_per"):
        del settings[name]
    decayed = optimizer if optimizer.weight_decay_factor else optimizer.without_decay
    for name in ("weight_decay_factor", "multiply_weight_decay_factor_by_learning_rate"):
        settings[name] = getattr(decayed, name) or None
    return getattr(tf.tpu.experimental.embedding, optimizer.tensorflow)(**settings | {"learning_rate": learning_rate})


def _learning_rate(
    table: str, optimizer: TableOptimizer, step: Any, total_steps: int | None, known: dict[Any, Any]
) -> Any:
    """A number, or a function that computes it at each step.

    Tables with the same rate share one function: a TPU is sent one number per function, and more of them cost time.
    """
    schedule, rate = optimizer.schedule, optimizer.learning_rate
    if rules.is_constant(schedule):
        return rate
    if step is None or total_steps is None:
        raise ValueError(f"the learning rate of table {table!r} changes over time: pass step and total_steps")
    return known.setdefault(
        (rate, schedule), lambda: rate * rules.schedule_factor(schedule, step, total_steps=total_steps)
    )


class TPUBackend:
    """Looks rows up and moves them on the TPUs of a `tf.distribute.TPUStrategy`.

    Call `enqueue` on the host, with the values of all replicas, as an iterator of a distributed dataset returns them.
    Call `activations` and `apply_gradients` in the function that `strategy.run` runs on each replica.

    Attributes:
        embedding: the `tf.tpu.experimental.embedding.TPUEmbedding`, or `TPUEmbeddingV2`.
    """

    def __init__(
        self,
        strategy: Any,
        tables: Mapping[str, TPUTable],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        *,
        step: Any,
        total_steps: int,
        pipelined: bool = False,
        sparse_cores: Limits | None = None,
        most_ids: Mapping[str, int] | None = None,
    ) -> None:
        """Sets the TPU up: creates its variables, or those of its hosts, and fills them.

        Args:
            strategy: a `tf.distribute.TPUStrategy`, whose TPU has not been set up for embeddings before.
            features: by name; an `output_shape` is that of all replicas together.
            inputs: by feature, the `tf.TypeSpec` of its ids on one replica.
            step: int64 variable, the number of the step from 0, for the learning rates; the caller advances it.
            total_steps: length of the run, for schedules that end with it.
            pipelined: look up a step's rows while the step before is computed: faster, but each step sees the rows
                of one step earlier.
            sparse_cores: limits of a TPU that keeps tables on SparseCores; None: it has none.
            most_ids: by feature, the most ids that are combined in one vector, as far as it is known: there is room
                for so many on SparseCores.

        Raises:
            RunError: the TPU was set up for embeddings before, or SparseCores can't do what is asked for.
            ValueError: a feature's table is missing, or the shape of its activations is not fully known.
        """
        for name, feature in features.items():
            if feature.table not in tables:
                raise ValueError(f"feature {name!r} uses table {feature.table!r}, which does not exist")
        self._strategy, self._tables = strategy, dict(tables)
        replicas = strategy.num_replicas_in_sync
        self._features = {name: _of_one_replica(name, feature, replicas) for name, feature in features.items()}
        self._forms = {
            name: _input_form(name, feature, tables[feature.table], inputs[name], sequences=sparse_cores is None)
            for name, feature in self._features.items()
        }
        self._step, self._total_steps = step, total_steps
        self._decays: tuple[SparseCoreDecay, ...] = ()
        self._found: Mapping[str, Any] = {}
        with strategy.scope():
            self._memory: Memory = (
                HostCopies(strategy, self._configs(filled=True), self._shapes(), pipelined=pipelined)
                if sparse_cores is None
                else self._on_sparse_cores(sparse_cores, most_ids or {}, pipelined=pipelined)
            )
        self.embedding = self._memory.embedding
        for table in tables.values():
            table.attach({each.name: self._memory.shards(each.name) for each in table.device_tables}, self.retrieve)
        if sparse_cores is not None:
            self._fill()
        self._retrieved_at: int | None = self._now()

    @without_autograph
    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes the step's ids of all replicas; see `EmbeddingBackend.enqueue`.

        Args:
            features: as for one replica, each tensor with a value for each replica. Where nothing is trained, a feature
                may have fewer examples than in `inputs`: others follow, whose vectors mean nothing.
            training: whether `apply_gradients` will follow; if it does not, a TPU waits forever.

        Raises:
            ValueError: a feature is missing or unknown, or `inputs` does not allow its input.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `inputs.translated_errors` translates it.
        """
        check_names("enqueue", features, self._features)
        every = [
            self._taken(features, replica, training=training) for replica in range(self._strategy.num_replicas_in_sync)
        ]
        for decay in self._decays:
            looked_up = [_values(taken.ids[key]) for taken in every for key in decay.features] if training else []
            for taken, ids in zip(every, decay.deal(looked_up), strict=True):
                taken.ids[decay.key], taken.weights[decay.key] = ids, None
        for replica, taken in enumerate(every):
            weights = taken.weights if any(weight is not None for weight in taken.weights.values()) else None
            self._memory.enqueue(replica, taken.ids, weights, training=training)
            if training:
                with tf.control_dependencies(taken.checks):
                    for name, read in taken.read.items():
                        self._tables[self._features[name].table].mark_touched(read.ids)

    def run(self, function: Callable[..., Any], args: Sequence[Any] = ()) -> Any:
        """Calls a function in every replica, where it may look up what was enqueued: `strategy.run`."""
        return self._memory.run(function, args)

    @without_autograph
    def activations(self) -> dict[str, Any]:
        """The activations that the TPU looked up for this replica; see `EmbeddingBackend.activations`."""
        self._found = self._memory.dequeue()
        activations = {}
        for name, feature in self._features.items():
            table = self._tables[feature.table]
            vectors = [self._found[_feature_of(name, table, device_table)] for device_table in table.device_tables]
            activations[name] = vectors[0] if len(vectors) == 1 else tf.add_n(vectors)
        return activations

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Raises RuntimeError: only training steps can look up rows on a TPU."""
        raise RuntimeError("only training steps can look up rows on a TPU")

    @without_autograph
    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Sends this replica's gradients to the TPU; see `EmbeddingBackend.apply_gradients`.

        The TPU sums those of all replicas. Frozen rows get zeros.

        Raises:
            ValueError: a gradient is missing or unknown.
        """
        check_names("apply_gradients", gradients, self._features)
        sent = {}
        for name, feature in self._features.items():
            table, gradient = self._tables[feature.table], gradients[name]
            for device_table in table.device_tables:
                sent[_feature_of(name, table, device_table)] = (
                    tf.zeros([*self._forms[name].output, table.dim])
                    if gradient is None or device_table.frozen
                    else tf.convert_to_tensor(gradient)
                )
        for decay in self._decays:
            rate = _learning_rate(decay.table, decay.optimizer, self._step, self._total_steps, {})
            sent[decay.key] = decay.gradients(self._found[decay.key], rate() if callable(rate) else rate)
        self._memory.apply_gradients(sent)

    def retrieve(self) -> None:
        """Copies the TPU's memory into the variables of its hosts, if a step was taken since the last copy."""
        now = self._now()
        if now != self._retrieved_at:
            self._memory.retrieve()
            self._retrieved_at = now

    def load(self) -> None:
        """Copies the variables of the hosts into the TPU's memory, after they were assigned to."""
        self._memory.load()
        self._retrieved_at = self._now()

    def configuration(self) -> Any:
        """The `TPUEmbeddingConfiguration` that a TPU without SparseCores was set up with, a protocol buffer."""
        return self.embedding._config_proto

    def _now(self) -> int:
        return int(tf.convert_to_tensor(self._step).numpy())

    def _taken(self, features: Mapping[str, Any], replica: int, *, training: bool) -> Enqueued:
        """A replica's inputs in the form that a TPU takes."""
        taken = Enqueued()
        for name, feature in self._features.items():
            form, value = self._forms[name], _local(self._strategy, features[name], replica)
            value = value if training else _filled_up(value, form.rows)
            enqueue(taken, name, feature, self._tables[feature.table], form, value)
        return taken

    def _configs(self, *, filled: bool) -> dict[str, Any]:
        """Fresh configs, as the constructor of `TPUEmbedding` changes its arguments.

        Args:
            filled: the TPU's embedding fills the tables; else they are full of zeros, and each feature has the shape of
                its activations.
        """
        shapes: dict[str, TableShape] = {}
        optimizers: dict[str, TableOptimizer] = {}
        for table in self._tables.values():
            for device_table in table.device_tables:
                initializer = _initializer(table, device_table) if filled else tf.zeros_initializer()
                # Weights for two device tables are normalised beforehand.
                combiner = table.combiner if table.index is None else Combiner.SUM
                shapes[device_table.name] = TableShape(device_table.rows, table.dim, combiner, initializer)
                optimizers[device_table.name] = (
                    FROZEN_ROWS_OPTIMIZER if device_table.frozen or table.optimizer is None else table.optimizer
                )
        for decay in self._decays:
            optimizers[decay.part] = decay.optimizer.without_decay
        features = {}
        for name, key, device_table in self._by_device_table():
            form, own = self._forms[name], self._features[name].model_copy(update={"table": device_table.name})
            if not filled or not (form.as_is or form.dense):
                own = own.model_copy(update={"max_sequence_length": 0, "output_shape": form.output})
            features[key] = own
        for decay in self._decays:
            features[decay.key] = Feature(table=decay.part, output_shape=(decay.vectors.count,))
        return to_tensorflow(shapes, features, optimizers, step=self._step, total_steps=self._total_steps)[1]

    def _by_device_table(self) -> Iterator[tuple[str, str, DeviceTable]]:
        """Each feature and device table of its table, with the TPU's name for both."""
        for name, feature in self._features.items():
            table = self._tables[feature.table]
            for device_table in table.device_tables:
                yield name, _feature_of(name, table, device_table), device_table

    def _shapes(self) -> dict[str, Any]:
        return {key: self._forms[name].enqueued for name, key, _ in self._by_device_table()}

    def _on_sparse_cores(self, limits: Limits, most: Mapping[str, int], *, pipelined: bool) -> Memory:
        """The tables on SparseCores; `most` is `most_ids`."""
        cores = self._strategy.extended.tpu_hardware_feature.num_embedding_devices_per_chip
        chips = Chips(self._strategy.num_replicas_in_sync, int(cores))
        vectors = {}
        for name, key, device_table in self._by_device_table():
            form = self._forms[name]
            ids = 1 if form.single else most.get(name, BAG)
            vectors[key] = Vectors(device_table.name, math.prod(form.output), ids, bag=not form.single)
        self._decays = tuple(self._decaying(vectors, limits, chips))
        vectors |= {decay.key: Vectors(decay.part, decay.vectors.count, 1) for decay in self._decays}
        return OnSparseCores(self._strategy, self._configs(filled=False), vectors, limits, chips, pipelined=pipelined)

    def _decaying(self, vectors: Mapping[str, Vectors], limits: Limits, chips: Chips) -> Iterator[SparseCoreDecay]:
        """The weight decay of tables that have any, as far as the rule of their optimizer takes it in its gradient."""
        for name, table in self._tables.items():
            if isinstance(optimizer := table.optimizer, SGD) and optimizer.weight_decay_factor:
                part = table.device_tables[0]
                own = {key: each for key, each in vectors.items() if each.part == part.name}
                distinct = distinct_rows(part.rows, own.values(), limits, chips)
                yield SparseCoreDecay(name, part.name, tuple(own), optimizer, distinct)

    def _fill(self) -> None:
        """Assigns the initial values of all tables."""
        for table in self._tables.values():
            for device_table in table.device_tables:
                shards = self._memory.shards(device_table.name)["parameters"]
                check = functools.partial(check_normal, table.name) if device_table.frozen else None
                rows = table.initial_values(device_table)
                for start, values in checked_chunks(rows, 0, device_table.rows, table.chunk_bytes, check):
                    shards.write(table.name, start, values)


def _initializer(table: TPUTable, device_table: DeviceTable) -> Callable[..., Any]:
    check = functools.partial(check_normal, table.name) if device_table.frozen else None
    return shard_initializer(
        table.initial_values(device_table), device_table.rows, table.dim, table.chunk_bytes, check=check
    )


def shard_initializer(
    rows: Rows, count: int, dim: int, chunk_bytes: int, *, check: Callable[[np.ndarray], object] | None = None
) -> Callable[..., Any]:
    """An initializer for `TableConfig` that reads only the rows of each shard.

    Args:
        chunk_bytes: most bytes that are read at once.
        check: called with what is read.

    Returns:
        A function of (shape, dtype, shard_info). Because it takes `shard_info`, TensorFlow calls it for each shard with
        the shard's offset.
    """

    def initialize(shape: Any, dtype: Any = tf.float32, shard_info: Any = None) -> Any:
        start, stop = 0, count
        if shard_info is not None:
            start = int(shard_info.offset[0])
            stop = start + int(shard_info.shape[0])
        elif int(shape[0]) != count:
            raise ValueError(f"a shard of {int(shape[0])} rows of {count} was asked for, but not which")
        values = arrays.empty((stop - start, dim), np.float32)
        for low, chunk in checked_chunks(rows, start, stop, chunk_bytes, check):
            values[low - start : low - start + len(chunk)] = chunk
        # The variable keeps this memory: one copy.
        return tf.cast(tf.experimental.dlpack.from_dlpack(values.__dlpack__()), dtype)

    return initialize


def checked_chunks(
    rows: Rows, start: int, stop: int, chunk_bytes: int, check: Callable[[np.ndarray], object] | None
) -> Iterator[tuple[int, np.ndarray]]:
    """Rows [start, stop) in chunks, each with the number of its first row.

    Args:
        chunk_bytes: most bytes that are read at once.
        check: called with what is read.
    """
    step = max(1, chunk_bytes // (4 * rows.dim))
    for low in range(start, stop, step):
        chunk = rows.read(low, min(low + step, stop))
        if check is not None:
            check(chunk)
        yield low, chunk


def _of_one_replica(name: str, feature: Feature, replicas: int) -> Feature:
    if feature.output_shape is None:
        return feature
    batch, *inner = feature.output_shape
    if batch % replicas:
        raise ValueError(
            f"feature {name!r}: its output_shape has {batch} examples, which {replicas} replicas can't share equally"
        )
    return feature.model_copy(update={"output_shape": (batch // replicas, *inner)})


def _local(strategy: Any, value: Any, replica: int) -> Any:
    """One replica's part of ids, or of a pair of ids and weights."""
    if isinstance(value, tuple):
        return tuple(_local(strategy, each, replica) for each in value)
    return strategy.experimental_local_results(value)[replica]


def _values(ids: Any) -> Any:
    """The ids, dense or ragged, in the order of their vectors."""
    return ids.values if isinstance(ids, tf.RaggedTensor) else ids


def _filled_up(value: Any, rows: int) -> Any:
    """Dense or ragged ids, or a pair of ids and weights, with examples of id 0, or of no ids, up to so many."""
    if isinstance(value, tuple):
        return tuple(_filled_up(each, rows) for each in value)
    missing = 0 if value.shape[0] is None else rows - value.shape[0]
    if missing <= 0 or isinstance(value, tf.SparseTensor):
        return value
    if isinstance(value, tf.RaggedTensor):
        splits = tf.concat([value.row_splits, tf.repeat(value.row_splits[-1:], missing)], 0)
        return tf.RaggedTensor.from_row_splits(value.values, splits, validate=False)
    return tf.pad(value, [[0, missing], *[[0, 0]] * (value.shape.rank - 1)])


@dataclass(frozen=True)
class TPUInput:
    """The form in which a feature's input goes to a TPU, derived from its type.

    Attributes:
        output: shape of the feature's activations on one replica, without dim.
        as_is: the TPU takes the ragged input unchanged, with the feature's own settings; else each row of the converted
            input is one row of the result.
        single: whether each vector of the result has one id at most.
        rows: number of rows of the input.
    """

    output: tuple[int, ...]
    as_is: bool
    dense: bool
    single: bool
    rows: int

    @property
    def enqueued(self) -> Any:
        """The shape for `TPUEmbedding.build`, which drops the last dimension."""
        return tf.TensorShape([*self.output, 1])


def _input_form(name: str, feature: Feature, table: TPUTable, spec: Any, *, sequences: bool) -> TPUInput:
    """The form in which a feature goes to a TPU.

    Args:
        feature: its settings; an `output_shape` is that of one replica.
        spec: `tf.TypeSpec` of its ids on one replica.
        sequences: whether the TPU takes ragged ids of several vectors for each row.

    Raises:
        ValueError: the shape of its activations is not fully known, which a TPU needs.
    """
    shape = tf.TensorShape(spec.shape)
    dense = isinstance(spec, tf.TensorSpec)
    output = shape if dense else shape[:-1]
    if feature.output_shape is not None:
        output = tf.TensorShape(feature.output_shape)
    elif feature.max_sequence_length and not dense:
        output = tf.TensorShape([shape[0], feature.max_sequence_length])
    if not output.is_fully_defined() or shape[0] is None:
        raise ValueError(
            f"feature {name!r}: a TPU must know the shape of its activations beforehand, but {output} is not "
            f"fully known; use batches of one size, or set output_shape of the feature"
        )
    whole = table.index is None
    # Sequences of 1 would be taken for bags, as there are as many results as rows.
    of_rows = output.num_elements() == shape[0]
    taken = not feature.max_sequence_length if of_rows else sequences
    bags = isinstance(spec, tf.RaggedTensorSpec) and taken
    single = dense or feature.max_sequence_length > 0 or not of_rows
    return TPUInput(tuple(output.as_list()), whole and bags, whole and dense, single, shape[0])


@dataclass(frozen=True, eq=False)
class Enqueued:
    """One replica's inputs in the form that a TPU takes.

    Attributes:
        ids: by the TPU's feature, dense or ragged.
        weights: by the TPU's feature, ragged like the ids; None for all 1.
        checks: operations that must have succeeded before the ids are looked up.
    """

    ids: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    checks: list[Any] = field(default_factory=list)
    read: dict[str, Occurrences] = field(default_factory=dict)


def enqueue(into: Enqueued, name: str, feature: Feature, table: TPUTable, form: TPUInput, value: Any) -> None:
    """Adds one feature to a replica's inputs.

    Args:
        feature: its settings; an `output_shape` is that of one replica.
        form: from `_input_form`.
        value: ids, or a pair (ids, weights).

    Raises:
        ValueError: `inputs` does not allow the input.
    """
    read = into.read[name] = occurrences(name, feature, table.combiner, value)
    into.checks.append(check(name, table.name, table.rows, read.ids))
    with tf.control_dependencies(into.checks[-1:]):
        ids, weights = value if isinstance(value, tuple) else (value, None)
        if form.dense:
            ids = tf.identity(ids)
            into.ids[name] = ids if ids.shape.rank == 1 else ids[..., None]
            into.weights[name] = None
        elif form.as_is:
            # tf.data does not always know how many rows a batch has.
            splits = tf.ensure_shape(ids.row_splits, [form.rows + 1])
            into.ids[name] = tf.RaggedTensor.from_row_splits(tf.identity(ids.values), splits, validate=False)
            into.weights[name] = weights
        elif table.index is None:
            rows = tf.identity(_segments(read))
            into.ids[name] = _ragged(read.ids, rows, form)
            into.weights[name] = None if read.weights is None else _ragged(read.weights, rows, form)
        else:
            _add_to_both(into, name, table, form, read)


def _add_to_both(into: Enqueued, name: str, table: TPUTable, form: TPUInput, read: Occurrences) -> None:
    places = tf.gather(table.index.read_value(), read.ids)
    rows = _segments(read)
    factors = _normalised(read)
    for device_table in table.device_tables:
        mine = places >= 0 if device_table.frozen else places < 0
        own = tf.boolean_mask(places, mine)
        own_rows = tf.boolean_mask(rows, mine)
        key = _feature_of(name, table, device_table)
        into.ids[key] = _ragged(own if device_table.frozen else -1 - own, own_rows, form)
        into.weights[key] = None if factors is None else _ragged(tf.boolean_mask(factors, mine), own_rows, form)


def _feature_of(name: str, table: TPUTable, device_table: DeviceTable) -> str:
    """Name of the TPU's feature for one device table."""
    return f"{name}/fixed" if table.index is not None and device_table.frozen else name


def _segments(read: Occurrences) -> Any:
    return tf.range(tf.size(read.ids)) if read.segments is None else read.segments


def _normalised(read: Occurrences) -> Any:
    """Weight / denominator of each occurrence; None if all are 1."""
    if read.denominator is None:
        return read.weights
    of_rows = tf.gather(read.denominator, read.segments)
    return tf.math.divide_no_nan(tf.ones_like(of_rows) if read.weights is None else read.weights, of_rows)


def _ragged(values: Any, rows: Any, form: TPUInput) -> Any:
    """A ragged tensor with a row for each row of the result; `rows` are the row numbers of `values`, rising."""
    count = tf.TensorShape(form.output).num_elements()
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, count)
    splits = tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)
    return tf.RaggedTensor.from_row_splits(values, tf.ensure_shape(splits, [count + 1]), validate=False)
