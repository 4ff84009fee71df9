"""Sources of pretrained values: files with their formats, generated samples, checkpoints; and the parent of a run."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import BY_KIND, Count, Dim, RowCount, Seed, Spec, is_null, where_known
from embexp.specs.transforms import Fit, Needs, Scale, Transform, replaced

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


@dataclass(frozen=True)
class Reader:
    """How files of a format are read.

    Attributes:
        implementation: `module:function`, from a path and a `Wanted` to a `Stored` (`embexp.vectors.stored`). Of a
            streamed format: the conversion of a stream into the cache, see `embexp.vectors.word_vectors`.
        suffixes: of the files that have this format unless the config names another.
        streamed: it is read from beginning to end, so that it may be compressed, and is converted into the cache.
        token_column: a column or a dataset may hold the tokens.
    """

    implementation: str
    suffixes: tuple[str, ...] = ()
    streamed: bool = False
    token_column: bool = False


class Format(StrEnum):
    """The formats of files of vectors, with their readers."""

    reader: Reader

    def __new__(cls, name: str, *reader: Reader) -> Format:
        """A name with its one reader; `Format("npy")`, as everywhere, finds the member of that name."""
        member = str.__new__(cls, name)
        member._value_, (member.reader,) = name, reader
        return member

    NPY = "npy", Reader("embexp.vectors.array_files:read_npy", (".npy",))
    NPZ = "npz", Reader("embexp.vectors.array_files:read_npz", (".npz",))
    TEXT = "text", Reader("embexp.vectors.word_vectors:convert_text", (".txt", ".vec", ".tsv"), streamed=True)
    """A token and its numbers per line; a header line is detected."""
    GLOVE = "glove", Reader("embexp.vectors.word_vectors:convert_text", streamed=True)
    """The same, without a header line."""
    WORD2VEC = "word2vec", Reader("embexp.vectors.word_vectors:convert_text", streamed=True)
    """The same, with a header line: rows and dimension."""
    FASTTEXT = "fasttext", Reader("embexp.vectors.word_vectors:convert_text", streamed=True)
    """As word2vec."""
    WORD2VEC_BINARY = (
        "word2vec_binary",
        Reader("embexp.vectors.word_vectors:convert_word2vec_binary", (".bin",), streamed=True),
    )
    SAFETENSORS = "safetensors", Reader("embexp.vectors.array_files:read_safetensors", (".safetensors",))
    HDF5 = "hdf5", Reader("embexp.vectors.array_files:read_hdf5", (".h5", ".hdf5"), token_column=True)
    PARQUET = "parquet", Reader("embexp.vectors.columnar:read_parquet", (".parquet",), token_column=True)
    ARROW = "arrow", Reader("embexp.vectors.columnar:read_arrow", (".arrow", ".feather"), token_column=True)
    CHECKPOINT = "checkpoint", Reader("embexp.vectors.array_files:read_checkpoint", (".index",))


class InvalidText(StrEnum):
    """How to handle a token that is not UTF-8."""

    ERROR = "error"
    REPLACE = "replace"
    """Each invalid byte becomes U+FFFD."""
    SKIP = "skip"
    """The row is skipped."""


class NonFinite(StrEnum):
    """How to handle NaN, infinities and numbers beyond float32."""

    ERROR = "error"
    ZERO = "zero"
    """The number becomes 0."""
    SKIP = "skip"
    """The row is skipped, so that its token counts as missing."""
    KEEP = "keep"
    """Values are not checked."""


class HeaderCount(StrEnum):
    """How to handle a file with a wrong number of rows in its header line."""

    ERROR = "error"
    IGNORE = "ignore"


class Match(StrEnum):
    """How tokens of the vocabulary are matched with tokens of the file."""

    EXACT = "exact"
    """Equal text."""
    LOWER = "lower"
    """Or equal in lower case."""
    NORMALISED = "normalised"
    """Or equal after NFKC normalisation, case folding and unified white space."""


class MissingRows(StrEnum):
    """Values of rows that are not in the file."""

    INITIALIZER = "initializer"
    """The table's own initializer."""
    MEAN = "mean"
    """The mean of the file's rows."""
    NORMAL = "normal"
    """From a normal distribution with the mean and variance of each column of the file."""
    UNIFORM = "uniform"
    """From a uniform distribution with the mean and variance of each column of the file."""
    SAMPLED = "sampled"
    """From a normal distribution with the mean and the covariance of the file's rows."""
    SUBWORDS = "subwords"
    """The mean of the rows of a token's parts, or else of its n-grams; the initializer's where the file has neither."""
    NEIGHBOURS = "neighbours"
    """The mean of the rows of related tokens; the initializer's where the file has none."""
    ZEROS = "zeros"

    @property
    def composed(self) -> bool:
        """Whether they are made of rows that the file has for other tokens."""
        return self in (MissingRows.SUBWORDS, MissingRows.NEIGHBOURS)


