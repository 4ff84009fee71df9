"""How values become rows: vocabularies of tokens, hash buckets, and buckets of numbers."""

from __future__ import annotations

import itertools
import re
import struct
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from embexp.errors import Fault
from embexp.specs.base import Count, Number, RowCount, Spec, broken, different, is_null

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec


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


class Step(StrEnum):
    """A step that makes tokens equal which differ in their spelling only. Steps are taken in this order."""

    STRIP = "strip"
    """Without white space at both ends."""
    LOWER = "lower"
    """In lower case."""
    NFC = "nfc"
    """Unicode normalisation form C: a letter and its accent are one character."""
    NUMBER = "number"
    """Whole numbers as their digits: `7.0`, `007` and `+7` are `7`."""


WHOLE_NUMBER = r"^(?:\+|(-?))0*([0-9]+)(?:\.0*)?$"
"""Whole numbers, by RE2 and Python: group 1 is the sign, group 2 the digits."""
_WHOLE_NUMBER = re.compile(WHOLE_NUMBER[1:-1])


def normalized_text(text: str, steps: Collection[Step]) -> str:
    """One token after some steps."""
    if Step.STRIP in steps:
        text = text.strip()
    if Step.LOWER in steps:
        text = text.lower()
    if Step.NFC in steps:
        text = unicodedata.normalize("NFC", text)
    if Step.NUMBER in steps and (match := _WHOLE_NUMBER.fullmatch(text)):
        text = f"{match[1] or ''}{match[2]}"
    return text


Steps = Annotated[tuple[Step, ...], different("each step may be listed only once")]


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
    path: Annotated[str, Field(min_length=1)] | None = Field(default=None, exclude_if=is_null)
    """File with the tokens, one a line in the order of their rows, whatever the data hold; null: the data decide."""

    @property
    def own(self) -> dict[str, Any]:
        """The rules that are not null."""
        return {name: value for name, value in self if value is not None}


class SettledRules(VocabularyRules):
    """The rules of one vocabulary."""

    hash_buckets: RowCount | None = None
    path: str | None = Field(default=None, exclude_if=is_null)


_NOT_OF_HASHES = ("unknown", "min_frequency", "max_size", "rare", "oov_buckets", "path")
"""Rules that tables of hash buckets do not have, as every value has a bucket."""
_NOT_OF_FILES = ("min_frequency", "max_size", "rare")
"""Rules that tables do not have whose tokens are those of a file, as it says which have a row."""


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
            single = [struct.unpack("<f", struct.pack("<f", boundary))[0] for boundary in boundaries or ()]
        except OverflowError:
            raise ValueError("boundaries must fit into single precision (float32)") from None
        if any(a >= b for a, b in itertools.pairwise(single)):
            raise ValueError("boundaries must be increasing, and differ in single precision (float32)")
        return boundaries

    @model_validator(mode="after")
    def _one(self) -> Buckets:
        if self.boundaries is not None and self.quantiles is not None:
            raise broken("set either boundaries or quantiles, not both", "boundaries", "quantiles")
        return self


def token_faults(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Rules of a table whose rows are not those of tokens."""
    own = spec.tables[name].vocabulary.own
    if own and spec.data.token_rules is None:
        for key, value in own.items():
            rule = f"data={spec.data.kind} has its own vocabularies, which have no settings"
            yield Fault(_path(name, key), str(value), rule, "remove it")
    bucketed = [each for each, feature in spec.features_of(name).items() if feature.buckets.given]
    if own and bucketed:
        for key, value in own.items():
            rule = f"the rows of this table are the buckets of feature {bucketed[0]}"
            yield Fault(_path(name, key), str(value), rule, "remove it")


def hash_faults(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Rules that make no sense for hash buckets."""
    own = spec.tables[name].vocabulary.own
    if "hash_buckets" in own:
        for key in _NOT_OF_HASHES:
            if key in own:
                rule = "a table with hash_buckets has no vocabulary: every value has a bucket"
                yield Fault(_path(name, key), str(own[key]), rule, "remove one of the two")


def file_faults(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Rules about how often a token must be there, for tokens of a file."""
    own = spec.tables[name].vocabulary.own
    for key in _NOT_OF_FILES if "path" in own else ():
        if key in own:
            rule = "this table takes all tokens of a file, whatever their frequency"
            yield Fault(_path(name, key), str(own[key]), rule, "remove one of the two")


def oov_faults(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Several OOV rows where there is none."""
    own, rules = spec.tables[name].vocabulary, spec.data.token_rules
    if rules is None or own.hash_buckets is not None:
        return
    found = settled(rules, [own])
    if found.oov_buckets > 1 and found.unknown is UnknownPolicy.ERROR:
        path = _path(name, "oov_buckets") if own.oov_buckets is not None else "data.vocabulary.oov_buckets"
        rule = "there is no OOV row because unknown is error"
        yield Fault(path, str(found.oov_buckets), rule, "set unknown to oov, or leave oov_buckets at 1")


def bucket_faults(spec: RunSpec, name: str) -> Iterator[Fault]:
    """Buckets of what is no column of single numbers."""
    feature = spec.features[name]
    if not feature.buckets.given:
        return
    path = f"features.{name}.buckets"
    given = "boundaries" if feature.buckets.boundaries is not None else "quantiles"
    if not hasattr(spec.data, "dense_features"):
        yield Fault(
            path,
            given,
            f"data={spec.data.kind} has no numeric columns",
            "choose data=csv, parquet, jsonl or recbole",
        )
    if spec.data.holds_one_id(feature.column or name):
        return  # which `tables` reports
    for key, value in feature.settings_of_lists().items():
        rule = "a bucketed column has one number per example, but this setting applies only to lists of ids"
        yield Fault(f"features.{name}.{key}", value, rule, "leave it out")


def other_bucket_faults(spec: RunSpec, name: str) -> Iterator[Fault]:
    """A feature whose table has other buckets, or tokens, by its first feature."""
    feature = spec.features[name]
    first, other = next(iter(spec.features_of(feature.table).items()))
    own, others = feature.buckets, other.buckets
    if (own.boundaries, own.quantiles) != (others.boundaries, others.quantiles):
        rule = f"features of one table must have the same buckets, but {first} has different ones"
        yield Fault(f"features.{name}.buckets", _buckets(feature.buckets.model_dump()), rule, "use separate tables")


def rows_of(spec: RunSpec, name: str) -> int | None:
    """Rows of a table where the config sets them, as hash buckets or boundaries do; None: the data decides."""
    own, rules = spec.tables[name].vocabulary, spec.data.token_rules
    if own.hash_buckets is not None and rules is not None:
        return own.hash_buckets + (settled(rules, [own]).missing is Row.OWN_ROW)
    for feature in spec.features_of(name).values():
        if feature.buckets.boundaries is not None:
            return len(feature.buckets.boundaries) + 2
    return None


def _buckets(settings: dict[str, object]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in settings.items() if value is not None) or "none"


def _path(table: str, key: str) -> str:
    return f"tables.{table}.vocabulary.{key}"
