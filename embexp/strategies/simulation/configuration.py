"""What a `TPUEmbedding` tells a simulated TPU: tables, spread over hosts, features, optimizers, and the pipeline.

The delay of `pipeline_execution_with_tensor_core`: a lookup misses the update of the training step before it. A TPU
looks up the rows of a step while its cores still compute the step before. Here the rows that a step updates are
remembered as they were, and the next lookup sees those.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pydantic
import tensorflow as tf
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, TableOptimizer
from embexp.strategies.simulation.queues import FeatureDescription, Queue
from embexp.tables.variables import SINGLE, RowVariables, gather_rows, scatter_rows

Variables = Mapping[str, Mapping[str, Any]]
"""By table, then `parameters` or slot: an object whose `variables` are the shards."""
_NOT_ACCUMULATED = optimization_parameters_pb2.GradientAccumulationStatus.DISABLED

_SUPPORTED = {
    "learning_rate",
    "clipping_limits",
    "gradient_clipping_limits",
    "weight_decay_factor",
    "multiply_weight_decay_factor_by_learning_rate",
    "gradient_accumulation_status",
    "low_dimensional_packing_status",
}
"""Settings beside those of the rule; packing only concerns the memory layout of a TPU."""


_RULES: dict[str | None, tuple[Callable[..., TableOptimizer], dict[str, str]]] = {
    "stochastic_gradient_descent": (SGD, {}),
    "adagrad": (Adagrad, {}),
    "adagrad_momentum": (
        AdagradMomentum,
        {each: each for each in ("momentum", "use_nesterov", "exponent", "beta2", "epsilon")},
    ),
    "adam": (
        Adam,
        {"beta_1": "beta1", "beta_2": "beta2", "epsilon": "epsilon", "sum_inside_sqrt": "use_sum_inside_sqrt"},
    ),
    "ftrl": (
        FTRL,
        {
            "learning_rate_power": "lr_power",
            "l1_regularization_strength": "l1",
            "l2_regularization_strength": "l2",
            "beta": "beta",
            "multiply_linear_by_learning_rate": "multiply_linear_by_lr",
        },
    ),
}
"""By the name of its parameters in `OptimizationParameters`: the rule, and the parameter of each of its settings."""


@dataclass(eq=False)
class Configuration:
    """A `TPUEmbedding` that is built.

    Attributes:
        parameters: by table, `OptimizationParameters`.
        optimizers: by table, the same as rules of the row engine.
        pipelined: lookups miss the update of the step before.
        variables: the memory of the TPU, once it is loaded.
        pipeline: what pipelined lookups see, once it is loaded.
    """

    described: list[FeatureDescription]
    parameters: dict[str, Any]
    optimizers: dict[str, TableOptimizer]
    pipelined: bool
    tables: dict[str, ShardedTable] = field(default_factory=dict)
    variables: Variables | None = None
    pipeline: Pipeline | None = None

    @staticmethod
    def from_proto(proto: Any) -> Configuration:
        """Reads a `TPUEmbeddingConfiguration`.

        Raises:
            NotImplementedError: the simulation does not support a setting.
        """
        tables, names = list(proto.table_descriptor), [one.name for one in proto.feature_descriptor]
        described = [
            FeatureDescription(
                name=one.name if names.count(one.name) == 1 and one.name else f"{one.name} (number {number})".lstrip(),
                table=tables[one.table_id].name,
                dim=tables[one.table_id].dimension,
                combiner="",
                shape=tuple(one.input_shape),
            )
            for number, one in enumerate(proto.feature_descriptor)
        ]
        parameters = {table.name: table.optimization_parameters for table in tables}
        rules = {name: optimizer_of(name, one) for name, one in parameters.items()}
        return Configuration(described, parameters, rules, bool(proto.pipeline_execution_with_tensor_core))

    def load(self, variables: Variables, table_config: Sequence[Any]) -> None:
        """Makes host variables the memory of the TPU.

        Args:
            table_config: their `TableConfig` objects, from which combiners come.

        Raises:
            NotImplementedError: a combiner is not one of TensorFlow's.
        """
        combiners = {}
        for one in table_config:
            if not isinstance(one.combiner, str):
                raise NotImplementedError(f"table {one.name!r}: the simulated TPU does not support custom combiners")
            combiners[one.name] = one.combiner
        self.variables = variables
        self.tables = {
            one.name: ShardedTable(one.name, one.vocabulary_size, one.dim, variables[one.name]) for one in table_config
        }
        self.described = [dataclasses.replace(one, combiner=combiners[one.table]) for one in self.described]
        self.pipeline = Pipeline(self.tables, self.optimizers) if self.pipelined else None

    def flush(self) -> None:
        """Lets the next lookup see all updates, as after loading and saving."""
        if self.pipeline is not None:
            self.pipeline.flush()


def copy(source: Variables, target: Variables) -> None:
    """Copies tables and slots by name, unless both are the same variables."""
    for table, of_table in target.items():
        for slot, sharded in of_table.items():
            for into, out in zip(sharded.variables, source[table][slot].variables, strict=True):
                if into is not out:
                    into.assign(out)


def optimizer_of(table: str, parameters: Any) -> TableOptimizer:
    """The row engine's optimizer for a table; its learning rate is always 1, as `learning_rate` returns the real one.

    Args:
        parameters: `OptimizationParameters` protocol buffer.

    Raises:
        NotImplementedError: the simulation does not support a setting; names table and setting.
    """
    rule = parameters.WhichOneof("parameters")
    for setting, _ in parameters.ListFields():
        if setting.name not in _SUPPORTED and setting.name != rule:
            raise _unsupported(table, setting.name)
    shared = _shared(parameters)
    own: Any = getattr(parameters, rule) if rule else None
    if parameters.gradient_accumulation_status == _NOT_ACCUMULATED and (
        rule != "stochastic_gradient_descent" or set(shared) - {"learning_rate"}
    ):
        raise _unsupported(table, "use_gradient_accumulation=False (a row is updated once per step here)")
    if rule not in _RULES:
        raise _unsupported(table, f"the optimizer {rule}")
    optimizer, names = _RULES[rule]
    values = {name: getattr(own, parameter) for name, parameter in names.items()}
    settings = shared | {name: _number(value) if isinstance(value, float) else value for name, value in values.items()}
    if rule == "adam":
        settings["lazy_adam"] = not own.use_non_lazy_adam
    try:
        return optimizer(**settings)
    except pydantic.ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors())
        raise _unsupported(table, faults) from error


def learning_rate_of(parameters: Any, dynamic: list[Any]) -> Any:
    """The learning rate of one step.

    Args:
        parameters: `OptimizationParameters` protocol buffer.
        dynamic: the learning rates that are sent with the gradients.
    """
    rate = parameters.learning_rate
    return dynamic[rate.dynamic.tag] if rate.HasField("dynamic") else np.float32(rate.constant)


def _shared(parameters: Any) -> dict[str, Any]:
    """The settings that every rule has, as far as they are set."""
    lowest, highest = _limits(parameters.clipping_limits)
    low, high = _limits(parameters.gradient_clipping_limits)
    largest = float(np.finfo(np.float32).max)
    unset = low is None and high is None
    settings = {
        "learning_rate": 1.0,
        "clip_weight_min": lowest,
        "clip_weight_max": highest,
        "clipvalue": None if unset else (-largest if low is None else low, largest if high is None else high),
    }
    if parameters.weight_decay_factor:
        settings["weight_decay_factor"] = _number(parameters.weight_decay_factor)
        by_rate = "multiply_weight_decay_factor_by_learning_rate"
        settings[by_rate] = getattr(parameters, by_rate)
    return {name: setting for name, setting in settings.items() if setting is not None}


def _limits(limits: Any) -> tuple[float | None, float | None]:
    low = _number(limits.lower.value) if limits.HasField("lower") else None
    return low, _number(limits.upper.value) if limits.HasField("upper") else None


def _number(single: float) -> float:
    """The shortest number that rounds to a float32: 0.999 and not 0.9990000128746033.

    The rules compute 1 - beta, where that difference counts.
    """
    return float(str(np.float32(single)))


def _unsupported(table: str, setting: str) -> NotImplementedError:
    return NotImplementedError(f"table {table!r}: the simulated TPU does not support {setting}")


class ShardedTable:
    """Rows and slots of a table of a `TPUEmbedding`, one block of rows per host.

    It has those methods of `EmbeddingTable` that a training step calls.

    Attributes:
        dim: width of a row.
        groups: None, all rows move.
        shares: None, each step decays what it touches.
    """

    frozen = False
    groups = None
    shares = None
    precision = SINGLE

    def __init__(self, name: str, rows: int, dim: int, variables: Mapping[str, Any]) -> None:
        """Takes the variables of a `TPUEmbedding`.

        Args:
            dim: width of a row.
            variables: by `parameters` or slot, an object whose `variables` are the shards, float32 [shard rows, dim].
        """
        self.name, self.rows, self.dim = name, rows, dim
        shards = {slot: tuple(sharded.variables) for slot, sharded in variables.items()}
        self._parameters = shards.pop("parameters")
        self.slots = shards
        self._stops = [0]
        for shard in self._parameters:
            self._stops.append(self._stops[-1] + int(shard.shape[0]))

    @property
    def row_variables(self) -> RowVariables | None:
        """One part, if there is one shard."""
        if len(self._parameters) > 1:
            return None
        return RowVariables(self._parameters, [], {slot: shards[0] for slot, shards in self.slots.items()}, None)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, dim]."""
        shards = self._of(slot)
        if len(shards) == 1:
            return gather_rows(shards[0], ids)
        places, local = self._by_shard(ids)
        rows = [gather_rows(shard, own) for shard, own in zip(shards, local, strict=True)]
        return tf.ensure_shape(tf.dynamic_stitch(places, rows), [*ids.shape, self.dim])

    def scatter(self, ids: Any, rows: Any, slot: str | None = None) -> None:
        """Assigns `rows` to the rows `ids`, which must not repeat."""
        shards = self._of(slot)
        if len(shards) == 1:
            scatter_rows(shards[0], ids, rows)
            return
        for shard, own, local in zip(shards, *self._by_shard(ids), strict=True):
            scatter_rows(shard, local, tf.gather(rows, own))

    def dtype(self, slot: str | None = None) -> tf.DType:
        """float32."""
        return tf.float32

    def mark_touched(self, ids: Any) -> None:
        """Does nothing: a TPU does not report which rows were touched."""

    def _of(self, slot: str | None) -> Sequence[Any]:
        return self._parameters if slot is None else self.slots[slot]

    def _by_shard(self, ids: Any) -> tuple[list[Any], list[Any]]:
        """For each shard the positions of its ids in `ids`, int32, and their row numbers in the shard."""
        places, local = [], []
        for start, stop in zip(self._stops[:-1], self._stops[1:], strict=True):
            own = tf.cast(tf.where((ids >= start) & (ids < stop))[:, 0], tf.int32)
            places.append(own)
            local.append(tf.gather(ids, own) - start)
        return places, local