class Rows(StrEnum):
    """Whose tokens have rows of their own."""

    DATA = "data"
    """Those of the training split."""
    FILE = "file"
    """Those of the file, in its order."""
    UNION = "union"
    """Those of the training split, then the file's others."""


class Join(StrEnum):
    """How rows of several files become one."""

    PREFERENCE = "preference"
    """A row is that of the first file that has its token."""
    COLUMNS = "columns"
    """A row has the numbers of all files, one behind the other; 0 for those of a file that lacks its token."""


class NoPretrained(Spec):
    """Values come from the initializer."""

    kind: Literal["none"] = "none"


class _Place(Spec):
    """Where a matrix on disk is, and its tokens."""

    format: Format | None = None
    """Format of the file; null: by its suffix."""
    key: str | None = None
    """Name of the matrix, in a file with several."""
    token_column: str | None = None
    """Column or dataset of the tokens, in a file with several."""
    tokens_file: str | None = None
    """File with a token per line, for a matrix without tokens."""


class _Matrix(_Place):
    """How a matrix on disk is read and fitted to a table."""

    match: Match = Match.EXACT
    """How tokens are matched. Rows of a file without tokens are matched by number."""
    missing: MissingRows = MissingRows.INITIALIZER
    """Values of rows that are not in the file, such as the OOV row."""
    missing_neighbours: Annotated[str, Field(min_length=1)] | None = Field(default=None, exclude_if=is_null)
    """Of missing=neighbours: file with a token, a tab and a related token per line."""
    transform: Transform = Field(default=(), exclude_if=operator.not_)
    """Steps from the file's rows to the table's, in order."""
    fit: Fit = Field(default=Fit.FILE, exclude_if=lambda value: value is Fit.FILE)
    """The rows that steps take means, deviations and components from."""
    non_finite: NonFinite = NonFinite.ERROR
    """How to handle NaN and infinities."""
    invalid_text: InvalidText = InvalidText.ERROR
    """How to handle tokens that are not UTF-8."""
    header_count: HeaderCount = HeaderCount.ERROR
    """How to handle a text file with a wrong number of rows in its header line."""

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, value: Any) -> Any:
        return replaced(value) if isinstance(value, Mapping) else value

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A scale without a deviation, rows that nothing is fitted to, and related tokens that lack or have no use."""
        return where_known(_no_deviation(self, spec, scope), _nothing_fitted(self, scope), _neighbours(self, scope))


class OtherFile(_Place):
    """One more file of vectors; settings that it has not are those of the first."""

    path: Annotated[str, Field(min_length=1)]
    """The file."""


def _listed(value: object) -> object:
    """Files as they may be written: one or several, each a path or a mapping."""
    entries = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    return [{"path": each} if isinstance(each, str) else each for each in entries]


class File(_Matrix):
    """Values come from a matrix on disk, for the tokens that it has."""

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]
    """The file."""
    others: Annotated[
        tuple[OtherFile, ...],
        BeforeValidator(_listed, json_schema_input_type=str | tuple[str | dict[str, Any], ...] | None),
        Field(max_length=63, exclude_if=operator.not_),
    ] = ()
    """More files, of the same table."""
    join: Join = Field(default=Join.PREFERENCE, exclude_if=lambda value: value is Join.PREFERENCE)
    """How rows of several files become one."""
    vocabulary: Rows = Field(default=Rows.DATA, exclude_if=lambda value: value is Rows.DATA)
    """Whose tokens have rows: those of data that are to come may have vectors, too."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All files, in order."""
        return (self.path, *(other.path for other in self.others))

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Those of a matrix, a join of one file, and rows for its tokens where there is another vocabulary."""
        return where_known(super().faults(spec, scope), _one_file(self, scope), _other_vocabulary(self, spec, scope))


class Sample(_Matrix):
    """Values come from a matrix on disk: the user's file, or a generated file of random numbers."""

    kind: Literal["sample"] = "sample"
    path: Annotated[str, Field(min_length=1)] | None = None
    """The file; null: a file is generated in the cache, from a standard normal distribution."""
    rows: RowCount = 1000
    """Rows of the generated file."""
    dim: Dim = 1000
    """Dim of the generated file."""
    seed: Seed = 0
    """Seed of the generated file, independent of the run's seed."""


