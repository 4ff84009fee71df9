"""Sources of data: where examples come from, how they are split and in which order they are read."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, assert_never

from pydantic import BeforeValidator, Field, field_validator, model_validator

from embexp.errors import Fault
from embexp.specs import data_rules
from embexp.specs.base import Count, Fraction, NonNegative, Number, Positive, Spec, WholeNumber
from embexp.specs.partial import where_known

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class SplitKind(StrEnum):
    """How examples are divided into train, validation and test."""

    RANDOM = "random"
    TIME = "time"
    LEAVE_ONE_OUT = "leave_one_out"
    FOLDS = "folds"


class Split(Spec):
    """How examples are split into train, validation and test.

    random: by a seeded permutation. time: by `timestamp`, the latest examples test, those before them validate.
    leave_one_out: each user's latest example tests, the one before validates. folds: fold `data.fold` of `data.folds`
    tests, the rest trains; `validation` is a fraction of the rest.
    """

    kind: SplitKind = SplitKind.RANDOM
    validation: Fraction = 0.1
    """Fraction of the examples that validates (of the training split, for folds); ignored by leave_one_out."""
    test: Fraction = 0.1
    """Fraction of the examples that tests; for random and time."""
    group: str | None = None
    """leave_one_out: the column that names the user."""
    seed: WholeNumber = 0
    """Seed of the split, independent of the run's seed, so that runs with other seeds have the same split."""

    @model_validator(mode="after")
    def _fit(self) -> Split:
        if self.kind in (SplitKind.RANDOM, SplitKind.TIME) and self.validation + self.test >= 1:
            raise ValueError("validation and test must leave something to train on (validation + test < 1)")
        if self.kind is SplitKind.LEAVE_ONE_OUT and self.group is None:
            raise ValueError("leave_one_out needs group, the column that names the user")
        return self

    @property
    def by_time(self) -> bool:
        """Whether the test split depends on timestamps."""
        return self.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT)

    @property
    def group_column(self) -> str | None:
        """The column of the groups, each of which leaves one example out; None for other splits."""
        return self.group if self.kind is SplitKind.LEAVE_ONE_OUT else None

    @property
    def validates(self) -> bool:
        """Whether there is a validation split."""
        return self.kind is SplitKind.LEAVE_ONE_OUT or self.validation > 0


class UnknownPolicy(StrEnum):
    """How to handle a value that the vocabulary lacks."""

    OOV = "oov"
    ERROR = "error"


class VocabularyRules(Spec):
    """How vocabularies are built from the training split: by falling frequency, then by code point."""

    unknown: UnknownPolicy = UnknownPolicy.OOV
    """oov: values not in the vocabulary share row 0 of each table, the OOV row. error: such a value ends the run."""
    min_frequency: Count = 1
    """Values seen less often in the training split are unknown."""
    max_size: Count | None = None
    """Keep only this many of the most frequent values; null: all."""


class _Source(Spec):
    """Keys of every source. Each also has a `label_column`."""

    shuffle: bool = True
    """Read the training examples in a new order each epoch."""
    window: Count = 1_048_576
    """Size of the shuffle window in examples; bounds the memory of a pass over the data."""

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """Numeric columns that the model gets in addition to the embeddings."""
        return ()

    def holds_one_id(self, column: str) -> bool:
        """Whether a column holds one id per example; False if that depends on a file's header."""
        return False


class DividedData(_Source):
    """Sources whose examples are split by `split`; other sources come with their splits."""

    folds: Annotated[int, Field(ge=2, strict=True)] | None = None
    """Number of folds of a k-fold split."""
    fold: WholeNumber | None = None
    """The fold that tests, from 0."""
    split: Split = Split()

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


class Clicks(DividedData):
    """A synthetic click log with a planted truth, so that the best possible AUC is known.

    Columns: `user`, `item`, `history` (items this user liked, shares the item ids), label `click`.
    """

    label_column: ClassVar[str] = "click"

    kind: Literal["clicks"] = "clicks"
    examples: Count = 1_000_000
    users: Count = 1_000
    items: Count = 500
    rank: Count = 4
    """Dimension of the planted user and item vectors."""
    history_length: WholeNumber = 8
    """Longest history; lengths vary from 0 to this."""
    zipf: NonNegative = 1.0
    """Exponent of the popularity of users and items: p(rank r) ~ 1 / (r + 1) ^ zipf; 0 is uniform."""
    signal: Positive = 2.0
    """Standard deviation of the planted logit: larger makes clicks easier to predict."""
    seed: WholeNumber = 0
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
    label: str
    """Column of the label."""
    label_threshold: Number | None = None
    """Labels become 1 where they are at least this, else 0; null: labels are used as they are."""
    timestamp: str | None = None
    """Column of the time, any number; required by the splits time and leave_one_out."""
    dense_features: tuple[str, ...] = ()
    """Numeric columns that the model gets in addition to the embeddings."""
    vocabulary: VocabularyRules = VocabularyRules()

    @property
    def label_column(self) -> str:
        """Column of the label."""
        return self.label

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """The columns of `dense_features`."""
        return self.dense_features


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


