"""Sources of data: files with columns, texts, knowledge graphs, and a synthetic log.

What sources of data share: the order of examples, splits, and how a model gets numeric columns.
"""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, assert_never

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from embexp.errors import Fault
from embexp.specs.base import (
    ANY,
    Choice,
    Dim,
    ExampleCount,
    Fraction,
    Length,
    NamedCode,
    NonNegative,
    Number,
    Positive,
    RowCount,
    Seed,
    Spec,
    WholeNumber,
    broken,
    for_each,
    is_null,
    known_or,
    summarize_names,
    where_known,
)
from embexp.specs.tasks import Labels
from embexp.specs.vocabularies import Steps, VocabularyRules

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

DataSetName = Annotated[str, Field(min_length=1)]
"""Name of a public data set; `embexp fetch` lists them."""
_DIRECTIVES = "YymdHIMSpbBj"


DELIMITERS = {
    "comma": ",",
    "tab": "\t",
    "semicolon": ";",
    "space": " ",
    "pipe": "|",
    "colons": "::",
    "whitespace": "whitespace",
}
"""Words for delimiters, most of which are hard to type on a command line."""


def _delimiter(value: object) -> object:
    """Replaces words for delimiters, and the tab as it is written in many languages.

    Raises:
        ValueError: it is made of three letters or more, and none of the words.
    """
    if not isinstance(value, str):
        return value
    if len(value) < 3 or not value.isalpha():
        return "\t" if value == "\\t" else value
    if (word := value.lower()) not in DELIMITERS:
        *words, last = DELIMITERS
        near = difflib.get_close_matches(word, DELIMITERS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"a delimiter given as a word must be {', '.join(words)} or {last}{meant}")
    return DELIMITERS[word]


def _encoding(name: str) -> str:
    """The name that Python has for an encoding of text."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # a codec of something else than text
    except (LookupError, ValueError):
        raise ValueError("it must be a text encoding that Python knows, such as utf-8, latin-1 or utf-16") from None
    return found.name


def _strptime(form: str) -> str:
    """A format of dates without directives that readers of several languages take differently."""
    directives = re.findall("%(.?)", form)
    if not directives or not set(directives) <= set(_DIRECTIVES):
        listed = ", ".join(f"%{each}" for each in _DIRECTIVES)
        raise ValueError(f"it must be a date format such as %d.%m.%Y %H:%M; the supported directives are {listed}")
    return form


Delimiter = Annotated[str, BeforeValidator(_delimiter), Field(min_length=1)]
Encoding = Annotated[str, AfterValidator(_encoding)]
UTF8 = "utf-8"


DateFormat = Annotated[str, AfterValidator(_strptime)]


def _label_value(value: object) -> object:
    """The name that a number or a truth value has as a label."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else value


LabelValue = Annotated[
    Annotated[str, Field(min_length=1)] | None, BeforeValidator(_label_value), Field(exclude_if=is_null)
]
"""The value of a label that names a class, as text; not recorded where it is null."""


POSITIVE = {"yes": "no", "y": "n", "true": "false", "t": "f"}
"""Values that mean label 1 without `data.positive`, and those that then mean 0; in any case."""


class Transform(StrEnum):
    """What is done to the values of a numeric column."""

    NONE = "none"
    LOG1P = "log1p"
    """sign(x) · ln(1 + |x|), which is ln(1 + x) for counts, and defined for negative numbers too."""
    STANDARDIZE = "standardize"
    """(x - mean) / standard deviation."""
    QUANTILE = "quantile"
    """The rank of a value among those of the training split, from 0 to 1, as scikit-learn's `QuantileTransformer`
    has it: 1,000 quantiles, linear between them."""


class Fill(StrEnum):
    """What stands for a missing value."""

    ERROR = "error"
    """Nothing: a missing value ends the run."""
    ZERO = "zero"
    MEAN = "mean"
    MEDIAN = "median"


def _short(value: Any) -> Any:
    """`log1p` and `[log1p, standardize]` are short for a mapping with that transform."""
    return {"transform": value} if isinstance(value, str | list | tuple) else value