class SlotPolicy(StrEnum):
    """How the optimizer slots of restored rows are filled."""

    KEEP = "keep"
    """Restored with their row, if the optimizer is of the same kind."""
    INITIAL = "initial"
    """Initial values."""


class Checkpoint(Spec):
    """Values come from a finished run or a grown checkpoint: trained rows with their slots, matched by token."""

    kind: Literal["checkpoint"] = "checkpoint"
    path: Annotated[str, Field(min_length=1)]
    """The directory of the run, or of the grown checkpoint."""
    table: str | None = None
    """Which of its tables; null: the one of the same name. Only a table's own setting may name one."""
    match: Match = Match.EXACT
    """How tokens are matched."""
    missing: MissingRows = MissingRows.INITIALIZER
    """Values of rows that are not in the checkpoint."""
    slots: SlotPolicy = SlotPolicy.KEEP
    """How the optimizer slots of restored rows are filled; those of new rows always get initial values."""
    dense: bool | None = None
    """Whether the dense part is restored, too; null: true for the top-level setting, false for a table's own."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """One table's rows for all tables, or a second source of the dense part."""
        return where_known(_table_of_all(self, scope), _second_dense_part(self, spec, scope), _composed(self, scope))


def named_files(place: str, setting: File | Sample) -> dict[str, str]:
    """The files that a setting names, by config path.

    Args:
        place: config path of the setting.
    """
    others = setting.others if isinstance(setting, File) else ()
    found = {f"{place}.missing_neighbours": setting.missing_neighbours}
    for path, each in ((place, setting), *((f"{place}.others.{n}", other) for n, other in enumerate(others))):
        found |= {f"{path}.path": each.path, f"{path}.tokens_file": each.tokens_file}
    return {path: file for path, file in found.items() if file is not None}


Pretrained = Annotated[NoPretrained | File | Sample | Checkpoint, BY_KIND]


