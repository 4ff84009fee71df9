"""What sources of data share: the order of examples, splits, and how a model gets numeric columns."""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, assert_never

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
    ExampleCount,
    Fraction,
    Number,
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
        raise ValueError(f"as a word it must be {', '.join(words)} or {last}{meant}")
    return DELIMITERS[word]


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
            raise broken("transform names each transform once", "transform")
        if len(several) > 1 and Transform.NONE in several:
            raise broken("transform none stands alone", "transform")
        if len(several) > 1 and Transform.QUANTILE in several:
            raise broken("transform quantile stands alone: ranks are the same before and after the others", "transform")
        if several[:2] == (Transform.STANDARDIZE, Transform.LOG1P):
            raise broken("transform log1p comes before standardize: it is made for counts and amounts", "transform")
        if self.indicator and not self.may_be_missing:
            rule = "indicator needs missing, as with missing: error no value may be missing (zero fits most)"
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
            raise ValueError("it must be a list of names of columns, or a mapping of names")
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
            rule = "validation and test must leave something to train on (validation + test < 1)"
            raise broken(rule, "validation", "test")
        if self.kind is SplitKind.LEAVE_ONE_OUT and self.group is None:
            raise broken("leave_one_out needs group, the column that names the user", "group")
        if self.within is not None and self.kind is not SplitKind.RANDOM:
            raise broken(f"within belongs to kind random, not to {self.kind}", "kind", "within")
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
    validation: Paths | None = None
    test: Paths | None = None

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
        rule = f"{unknown[0]} is no split: files are given for train, validation and test{meant}"
        raise broken(rule, str(unknown[0]))
    filled = {key: paths for key, paths in value.items() if paths is not None}
    files = {key: tuple(paths) if isinstance(paths, list) else paths for key, paths in filled.items()}
    if "train" not in files:
        raise ValueError("train must have files: vocabularies are made from them")
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
                raise broken("fold counts from 0 and must be below folds", "folds", "fold")
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
        rule = f"data.path gives the files of {named}, and {kind} divides all examples"
        remedy = "set data.split.kind=random, or time, by which what has no files is drawn from those of train"
        yield Fault("data.split.kind", repr(str(kind)), rule, remedy)
    users: dict[str, list[str]] = {}
    for name, paths in data.given.items():
        for path in paths:
            users.setdefault(path, []).append(name)
    for path, names in users.items():
        if len(names) > 1:
            yield Fault(
                "data.path", repr(path), f"it is given for {' and '.join(names)}", "give each split its own files"
            )


def _folds(data: DividedData, key: str) -> Iterator[Fault]:
    value, kind = getattr(data, key), data.split.kind
    if value is not None and kind != "folds":
        rule = f"only a split of kind folds has it, and this split is of kind {kind}"
        yield Fault(f"data.{key}", str(value), rule, "set data.split.kind=folds, or remove it")


def _group(data: DividedData) -> Iterator[Fault]:
    group, kind = data.split.group, data.split.kind
    if group is not None and data.split.group_column is None:
        rule = f"only leave_one_out and within: user have it, and this split is of kind {kind}"
        within = "data.split.within=user, " if kind is SplitKind.RANDOM else ""
        remedy = f"set {within}data.split.kind=leave_one_out, or this to null"
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
