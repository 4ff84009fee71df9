"""Sources of data: where examples come from."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from embexp.errors import Fault
from embexp.specs import data_rules, recommendation_rules
from embexp.specs.base import NonNegative, Number, Positive
from embexp.specs.bounds import Dim, ExampleCount, Length, RowCount, Seed
from embexp.specs.numbers import NumericColumn, NumericColumns
from embexp.specs.partial import where_known
from embexp.specs.sources import DataSetName, DividedData
from embexp.specs.texts import SkipGram, Text
from embexp.specs.triples import Triples
from embexp.specs.vocabularies import VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


_DIRECTIVES = "YymdHIMSpbBj"


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

    path: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """File, folder or pattern of files, or several of them."""
    label: str | None
    """Column of the label; null: there is none, each row is an interaction."""
    label_threshold: Number | None = None
    """Labels become 1 where they are at least this, else 0; null: labels are used as they are."""
    timestamp: str | None = None
    """Column of the time, any number; required by the splits time and leave_one_out."""
    dense_features: NumericColumns = Field(default_factory=dict)
    """Numeric columns that the model gets in addition to the embeddings, and how it gets their values."""
    vocabulary: VocabularyRules = VocabularyRules.model_construct()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths."""
        return (self.path,) if isinstance(self.path, str) else self.path

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
    fetch: DataSetName | None = None
    """Data set to fetch by name, of which `path` is then the place; null: none."""


def _delimiter(value: object) -> object:
    """Replaces names of characters that are hard to type on a command line."""
    return {"\\t": "\t", "tab": "\t", "semicolon": ";"}.get(value, value) if isinstance(value, str) else value


def _encoding(name: str) -> str:
    """The name that Python has for an encoding of text."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # a codec of something else than text
    except (LookupError, ValueError):
        raise ValueError("it must be an encoding of text that Python knows, such as utf-8, latin-1 or utf-16") from None
    return found.name


def _strptime(form: str) -> str:
    """A format of dates without directives that readers of several languages take differently."""
    directives = re.findall("%(.?)", form)
    if not directives or not set(directives) <= set(_DIRECTIVES):
        listed = ", ".join(f"%{each}" for each in _DIRECTIVES)
        raise ValueError(f"it must be a format of dates such as %d.%m.%Y %H:%M, of the directives {listed}")
    return form


class CSV(Columnar):
    """CSV or TSV files, with a header line or without one."""

    kind: Literal["csv"] = "csv"
    names: tuple[str, ...] | None = None
    """Names of the columns of files without a header line; null: the first line names them."""
    delimiter: Annotated[str, BeforeValidator(_delimiter), Field(min_length=1)] = ","
    """Separator of columns: a character, several, `tab`, `semicolon`, `whitespace` (any number of blanks and tabs)."""
    quoting: bool | None = None
    """Whether fields may stand in double quotes; null: with a delimiter of one character."""
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    """Encoding of the text."""
    timestamp_format: Annotated[str, AfterValidator(_strptime)] | None = None
    """Format of dates in the column of the time; null: numbers, or dates of ISO 8601."""
    list_separator: Annotated[str, Field(min_length=1)] = " "
    """Separator of the values in a column that holds several."""
    list_columns: tuple[str, ...] = ()
    """Columns that hold several values in one field."""

    @property
    def quoted(self) -> bool:
        """Whether fields may stand in double quotes."""
        return len(self.delimiter) == 1 if self.quoting is None else self.quoting

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, names that contradict each other, and quotes where there can be none."""
        return where_known(super().faults(spec, scope), _csv_faults(self))

    def holds_one_id(self, column: str) -> bool:
        """True for all columns except `list_columns`."""
        return column not in self.list_columns


def _csv_faults(data: CSV) -> Iterator[Fault]:
    twice = [name for name in dict.fromkeys(data.names or ()) if (data.names or ()).count(name) > 1]
    if twice:
        yield Fault("data.names", str(list(data.names or ())), f"two columns have the name {twice[0]!r}")
    if data.quoting and len(data.delimiter) > 1:
        rule = f"fields can't be quoted where the delimiter is {data.delimiter!r}"
        yield Fault("data.quoting", "true", rule, "leave it null, or choose a delimiter of one character")
    if data.timestamp_format is not None and data.timestamp is None:
        yield Fault("data.timestamp_format", repr(data.timestamp_format), "there is no data.timestamp that it is of")


class Parquet(Columnar):
    """A Parquet file or a folder of them; list columns hold several values."""

    kind: Literal["parquet"] = "parquet"


Data = Annotated[Clicks | RecBole | CSV | Parquet | Text | SkipGram | Triples, Field(discriminator="kind")]
