"""Sources of data: where examples come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from embexp.errors import Fault
from embexp.specs import data_rules, recommendation_rules
from embexp.specs.base import NonNegative, Number, Positive
from embexp.specs.bounds import Dim, ExampleCount, Length, RowCount, Seed
from embexp.specs.numbers import NumericColumn, NumericColumns
from embexp.specs.partial import where_known
from embexp.specs.sources import DividedData
from embexp.specs.texts import SkipGram, Text
from embexp.specs.triples import Triples
from embexp.specs.vocabularies import VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Clicks(DividedData):
    """A synthetic click log with a planted truth, so that the best possible AUC is known.

    Columns: `user`, `item`, `history` (items this user liked, shares the item ids), label `click`.
    """

    label_column: ClassVar[str] = "click"

    kind: Literal["clicks"] = "clicks"
    examples: ExampleCount = 1_000_000
    users: RowCount = 1_000
    items: RowCount = 500
    rank: Dim = 4
    """Dimension of the planted user and item vectors."""
    history_length: Length = 8
    """Longest history; lengths vary from 0 to this."""
    zipf: NonNegative = 1.0
    """Exponent of the popularity of users and items: p(rank r) ~ 1 / (r + 1) ^ zipf; 0 is uniform."""
    signal: Positive = 2.0
    """Standard deviation of the planted logit: larger makes clicks easier to predict."""
    seed: Seed = 0
    """Seed of the log, independent of the run's seed."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings that belong to another kind of split, and tables that don't fit users and items."""
        return where_known(data_rules.split_faults(self), data_rules.clicks_faults(self, spec))

    def holds_one_id(self, column: str) -> bool:
        """True for all columns except a history."""
        return column in ("user", "item")


class Columnar(DividedData):
    """Sources whose examples are rows of files, with columns that the config names."""

    path: str
    """File or folder."""
    label: str | None
    """Column of the label; null: there is none, each row is an interaction."""
    label_threshold: Number | None = None
    """Labels become 1 where they are at least this, else 0; null: labels are used as they are."""
    timestamp: str | None = None
    """Column of the time, any number; required by the splits time and leave_one_out."""
    dense_features: NumericColumns = Field(default_factory=dict)
    """Numeric columns that the model gets in addition to the embeddings, and how it gets their values."""
    vocabulary: VocabularyRules = VocabularyRules()

    @property
    def label_column(self) -> str | None:
        """Column of the label; None if there is none."""
        return self.label

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """The columns of `dense_features`."""
        return tuple(self.dense_features)

    @property
    def token_rules(self) -> VocabularyRules:
        """How vocabularies are built."""
        return self.vocabulary

    @property
    def numeric_columns(self) -> Mapping[str, NumericColumn]:
        """How the model gets their values."""
        return self.dense_features

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, and labels that the task lacks or does not take."""
        return where_known(data_rules.split_faults(self), recommendation_rules.label_faults(self, spec))


class RecBole(Columnar):
    """RecBole atomic files: a folder with NAME.inter and optionally NAME.user and NAME.item, joined by id column."""

    kind: Literal["recbole"] = "recbole"


def _tab(value: object) -> object:
    """Replaces a backslash and a t by a tab, which is hard to type on a command line."""
    return "\t" if value == "\\t" else value


class CSV(Columnar):
    """A CSV or TSV file with a header line, or a folder of such files."""

    kind: Literal["csv"] = "csv"
    delimiter: Annotated[str, BeforeValidator(_tab), Field(min_length=1, max_length=1)] = ","
    list_separator: Annotated[str, Field(min_length=1)] = " "
    """Separator of the values in a column that holds several."""
    list_columns: tuple[str, ...] = ()
    """Columns that hold several values in one field."""

    def holds_one_id(self, column: str) -> bool:
        """True for all columns except `list_columns`."""
        return column not in self.list_columns


class Parquet(Columnar):
    """A Parquet file or a folder of them; list columns hold several values."""

    kind: Literal["parquet"] = "parquet"


Data = Annotated[Clicks | RecBole | CSV | Parquet | Text | SkipGram | Triples, Field(discriminator="kind")]
