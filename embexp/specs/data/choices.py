"""Sources of data: files with columns, texts, knowledge graphs, and a synthetic log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from embexp.errors import Fault
from embexp.specs.base import (
    Dim,
    ExampleCount,
    Length,
    NamedCode,
    NonNegative,
    Number,
    Positive,
    RowCount,
    Seed,
    Spec,
    for_each,
    is_null,
    where_known,
)
from embexp.specs.data.sources import (
    DataSetName,
    DateFormat,
    Delimiter,
    DividedData,
    Encoding,
    GivenFiles,
    LabelValue,
    NumericColumn,
    NumericColumns,
    Paths,
    Source,
    given,
    held_by,
    mixed_tables,
)
from embexp.specs.tasks import Labels
from embexp.specs.vocabularies import Steps, VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class Clicks(DividedData):
    """A synthetic click log with a planted truth, so that the best possible AUC is known.

    Columns: `user`, `item`, `history` (items this user liked, shares the item ids), label `click`.
    """

    label_column: ClassVar[str] = "click"

    kind: Literal["clicks"] = "clicks"
    implementation = "embexp.data.sources.clicks:ClickSource"
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
        return where_known(super().faults(spec, scope), _clicks_faults(self, spec))

    def holds_one_id(self, column: str) -> bool:
        """True for all columns except a history."""
        return column in ("user", "item")


class MissingLabel(StrEnum):
    """What becomes of rows without a label."""

    ERROR = "error"
    SKIP = "skip"


class Columnar(DividedData):
    """Sources whose examples are rows of files, with columns that the config names."""

    path: Annotated[Paths | GivenFiles, BeforeValidator(given)]
    """File, folder or pattern of files, or several of them; or a mapping of those of train, validation and test."""
    label: str | None
    """Column of the label; null: there is none, each row is an interaction."""
    label_threshold: Number | None = None
    """Labels become 1 where they are at least this, else 0; null: labels are used as they are."""
    positive: LabelValue = None
    """The value of the label that is label 1, for task binary; all others are 0. null: 1, yes or true."""
    missing_label: MissingLabel = Field(default=MissingLabel.ERROR, exclude_if=MissingLabel.ERROR.__eq__)
    """What a row without a label is: an error, or left out."""
    timestamp: str | None = None
    """Column of the time, any number; required by the splits time and leave_one_out."""
    weight: str | None = Field(default=None, exclude_if=is_null)
    """Column of the examples' weights, numbers of at least 0; null: all examples count the same."""
    dense_features: NumericColumns = Field(default_factory=dict)
    """Numeric columns that the model gets in addition to the embeddings, and how it gets their values."""
    normalize: Steps | None = Field(default=None, exclude_if=is_null)
    """Steps that make tokens equal which differ in their spelling only; null: none, and a run warns of such tokens."""
    vocabulary: VocabularyRules = VocabularyRules.model_construct()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths, those of train first."""
        if isinstance(self.path, GivenFiles):
            return tuple(path for paths in self.path.parts.values() for path in paths)
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
    def time_column(self) -> str | None:
        """`timestamp`."""
        return self.timestamp

    @property
    def token_rules(self) -> VocabularyRules:
        """How vocabularies are built."""
        return self.vocabulary

    @property
    def token_steps(self) -> Steps | None:
        """As `normalize` says."""
        return self.normalize

    @property
    def numeric_columns(self) -> Mapping[str, NumericColumn]:
        """How the model gets their values."""
        return self.dense_features

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, and labels that the task lacks or does not take."""
        return where_known(super().faults(spec, scope), _label_faults(self, spec))


def _label_faults(data: Columnar, spec: RunSpec) -> Iterator[Fault]:
    """Tasks that need labels without any, and labels of interactions that no threshold turns into 0 and 1."""
    recommends = spec.task.of_interactions
    if data.label is None and not recommends:
        rule = f"task {spec.task} needs labels"
        yield Fault("data.label", "null", rule, "name their column, or choose experiment=recommendation")
    if data.label is None and data.label_threshold is not None:
        rule = "there are no labels that it could divide"
        yield Fault("data.label_threshold", f"{data.label_threshold:g}", rule, "set data.label, or this to null")
    if data.positive is not None and (spec.task.labels is not Labels.BINARY or data.label_threshold is not None):
        yield Fault("data.positive", repr(data.positive), "it is for task binary, without thresholds", "set it to null")
    if data.label is not None and recommends and data.label_threshold is None:
        rule = "an interaction is a row whose label is at least the threshold"
        remedy = "set it (to 1 for labels of 0 and 1), or data.label=null if every row is an interaction"
        yield Fault("data.label_threshold", "null", rule, remedy)


class RecBole(Columnar):
    """RecBole atomic files: a folder with NAME.inter and optionally NAME.user and NAME.item, joined by id column."""

    kind: Literal["recbole"] = "recbole"
    implementation = "embexp.data.sources.recbole:source"
    fetch: DataSetName | None = None
    """Data set to fetch by name, of which `path` is then the place; null: none."""