class NumericColumn(Spec):
    """How a model gets the values of a numeric column. All that is fitted is fitted on the training split."""

    transform: Transform | tuple[Transform, ...] = Transform.NONE
    """One, or several in their order."""
    missing: Fill | Number = Fill.ERROR
    """What a missing value counts as, before the transform: a statistic of the values that are there, or a number."""
    indicator: bool = False
    """A further column, behind this one, that is 1 where the value is missing, else 0."""

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """Those that change anything."""
        several = (self.transform,) if isinstance(self.transform, Transform) else self.transform
        return tuple(each for each in several if each is not Transform.NONE)

    @property
    def may_be_missing(self) -> bool:
        """Whether there is something to stand for a missing value."""
        return self.missing is not Fill.ERROR

    @property
    def width(self) -> int:
        """How many columns the model gets for it."""
        return 1 + self.indicator

    @property
    def described(self) -> str:
        """Its settings for people, such as `standardize, missing mean, indicator`; "" for a plain column."""
        parts = [" of ".join(reversed(self.transforms))] if self.transforms else []
        parts += [f"missing {self.missing:g}" if isinstance(self.missing, float) else f"missing {self.missing}"] * (
            self.may_be_missing
        )
        return ", ".join([*parts, *["indicator"] * self.indicator])

    @property
    def plain(self) -> bool:
        """Whether the model gets the values as they are."""
        return not self.transforms and not self.may_be_missing

    @model_validator(mode="after")
    def _fits(self) -> NumericColumn:
        several = () if isinstance(self.transform, Transform) else self.transform
        if len(set(several)) < len(several):
            raise broken("each transform may be listed only once", "transform")
        if len(several) > 1 and Transform.NONE in several:
            raise broken("transform none can't be combined with others", "transform")
        if len(several) > 1 and Transform.QUANTILE in several:
            raise broken("transform quantile can't be combined with others: they don't change ranks", "transform")
        if several[:2] == (Transform.STANDARDIZE, Transform.LOG1P):
            raise broken(
                "transform log1p must come before standardize, because it is meant for counts and amounts", "transform"
            )
        if self.indicator and not self.may_be_missing:
            rule = "indicator needs missing: with missing: error, no value may be missing (zero suits most columns)"
            raise broken(rule, "indicator", "missing")
        return self


def _named(value: Any) -> Any:
    """A list of names, or nothing, as a mapping of names."""
    if value is None:
        return {}
    if not isinstance(value, list | tuple):
        return value
    for place, name in enumerate(value):
        if not isinstance(name, str):
            raise ValueError("it must be a list of column names, or a mapping by column name")
        if name in value[:place]:
            raise ValueError(f"it names column {name!r} twice")
    return {name: {} for name in value}


def _written(columns: dict[str, NumericColumn], write: SerializerFunctionWrapHandler) -> Any:
    """A list of names if that says all, as earlier versions recorded it."""
    return list(columns) if all(column == NumericColumn() for column in columns.values()) else write(columns)


NumericColumns = Annotated[
    dict[str, Annotated[NumericColumn, BeforeValidator(_short)]],
    BeforeValidator(_named, json_schema_input_type=tuple[str, ...] | dict[str, NumericColumn] | None),
    WrapSerializer(_written),
]
"""Numeric columns by name, in the order in which the model gets them. A list of names is a mapping without settings."""


class SplitKind(StrEnum):
    """How examples are divided into train, validation and test."""

    RANDOM = "random"
    TIME = "time"
    LEAVE_ONE_OUT = "leave_one_out"
    FOLDS = "folds"


class Within(StrEnum):
    """Of what a random split takes its shares, other than of all examples."""

    USER = "user"


