"""Tables, initializers and features, and the rules between them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.specs import feature_rules, vocabulary_rules
from embexp.specs.base import Count, Number, Positive, Spec
from embexp.specs.bounds import Dim, Length, RowCount
from embexp.specs.freezing import Freeze, FreezeTable, NoFreeze
from embexp.specs.inits import Init, MemoryMap
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.partial import where_known
from embexp.specs.pretrained import NoPretrained, Pretrained
from embexp.specs.running import RuntimeKind
from embexp.specs.vocabularies import Buckets, TableVocabulary

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


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


class Constant(Spec):
    """One value everywhere."""

    kind: Literal["constant"] = "constant"
    value: Number = 0.0


Initializer = Annotated[Uniform | Normal | TruncatedNormal | Constant, Field(discriminator="kind")]


class Table(Spec):
    """An embedding table: `vocabulary_size` rows of `dim` float32."""

    vocabulary_size: RowCount | None = None
    """Number of rows; null: the size of the vocabulary."""
    dim: Dim | None
    """Length of a row; null: that of the pretrained file's rows."""
    combiner: Combiner = Combiner.MEAN
    initializer: Initializer = TruncatedNormal.model_construct()
    optimizer: TableOptimizer | None = None
    """null: the top-level `optimizer`."""
    pretrained: Pretrained | None = None
    """null: the top-level `pretrained`."""
    init: Init | None = None
    """null: the top-level `init`."""
    freeze: Freeze | None = None
    """null: the top-level `freeze`."""
    storage: Storage = Storage.AUTO
    vocabulary: TableVocabulary = TableVocabulary.model_construct()
    """Which values have a row; what is null is as in `data.vocabulary`."""

    @property
    def width(self) -> int:
        """The settled `dim`; a null `dim` is settled by the pretrained file.

        Raises:
            ValueError: it is not settled.
        """
        if self.dim is None:
            raise ValueError("the dim of this table is that of its pretrained file, which has not been read")
        return self.dim

    @property
    def may_be_mapped(self) -> bool:
        """Whether its storage allows memory-mapped rows."""
        return self.storage in (Storage.AUTO, Storage.MEMORY_MAP)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A table without a feature, a dim that nothing sets, and an impossible storage."""
        name = scope.path.removeprefix("tables.")
        return where_known(
            _unused(spec, name),
            _open_dim(spec, name),
            _storage(spec, name),
            vocabulary_rules.of_tokens(spec, name),
            vocabulary_rules.of_hashes(spec, name),
            vocabulary_rules.of_oov_buckets(spec, name),
            vocabulary_rules.of_recommendation(spec, name),
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
        return f"{column} in buckets of table {self.table}" if self.buckets.given else column

    def settings_of_lists(self) -> dict[str, str]:
        """Those of its settings that are for columns with several ids per example, as they are in the config."""
        found = {"max_sequence_length": self.max_sequence_length or None, "weights": self.weights}
        return {key: repr(value) for key, value in found.items() if value is not None}

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A table that does not exist, and shapes that can't be combined."""
        name = scope.path.removeprefix("features.")
        return where_known(
            feature_rules.no_table(self, spec, scope.path),
            feature_rules.weights_of_sequence(self, scope.path),
            feature_rules.one_id(self, spec, name),
            feature_rules.weights_of_shape(self, scope.path),
            feature_rules.length_of_shape(self, scope.path),
            feature_rules.batch_of_shape(self, spec, scope.path),
            vocabulary_rules.of_buckets(spec, name),
            vocabulary_rules.one_kind_of_buckets(spec, name),
        )


def _unused(spec: RunSpec, name: str) -> Iterator[Fault]:
    if name not in {feature.table for feature in spec.features.values()}:
        yield Fault(
            f"tables.{name}",
            "unused",
            "every table must be used by a feature",
            f"set table: {name} in a feature, or remove the table",
        )


def _open_dim(spec: RunSpec, name: str) -> Iterator[Fault]:
    if spec.tables[name].dim is None and isinstance(spec.pretrained_of(name), NoPretrained):
        yield Fault(
            f"tables.{name}.dim",
            "null",
            "null means the dim of the pretrained file, and the table has no such file",
            f"set a number, or choose pretrained@tables.{name}.pretrained=file",
        )


def _storage(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    table, choice = spec.tables[name], f"tables.{name}"
    match table.storage:
        case Storage.SPLIT:
            freeze, init = spec.freeze_of(name), spec.init_of(name)
            if isinstance(freeze, NoFreeze | FreezeTable):
                rule = f"a split table has frozen and trainable rows, and its freeze is {freeze.kind}"
                remedy = f"choose freeze@{choice}.freeze=rows"
            elif isinstance(init, MemoryMap) or not init.fills_parts:
                rule = f"a split table needs init method assign, and its init method is {init.kind}"
                remedy = f"choose init@{choice}.init=assign"
            elif spec.executing_runtime is RuntimeKind.ESTIMATOR:
                rule, remedy = "the runtime estimator has no split tables", "set runtime=session"
            else:
                return
        case Storage.VARIABLE if isinstance(table.init, MemoryMap):
            rule = "the table's own init is memory_map, which keeps it in a mapped file"
            remedy = f"choose init@{choice}.init=assign"
        case Storage.MEMORY_MAP if not isinstance(init := spec.init_of(name), MemoryMap):
            rule = f"only init method memory_map keeps a table in a mapped file, and its init method is {init.kind}"
            remedy = f"freeze the pretrained table and choose init@{choice}.init=memory_map"
        case _:
            return
    yield CombinationFault(f"{choice}.storage", repr(table.storage.value), rule, f"leave it auto, or {remedy}")