def _mark(value: object) -> object:
    """Replaces words for the marks in numbers."""
    return NUMBER_MARKS.get(value.lower(), value) if isinstance(value, str) else value


NUMBER_MARKS = {"point": ".", "comma": ",", "space": " ", "apostrophe": "'"}
DecimalPoint = Annotated[
    Literal[".", ","],
    BeforeValidator(_mark, json_schema_input_type=Literal[".", ",", "point", "comma"]),
    Field(exclude_if=lambda value: value == "."),
]
Thousands = Annotated[
    Annotated[str, Field(min_length=1, max_length=1, pattern="[^0-9+-]")] | None,
    BeforeValidator(_mark, json_schema_input_type=str | None),
    Field(exclude_if=is_null),
]


_WAVES = tuple(f"{part}_{wave}" for part in ("weekday", "month", "hour") for wave in ("sin", "cos"))
DATE_PARTS = ("weekday", "month", "hour", "age", *_WAVES)
"""What a column of dates makes further columns of, which have its name, an underscore and this."""


def _date(value: object) -> object:
    """A date as YAML reads one, as text.

    Raises:
        ValueError: it is none.
    """
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError("it must be a date such as 2024-05-31") from None


class DateColumn(Spec):
    """A column of dates, which makes the columns of `DATE_PARTS`."""

    format: DateFormat | None = None
    """Format of text, such as `%d.%m.%Y`; null: ISO 8601, or dates of Parquet."""
    reference: Annotated[str, BeforeValidator(_date)] | None = None
    """The date to which the age is counted, in days."""


def _by_name(value: object) -> object:
    """A list of names, or nothing, as a mapping without settings."""
    return {name: {} for name in value or ()} if value is None or isinstance(value, list | tuple) else value


Dates = Annotated[
    dict[str, DateColumn],
    BeforeValidator(_by_name, json_schema_input_type=tuple[str, ...] | dict[str, DateColumn] | None),
    Field(exclude_if=lambda value: not value),
]


def _date_faults(data: CSV | Typed, spec: RunSpec) -> Iterator[Fault]:
    """Ages without a date to which they are counted."""
    read = {*data.dense_columns, *(feature.column or name for name, feature in spec.features.items())}
    for name, column in data.dates.items():
        if f"{name}_age" in read and column.reference is None:
            rule = f"{name}_age is counted in days to this date"
            yield Fault(f"data.dates.{name}.reference", "null", rule, "set the last date of the training data")


class CSV(Columnar):
    """CSV or TSV files, with a header line or without one."""

    kind: Literal["csv"] = "csv"
    implementation = "embexp.data.sources.csv:source"
    names: tuple[str, ...] | None = None
    """Names of the columns of files without a header line; null: the first line names them."""
    delimiter: Delimiter = ","
    """Separator of columns: a character, several, or a word: `comma`, `tab`, `semicolon`, `space`, `pipe`, `colons`
    (`::`), `whitespace` (any number of blanks and tabs)."""
    quoting: bool | None = None
    """Whether fields may stand in double quotes; null: with a delimiter of one character."""
    encoding: Encoding = "utf-8"
    """Encoding of the text."""
    decimal: DecimalPoint = "."
    """The decimal point of numbers: `point` or `comma`."""
    thousands: Thousands = None
    """What stands between groups of three digits of numbers, such as `comma`, `point` or `space`; null: nothing."""
    timestamp_format: DateFormat | None = None
    """Format of dates in the column of the time; null: numbers, or dates of ISO 8601."""
    list_separator: Annotated[str, Field(min_length=1)] = " "
    """Separator of the values in a column that holds several; `brackets`: lists as Python or JSON prints them."""
    list_columns: tuple[str, ...] = ()
    """Columns that hold several values in one field."""
    dates: Dates = Field(default_factory=dict)
    """Columns of dates, of each of which there are further columns: NAME_weekday, _month, _hour and _age, and of the
    first three _sin and _cos."""

    @property
    def number_marks(self) -> tuple[str, str]:
        """`decimal` and `thousands`."""
        return self.decimal, self.thousands or ""

    @property
    def quoted(self) -> bool:
        """Whether fields may stand in double quotes."""
        return len(self.delimiter) == 1 if self.quoting is None else self.quoting

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, names that contradict each other, and quotes where there can be none."""
        return where_known(super().faults(spec, scope), _csv_faults(self), _date_faults(self, spec))

    def holds_one_id(self, column: str) -> bool:
        """True for all columns except `list_columns`."""
        return column not in self.list_columns

    def remedy_for_lists(self, columns: Sequence[str]) -> str:
        """The settings by which they are read as lists."""
        names = dict.fromkeys([*self.list_columns, *columns])
        return f"set data.list_separator=brackets data.list_columns=[{','.join(names)}]"


def _csv_faults(data: CSV) -> Iterator[Fault]:
    twice = [name for name in dict.fromkeys(data.names or ()) if (data.names or ()).count(name) > 1]
    if twice:
        yield Fault("data.names", str(list(data.names or ())), f"two columns have the name {twice[0]!r}")
    if data.quoting and len(data.delimiter) > 1:
        rule = f"fields can't be quoted where the delimiter is {data.delimiter!r}"
        yield Fault("data.quoting", "true", rule, "leave it null, or choose a delimiter of one character")
    if data.thousands == data.decimal:
        rule = f"data.decimal is {data.decimal!r}, too"
        yield Fault("data.thousands", repr(data.thousands), rule, "choose another for one of the two")
    if data.timestamp_format is not None and data.timestamp is None:
        yield Fault("data.timestamp_format", repr(data.timestamp_format), "there is no data.timestamp that it is of")


class Typed(Columnar):
    """Files whose values have types; lists hold several values."""

    dates: Dates = Field(default_factory=dict)
    """As of CSV."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, and ages without a date to which they are counted."""
        return where_known(super().faults(spec, scope), _date_faults(self, spec))


