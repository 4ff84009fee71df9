"""Tables, initializers and features, and the rules between them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from embexp.errors import CombinationFault, Fault
from embexp.specs import vocabularies
from embexp.specs.base import (
    BY_KIND,
    Count,
    Dim,
    Length,
    NonNegative,
    Number,
    Positive,
    RowCount,
    Spec,
    is_null,
    where_known,
)
from embexp.specs.freezing import Freeze, FreezeSchedule, FreezeTable, NoFreeze
from embexp.specs.inits import ConstantInGraph, CustomInit, Init, MemoryMap
from embexp.specs.optimizers import TableOptimizer, slots_of
from embexp.specs.pretrained import File, NonFinite, NoPretrained, Pretrained, Sample
from embexp.specs.running import RuntimeKind
from embexp.specs.vocabularies import Buckets, TableVocabulary

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class Combiner(StrEnum):
    """How several rows of one example become one vector."""

    SUM = "sum"
    MEAN = "mean"
    SQRTN = "sqrtn"


class Storage(StrEnum):
    """How the rows of a table are stored."""

    AUTO = "auto"
    VARIABLE = "variable"
    SPLIT = "split"
    """Frozen rows, which have no slots, separate from the others."""
    MEMORY_MAP = "memory_map"
    """Frozen rows in a memory-mapped file, the others in a variable."""
    MIRRORED = "mirrored"
    """All rows on each worker of `strategy=multi_worker`, in a variable, or frozen ones in a memory-mapped file."""


class RowType(StrEnum):
    """What rows, or slots, are stored as."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"
    """With a float32 scale for each row, of frozen rows in a mapped file."""

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return {RowType.FLOAT32: 4, RowType.INT8: 1}.get(self, 2)


class Uniform(Spec):
    """Uniform on [-scale, scale)."""

    kind: Literal["uniform"] = "uniform"
    scale: Positive = 0.05


class Normal(Spec):
    """Normal with mean 0."""

    kind: Literal["normal"] = "normal"
    stddev: Positive = 0.05


class TruncatedNormal(Spec):
    """Normal with mean 0, values beyond two standard deviations drawn again."""

    kind: Literal["truncated_normal"] = "truncated_normal"
    stddev: Positive | None = None
    """null: 1 / sqrt(dim), the default of `TableConfig`."""


class GlorotUniform(Spec):
    """Uniform on [-limit, limit), limit = sqrt(6 / (rows + dim)), as Keras' initializer of shape [rows, dim].

    Glorot & Bengio 2010, also known as Xavier's. `rows` counts all rows of the table. It depends on the vocabulary: a
    table that grows draws its new rows by its new number of rows, and its old rows come from the checkpoint.
    """

    kind: Literal["glorot_uniform"] = "glorot_uniform"


class GlorotNormal(Spec):
    """Truncated normal with mean 0 and standard deviation sqrt(2 / (rows + dim)) after truncation, as Keras'."""

    kind: Literal["glorot_normal"] = "glorot_normal"


class Constant(Spec):
    """One value everywhere."""

    kind: Literal["constant"] = "constant"
    value: Number = 0.0


Initializer = Annotated[Uniform | Normal | TruncatedNormal | GlorotUniform | GlorotNormal | Constant, BY_KIND]


class Adapter(Spec):
    """A matrix between a table's rows and the model, trained with the dense part: [dim of the table, dim]."""

    dim: Dim
    """Length of the vectors that the model gets."""


