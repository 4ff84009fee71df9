"""`Source`: the interface of a source of examples. Each kind has a module in `embexp.data.sources`.

These modules are imported when a config is checked, so at their top they import neither NumPy nor Arrow nor TensorFlow;
methods that read all of the data import what they need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from embexp.data import datasets
from embexp.data.columns import Columns
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs.base import implementation
from embexp.specs.data import Data, SplitKind
from embexp.specs.tables import list_rule
from embexp.system import caching, digests
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from embexp.data.contract import Contract, FileTokens
    from embexp.data.examples import Encoded, Examples
    from embexp.data.files.arrow_columns import InMemory
    from embexp.data.vocabularies.vocabulary import Vocabulary

FORMAT = 2
"""Version of what the cache holds; raised when its meaning changes."""
HEAD_LINES = 1_000
"""Lines, or rows, of each file that are looked at before a run."""


@dataclass(frozen=True)
class Description:
    """A source as `plan` shows it.

    Attributes:
        headline: where the examples are from and how they are divided.
        ids_per_example: id column -> how many ids each example has, for columns that the source fills itself.
    """

    headline: str
    ids_per_example: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherFile:
    """A file, or folder, of the same form as those of a finished run, and what the run knew of its tokens.

    Attributes:
        vocabularies: of the run, by table.
        classes: names of the classes of the run, by label.
    """

    path: Path
    vocabularies: Mapping[str, Vocabulary]
    classes: Sequence[str] = ()


class Source(ABC):
    """Where the examples of a run come from.

    A scan takes it in two steps, each cached by content: `encode` reads the source once and writes what it holds as
    arrays; `divide` writes the splits that follow from it, and `learn` the vocabularies and rows.
    """

    data: Any
    """Its settings; those of sources that are divided here are `DividedData`."""
    no_other_file: ClassVar[str] = ""
    """Of a source whose examples are drawn: why no other file has its form, as the beginning of a sentence."""
    unit: ClassVar[tuple[str, int]] = ("rows", 1)
    """What its files hold, and how many examples are made of each."""
    answers: ClassVar[bool] = False
    """Whether its labels are ids that its examples hold, too: then no column is looked at for restating them."""
    parted: ClassVar[bool] = False
    """Whether several workers may read its files, each some of them."""

    @abstractmethod
    def head_faults(self, columns: Columns) -> list[Fault]:
        """What is wrong with the data, as far as its header and first `HEAD_LINES` lines show.

        A path that is missing or holds nothing; every missing column; contradictions between the split and the
        columns; the first malformed line of each file.
        """

    @abstractmethod
    def description(self) -> Description:
        """The source as `plan` shows it."""

    @abstractmethod
    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Digest of the content, without reading more of it than that takes.

        Raises:
            ConfigError: the source lacks something the config asks for.
        """

    @abstractmethod
    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """All examples, read unless the cache has them.

        Raises:
            ConfigError: the source lacks something the config asks for.
            DataError: a file's content is malformed.
        """

    def division_key(self) -> dict[str, Any]:
        """JSON of the settings on which `divide` depends, in addition to what `encode` made."""
        split = self.data.split
        fold = [self.data.folds, self.data.fold] if split.kind is SplitKind.FOLDS else None
        return {"split": split.model_dump(mode="json"), "fold": fold}

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits into an empty folder.

        Returns:
            JSON: `parts`, names of splits if they are others than train, validation and test; `truth`, what only a
            synthetic source knows, on the test split.

        Raises:
            DataError: nothing is left to train on.
        """
        from embexp.data import splits

        splits.divide(self.data, encoded.layout.count, folder)
        return {}

    def given_splits(self) -> tuple[str, ...]:
        """Validation and test, as far as they have files of their own, and may hold rows of train."""
        return ()

    def learning_key(self, columns: Columns) -> Mapping[str, Any]:
        """JSON of the settings on which `learn` depends."""
        return {}

    def learn(  # noqa: B027 - nothing to do for sources whose ids are rows already
        self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress
    ) -> None:
        """Writes vocabularies and rows, where `encode` wrote codes of tokens, into the folder with the splits.

        Raises:
            VocabularyError: a value is unknown where `data.vocabulary.unknown` is `error`.
        """

    @abstractmethod
    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """By table of `columns.ids`; `folder` is the one that `divide` filled."""

    def going_on(self, contract: Contract) -> Source:
        """The same source, whose data add to what an earlier run decided; itself where it knows of no such thing."""
        return self

    def with_tokens(self, further: Mapping[str, FileTokens]) -> Source:
        """The same source, with rows for the tokens of files, by vocabulary; itself where it has no vocabularies."""
        return self

    def distinct_tokens(self, columns: Columns, encoded: Encoded) -> dict[str, pa.LargeStringArray]:
        """The different tokens of all splits, by table, where they are names, and no words of texts."""
        return {}

    def tokens_of_file(self, file: OtherFile, columns: Columns, *, cache: Path) -> dict[str, pa.LargeStringArray]:
        """The same of another file, which `encode_file` has read."""
        return {}

    def encode_file(self, file: OtherFile, columns: Columns, *, cache: Path, progress: Progress) -> Examples:
        """Another file, with the vocabularies of a run; see `scan.encode_file`.

        Raises:
            ConfigError: the file lacks a column.
            DataError: its content is malformed, or no other file can be read as this source is.
            VocabularyError: a value is unknown and its vocabulary has no OOV row.
        """
        raise DataError(f"{self.no_other_file}, so {file.path} can't be read for it")

    def encode_in_memory(self, data: InMemory, like: OtherFile, columns: Columns, folder: Path) -> Examples:
        """Data in memory, with the vocabularies of a run; see `scan.encode_in_memory`.

        Args:
            like: its vocabularies and classes; its path names the data in messages.
            folder: empty, for what is encoded.

        Raises:
            ConfigError: a column is missing, or of a wrong type.
            DataError: a value is malformed, or the source is read from files only.
            VocabularyError: a value is unknown and its vocabulary has no OOV row.
        """
        raise DataError(
            f"a run with data={self.data.kind} reads only files, not data in memory: write it to a file of that "
            f"form and give its path"
        )

    def wanted_names(self, columns: Columns) -> Collection[str]:
        """Names of the columns that are read of data in memory."""
        return ()

    def column_names(self) -> Sequence[str]:
        """The names of all columns that may be read, in their order, from the headers of the files.

        Raises:
            ConfigError: the files can't be read, or the source has no columns with names of the user's.
        """
        rule = "a pattern can match only columns of files with columns, such as those of data=csv"
        raise ConfigError([Fault("data", "without columns", rule, "write out the names")])

    def read_columns(self, path: Path, names: Sequence[str]) -> dict[str, list[str]]:
        """Columns of another file of the same form, as text, with a value for each example; a missing one is "".

        Raises:
            ConfigError: the file lacks a column, or one holds lists.
            DataError: it has no columns.
        """
        raise DataError(f"only files with columns, such as those of data=csv, have the columns {', '.join(names)}")

    def own_values(self, counts: np.ndarray) -> np.ndarray:
        """How many values examples have in the data, where they have so many with those that are made, int64 [n]."""
        return counts

    def vocabulary_size(self, column: str) -> int | None:
        """Values of an id column, where the config sets them; None: only the data shows them."""
        return None


def source_of(data: Data) -> Source:
    """The source that a config describes; a data set by name must have been fetched before it is read."""
    source: Source = implementation(datasets.located(data))()
    return source


def cached(
    folder: str, content: str, settings: Mapping[str, Any], make: Callable[[Path], None], *, cache: Path
) -> Encoded:
    """The examples in a folder of the cache, which `make` fills unless it is there.

    Args:
        folder: how its name begins.
        content: digest of what is read.
        settings: JSON of those on which the examples depend in addition.
    """
    from embexp.data.examples import Encoded

    key = key_of(content, settings)
    return Encoded(caching.folder(cache, folder, key, make), key, content)


def key_of(content: str, settings: Mapping[str, Any]) -> str:
    """The key of such a folder."""
    return digests.of_json({"format": FORMAT, "content": content, **settings})


def unknown_columns(columns: Columns, known: Collection[str], rule: str) -> Iterator[Fault]:
    """A fault for each id, weight and dense column that a source with fixed columns lacks."""
    for name in (*columns.ids, *columns.weights, *columns.dense):
        if name not in known:
            yield Fault(columns.asked_by.get(name, "features"), repr(name), rule)


def single_columns(columns: Columns, names: Collection[str], holds: str) -> Iterator[Fault]:
    """A fault for each feature that needs several ids per example of a column that holds one.

    Args:
        names: the columns that hold one.
        holds: "one id per example", in the words of the source.
    """
    for name in names:
        for need in columns.several.get(name, ()):
            yield Fault(need.path, need.value, list_rule(name, holds), "leave it out")