class Parquet(Typed):
    """A Parquet file or a folder of them; list columns hold several values."""

    kind: Literal["parquet"] = "parquet"
    implementation = "embexp.data.sources.parquet:source"


class JSONLines(Typed):
    """JSON Lines: an object on each line. Lists hold several values; values of objects in it are columns `a.b`."""

    kind: Literal["jsonl"] = "jsonl"
    implementation = "embexp.data.sources.jsonl:source"


class Adjacency(Columnar):
    """Interactions as adjacency lists, as LightGCN has them: a line for each user, the user and then all its items.

    Columns: `user`, `item`.
    """

    kind: Literal["adjacency"] = "adjacency"
    implementation = "embexp.data.sources.adjacency:source"
    label: str | None = None
    """None: each item of a line is an interaction."""

    def holds_one_id(self, column: str) -> bool:
        """True for both columns."""
        return True


class CustomData(NamedCode, Columnar):
    """The user's own function: `function(path, **args)` returns the columns of a file."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.data.sources.custom:source"


Data = Source
"""Any source: those of the core, and those that fields bring."""
SOURCES = (Clicks, RecBole, CSV, Parquet, JSONLines, Adjacency, CustomData)
"""Those of the core."""


def with_paths(data: Data, change: Callable[[str], str]) -> Data:
    """A description of data with each of its paths changed; itself, if none is."""
    path = getattr(data, "path", None)

    def changed(paths: Paths) -> Paths:
        return change(paths) if isinstance(paths, str) else tuple(map(change, paths))

    if isinstance(path, GivenFiles):
        own = {name: changed(paths) for name, paths in path if paths is not None}
        after: Any = path.model_copy(update=own)
    else:
        after = None if path is None else changed(path)
    return data if after == path else data.model_copy(update={"path": after})


def named_paths(data: Data) -> dict[str, str]:
    """The paths of a description of data, by config path."""
    path = getattr(data, "path", None)
    parts: dict[str, Paths | None] = {"data.path": None if isinstance(path, GivenFiles) else path}
    if isinstance(path, GivenFiles):
        parts = {f"data.path.{name}": paths for name, paths in path}
    found: dict[str, str] = {}
    for place, paths in parts.items():
        several = paths if isinstance(paths, tuple) else ()
        found |= {place: paths} if isinstance(paths, str) else {f"{place}.{n}": each for n, each in enumerate(several)}
    return found


def _clicks_faults(data: Clicks, spec: RunSpec) -> Iterator[Fault]:
    """Users and items in the same table, tables with too few rows, and ids as weights."""
    what = {"user": "users", "item": "items", "history": "items"}

    def weights(name: str) -> Iterator[Fault]:
        if spec.features[name].weights in what:
            path, value = f"features.{name}.weights", repr(spec.features[name].weights)
            yield Fault(path, value, "it holds ids, not weights", "remove it")

    def mixed(name: str) -> Iterator[Fault]:
        column = spec.features[name].column
        path = f"features.{name}.column" if column else f"features.{name}"
        yield from mixed_tables(spec, what, name, path, column or name, "users and items")

    def small(name: str) -> Iterator[Fault]:
        held, size = next(held_by(spec, what, name), None), spec.tables[name].vocabulary_size
        if held is not None and size is not None and size < (count := getattr(data, held)):
            rule = f"the data has {count} {held}, and each needs a row"
            remedy = "set it to null to use the size of the vocabulary"
            yield Fault(f"tables.{name}.vocabulary_size", str(size), rule, remedy)

    yield from where_known(
        for_each(lambda: spec.features, weights),
        for_each(lambda: spec.features, mixed),
        for_each(lambda: spec.tables, small),
    )