def _no_deviation(setting: _Matrix, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
    """Rows scaled to the deviation of an initializer that has none."""
    constant = [name for name in scope.tables if spec.tables[name].initializer.kind == "constant"]
    for place, step in enumerate(setting.transform):
        if isinstance(step, Scale) and step.std is None and constant:
            rule = f"null means the initializer's standard deviation, but the initializer of {constant[0]} is constant"
            remedy = "write {scale: {std: 0.05}}, or choose another initializer"
            yield Fault(f"{scope.path}.transform.{place}.std", "null", rule, remedy)


def _composed(setting: Checkpoint, scope: Scope) -> Iterator[Fault]:
    if setting.missing.composed:
        rule = "such rows are composed from rows of a file, but this is a checkpoint"
        yield Fault(f"{scope.path}.missing", repr(setting.missing.value), rule, "choose another value, such as sampled")


def _neighbours(setting: _Matrix, scope: Scope) -> Iterator[Fault]:
    wanted, given = setting.missing is MissingRows.NEIGHBOURS, setting.missing_neighbours
    if wanted and given is None:
        rule = "missing=neighbours reads the neighbours from a file"
        remedy = f"set {scope.path}.missing_neighbours=FILE, with a token, a tab and a related token per line"
        yield Fault(f"{scope.path}.missing_neighbours", "null", rule, remedy)
    if given is not None and not wanted:
        rule = f"it is read only with missing=neighbours, but missing is {setting.missing}"
        yield Fault(f"{scope.path}.missing_neighbours", repr(given), rule, f"set {scope.path}.missing=neighbours")


def _nothing_fitted(setting: _Matrix, scope: Scope) -> Iterator[Fault]:
    if setting.fit is not Fit.FILE and not any(step.required() is not Needs.NOTHING for step in setting.transform):
        rule = "it applies only to fitted steps, but transform has none"
        yield Fault(f"{scope.path}.fit", repr(setting.fit.value), rule, "leave it out")


def _one_file(setting: File, scope: Scope) -> Iterator[Fault]:
    if setting.join is not Join.PREFERENCE and not setting.others:
        rule = f"it applies only to several files, but {scope.path}.others names none"
        yield Fault(f"{scope.path}.join", repr(setting.join.value), rule, f"set {scope.path}.others=[FILE]")


def _other_vocabulary(setting: File, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
    """Rows for the tokens of a file, of tables whose rows are given otherwise."""
    path, value = f"{scope.path}.vocabulary", repr(setting.vocabulary.value)
    if setting.vocabulary is Rows.DATA:
        return
    if len(scope.tables) > 1:
        rule = (
            f"the tokens of a file can be the rows of one table only, but {', '.join(scope.tables)} all take "
            f"theirs from it"
        )
        yield Fault(path, value, rule, "choose pretrained@tables.NAME.pretrained=file for that table")
    if spec.data.token_rules is None:
        yield Fault(path, value, f"data={spec.data.kind} has its own vocabularies", "leave it at data")
    for name in scope.tables:
        own = spec.tables[name].vocabulary.own
        for key in ("path", "hash_buckets"):
            if key in own:
                yield Fault(
                    path,
                    value,
                    f"tables.{name}.vocabulary.{key} already decides which rows there are",
                    "remove one of the two",
                )


def _table_of_all(setting: Checkpoint, scope: Scope) -> Iterator[Fault]:
    if setting.table is not None and not scope.own:
        rule = (
            "each table restores the rows of the table with the same name; only a table's own setting may "
            "name another one"
        )
        remedy = "leave it null, and choose pretrained@tables.NAME.pretrained=checkpoint for the table"
        yield Fault(f"{scope.path}.table", repr(setting.table), rule, remedy)


def _second_dense_part(setting: Checkpoint, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
    """There is one dense part, and it comes from one checkpoint."""
    settings = spec.dense_from()
    first, taken = next(iter(settings.items()), (scope.path, setting))
    if scope.path in settings and setting.path != taken.path:
        rule = f"the dense part is restored from one checkpoint only, but {first} already restores it from {taken.path}"
        remedy = f"set {scope.path}.dense=false or {first}.dense=false"
        yield CombinationFault(f"{scope.path}.dense", "true", rule, remedy)


class Schedules(StrEnum):
    """Where learning-rate schedules begin."""

    RESTART = "restart"
    """At step 0 of this run."""
    CONTINUE = "continue"
    """At the step at which the parent ended."""


class Classes(StrEnum):
    """What a label with a class is that the parent does not know."""

    SAME = "same"
    """An error."""
    EXTEND = "extend"
    """A further class: the last layer grows."""


class Gone(Spec):
    """Tokens that have not been seen for a while lose their rows."""

    after: Count
    """Number of runs in a row, this one included, whose training data lacked a token before its row goes."""


class Parent(Spec):
    """What a run takes over from an earlier one, its parent, of the same columns."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """Directory of the parent; null: the run has none, and nothing else here has an effect."""
    gone: Literal["keep"] | Gone = "keep"
    """Rows of tokens that the data no longer hold: all are kept, or they go after some runs."""
    classes: Classes = Classes.SAME
    """What a label with an unknown class is."""
    schedules: Schedules = Schedules.RESTART
    """Where learning-rate schedules begin."""
    replay: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    """Share of the training examples that are drawn from the training data of the parent and of the runs before it."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A parent whose rows the run does not take."""
        if self.path is None:
            return
        yield from _no_replay(self, spec, scope)
        if isinstance(self.gone, Gone) and spec.data.token_rules is None:
            rule = f"rows of data={spec.data.kind} can't be dropped: only columns and texts support that"
            yield Fault(f"{scope.path}.gone", f"after {self.gone.after}", rule, "set it to keep")
        top = spec.pretrained
        if not isinstance(top, Checkpoint) or top.path != self.path:
            rule = "a run that continues another one takes its rows and its dense part from it"
            remedy = f"choose pretrained=checkpoint pretrained.path={self.path}, or run embexp continue {self.path}"
            yield Fault(f"{scope.path}.path", repr(self.path), rule, remedy)


def _no_replay(parent: Parent, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
    """Earlier examples, where ids have weights."""
    weighted = [name for name, each in spec.features.items() if each.weights is not None]
    if parent.replay and weighted:
        rule = f"earlier examples are mixed in without id weights, but feature {weighted[0]} has weights"
        yield Fault(f"{scope.path}.replay", str(parent.replay), rule, "set it to 0")


def is_absent(parent: Parent) -> bool:
    """For the field of specs, which records lack where there is no parent."""
    return is_null(parent.path)