class Table(Spec):
    """An embedding table: `vocabulary_size` rows of `dim` numbers."""

    vocabulary_size: RowCount | None = None
    """Number of rows; null: the size of the vocabulary."""
    dim: Dim | None
    """Length of a row; null: that of the pretrained file's rows."""
    combiner: Combiner = Combiner.MEAN
    initializer: Initializer = TruncatedNormal.model_construct()
    optimizer: TableOptimizer | None = None
    """null: the top-level `optimizer`."""
    weight_decay_scale: NonNegative = 1.0
    """Factor on the optimizer's `weight_decay_factor`, so that biases may decay less than vectors."""
    pretrained: Pretrained | None = None
    """null: the top-level `pretrained`."""
    init: Init | None = None
    """null: the top-level `init`."""
    freeze: Freeze | None = None
    """null: the top-level `freeze`."""
    adapter: Annotated[
        Adapter | None,
        BeforeValidator(lambda value: {"dim": value} if isinstance(value, int) else value),
        Field(exclude_if=is_null),
    ] = None
    """A trainable matrix that its rows are multiplied by; null: the model gets them as they are. A number is its `dim`.
    """
    reset: Annotated[
        Literal["epoch"] | None,
        BeforeValidator(lambda value: value.get("every") if isinstance(value, Mapping) else value),
        PlainSerializer(lambda value: value and {"every": value, "keep": "vocabulary"}),  # as records have it
        Field(exclude_if=is_null),
    ] = None
    """When rows start again while the dense part goes on, against overfitting from the second epoch on: at the start of
    each epoch but the first; null: never. The vocabulary, pretrained and frozen rows stay. Others, and their slots, get
    their initial values."""
    storage: Storage = Storage.AUTO
    dtype: RowType = RowType.FLOAT32
    """What its rows are stored as; they are computed with in float32."""
    slot_dtype: RowType = RowType.FLOAT32
    """The same of slots with a number for each parameter."""
    stochastic_rounding: bool = True
    """Whether steps round to 16 bits stochastically, so that small ones are not lost; false: to the nearest."""
    vocabulary: TableVocabulary = TableVocabulary.model_construct()
    """Which values have a row; what is null is as in `data.vocabulary`."""

    @property
    def width(self) -> int:
        """The settled `dim`; a null `dim` is settled by the pretrained file.

        Raises:
            ValueError: it is not settled.
        """
        if self.dim is None:
            raise ValueError("the dim of this table comes from its pretrained file, which has not been read")
        return self.dim

    def vector_dim(self, dim: int) -> int:
        """Length of the vectors that the model gets of rows of so many numbers."""
        return dim if self.adapter is None else self.adapter.dim

    def row_bytes(self, dim: int) -> int:
        """Bytes of a row of so many numbers, with its scale if it has one."""
        return self.dtype.bytes * dim + (4 if self.dtype is RowType.INT8 else 0)

    def slot_bytes(self, optimizer: TableOptimizer, dim: int) -> int:
        """Bytes of the slots of a row."""
        wide = self.slot_dtype.bytes * dim
        return sum(4 if slot in optimizer.row_slots else wide for slot in slots_of(optimizer))

    @property
    def may_be_mapped(self) -> bool:
        """Whether its storage allows memory-mapped rows."""
        return self.storage in (Storage.AUTO, Storage.MEMORY_MAP, Storage.MIRRORED)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A table without a feature, a dim that nothing sets, and an impossible storage."""
        name = scope.path.removeprefix("tables.")
        return where_known(
            _unused(spec, name),
            _open_dim(spec, name),
            _storage(spec, name),
            _precision(spec, name),
            _reset(spec, name),
            vocabularies.token_faults(spec, name),
            vocabularies.hash_faults(spec, name),
            vocabularies.file_faults(spec, name),
            vocabularies.oov_faults(spec, name),
        )


class Feature(Spec):
    """An input that is looked up in a table."""

    table: str
    """Name of the table."""
    column: str | None = None
    """Column of the data; null: the name of the feature."""
    weights: str | None = None
    """Column with a weight for each id; null: all 1."""
    max_sequence_length: Length = 0
    """0: the rows of an example are combined; L: they form a sequence, truncated or zero-padded to L."""
    output_shape: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """Shape of the activations without `dim`, batch first; null: the shape of the input."""
    buckets: Buckets = Buckets.model_construct()
    """Of a column of numbers: the ids are buckets of them."""
    history_of: str | None = Field(default=None, exclude_if=is_null)
    """Feature of the user: the ids are those of the column in all training examples of the same user, each once; null:
    those of the example."""
    validate_weights_and_indices: bool = True
    """Sparse input: drop ids below 0, and weights of 0 or less unless the combiner is sum."""

    def activation_shape(self, dim: int) -> tuple[int, ...]:
        """Shape of the activation of one example, (dim,) or (length, dim), in a table of this dim."""
        if self.max_sequence_length:
            return (self.max_sequence_length, dim)
        return (*(self.output_shape or ())[1:], dim)

    def ids_column(self, name: str) -> str:
        """The column of ids that a feature of this name gets: that of the data, or its numbers in a table's buckets."""
        column = self.column or name
        if self.history_of is not None:
            return f"{column} of each {self.history_of}"
        return f"{column} in buckets of table {self.table}" if self.buckets.given else column

    def settings_of_lists(self) -> dict[str, str]:
        """Those of its settings that are for columns with several ids per example, as they are in the config."""
        found = {"max_sequence_length": self.max_sequence_length or None, "weights": self.weights}
        return {key: repr(value) for key, value in found.items() if value is not None}

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A table that does not exist, and shapes that can't be combined."""
        name = scope.path.removeprefix("features.")
        return where_known(
            _no_table(self, spec, scope.path),
            _weights_of_sequence(self, scope.path),
            _one_id(self, spec, name),
            _weights_of_shape(self, scope.path),
            _length_of_shape(self, scope.path),
            _batch_of_shape(self, spec, scope.path),
            _history(self, spec, scope.path),
            vocabularies.bucket_faults(spec, name),
            vocabularies.other_bucket_faults(spec, name),
        )


