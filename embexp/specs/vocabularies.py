"""How values become rows: vocabularies of tokens, hash buckets, and buckets of numbers."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from embexp.specs.base import Count, Number, Spec
from embexp.specs.bounds import RowCount


class UnknownPolicy(StrEnum):
    """How to handle a value that the vocabulary lacks."""

    OOV = "oov"
    ERROR = "error"


class Row(StrEnum):
    """The row of missing, or of rare, values."""

    OOV = "oov"
    """The OOV row."""
    OWN_ROW = "own_row"
    """A row that all of them share, and no others."""


class VocabularyRules(Spec):
    """How vocabularies are built from the training split: by falling frequency, then by code point."""

    unknown: UnknownPolicy = UnknownPolicy.OOV
    """oov: values not in the vocabulary share row 0 of each table, the OOV row. error: such a value ends the run."""
    min_frequency: Count = 1
    """Values seen less often in the training split are rare: they have no row of their own."""
    max_size: Count | None = None
    """Keep only this many of the most frequent values, the others are rare; null: all."""
    missing: Row = Row.OOV
    """oov: missing values are unknown ones. own_row: they have a row of their own."""
    rare: Row = Row.OOV
    """oov: values that the training split has, but too rarely, are unknown ones. own_row: they share a row."""
    oov_buckets: RowCount = 1
    """Number of OOV rows; of several, a value has that of its hash."""


class TableVocabulary(Spec):
    """A table's own rules; those that are null are those of `data.vocabulary`."""

    unknown: UnknownPolicy | None = None
    min_frequency: Count | None = None
    max_size: Count | Literal["all"] | None = None
    missing: Row | None = None
    rare: Row | None = None
    oov_buckets: RowCount | None = None
    hash_buckets: RowCount | None = None
    """Number of rows for values, which have the row of their hash, and of no vocabulary; null: a vocabulary."""

    @property
    def own(self) -> dict[str, Any]:
        """The rules that are not null."""
        return {name: value for name, value in self if value is not None}


class SettledRules(VocabularyRules):
    """The rules of one vocabulary."""

    hash_buckets: RowCount | None = None


NOT_OF_HASHES = ("unknown", "min_frequency", "max_size", "rare", "oov_buckets")
"""Rules that tables of hash buckets do not have, as every value has a bucket."""


def settled(rules: VocabularyRules, tables: Iterable[TableVocabulary]) -> SettledRules:
    """The rules of the vocabulary that some tables share; their own rules agree."""
    found: dict[str, Any] = {name: getattr(rules, name) for name in VocabularyRules.model_fields}
    for table in tables:
        found |= table.own
    if found["max_size"] == "all":
        found["max_size"] = None
    return SettledRules.model_validate(found)


class Buckets(Spec):
    """Buckets of numbers: [a, b) between neighbouring boundaries, and one on each side. Missing values have a bucket.

    With neither of the two, a column has tokens, and no numbers.
    """

    boundaries: Annotated[tuple[Number, ...], Field(min_length=1)] | None = None
    """Rising. As in Keras' `Discretization(bin_boundaries)`: n boundaries are n + 1 buckets."""
    quantiles: Annotated[int, Field(ge=2, le=1_000_000, strict=True)] | None = None
    """That many buckets, equally frequent in the training split, as in scikit-learn's
    `KBinsDiscretizer(n_bins, strategy="quantile")`. Fewer where values are equal."""

    @property
    def given(self) -> bool:
        """Whether there are buckets."""
        return self.boundaries is not None or self.quantiles is not None

    @field_validator("boundaries")
    @classmethod
    def _rising(cls, boundaries: tuple[float, ...] | None) -> tuple[float, ...] | None:
        try:
            single = [struct.unpack("<f", struct.pack("<f", each))[0] for each in boundaries or ()]
        except OverflowError:
            raise ValueError("boundaries must be numbers of single precision (float32)") from None
        if any(a >= b for a, b in itertools.pairwise(single)):
            raise ValueError("boundaries must rise, and differ in single precision (float32)")
        return boundaries

    @model_validator(mode="after")
    def _one(self) -> Buckets:
        if self.boundaries is not None and self.quantiles is not None:
            raise ValueError("boundaries and quantiles exclude each other")
        return self
