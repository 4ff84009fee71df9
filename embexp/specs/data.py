"""Sources of data: files with columns, texts, knowledge graphs, and a synthetic log."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from embexp.errors import CombinationFault, Fault
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
    different,
    for_each,
    is_null,
    where_known,
)
from embexp.specs.models import KnowledgeGraph, RankingLoss, Task
from embexp.specs.sources import (
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
)
from embexp.specs.texts import SkipGram, Text
from embexp.specs.vocabularies import VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class Place(StrEnum):
    """The meaning of a field of a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


SOURCE, RELATION, CANDIDATES = "source", "relation", "candidates"
"""Id columns of the queries of a knowledge graph."""
KNOWN = "known"
"""Id column of all known answers of each query: in an evaluation, and those of the training split in KvsAll."""
INVERSE = "inverse"
"""Dense column of the queries, if inverse relations share the rows of their relations."""


class Positives(StrEnum):
    """The positives of a training query."""

    ONE = "one"
    """The answer: each triple is a query for its tail and one for its head."""
    ALL = "all"
    """All tails of training triples with the same source and relation, which are one query (KvsAll)."""


_EACH_PLACE = different("head, relation and tail must each be named once")


class TrainedTriples(StrEnum):
    """Which training triples to use, if some entities of the graph count as new."""

    KNOWN = "known"
    """Triples without new entities; vocabularies, validation and test exclude new entities, too."""
    NEW = "new"
    """Triples with new entities, also for validation. The vocabularies are those of all triples."""
    ALL = "all"
    """All triples."""


class NewEntities(Spec):
    """Some entities of a graph count as new, to train before or after they are added.

    They are drawn by name. Entities and relations that occur only in training triples with a drawn entity are new, too.
    Unless new entities are excluded, there are two more splits: `test_new`, the test triples with new entities or
    relations, and `test_known`, the others.
    """

    share: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """Fraction of the entities to draw; at least one is drawn."""
    seed: Seed = 0
    """Seed of the draw, independent of the run's seed."""
    train: TrainedTriples = TrainedTriples.ALL
    """known | new | all: the training triples to use."""


class Triples(Source):
    """A knowledge graph: a folder with the files train, valid and test (.txt or .tsv), a tab-separated triple a line.

    Each triple is two queries: tail prediction and head prediction. Columns: `source`, the known entity; `relation`;
    `candidates`, the entities to rank. Label: the position of the answer among the candidates.
    """

    label_column: ClassVar[str] = "answer"

    kind: Literal["triples"] = "triples"
    implementation = "embexp.data.sources.triples:TripleSource"
    path: Annotated[str, Field(min_length=1)]
    fetch: DataSetName | None = None
    """Data set to fetch by name, of which `path` is then the place; null: none."""
    columns: Annotated[tuple[Place, Place, Place], _EACH_PLACE] | None = None
    """Order of the three fields of a line; null: the two with the most values in common are head and tail."""
    reciprocal: bool = True
    """Heads are predicted as tails of the inverse relation, which has its own row in the table of relations
    (Lacroix et al. 2018). False: the model inverts the relation's vector where the column `inverse` is 1."""
    negatives: RowCount | None = None
    """Number of random negatives per training query; null: all other entities (1-vs-all)."""
    shared_negatives: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Draw the negatives once for all queries of a batch; its answers are negatives of each other, too."""
    positives: Positives = Positives.ONE
    """one: a training query for each triple and direction. all: one for each distinct source and relation, with all
    their known answers (KvsAll, Dettmers et al. 2018)."""
    new_entities: NewEntities | None = None
    """Some entities count as new; null: none."""

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """`inverse`, 1 for head prediction, if inverse relations share the rows of their relations."""
        return () if self.reciprocal else (INVERSE,)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking, tables that don't fit entities and relations, and positives without candidates."""
        held = {SOURCE: "entities", RELATION: "relations", CANDIDATES: "entities"}
        yield from _triples_faults(spec, held)
        yield from where_known(self._positives(spec), self._shared(spec))

    def _positives(self, spec: RunSpec) -> Iterator[Fault]:
        if self.positives is Positives.ONE:
            return
        if self.negatives is not None:
            rule = f"all positives of a query are compared with all entities, and data.negatives is {self.negatives}"
            remedy = "set data.negatives=null, or data.positives=one"
            yield Fault("data.positives", repr(str(self.positives)), rule, remedy)
        if spec.strategy.own_memory:
            rule = f"queries have different numbers of positives, and strategy {spec.strategy.kind} takes equal shapes"
            remedy = "set data.positives=one, or strategy=cpu"
            yield CombinationFault("data.positives", repr(str(self.positives)), rule, remedy)

    def _shared(self, spec: RunSpec) -> Iterator[Fault]:
        if not self.shared_negatives:
            return
        path, value = "data.shared_negatives", "True"
        if self.negatives is None:
            rule = "data.negatives is null, so every entity is a candidate of all queries and none are drawn"
            yield Fault(path, value, rule, "set data.negatives to a number, such as 2048")
        model = spec.model
        if isinstance(model, KnowledgeGraph) and model.by_distance:
            rule = f"shared negatives are scored by one matrix product, and model {model.kind} computes distances"
            yield Fault(path, value, rule, "set data.shared_negatives=false, or model=complex")
        if isinstance(model, KnowledgeGraph) and (model.loss is not RankingLoss.SOFTMAX or model.label_smoothing):
            rule = "the shares with which entities are drawn correct a softmax, without label smoothing"
            yield Fault(
                path, value, rule, "set model.loss=softmax model.label_smoothing=0, or data.shared_negatives=false"
            )
        replicas = spec.strategy.replica_count
        if replicas is None or replicas > 1:
            rule = (
                f"a batch has one set of negatives, and the replicas of strategy {spec.strategy.kind} share the batch"
            )
            yield CombinationFault(path, value, rule, "set data.shared_negatives=false, or strategy=cpu")


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
    timestamp: str | None = None
    """Column of the time, any number; required by the splits time and leave_one_out."""
    weight: str | None = Field(default=None, exclude_if=is_null)
    """Column of the examples' weights, numbers of at least 0; null: all examples count the same."""
    dense_features: NumericColumns = Field(default_factory=dict)
    """Numeric columns that the model gets in addition to the embeddings, and how it gets their values."""
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
    def token_rules(self) -> VocabularyRules:
        """How vocabularies are built."""
        return self.vocabulary

    @property
    def numeric_columns(self) -> Mapping[str, NumericColumn]:
        """How the model gets their values."""
        return self.dense_features

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, and labels that the task lacks or does not take."""
        return where_known(super().faults(spec, scope), _label_faults(self, spec))


def _label_faults(data: Columnar, spec: RunSpec) -> Iterator[Fault]:
    """Tasks that need labels without any, and labels of interactions that no threshold turns into 0 and 1."""
    recommends = spec.task is Task.RECOMMENDATION
    if data.label is None and not recommends:
        rule = f"task {spec.task} needs labels"
        yield Fault("data.label", "null", rule, "name their column, or choose experiment=recommendation")
    if data.label is None and data.label_threshold is not None:
        rule = "there are no labels that it could divide"
        yield Fault("data.label_threshold", f"{data.label_threshold:g}", rule, "set data.label, or this to null")
    if data.positive is not None and (spec.task is not Task.BINARY or data.label_threshold is not None):
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


def _date_faults(data: CSV | Parquet, spec: RunSpec) -> Iterator[Fault]:
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
    """Separator of the values in a column that holds several."""
    list_columns: tuple[str, ...] = ()
    """Columns that hold several values in one field."""
    dates: Dates = Field(default_factory=dict)
    """Columns of dates, of each of which there are further columns: NAME_weekday, _month, _hour and _age, and of the
    first three _sin and _cos."""

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


class Parquet(Columnar):
    """A Parquet file or a folder of them; list columns hold several values."""

    kind: Literal["parquet"] = "parquet"
    implementation = "embexp.data.sources.parquet:source"
    dates: Dates = Field(default_factory=dict)
    """As of CSV."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings of another kind of split, and ages without a date to which they are counted."""
        return where_known(super().faults(spec, scope), _date_faults(self, spec))


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


