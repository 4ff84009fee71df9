"""What sources of data share: the order of examples, and splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, assert_never

from pydantic import Field, model_validator

from embexp.errors import Fault
from embexp.specs import data_rules
from embexp.specs.alike import few
from embexp.specs.base import Spec, WholeNumber
from embexp.specs.bounds import ANY, ExampleCount
from embexp.specs.numbers import NumericColumn
from embexp.specs.splits import Split, SplitKind
from embexp.specs.vocabularies import VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


DataSetName = Annotated[str, Field(min_length=1)]
"""Name of a public data set; `embexp fetch` lists them."""


class Source(Spec):
    """Keys of every source. Each also has a `label_column`, None if it has no labels."""

    shuffle: bool = True
    """Read the training examples in a new order each epoch."""
    window: ExampleCount = 1_048_576
    """Size of the shuffle window in examples; bounds the memory of a pass over the data."""

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """Numeric columns that the model gets in addition to the embeddings."""
        return ()

    @property
    def token_rules(self) -> VocabularyRules | None:
        """How vocabularies of tokens are built; None: the source has its own."""
        return None

    @property
    def numeric_columns(self) -> Mapping[str, NumericColumn]:
        """How the model gets the values of `dense_columns`; those that are not here are as they are."""
        return {}

    def described_numbers(self) -> str:
        """The columns that the model does not get as they are, by their settings, for people."""
        alike: dict[str, list[str]] = {}
        for name, column in self.numeric_columns.items():
            alike.setdefault(column.described, []).append(name)
        return "; ".join(f"{few(names)}: {settings}" for settings, names in alike.items() if settings)

    @property
    def dense_width(self) -> int:
        """How many numbers the model gets of an example: one for each dense column, and indicators."""
        settings = self.numeric_columns
        return sum(settings[name].width if name in settings else 1 for name in self.dense_columns)

    def holds_one_id(self, column: str) -> bool:
        """Whether a column holds one id per example; False if that depends on a file's header."""
        return False


class DividedData(Source):
    """Sources whose examples are split by `split`; other sources come with their splits."""

    folds: Annotated[int, Field(ge=2, le=ANY, strict=True)] | None = None
    """Number of folds of a k-fold split."""
    fold: WholeNumber | None = None
    """The fold that tests, from 0."""
    split: Split = Split.model_construct()

    @model_validator(mode="after")
    def _folds(self) -> DividedData:
        if self.split.kind is SplitKind.FOLDS:
            if self.folds is None or self.fold is None:
                raise ValueError("split.kind=folds needs data.folds and data.fold")
            if self.fold >= self.folds:
                raise ValueError("fold counts from 0 and must be below folds")
        return self

    def described_split(self) -> str:
        """A description of the split for people."""
        split = self.split
        match split.kind:
            case SplitKind.FOLDS:
                return f"fold {self.fold} of {self.folds} tests, {split.validation:.0%} of the rest validates"
            case SplitKind.LEAVE_ONE_OUT:
                return f"the last of each {split.group} tests, the one before validates"
            case SplitKind.RANDOM:
                return f"{split.validation:.0%} validates, {split.test:.0%} tests, at random"
            case SplitKind.TIME:
                return f"the last {split.test:.0%} test, the {split.validation:.0%} before validate"
            case _:
                assert_never(split.kind)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings that belong to another kind of split."""
        return data_rules.split_faults(self)