def _unused(spec: RunSpec, name: str) -> Iterator[Fault]:
    if name not in {feature.table for feature in spec.features.values()}:
        rule = "every table must be used by a feature"
        yield Fault(f"tables.{name}", "unused", rule, f"set table: {name} in a feature, or remove the table")


def _open_dim(spec: RunSpec, name: str) -> Iterator[Fault]:
    if spec.tables[name].dim is None and isinstance(spec.pretrained_of(name), NoPretrained):
        rule = "null means the dim of the pretrained file, but the table has no pretrained file"
        remedy = f"set a number, or choose pretrained@tables.{name}.pretrained=file"
        yield Fault(f"tables.{name}.dim", "null", rule, remedy)


def _storage(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    table, choice = spec.tables[name], f"tables.{name}"
    match table.storage:
        case Storage.SPLIT:
            freeze, init = spec.freeze_of(name), spec.init_of(name)
            if isinstance(freeze, NoFreeze | FreezeTable):
                rule = f"a split table needs both frozen and trainable rows, but its freeze is {freeze.kind}"
                remedy = f"choose freeze@{choice}.freeze=rows"
            elif isinstance(init, MemoryMap) or not init.fills_parts:
                rule = f"a split table needs init method assign, but its init method is {init.kind}"
                remedy = f"choose init@{choice}.init=assign"
            elif spec.executing_runtime is RuntimeKind.ESTIMATOR:
                rule, remedy = "runtime estimator does not support split tables", "set runtime=session"
            else:
                return
        case Storage.MIRRORED if spec.strategy.kind != "multi_worker":
            rule = (
                f"mirrored means that each worker of a cluster holds the whole table, but the strategy is "
                f"{spec.strategy.kind}"
            )
            remedy = "set strategy=multi_worker"
        case Storage.VARIABLE if isinstance(table.init, MemoryMap):
            rule = "the table's own init is memory_map, which keeps it in a mapped file"
            remedy = f"choose init@{choice}.init=assign"
        case Storage.MEMORY_MAP if not isinstance(init := spec.init_of(name), MemoryMap):
            rule = f"only init method memory_map keeps a table in a mapped file, but its init method is {init.kind}"
            remedy = f"freeze the pretrained table and choose init@{choice}.init=memory_map"
        case _:
            return
    yield CombinationFault(f"{choice}.storage", repr(table.storage.value), rule, f"leave it auto, or {remedy}")


def _reset(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Rows that start again and may not move, or where they can't be written between two steps."""
    if spec.tables[name].reset is None:
        return
    strategy, runtime, freeze = spec.strategy, spec.executing_runtime, spec.freeze_of(name)
    if spec.frozen(name) or isinstance(freeze, FreezeSchedule):
        rule, remedy = f"frozen rows never change, and its freeze is {freeze.kind}", "leave it null"
        yield Fault(f"tables.{name}.reset", "epoch", rule, remedy)
    elif runtime is not RuntimeKind.FUNCTION:
        rule, remedy = (
            f"rows can be reset only in runtime function, but the runtime is {runtime}",
            "set runtime=function",
        )
        yield CombinationFault(f"tables.{name}.reset", "epoch", rule, remedy)
    elif strategy.own_memory:
        rule = f"strategy {strategy.kind} keeps rows where they can't be written between two steps"
        yield CombinationFault(f"tables.{name}.reset", "epoch", rule, "choose another strategy, or leave it null")


def _precision(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    """16 bits where rows are kept or written otherwise, and 8 bits of rows that are not read from a file in place."""
    table, choice = spec.tables[name], f"tables.{name}"
    yield from _eight_bits(spec, name)
    key = next((key for key in ("dtype", "slot_dtype") if getattr(table, key) is not RowType.FLOAT32), None)
    init = spec.init_of(name)
    if key is None:
        return
    if spec.strategy.own_memory:
        rule, remedy = "a TPU keeps rows in float32", "choose another strategy"
    elif isinstance(init, ConstantInGraph | CustomInit):
        rule, remedy = f"init method {init.kind} fills float32 rows only", f"choose init@{choice}.init=assign"
    else:
        return
    yield CombinationFault(f"{choice}.{key}", getattr(table, key).value, rule, f"leave it float32, or {remedy}")


def _eight_bits(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    """Rows of int8 that are not frozen, or not those of a mapped file; and slots of int8."""
    table, choice = spec.tables[name], f"tables.{name}"
    if table.slot_dtype is RowType.INT8:
        rule = "int8 works only for values that never change, but slots change"
        yield CombinationFault(f"{choice}.slot_dtype", "int8", rule, "set bfloat16, or leave it float32")
    if table.dtype is not RowType.INT8:
        return
    pretrained = spec.pretrained_of(name)
    needed = {
        "some of its rows may move": (spec.frozen(name), f"freeze@{choice}.freeze=table"),
        "it has no pretrained file": (isinstance(pretrained, File | Sample), f"pretrained@{choice}.pretrained=file"),
        "it is not mapped": (isinstance(spec.init_of(name), MemoryMap), f"init@{choice}.init=memory_map"),
    }
    if lacking := {what: remedy for what, (there, remedy) in needed.items() if not there}:
        rule = f"only a frozen table that stays in its mapped file may be int8, but {'; '.join(lacking)}"
        yield CombinationFault(f"{choice}.dtype", "int8", rule, f"choose {' '.join(lacking.values())}, or set bfloat16")
    elif isinstance(pretrained, File | Sample) and pretrained.non_finite is NonFinite.KEEP:
        rule = f"int8 has no NaN and no infinity, but {spec.pretrained_path(name)}.non_finite is keep"
        yield CombinationFault(
            f"{choice}.dtype", "int8", rule, "set non_finite to error, zero or skip, or set bfloat16"
        )


def list_rule(column: str, holds: str = "one id per example") -> str:
    """The rule for a setting of lists of ids on a column that holds none."""
    return f"column {column!r} holds {holds}, but this setting applies only to columns that hold several"


def _no_table(feature: Feature, spec: RunSpec, path: str) -> Iterator[Fault]:
    if feature.table not in spec.tables and spec.tables:
        near = difflib.get_close_matches(feature.table, spec.tables, n=1)
        rule = "there is no table of that name"
        remedy = f"did you mean {near[0]!r}?" if near else f"the tables are {', '.join(spec.tables)}"
        yield Fault(f"{path}.table", repr(feature.table), rule, remedy)


def _history(feature: Feature, spec: RunSpec, path: str) -> Iterator[Fault]:
    """A history of no user, of what is no item, or where training examples are not ratings."""
    name = feature.history_of
    if name is None:
        return
    user = spec.features.get(name)
    others: dict[str, object] = {"max_sequence_length": feature.max_sequence_length, "weights": feature.weights}
    others |= {"output_shape": feature.output_shape, "buckets": feature.buckets.given}
    if user is None or user is feature:
        near = difflib.get_close_matches(name, spec.features, n=1)
        remedy = f"did you mean {near[0]!r}?" if near and near[0] != name else "name the feature of the user"
        yield Fault(f"{path}.history_of", repr(name), "there is no other feature of that name", remedy)
    elif user.buckets.given or user.history_of is not None or user.max_sequence_length or user.weights is not None:
        yield Fault(
            f"{path}.history_of",
            repr(name),
            "the user must be a single id per example",
            "name a feature with a single id",
        )
    for key, value in others.items():
        if value:
            rule = "a history has no order, weights or numbers; its ids are combined by the table's combiner"
            yield Fault(f"{path}.{key}", repr(value), rule, "remove it")


def _weights_of_sequence(feature: Feature, path: str) -> Iterator[Fault]:
    if feature.max_sequence_length and feature.weights is not None:
        rule = f"a sequence can't have weights, and max_sequence_length is {feature.max_sequence_length}"
        remedy = "remove the weights, or set max_sequence_length to 0 to combine the rows"
        yield Fault(f"{path}.weights", repr(feature.weights), rule, remedy)


def _one_id(feature: Feature, spec: RunSpec, name: str) -> Iterator[Fault]:
    column = feature.column or name
    if spec.data.holds_one_id(column):
        for key, value in feature.settings_of_lists().items():
            rule = list_rule(column)
            remedy = "remove it, or name a column that holds several (in CSV files, data.list_columns lists them)"
            yield Fault(f"features.{name}.{key}", value, rule, remedy)


def _weights_of_shape(feature: Feature, path: str) -> Iterator[Fault]:
    shape = feature.output_shape
    if shape and not feature.max_sequence_length and feature.weights is not None and math.prod(shape[1:]) > 1:
        rule = f"a sequence can't have weights, and output_shape makes sequences of length {math.prod(shape[1:])}"
        yield Fault(f"{path}.weights", repr(feature.weights), rule, "remove the weights or the output_shape")


def _length_of_shape(feature: Feature, path: str) -> Iterator[Fault]:
    length, shape = feature.max_sequence_length, feature.output_shape
    if shape and length and math.prod(shape[1:]) != length:
        rule = f"after the batch size it must have the {length} positions of max_sequence_length"
        yield Fault(f"{path}.output_shape", str(list(shape)), rule, f"write [{shape[0]}, {length}], or remove it")


def _batch_of_shape(feature: Feature, spec: RunSpec, path: str) -> Iterator[Fault]:
    shape = feature.output_shape
    if shape and shape[0] != (batch := spec.train.batch_size):
        rule = f"its first number must be the batch size, but train.batch_size is {batch}"
        yield Fault(f"{path}.output_shape", str(list(shape)), rule, f"write {[batch, *shape[1:]]}, or remove it")