Data = Annotated[
    Clicks | RecBole | CSV | Parquet | Adjacency | Text | SkipGram | Triples | CustomData, Field(discriminator="kind")
]


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
        yield from _mixed(spec, what, name, path, column or name, "users and items")

    def small(name: str) -> Iterator[Fault]:
        held, size = next(_held(spec, what, name), None), spec.tables[name].vocabulary_size
        if held is not None and size is not None and size < (count := getattr(data, held)):
            rule = f"the data has {count} {held}, and each needs a row"
            remedy = "set it to null to use the size of the vocabulary"
            yield Fault(f"tables.{name}.vocabulary_size", str(size), rule, remedy)

    yield from where_known(
        for_each(lambda: spec.features, weights),
        for_each(lambda: spec.features, mixed),
        for_each(lambda: spec.tables, small),
    )


def _triples_faults(spec: RunSpec, what: Mapping[str, str]) -> Iterator[Fault]:
    """A task other than ranking, and entities and relations, by what each column holds, in the same table."""

    def renamed(name: str) -> Iterator[Fault]:
        column = spec.features[name].column
        if name in what and column not in (None, name):
            rule = "models of knowledge graphs identify the columns of queries by the names of features"
            yield Fault(f"features.{name}.column", repr(column), rule, "leave it null")

    def mixed(name: str) -> Iterator[Fault]:
        path, table = f"features.{name}.table", spec.features[name].table
        yield from _mixed(spec, what, name, path, table, "entities and relations")

    of_features = (for_each(lambda: spec.features, rule) for rule in (renamed, mixed))
    yield from where_known(_no_ranking(spec), *of_features)


def _no_ranking(spec: RunSpec) -> Iterator[Fault]:
    if spec.task is not Task.RANKING:
        yield Fault("task", repr(str(spec.task)), "queries of triples have candidates to rank", "set task=ranking")


def _mixed(spec: RunSpec, what: Mapping[str, str], name: str, path: str, value: str, kinds: str) -> Iterator[Fault]:
    """The ids of a feature identify other things than those of most features of its table, the first ones if equal."""
    feature = spec.features[name]
    held, all_held = what.get(feature.column or name), list(_held(spec, what, feature.table))
    first = max(all_held, key=all_held.count, default=None)
    if held is not None and held != first:
        rule = f"its ids identify {held}, but those of table {feature.table!r} identify {first}"
        yield Fault(path, repr(value), rule, f"use separate tables for {kinds}")


def _held(spec: RunSpec, what: Mapping[str, str], table: str) -> Iterator[str]:
    """What the ids of a table identify, by the columns of its features."""

    def of_feature(name: str) -> Iterator[str]:
        feature = spec.features[name]
        if feature.table == table and (held := what.get(feature.column or name)):
            yield held

    return for_each(lambda: spec.features, of_feature)