class Pipeline:
    """The rows that the last training step updated, as they were before it, for each table."""

    def __init__(self, tables: Mapping[str, ShardedTable], optimizers: Mapping[str, TableOptimizer]) -> None:
        """Remembers nothing yet."""
        self._tables, self._optimizers = dict(tables), dict(optimizers)
        self._before = {name: Queue([tf.int64, tf.float32]) for name in tables}

    def stale(self) -> dict[str, StaleTable]:
        """The tables as the lookup of a training step sees them; forgets the rows of the step before."""
        return {name: StaleTable(table, *self._take(name)) for name, table in self._tables.items()}

    def remember(self, ids: Mapping[str, list[Any]]) -> None:
        """Remembers rows that are about to be updated.

        Args:
            ids: by table, int64 tensors, which may repeat ids.
        """
        for name, table in self._tables.items():
            if self._optimizers[name].moves_every_row:
                distinct = tf.range(table.rows, dtype=tf.int64)
            else:
                distinct = tf.sort(tf.unique(tf.concat(ids.get(name) or [tf.zeros([0], tf.int64)], 0))[0])
            self._before[name].put([distinct, table.gather(distinct)])

    def flush(self) -> None:
        """Forgets all rows: lookups see all updates, as after an evaluation, loading or saving."""
        for name in self._tables:
            self._take(name)

    def _take(self, table: str) -> tuple[Any, Any]:
        ids, rows = self._before[table].take_or(
            lambda: [tf.zeros([0], tf.int64), tf.zeros([0, self._tables[table].dim])]
        )
        return tf.ensure_shape(ids, [None]), tf.ensure_shape(rows, [None, self._tables[table].dim])


class StaleTable:
    """A table to look up, some of whose rows are replaced by earlier values.

    It has those methods of a table that is never trained that the row engine calls.

    Attributes:
        dim: width of a row.
        groups: None.
    """

    frozen = True
    groups = None

    def __init__(self, table: ShardedTable, ids: Any, rows: Any) -> None:
        """Replaces the rows `ids`, int64 [n], sorted and distinct, by `rows`, float32 [n, dim]."""
        self.name, self.rows, self.dim = table.name, table.rows, table.dim
        self.slots: dict[str, Any] = {}
        self._table = table
        # A last row that no id matches, so that there always is one.
        self._ids = tf.concat([ids, [tf.int64.max]], 0)
        self._replaced = tf.concat([rows, tf.zeros([1, table.dim])], 0)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids`: float32 [n, dim]."""
        places = tf.searchsorted(self._ids, ids)
        found = tf.gather(self._ids, places) == ids
        return tf.where(found[:, None], tf.gather(self._replaced, places), self._table.gather(ids, slot))