class Split(Spec):
    """How examples are split into train, validation and test.

    random: by a seeded permutation, of all examples or of each user's. time: by `timestamp`, the latest examples test,
    those before them validate. leave_one_out: each user's latest example tests, the one before validates. folds: fold
    `data.fold` of `data.folds` tests, the rest trains; `validation` is a fraction of the rest.
    """

    kind: SplitKind = SplitKind.RANDOM
    validation: Fraction = 0.1
    """Fraction of the examples that validates (of the training split, for folds). leave_one_out: 0 is none, and any
    other value the example before the last."""
    test: Fraction = 0.1
    """Fraction of the examples that tests; for random and time."""
    within: Within | None = Field(default=None, exclude_if=is_null)
    """random: `user` takes the fractions of each user's examples, one of which trains at least; null: of all."""
    group: str | None = None
    """leave_one_out, and random within users: the column that names the user."""
    seed: Seed = 0
    """Seed of the split, independent of the run's seed, so that runs with other seeds have the same split."""

    @model_validator(mode="after")
    def _fit(self) -> Split:
        if self.kind in (SplitKind.RANDOM, SplitKind.TIME) and self.validation + self.test >= 1:
            rule = "validation and test must leave examples to train on (validation + test < 1)"
            raise broken(rule, "validation", "test")
        if self.kind is SplitKind.LEAVE_ONE_OUT and self.group is None:
            raise broken("leave_one_out needs group, the column that names the user", "group")
        if self.within is not None and self.kind is not SplitKind.RANDOM:
            raise broken(f"within works only with kind random, not with {self.kind}", "kind", "within")
        if self.within is not None and self.group is None:
            raise broken("within needs group, the column that names the user", "within", "group")
        return self

    @property
    def by_time(self) -> bool:
        """Whether the test split depends on timestamps."""
        return self.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT)

    @property
    def group_column(self) -> str | None:
        """The column of the users, each of whose examples are divided; None for other splits."""
        return self.group if self.kind is SplitKind.LEAVE_ONE_OUT or self.within is not None else None

    @property
    def validates(self) -> bool:
        """Whether there is a validation split."""
        return self.validation > 0

    @property
    def tests(self) -> bool:
        """Whether there is a test split."""
        return self.test > 0 or self.kind in (SplitKind.LEAVE_ONE_OUT, SplitKind.FOLDS)


class Source(Choice):
    """Keys of every source. Each also has a `label_column`, None if it has no labels."""

    if TYPE_CHECKING:
        kind: str

        @property
        def label_column(self) -> str | None:
            """Column of the label; None: there is none."""

    serving: ClassVar[str] = ""
    """`module:function` of further signatures of a served model, see `runs.serving`; "": there are none."""
    shuffle: bool = True
    """Read the training examples in a new order each epoch."""
    window: ExampleCount = 1_048_576
    """Size of the shuffle window in examples; bounds the memory of a pass over the data."""

    @property
    def further_labels(self) -> tuple[str, ...]:
        """Columns of numbers that an example has as labels besides that of `label_column`."""
        return ()

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """Numeric columns that the model gets in addition to the embeddings."""
        return ()

    @property
    def token_rules(self) -> VocabularyRules | None:
        """How vocabularies of tokens are built; None: the source has its own."""
        return None

    @property
    def token_steps(self) -> Steps | None:
        """How tokens are normalised; None: nobody has said whether they are."""
        return ()

    def remedy_for_lists(self, columns: Sequence[str]) -> str:
        """What to do where values of columns are lists that are written as text."""
        return "write them as lists, such as in Parquet, and not as text"

    @property
    def numeric_columns(self) -> Mapping[str, NumericColumn]:
        """How the model gets the values of `dense_columns`; those that are not here are as they are."""
        return {}

    @property
    def number_marks(self) -> tuple[str, str]:
        """The decimal point of numbers in text, and what separates their thousands, or ""."""
        return ".", ""

    def described_numbers(self) -> str:
        """The columns that the model does not get as they are, by their settings, for people."""
        alike: dict[str, list[str]] = {}
        for name, column in self.numeric_columns.items():
            alike.setdefault(column.described, []).append(name)
        return "; ".join(f"{summarize_names(names)}: {settings}" for settings, names in alike.items() if settings)

    @property
    def dense_width(self) -> int:
        """How many numbers the model gets of an example: one for each dense column, and indicators."""
        settings = self.numeric_columns
        return sum(settings[name].width if name in settings else 1 for name in self.dense_columns)

    def described_split(self) -> str:
        """A description of the split for people; "" of a source that comes with its splits."""
        return ""

    def holds_one_id(self, column: str) -> bool:
        """Whether a column holds one id per example; False if that depends on a file's header."""
        return False


Paths = str | Annotated[tuple[str, ...], Field(min_length=1)]
"""A file, folder or pattern of files, or several of them."""


class GivenFiles(Spec):
    """Files that are divided already: those of each split. A split without files is drawn from those of train."""

    train: Paths
    """The training files."""
    validation: Paths | None = None
    """The validation files; null: examples drawn from the training files."""
    test: Paths | None = None
    """The test files; null: examples drawn from the training files."""

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The paths of each split that has some, by name; train comes first."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: (paths,) if isinstance(paths, str) else paths for name, paths in found.items() if paths}


