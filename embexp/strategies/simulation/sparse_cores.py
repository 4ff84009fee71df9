"""The SparseCores of a simulated TPU: they serve the operations of `tf.tpu.experimental.embedding.TPUEmbeddingV2`.

Each chip has one core for a replica, and several SparseCores. A stacked table, several tables of one width and
optimizer one after the other, is divided between the chips, and each chip's part between its SparseCores. So all
parts together are a `ShardedTable`, whose row `partition * rows of a partition + id // partitions` is row id.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow_graphs
from tensorflow.python.tpu import tpu_embedding_v3
from tensorflow.python.tpu.ops import gen_xla_ops

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, TableOptimizer
from embexp.strategies.simulation import replicas, sparse_core_inputs
from embexp.strategies.simulation.configuration import ShardedTable
from embexp.strategies.simulation.sparse_core_inputs import ALIGNMENT
from embexp.system import native
from embexp.tables import fused_rows, inputs
from embexp.tables import optimizers as rules
from embexp.tables.inputs import Occurrences, row_numbers, without_autograph
from embexp.tables.row_updates import Distinct, activations, distinct_ids, summed_gradients

Replacement = tuple[Any, str, Any]
_ROWS = "parameters"
_CONVERT = "_convert_input_feature_to_list_of_coo_tensors"
"""The method of `TPUEmbeddingV2` that is given each feature's ids with its config."""
_LIMITS = ("clip_weight_min", "clip_weight_max")
_RULES: dict[str, tuple[Callable[..., TableOptimizer], dict[str, str], dict[str, str]]] = {
    "sgd": (SGD, {}, {}),
    "adagrad": (Adagrad, {"accumulator": "accumulators"}, {}),
    "adagrad_momentum": (
        AdagradMomentum,
        {"accumulator": "accumulators", "momenta": "momenta"},
        {"beta1": "momentum", **{each: each for each in ("use_nesterov", "exponent", "beta2", "epsilon")}},
    ),
    "adam": (
        Adam,
        {"momenta": "momenta", "velocity": "velocities"},
        {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon", "use_sum_inside_sqrt": "sum_inside_sqrt"},
    ),
    "ftrl": (
        FTRL,
        {"accumulator": "accumulators", "linear": "linears"},
        {
            each: each
            for each in (
                "multiply_linear_by_learning_rate",
                "beta",
                "learning_rate_power",
                "l1_regularization_strength",
                "l2_regularization_strength",
            )
        },
    ),
}
"""By the name in the operations: the rule, the slot of each argument, and the setting of each attribute."""


class SparseCores:
    """Serves the operations of a simulated TPU's SparseCores."""

    def __init__(self, per_chip: int) -> None:
        """Has no state: the memory of SparseCores are the variables of `TPUEmbeddingV2`.

        Args:
            per_chip: number of SparseCores of each chip.
        """
        self._per_chip = per_chip

    def replacements(self) -> list[Replacement]:
        """Replacements of the operations, and of what reads and writes the parts of a table by device."""
        variable, embedding = tpu_embedding_v3.TPUEmbeddingShardedVariable, tpu_embedding_v3.TPUEmbeddingV2
        by_name: dict[str, Callable[..., Any]] = {
            "convert_to_list_of_sparse_core_coo_tensors": _coordinates,
            "sort_list_of_sparse_core_coo_tensors": _sorted,
            "convert_to_sparse_core_csr_wrapped_coo_tensor": _packed,
            "get_stats_from_list_of_sparse_core_coo_tensors": _statistics,
            "store_minibatch_statistics_in_fdo": _nothing,
            "tpu_copy_with_dynamic_shape": _copied,
            "tpu_annotate_tensors_with_dynamic_shape": _copied,
            "global_iter_id": _iteration,
        }
        for kind in ("static_buffer_size", "csr_input"):
            by_name[f"xla_sparse_dense_matmul_with_{kind}"] = self.look_up
            for rule in _RULES:
                name = f"xla_sparse_dense_matmul_grad_with_{rule}_and_{kind}"
                by_name[name] = functools.partial(self.update, rule)
        return [
            *((gen_xla_ops, name, _as(getattr(gen_xla_ops, name), serve)) for name, serve in by_name.items()),
            *((variable, name, value) for name, value in _of_variables(variable).items()),
            (embedding, _CONVERT, classmethod(_checked(vars(embedding)[_CONVERT].__func__))),
        ]

    def look_up(
        self,
        *,
        embedding_table: Any,
        input_size: int,
        table_name: str,
        quantization_config_low: float,
        quantization_config_high: float,
        quantization_config_num_buckets: int,
        **packed: Any,
    ) -> Any:
        """Serves `XlaSparseDenseMatmul…`: this replica's activations, float32 [input_size, width]."""
        quantized = (quantization_config_low, quantization_config_high, quantization_config_num_buckets)
        value = self._packed(input_size, table_name, packed), _memory(embedding_table)
        return replicas.exchange(
            f"the lookup in table {table_name!r}",
            lambda values: _look_up(table_name, values, quantized),
            value,
            outside=lambda: tf.zeros([input_size, value[1].shape[1]]),
        )

    def update(
        self,
        rule: str,
        *,
        activation_gradients: Any,
        learning_rate: Any,
        embedding_table: Any,
        table_name: str,
        **others: Any,
    ) -> Any:
        """Serves `XlaSparseDenseMatmulGradWith…`: this replica's part of the table and of each slot after the step."""
        slots = {slot: others.pop(name) for name, slot in _RULES[rule][1].items()}
        optimizer = _optimizer(rule, others)
        gradient = tf.convert_to_tensor(activation_gradients)
        before = {_ROWS: embedding_table, **slots}
        value = (
            self._packed(gradient.shape[0], table_name, others),
            {name: tf.convert_to_tensor(each) for name, each in before.items()},
            gradient,
            tf.convert_to_tensor(learning_rate, tf.float32),
        )
        found = replicas.exchange(
            f"the update of table {table_name!r}",
            lambda values: _update(table_name, values, optimizer),
            value,
            outside=lambda: [tf.identity(each) for each in value[1].values()],
        )
        return found if slots else found[0]

    def _packed(self, samples: int, table: str, arguments: Mapping[str, Any]) -> Packed:
        number = arguments.get("num_sparsecores_per_device", -1)
        if number not in (-1, self._per_chip):
            raise ValueError(f"num_sparsecores_per_device is {number}, but this TPU has {self._per_chip} on each chip")
        if samples % self._per_chip:
            raise ValueError(
                f"table {table!r} has {samples} samples on each chip, which its {self._per_chip}"
                " SparseCores can't share equally: make each replica's part of a batch a multiple of that"
            )
        names = ("row_pointers", "sorted_sample_ids", "sorted_token_ids", "sorted_gains")
        minibatches = arguments["num_minibatches_per_physical_sparse_core"]
        pointers, own, rows, gains = (tf.convert_to_tensor(arguments[name]) for name in names)
        return Packed(pointers, own, rows, gains, tf.convert_to_tensor(minibatches), self._per_chip, samples)


@dataclass(frozen=True, eq=False)
class Packed:
    """A chip's occurrences, as `sparse_core_inputs.packed` returns them.

    Attributes:
        minibatches: int32 scalar.
        cores: number of SparseCores.
        count: number of samples.
    """

    pointers: Any
    samples: Any
    rows: Any
    gains: Any
    minibatches: Any
    cores: int
    count: int

    def occurrences(self, source: Any, partitions: int, height: int) -> Occurrences:
        """Each occurrence, as row of the stacked table and sample of the chip.

        Args:
            source: identifies the ids.
            partitions: number of all SparseCores.
            height: rows of a partition.
        """
        width = -(-partitions // ALIGNMENT) * ALIGNMENT
        used = self.pointers[: self.minibatches * self.cores * width]
        ends = tf.reshape(tf.reshape(used, [-1, width])[:, :partitions], [-1])
        begins = tf.concat([[0], (ends[:-1] + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT], 0)
        splits, places = tf.raw_ops.RaggedRange(starts=begins, limits=ends, deltas=1, Tsplits=tf.int32)
        number = row_numbers(splits, tf.size(places))
        core = number // (self.minibatches * partitions)
        return Occurrences(
            (source,),
            number % partitions * height + tf.gather(self.rows, places),
            core * (self.count // self.cores) + tf.gather(self.samples, places),
            tf.gather(self.gains, places),
            None,
            tf.constant([self.count]),
            tf.TensorShape([self.count]),
            rising=False,
        )


@dataclass(frozen=True, eq=False)
class _Memory:
    """A chip's part of a stacked table or slot: a variable by its handle, which is read and written by rows."""

    handle: Any
    shape: Any
    dtype: Any = tf.float32
    device: str = ""


@dataclass(frozen=True, eq=False)
class _Parts:
    """The parts of all chips, as `ShardedTable` takes them."""

    variables: Sequence[Any]


@dataclass(frozen=True, eq=False)
class _Moved:
    """Rows of a chip's part after a step.

    Attributes:
        handle: of the variable that the part was read from; None: it is of none.
        ids: int32 [n], distinct.
        rows: float32 [n, width].
    """

    handle: Any
    ids: Any
    rows: Any


@dataclass(frozen=True, eq=False)
class _Batch:
    """What all chips look up in a stacked table in a step.

    Attributes:
        read: the occurrences of each chip.
        distinct: the rows of all of them.
    """

    read: dict[str, Occurrences]
    distinct: Distinct


def _quantized(rows: Any, low: float, high: float, buckets: int) -> Any:
    """The simulated quantization of TensorFlow's `QuantizationConfig`; of 0 buckets: none."""
    if not buckets:
        return rows
    quantum = (high - low) / (buckets - 1)
    return tf.floor((tf.clip_by_value(rows, low, high) - low) / quantum + 0.5) * quantum + low


def _look_up(name: str, values: Sequence[tuple[Packed, Any]], quantized: tuple[float, float, int]) -> list[Any]:
    """The activations by replica."""
    table = _table(name, [{_ROWS: memory} for _, memory in values])
    batch = _batch(table, [packed for packed, _ in values])
    rows = _quantized(table.gather(batch.distinct.ids), *quantized)
    return [activations(each, rows, batch.distinct.positions[each.source]) for each in batch.read.values()]


def _update(name: str, values: Sequence[tuple[Packed, dict[str, Any], Any, Any]], optimizer: TableOptimizer) -> Any:
    """Table and slots after the step, by replica. All chips together update each row once."""
    table = _table(name, [{slot: _memory(part) for slot, part in parts.items()} for _, parts, _, _ in values])
    batch = _batch(table, [packed for packed, *_ in values])
    gradients = {each: gradient for each, (_, _, gradient, _) in zip(batch.read, values, strict=True)}
    gradient, ids = summed_gradients(batch.distinct, batch.read, gradients, table.dim), batch.distinct.ids
    slots = {slot: table.gather(ids, slot) for slot in table.slots}
    rows, slots = rules.updated(optimizer, table.gather(ids), slots, gradient, values[0][3])
    height, after = table.rows // len(values), {_ROWS: rows, **slots}
    results = []
    for chip, (_, parts, _, _) in enumerate(values):
        own = None if len(values) == 1 else tf.cast(tf.where(ids // height == chip)[:, 0], tf.int32)
        local = ids if own is None else tf.gather(ids, own) - chip * height
        moved = after if own is None else {slot: tf.gather(each, own) for slot, each in after.items()}
        results.append([_moved(part, local, moved[slot]) for slot, part in parts.items()])
    return results


def _batch(table: ShardedTable, chips: Sequence[Packed]) -> _Batch:
    """What all chips look up; the update of a step finds what its lookup made."""
    tensors = [tensor for packed in chips for tensor in (packed.pointers, packed.samples, packed.rows, packed.gains)]
    known: list[tuple[int, list[Any], _Batch]] = vars(tensors[0]).setdefault("simulated_batches", [])
    for rows, others, batch in known:
        here = rows == table.rows and batch.distinct.ids.graph is ops.get_default_graph()
        if here and all(one is other for one, other in zip(tensors, others, strict=True)):
            return batch
    partitions = sum(packed.cores for packed in chips)
    read = {
        f"{table.name} of replica {chip}": packed.occurrences(chip, partitions, table.rows // partitions)
        for chip, packed in enumerate(chips)
    }
    unique = tf.unique if native.library("rows") is None else fused_rows.unique
    distinct = distinct_ids({each.source: each.ids for each in read.values()}, narrow=True, unique=unique)
    with tf.control_dependencies([inputs.check(table.name, table.name, table.rows, distinct.ids)]):
        batch = _Batch(read, replace(distinct, ids=tf.identity(distinct.ids)))
    known.append((table.rows, tensors, batch))
    return batch


def _table(name: str, parts: Sequence[Mapping[str, Any]]) -> ShardedTable:
    """A stacked table of the parts of its chips."""
    height, width = parts[0][_ROWS].shape
    return ShardedTable(
        name, height * len(parts), width, {slot: _Parts([each[slot] for each in parts]) for slot in parts[0]}
    )


def _moved(part: Any, ids: Any, rows: Any) -> Any:
    """A part after a step. TensorFlow only assigns it to the part's variable, and then only the rows are written."""
    result = tf.tensor_scatter_nd_update(part, ids[:, None], rows)
    memory = _memory(part)
    result.simulated_rows = _Moved(getattr(memory, "handle", None), ids, rows)
    return result


def _memory(part: Any) -> Any:
    """A variable, or what was read from one, by its handle; another tensor as it is."""
    if isinstance(part, tpu_embedding_v3.TPUEmbeddingShardedVariable) and tpu_util.enclosing_tpu_context() is not None:
        return _Memory(part.handle, part.values[0].shape)
    part = tf.convert_to_tensor(part)
    if not isinstance(part, ops.EagerTensor) and part.op.type == "ReadVariableOp":
        return _Memory(part.op.inputs[0], part.shape)
    return part


def _optimizer(rule: str, arguments: Mapping[str, Any]) -> TableOptimizer:
    """The row engine's rule for an operation's attributes; its learning rate is an argument of the operation.

    Raises:
        ValueError: the limits of rows exclude everything.
    """
    kind, _, names = _RULES[rule]
    low, high = (
        arguments.get(name, default) for name, default in zip(_LIMITS, (-float("inf"), float("inf")), strict=True)
    )
    if low > high:
        raise ValueError(f"clip_weight_min = {low:g} is above clip_weight_max = {high:g}")
    limits = {name: value for name, value in zip(_LIMITS, (low, high), strict=True) if abs(value) != float("inf")}
    return kind(learning_rate=1.0, **limits, **{setting: arguments[name] for name, setting in names.items()})


def _of_variables(variable: Any) -> dict[str, Any]:
    """Methods of `TPUEmbeddingShardedVariable`, whose parts are not packed into one variable here."""
    read_value, assign = variable.read_value, variable.assign

    def part(self: Any, device: str) -> Any:
        devices = self.distribute_strategy.extended._tpu_devices.flatten()
        return self.values[
            [tf.DeviceSpec.from_string(each) for each in devices].index(tf.DeviceSpec.from_string(device))
        ]

    def read(self: Any) -> Any:
        if tpu_util.enclosing_tpu_context() is None:
            return read_value(self)
        # Rows were written, so TensorFlow would copy the variable. Nobody holds what is read until rows are written.
        with tf.control_dependencies(None):
            uncopied = tf.raw_ops.DisableCopyOnRead(resource=self.handle)
        with tf.control_dependencies([uncopied]):
            return read_value(self)

    def assigned(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        moved = getattr(value, "simulated_rows", None)
        if moved is None or moved.handle is not ops.get_default_graph().capture(self.handle):
            return assign(self, value, *args, **kwargs)
        return tf.raw_ops.ResourceScatterUpdate(resource=moved.handle, indices=moved.ids, updates=moved.rows)

    return {
        "read_value": read,
        "assign": assigned,
        "read_from_device": lambda self, device: part(self, device).read_value(),
        "assign_on_device": lambda self, device, value: part(self, device).assign(value),
    }


def _checked(real: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `TPUEmbeddingV2` for ids that are checked against their table's vocabulary, before its padding."""

    def converted(cls: Any, ids: Any, weight: Any, config: Any, *rest: Any, **settings: Any) -> Any:
        table, values = config.table, ids if isinstance(ids, tf.Tensor) else ids.values
        rows = table.vocabulary_size if table.layout is None else table.layout.unsharded_shape[0]
        with tf.control_dependencies([inputs.check(config.name or table.name, table.name, rows, values)]):
            own = tf.identity(values) if isinstance(ids, tf.Tensor) else _with_values(ids, tf.identity(values))
        return real(cls, own, weight, config, *rest, **settings)

    return converted


def _with_values(ids: Any, values: Any) -> Any:
    """Sparse or ragged ids with other values."""
    if isinstance(ids, tf.SparseTensor):
        return tf.SparseTensor(ids.indices, values, ids.dense_shape)
    return ids.with_values(values)


def _as(real: Callable[..., Any], serve: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the arguments of one of TensorFlow's, that calls another by keywords."""
    signature = inspect.signature(real)

    @without_autograph
    def served(*args: Any, **kwargs: Any) -> Any:
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        arguments.pop("name", None)
        return serve(**arguments)

    return served


@dataclass(frozen=True, eq=False)
class _Call:
    """A call of a pure function of arrays, for tensors of which some are results of other calls.

    TensorFlow takes longer to call Python than the functions take. So a call computes again what it needs of others,
    whose own operations are then left out of the graph, as nothing reads their results.
    """

    compute: functools.partial[list[Any]]
    tensors: Sequence[Any]

    def leaves(self) -> dict[int, Any]:
        """The tensors that are no results of calls, by their id."""
        found: dict[int, Any] = {}
        for tensor in self.tensors:
            before = getattr(tensor, "simulated_call", None)
            found.update({id(tensor): tensor} if before is None else before[0].leaves())
        return found

    def run(self, arrays: dict[int, np.ndarray], done: dict[_Call, list[Any]]) -> list[Any]:
        """The results for arrays by the id of their tensor; each call is run once."""
        if self not in done:
            given = []
            for tensor in self.tensors:
                before = getattr(tensor, "simulated_call", None)
                given.append(arrays[id(tensor)] if before is None else before[0].run(arrays, done)[before[1]])
            done[self] = self.compute(*given)
        return done[self]


def _in_numpy(
    compute: Callable[..., Any], tensors: Sequence[Any], settings: Mapping[str, Any], results: Sequence[tuple[Any, Any]]
) -> list[Any]:
    """What a pure function of arrays returns for tensors and settings, as tensors of these types and shapes."""
    call = _Call(functools.partial(compute, **settings), tensors)
    if tf.executing_eagerly():
        return list(tf.numpy_function(call.compute, tensors, [dtype for dtype, _ in results]))
    leaves = call.leaves()

    def computed(*arrays: np.ndarray) -> list[Any]:
        return call.run(dict(zip(leaves, arrays, strict=True)), {})

    found = tf.numpy_function(computed, list(leaves.values()), [dtype for dtype, _ in results], stateful=False)
    shaped = [tf.ensure_shape(tensor, shape) for tensor, (_, shape) in zip(found, results, strict=True)]
    for index, tensor in enumerate(shaped):
        tensor.simulated_call = call, index
    return shaped


def _coordinates(*, indices_or_row_splits: Any, values: Any, weights: Any, **settings: Any) -> Any:
    """Serves `ConvertToListOfSparseCoreCooTensors`."""
    given = [
        tf.convert_to_tensor(each, dtype)
        for each, dtype in ((indices_or_row_splits, tf.int32), (values, tf.int32), (weights, tf.float32))
    ]
    cores = settings["num_sc_per_chip"]
    results = [(dtype, [None]) for dtype in (tf.int32, tf.int32, tf.float32) for _ in range(cores)]
    found = _in_numpy(sparse_core_inputs.coordinates, given, settings, results)
    return [found[start : start + cores] for start in range(0, 3 * cores, cores)]


def _sorted(*, row_ids_list: Any, col_ids_list: Any, gains_list: Any, **settings: Any) -> Any:
    """Serves `SortListOfSparseCoreCooTensors`."""
    given = [*row_ids_list, *col_ids_list, *gains_list]
    ends = [settings["num_replica"] * settings["num_sc_per_chip"] + 1]
    results = [(tf.int32, [None]), (tf.int32, [None]), (tf.float32, [None]), (tf.int32, ends)]
    return _in_numpy(sparse_core_inputs.sorted_occurrences, given, settings, results)


def _statistics(*, row_ids_list: Any, col_ids_list: Any, gains_list: Any, **settings: Any) -> Any:
    """Serves `GetStatsFromListOfSparseCoreCooTensors`."""
    given = [*row_ids_list, *col_ids_list, *gains_list]
    return _in_numpy(sparse_core_inputs.statistics, given, settings, [(tf.int32, [])] * 2)


def _packed(
    *,
    sorted_row_ids_list: Any,
    sorted_col_ids_list: Any,
    sorted_gains_list: Any,
    id_counts_list: Any,
    splits: Any,
    **settings: Any,
) -> Any:
    """Serves `ConvertToSparseCoreCsrWrappedCooTensor`."""
    cores = len(sorted_row_ids_list)
    given = [*sorted_row_ids_list, *sorted_col_ids_list, *sorted_gains_list, *id_counts_list, splits]
    width = -(-settings["num_replica"] * cores // ALIGNMENT) * ALIGNMENT
    pointers = [settings["max_minibatches_per_sc"] * cores * width]
    places = [settings["max_ids_per_chip_per_sample"] * settings["sample_count_per_sc"] * cores]
    memory = [(tf.int32, places), (tf.int32, places), (tf.float32, places)]
    results = [(tf.int32, pointers), *memory, *[(tf.int32, [])] * 3]
    settings = {**settings, "num_sc_per_chip": cores}
    in_numpy = functools.partial(_in_numpy, sparse_core_inputs.packed, given, settings, results)
    library = None if tf.executing_eagerly() else native.library("sparse_cores")
    if library is None or (chip := _whole_chip(given, settings)) is None:
        return in_numpy()
    done, *found = library.embexp_pack_for_sparse_cores(**chip)
    shaped = [tf.ensure_shape(tensor, shape) for tensor, (_, shape) in zip(found, results, strict=True)]
    return tf.cond(done, lambda: shaped, in_numpy)


def _whole_chip(given: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of the fused operation that makes the arguments of `packed` from a chip's ids, and packs them.

    Returns:
        None where the arguments are made in another way than TensorFlow's `TPUEmbeddingV2` makes them.
    """
    cores, splits = settings["num_sc_per_chip"], given[-1]
    made = _made(given[:-1])
    sorting = [call for call, _ in made[:cores]]
    in_order = made == [(call, index) for index in range(4) for call in sorting]
    if tf.get_static_value(splits) != 0 or not in_order or any(not _is(call, "sorted_occurrences") for call in sorting):
        return None
    parts = [_made(call.tensors) for call in sorting]
    features = [call for call, _ in parts[0][: len(parts[0]) // 3]]
    wanted = [
        [(call, column * cores + core) for column in range(3) for call in features] for core in range(len(sorting))
    ]
    if parts != wanted or any(not _is(call, "coordinates") for call in features):
        return None
    features.sort(key=lambda call: call.compute.keywords["col_offset"])
    of = {name: [call.compute.keywords[name] for call in features] for name in features[0].compute.keywords}
    limits = sorting[0].compute.keywords
    return {
        **{name: [call.tensors[n] for call in features] for n, name in enumerate(("places", "ids", "weights"))},
        "combiners": of["combiner"],
        "sample_counts": of["sample_count"],
        "sample_offsets": of["row_offset"],
        "row_offsets": of["col_offset"],
        "rotations": of["col_shift"],
        "cores": cores,
        "partitions": settings["num_replica"] * cores,
        "samples_of_core": settings["sample_count_per_sc"],
        "limits": [
            limits["max_ids_per_sparse_core"],
            limits["max_unique_ids_per_sparse_core"],
            settings["max_ids_per_chip_per_sample"] * settings["sample_count_per_sc"] * cores,
            settings["max_minibatches_per_sc"] * cores,
        ],
    }


def _made(tensors: Sequence[Any]) -> list[tuple[Any, int]]:
    """The call of which each tensor is a result, and the number of the result; None, -1: of none."""
    return [getattr(tensor, "simulated_call", (None, -1)) for tensor in tensors]


def _is(call: _Call | None, name: str) -> bool:
    return call is not None and call.compute.func is getattr(sparse_core_inputs, name)


def _copied(*, tensors: Sequence[Any], unpadded_sizes: Any = None) -> list[Any]:
    """Serves the copy from the host to a chip: what is unused is copied, too, and not read."""
    return [tf.identity(each) for each in tensors]


def _nothing(**_: Any) -> Any:
    """Serves `StoreMinibatchStatisticsInFdo`: no compiler reads statistics of an earlier run here."""
    return tf.no_op()


def _iteration() -> Any:
    """Serves `GlobalIterId`: the number of the iteration of the loop around it, from 0; 0 outside of loops."""
    graph = ops.get_default_graph()
    inside = isinstance(graph, control_flow_graphs.WhileBodyFuncGraph)
    return tf.cast(graph.inputs[0], tf.int64) if inside else tf.constant(0, tf.int64)
