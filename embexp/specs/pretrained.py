"""Where a table's initial values come from, when not from its initializer alone."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Count, Spec, WholeNumber
from embexp.specs.partial import where_known
from embexp.specs.vectors import Format, HeaderCount, InvalidText, NonFinite

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Match(StrEnum):
    """When a token of the vocabulary and a token of the file are the same."""

    EXACT = "exact"
    """The same text."""
    LOWER = "lower"
    """Else the same in lower case."""
    NORMALISED = "normalised"
    """Else the same after NFKC normalisation and case folding, with all white space alike."""


class MissingRows(StrEnum):
    """What fills a row that the file has nothing for."""

    INITIALIZER = "initializer"
    """The table's own initializer."""
    MEAN = "mean"
    """The mean of the file's rows."""
    NORMAL = "normal"
    """Drawn from a normal distribution with the mean and the variance that each column of the file has."""
    UNIFORM = "uniform"
    """The same, from a uniform distribution."""
    ZEROS = "zeros"


class Project(StrEnum):
    """What makes rows as long as the table's where the file's are not; rows of the right length stay as they are."""

    NONE = "none"
    """Rows of another length are an error."""
    TRUNCATE = "truncate"
    """The first numbers of a row."""
    ZERO_PAD = "zero_pad"
    """Zeros behind a row."""
    PCA = "pca"
    """The first principal components of all rows of the file."""


class NoPretrained(Spec):
    """Values come from the initializer."""

    kind: Literal["none"] = "none"


class _Matrix(Spec):
    """How a matrix on disk is read and fitted to a table."""

    format: Format | None = None
    """How it is written; null: as its suffix says."""
    key: str | None = None
    """Name of the matrix, in a file that may hold several."""
    token_column: str | None = None
    """Column, or dataset, of tokens in a file that may hold several."""
    tokens_file: str | None = None
    """A token per line, for a file that has none."""
    match: Match = Match.EXACT
    """How the tokens of the vocabulary are found among the file's. A file without tokens is taken by position."""
    missing: MissingRows = MissingRows.INITIALIZER
    """What fills rows that the file has nothing for, the OOV row among them."""
    project: Project = Project.NONE
    """What makes rows as long as the table's where the file's are not."""
    non_finite: NonFinite = NonFinite.ERROR
    """What becomes of NaN and infinities."""
    invalid_text: InvalidText = InvalidText.ERROR
    """What becomes of tokens that are not UTF-8."""
    header_count: HeaderCount = HeaderCount.ERROR
    """What becomes of a text file whose header line names another number of rows than follow."""


class File(_Matrix):
    """Values come from a matrix on disk, as far as it has rows for what the data holds."""

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]
    """The file."""


class Sample(_Matrix):
    """Values come from a matrix on disk: a file of one's own, or one of random numbers where none is at hand."""

    kind: Literal["sample"] = "sample"
    path: Annotated[str, Field(min_length=1)] | None = None
    """The file; null: one is made in the cache, from a standard normal distribution."""
    rows: Count = 1000
    """Rows of the file that is made."""
    dim: Count = 1000
    """Numbers in each of these rows."""
    seed: WholeNumber = 0
    """Seed of these numbers, apart from the run's."""


class SlotPolicy(StrEnum):
    """What becomes of a row's slots in the optimizer."""

    KEEP = "keep"
    """They go with their row, where the optimizer is of the same kind."""
    INITIAL = "initial"
    """Every slot begins at its initial value."""


class Checkpoint(Spec):
    """Values come from a finished run or a grown checkpoint: trained rows with their slots, matched by token."""

    kind: Literal["checkpoint"] = "checkpoint"
    path: Annotated[str, Field(min_length=1)]
    """The directory of the run, or of the grown checkpoint."""
    table: str | None = None
    """Which of its tables; null: the one of the same name. Only a table's own setting may name one."""
    match: Match = Match.EXACT
    """How the tokens of the vocabulary are found among the checkpoint's."""
    missing: MissingRows = MissingRows.INITIALIZER
    """What fills rows that the checkpoint has nothing for."""
    slots: SlotPolicy = SlotPolicy.KEEP
    """What becomes of the optimizer's slots; those of new rows begin at their initial values in any case."""
    dense: bool | None = None
    """Whether the dense part is taken over too; null: it is by the top-level setting, not by a table's own."""

    @property
    def project(self) -> Project:
        """Trained rows are never projected to another length."""
        return Project.NONE

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """One table's rows for all tables, or a second dense part."""
        return where_known(_table_of_all(self, scope), _second_dense_part(self, spec, scope))


Pretrained = Annotated[NoPretrained | File | Sample | Checkpoint, Field(discriminator="kind")]


def _table_of_all(setting: Checkpoint, scope: Scope) -> Iterator[Fault]:
    if setting.table is not None and not scope.own:
        yield Fault(
            f"{scope.path}.table",
            repr(setting.table),
            "tables take the rows of the table of the same name, and only a table's own setting names another",
            "leave it null, and choose pretrained@tables.NAME.pretrained=checkpoint for the table",
        )


def _second_dense_part(setting: Checkpoint, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
    """There is one dense part, and it comes from one checkpoint."""
    settings = spec.dense_from()
    first, taken = next(iter(settings.items()), (scope.path, setting))
    if scope.path in settings and setting.path != taken.path:
        yield CombinationFault(
            f"{scope.path}.dense",
            "true",
            f"the dense part comes from one checkpoint, and {first} takes that of {taken.path}",
            f"set {scope.path}.dense=false, or {first}.dense=false",
        )