def given(value: object) -> object:
    """A mapping as `GivenFiles`; other values as they are.

    Raises:
        ValueError: a key is none of the splits, there is nothing to train on, or a value is no path.
    """
    if not isinstance(value, Mapping):
        return value
    names = list(GivenFiles.model_fields)
    if unknown := [key for key in value if key not in names]:
        near = difflib.get_close_matches(str(unknown[0]), names, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        rule = f"{unknown[0]} is not a split: give files for train, validation and test{meant}"
        raise broken(rule, str(unknown[0]))
    filled = {key: paths for key, paths in value.items() if paths is not None}
    files = {key: tuple(paths) if isinstance(paths, list) else paths for key, paths in filled.items()}
    if "train" not in files:
        raise ValueError("train must have files, because vocabularies are built from them")
    for key, paths in files.items():
        if not paths or not all(
            isinstance(path, str) and path for path in ((paths,) if isinstance(paths, str) else paths)
        ):
            raise ValueError(f"{key} must be a path, or a list of paths")
    return GivenFiles(**files)


class DividedData(Source):
    """Sources whose examples are split by `split`; other sources come with their splits.

    With files for validation or test (`GivenFiles`), only what has no files is drawn, from those of train.
    """

    folds: Annotated[int, Field(ge=2, le=ANY, strict=True)] | None = None
    """Number of folds of a k-fold split."""
    fold: WholeNumber | None = None
    """The fold that tests, from 0."""
    split: Split = Split.model_construct()

    @model_validator(mode="after")
    def _folds(self) -> DividedData:
        if self.split.kind is SplitKind.FOLDS:
            if self.folds is None or self.fold is None:
                raise broken("split.kind=folds needs data.folds and data.fold", "folds", "fold")
            if self.fold >= self.folds:
                raise broken("fold counts from 0 and must be less than folds", "folds", "fold")
        return self

    @property
    def given(self) -> dict[str, tuple[str, ...]]:
        """The paths of each split, if validation or test has files of its own; else empty."""
        path = known_or(None, lambda: getattr(self, "path", None))
        parts = path.parts if isinstance(path, GivenFiles) else {}
        return parts if len(parts) > 1 else {}

    @property
    def drawn(self) -> Split:
        """How the examples are divided that no files divide: all, or those of the training files."""
        drawn = [name for name in ("validation", "test") if name not in self.given]
        if not drawn:
            return Split(validation=0.0, test=0.0, seed=self.split.seed)
        shares = {name: getattr(self.split, name) if name in drawn else 0.0 for name in ("validation", "test")}
        return self.split.model_copy(update=shares)

    @property
    def validates(self) -> bool:
        """Whether there is a validation split."""
        return self.split.validates or "validation" in self.given

    @property
    def tests(self) -> bool:
        """Whether there is a test split."""
        return self.split.tests or "test" in self.given

    @property
    def time_column(self) -> str | None:
        """The column of the times by which a split divides; None: the source has no such column."""
        return None

    def described_split(self) -> str:
        """A description of the split for people, which names the columns that decide."""
        if self.given:
            return self._described_files()
        split = self.split
        by = "" if self.time_column is None else f"by {self.time_column}, "
        match split.kind:
            case SplitKind.FOLDS:
                return f"fold {self.fold} of {self.folds} tests, {split.validation:.0%} of the rest validates"
            case SplitKind.LEAVE_ONE_OUT:
                before = ", the one before validates" if split.validates else ""
                return f"{by}the last of each {split.group} tests{before}"
            case SplitKind.RANDOM:
                of = "" if split.within is None else f" of each {split.group}"
                return f"{split.validation:.0%}{of} validates, {split.test:.0%} tests, at random"
            case SplitKind.TIME:
                return f"{by}the last {split.test:.0%} test, the {split.validation:.0%} before validate"
            case _:
                assert_never(split.kind)

    def _described_files(self) -> str:
        verbs, split = {"validation": "validates", "test": "tests"}, self.split
        by = "" if self.time_column is None else f"by {self.time_column}, "
        how = f"{by}the last" if split.kind is SplitKind.TIME else "random"
        of = "the training files" if split.within is None else f"each {split.group} in the training files"
        return "; ".join(
            f"{', '.join(self.given[name])} {verb}"
            if name in self.given
            else f"{how} {share:.0%} of {of} {verb}"
            if (share := getattr(split, name))
            else f"nothing {verb}"
            for name, verb in verbs.items()
        )

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings that belong to another kind of split, or can't be combined with files of validation and test."""
        return where_known(_folds(self, "folds"), _folds(self, "fold"), _group(self), _given_faults(self))


def _given_faults(data: DividedData) -> Iterator[Fault]:
    if not data.given:
        return
    kind, named = data.split.kind, " and ".join(name for name in data.given if name != "train")
    if kind in (SplitKind.FOLDS, SplitKind.LEAVE_ONE_OUT):
        rule = f"data.path already gives the files of {named}, but {kind} divides all examples"
        remedy = "set data.split.kind to random or time: a split without files is then drawn from those of train"
        yield Fault("data.split.kind", repr(str(kind)), rule, remedy)
    users: dict[str, list[str]] = {}
    for name, paths in data.given.items():
        for path in paths:
            users.setdefault(path, []).append(name)
    for path, names in users.items():
        if len(names) > 1:
            yield Fault(
                "data.path",
                repr(path),
                f"this file is given for both {' and '.join(names)}",
                "give each split its own files",
            )


def _folds(data: DividedData, key: str) -> Iterator[Fault]:
    value, kind = getattr(data, key), data.split.kind
    if value is not None and kind != "folds":
        rule = f"only split kind folds uses it, but data.split.kind is {kind}"
        yield Fault(f"data.{key}", str(value), rule, "set data.split.kind=folds, or remove it")


def _group(data: DividedData) -> Iterator[Fault]:
    group, kind = data.split.group, data.split.kind
    if group is not None and data.split.group_column is None:
        rule = f"only leave_one_out and within: user use it, but data.split.kind is {kind}"
        within = "data.split.within=user, " if kind is SplitKind.RANDOM else ""
        remedy = f"set {within}data.split.kind=leave_one_out, or set this to null"
        yield Fault("data.split.group", repr(group), rule, remedy)


def mixed_tables(
    spec: RunSpec, what: Mapping[str, str], name: str, path: str, value: str, kinds: str
) -> Iterator[Fault]:
    """The ids of a feature identify other things than those of most features of its table, the first ones if equal."""
    feature = spec.features[name]
    held, all_held = what.get(feature.column or name), list(held_by(spec, what, feature.table))
    first = max(all_held, key=all_held.count, default=None)
    if held is not None and held != first:
        rule = f"its ids identify {held}, but those of table {feature.table!r} identify {first}"
        yield Fault(path, repr(value), rule, f"use separate tables for {kinds}")


def held_by(spec: RunSpec, what: Mapping[str, str], table: str) -> Iterator[str]:
    """What the ids of a table identify, by the columns of its features."""

    def of_feature(name: str) -> Iterator[str]:
        feature = spec.features[name]
        if feature.table == table and (held := what.get(feature.column or name)):
            yield held

    return for_each(lambda: spec.features, of_feature)


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
        yield Fault("data.label", "null", rule, "name the label column, or choose experiment=recommendation")
    if data.label is None and data.label_threshold is not None:
        rule = "there are no labels to apply the threshold to"
        yield Fault("data.label_threshold", f"{data.label_threshold:g}", rule, "set data.label, or set this to null")
    if data.positive is not None and (spec.task.labels is not Labels.BINARY or data.label_threshold is not None):
        yield Fault(
            "data.positive", repr(data.positive), "it applies only to task binary without a threshold", "set it to null"
        )
    if data.label is not None and recommends and data.label_threshold is None:
        rule = "a row is an interaction if its label is at least the threshold"
        remedy = "set it (1 for labels of 0 and 1); or set data.label=null if every row is an interaction"
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
            rule = f"{name}_age counts the days up to this date"
            yield Fault(f"data.dates.{name}.reference", "null", rule, "set it to the last date of the training data")


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
        rule = f"fields can't be quoted if the delimiter is {data.delimiter!r}"
        yield Fault("data.quoting", "true", rule, "leave it null, or choose a single-character delimiter")
    if data.thousands == data.decimal:
        rule = f"data.decimal is also {data.decimal!r}"
        yield Fault("data.thousands", repr(data.thousands), rule, "choose another character for one of them")
    if data.timestamp_format is not None and data.timestamp is None:
        yield Fault(
            "data.timestamp_format",
            repr(data.timestamp_format),
            "data.timestamp, whose format it describes, is not set",
        )


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
    implementation = "embexp.data.sources.columnar:parquet"


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
            rule = f"the data has {count} {held}, and each one needs a row"
            remedy = "set it to null to use the size of the vocabulary"
            yield Fault(f"tables.{name}.vocabulary_size", str(size), rule, remedy)

    yield from where_known(
        for_each(lambda: spec.features, weights),
        for_each(lambda: spec.features, mixed),
        for_each(lambda: spec.tables, small),
    )