class _Texts(DividedData):
    """Sources made of texts."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """File or folder of texts; null: the documentation in Python's own standard library."""
    text: str = "text"
    """Column of the text, of CSV and Parquet."""


class Text(_Texts):
    """Labelled texts as words. Column `words`: the words of a text in order."""

    kind: Literal["text"] = "text"
    label: str = "label"
    """Column of the name of a text's class, of CSV and Parquet."""
    max_length: Count | None = None
    """Only the first words of a text, up to this number; null: all."""
    train_examples: Count | None = None
    """Number of training examples to use; the vocabulary still comes from the whole training split. null: all."""
    vocabulary: VocabularyRules = VocabularyRules()

    @property
    def label_column(self) -> str:
        """Column of the class's number."""
        return self.label

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings that belong to another kind of split, and classes as ratings."""
        return where_known(data_rules.split_faults(self), data_rules.text_faults(spec))


class SkipGram(_Texts):
    """Pairs of words of texts, for skip-gram with negative sampling (Mikolov et al. 2013).

    Columns: `center`, `context` (they share a vocabulary), label: 1 for two words that occur together, 0 for a
    center with a random word.
    """

    label_column: ClassVar[str] = "together"

    kind: Literal["skipgram"] = "skipgram"
    min_count: Count = 5
    """Rarer words are removed from the texts."""
    max_words: Count | None = None
    """Keep only this many of the most frequent words; null: all."""
    context_window: Count = 10
    """Farthest context on each side; each center draws its own distance from 1 to this."""
    subsample: NonNegative = 3e-4
    """t: an occurrence of a word of frequency f is dropped with probability 1 - sqrt(t / f). 0: none is."""
    negatives: WholeNumber = 5
    """Random words drawn for each positive pair."""
    power: NonNegative = 0.75
    """Negatives are drawn with p ~ count ^ power."""
    seed: WholeNumber = 0
    """Seed of all random draws, independent of the run's seed."""


class Place(StrEnum):
    """The meaning of a field of a triple."""

    HEAD = "head"
    RELATION = "relation"
    TAIL = "tail"


SOURCE, RELATION, CANDIDATES = "source", "relation", "candidates"
"""Id columns of the queries of a knowledge graph."""
INVERSE = "inverse"
"""Dense column of the queries, if inverse relations share the rows of their relations."""


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
    seed: WholeNumber = 0
    """Seed of the draw, independent of the run's seed."""
    train: TrainedTriples = TrainedTriples.ALL
    """known | new | all: the training triples to use."""


class Triples(_Source):
    """A knowledge graph: a folder with the files train, valid and test (.txt or .tsv), a tab-separated triple a line.

    Each triple is two queries: tail prediction and head prediction. Columns: `source`, the known entity; `relation`;
    `candidates`, the entities to rank. Label: the position of the answer among the candidates.
    """

    label_column: ClassVar[str] = "answer"

    kind: Literal["triples"] = "triples"
    path: Annotated[str, Field(min_length=1)]
    columns: tuple[Place, Place, Place] | None = None
    """Order of the three fields of a line; null: the two with the most values in common are head and tail."""
    reciprocal: bool = True
    """Heads are predicted as tails of the inverse relation, which has its own row in the table of relations
    (Lacroix et al. 2018). False: the model inverts the relation's vector where the column `inverse` is 1."""
    negatives: Count | None = None
    """Number of random negatives per training query; null: all other entities (1-vs-all)."""
    new_entities: NewEntities | None = None
    """Some entities count as new; null: none."""

    @field_validator("columns")
    @classmethod
    def _each_once(cls, columns: tuple[Place, ...] | None) -> tuple[Place, ...] | None:
        if columns is not None and len(set(columns)) < len(Place):
            raise ValueError("head, relation and tail must each be named once")
        return columns

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """`inverse`, 1 for head prediction, if inverse relations share the rows of their relations."""
        return () if self.reciprocal else (INVERSE,)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking, and tables that don't fit entities and relations."""
        return data_rules.triples_faults(spec, {SOURCE: "entities", RELATION: "relations", CANDIDATES: "entities"})


Data = Annotated[Clicks | RecBole | CSV | Parquet | Text | SkipGram | Triples, Field(discriminator="kind")]
