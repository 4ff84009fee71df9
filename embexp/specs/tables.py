"""Tables, features, and how values get into tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from embexp.specs.base import Count, Number, Positive, Spec, WholeNumber
from embexp.specs.freezing import Freeze, FreezeTable, NoFreeze
from embexp.specs.inits import Init
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.pretrained import Pretrained


class Combiner(StrEnum):
    """How several rows of one example become one vector."""

    SUM = "sum"
    MEAN = "mean"
    SQRTN = "sqrtn"


class Storage(StrEnum):
    """How the rows of a table are kept."""

    AUTO = "auto"
    VARIABLE = "variable"
    SPLIT = "split"
    """Frozen rows apart from the others, without slots."""
    MEMORY_MAP = "memory_map"
    """The frozen rows in a mapped file, the others in a variable."""


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

    vocabulary_size: Count | None = None
    """Rows; null: as many as the data's vocabulary has."""
    dim: Count | None
    """Length of a row; null: that of the pretrained file's rows."""
    combiner: Combiner = Combiner.MEAN
    initializer: Initializer = TruncatedNormal()
    optimizer: TableOptimizer | None = None
    """null: the top-level `optimizer`; likewise the next three."""
    pretrained: Pretrained | None = None
    init: Init | None = None
    freeze: Freeze | None = None
    storage: Storage = Storage.AUTO

    @property
    def width(self) -> int:
        """`dim`, where it is known: a null `dim` is settled once the pretrained file is open.

        Raises:
            ValueError: it is not settled yet.
        """
        if self.dim is None:
            raise ValueError("the dim of this table is that of its pretrained file, which has not been looked at")
        return self.dim


class Feature(Spec):
    """One input that is looked up in a table."""

    table: str
    """Name of the table."""
    column: str | None = None
    """Column of the data; null: the feature's own name."""
    weights: str | None = None
    """Column that holds a weight for each id; null: all 1."""
    max_sequence_length: WholeNumber = 0
    """0: the rows of an example are combined; L: they are kept as a sequence, cut or zero-padded to L."""
    output_shape: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """Shape of the activations without `dim`, batch first; null: the shape of the input."""
    validate_weights_and_indices: bool = True
    """Sparse input: drop ids below 0, and weights of 0 or less unless the combiner is sum."""

    def activation_shape(self, dim: int) -> tuple[int, ...]:
        """Shape of what a lookup gives for one example, (dim,) or (length, dim), in a table of this dim."""
        if self.max_sequence_length:
            return (self.max_sequence_length, dim)
        return (*(self.output_shape or ())[1:], dim)


__all__ = [
    "Combiner",
    "Constant",
    "Feature",
    "Freeze",
    "FreezeTable",
    "Initializer",
    "NoFreeze",
    "Normal",
    "Storage",
    "Table",
    "TruncatedNormal",
    "Uniform",
]
