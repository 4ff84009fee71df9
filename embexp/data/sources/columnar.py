"""Sources whose examples are the rows of files with columns, with vocabularies of the training split."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from embexp.data.columns import Columns, Wanted, wanted
from embexp.data.files import table_files
from embexp.data.files.table_files import Files
from embexp.data.sources.source import HEAD_LINES, Description, OtherFile, Source, cached
from embexp.errors import ConfigError, Fault
from embexp.specs.data import Columnar, DateColumn, DividedData, Parquet
from embexp.specs.vocabularies import SettledRules, Steps, settled
from embexp.system import caching, digests
from embexp.system.parallel import Progress, at_once, quiet

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from embexp.data.contract import Contract, FileTokens
    from embexp.data.examples import Encoded, Examples
    from embexp.data.files.arrow_columns import InMemory
    from embexp.data.files.arrow_table import ParquetTable
    from embexp.data.files.dates import Locate
    from embexp.data.vocabularies.vocabulary import Vocabulary


@dataclass(frozen=True)
class TokenSource(Source):
    """A source whose `encode` writes codes of tokens, and perhaps numbers for buckets.

    Attributes:
        other: a file, or folder, of the same form, which needs no columns of the split; None: the source's own.
        classes: names of the classes of a finished run, by label; empty: they follow from the labels.
        contract: what the run goes on from; None: nothing.
        further: tokens of files of vectors that have rows, by vocabulary.
    """

    data: DividedData
    other: Path | None = field(default=None, kw_only=True)
    classes: Sequence[str] = field(default=(), kw_only=True)
    contract: Contract | None = field(default=None, kw_only=True)
    further: Mapping[str, FileTokens] = field(default_factory=dict, kw_only=True)

    def going_on(self, contract: Contract) -> TokenSource:
        """With its vocabularies and classes."""
        return replace(self, contract=contract, classes=contract.classes)

    def with_tokens(self, further: Mapping[str, FileTokens]) -> TokenSource:
        """With further tokens."""
        return replace(self, further=further)

    @property
    def extends_classes(self) -> bool | None:
        """Whether labels may have further classes than `classes`; None: the run does not go on from another."""
        return None if self.contract is None else self.contract.extends_classes

    def files_of_splits(self) -> dict[str, int]:
        """Entries of `Layout.files` of each split, where files are given for validation or test; else empty."""
        return {}

    def given_splits(self) -> tuple[str, ...]:
        """Those that `files_of_splits` names."""
        return tuple(name for name in self.files_of_splits() if name != "train")

    def given_counts(self, encoded: Encoded) -> list[int]:
        """Examples of each of train, validation and test that files are given for; empty: none are."""
        numbers = self.files_of_splits()
        if not numbers:
            return []
        counts = iter(count for _, count in encoded.layout.files)
        of = {name: sum(itertools.islice(counts, number)) for name, number in numbers.items()}
        return [of.get(name, 0) for name in ("train", "validation", "test")]

    def with_splits(self, digest: str) -> str:
        """A digest of content that also depends on which files are whose."""
        numbers = self.files_of_splits()
        return digests.of_json([digest, numbers]) if numbers else digest

    def learning_key(self, columns: Columns) -> Mapping[str, Any]:
        """The rules of vocabularies, and buckets."""
        rules = {table: self._rules(columns, table).model_dump(mode="json") for table in columns.ids.values()}
        for rule in rules.values():
            if "path" in rule:
                rule["path"] = digests.of_file(Path(rule["path"]))
        buckets = [
            [name, bucket.column, bucket.table, bucket.settings.model_dump(mode="json")]
            for name, bucket in columns.buckets.items()
        ]
        known: dict[str, Any] = {} if self.contract is None else {"contract": self.contract.digest}
        if self.further:
            known["further"] = {table: [each.digest, each.alone] for table, each in self.further.items()}
        return {"vocabularies": rules, **({"buckets": buckets} if buckets else {}), **known}

    def learn(self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress) -> None:
        """Writes vocabularies and rows."""
        from embexp.data.contract import of_file
        from embexp.data.vocabularies import token_rows
        from embexp.data.vocabularies.vocabulary import tokens_of_file

        rules = {table: self._rules(columns, table) for table in encoded.layout.token_tables}
        files = {table: Path(rule.path) for table, rule in rules.items() if rule.path is not None}
        steps = self.data.token_steps or ()
        given = {table: of_file(tokens_of_file(path, steps), rules[table]) for table, path in files.items()}
        given |= {table: of_file(each.tokens, rules[table]) for table, each in self.further.items() if each.alone}
        further = {table: each.tokens for table, each in self.further.items() if not each.alone}
        token_rows.learn(
            encoded,
            rules,
            columns.buckets,
            folder,
            contract=self.contract,
            given=given,
            further=further,
            progress=progress,
        )

    def _rules(self, columns: Columns, table: str) -> SettledRules:
        if (found := columns.rules.get(table)) is not None:
            return found
        assert self.data.token_rules is not None  # sources of tokens have rules
        return settled(self.data.token_rules, ())

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """Those that `learn` made from the training split."""
        from embexp.data.vocabularies import token_rows

        found = token_rows.learned(encoded, columns.buckets, folder)
        return {name: vocabulary.normalizing(self.data.token_steps) for name, vocabulary in found.items()}

    def distinct_tokens(self, columns: Columns, encoded: Encoded) -> dict[str, pa.LargeStringArray]:
        """Those of each vocabulary, without the empty one that stands for missing values."""
        from embexp.data.examples import read_tokens

        return {table: read_tokens(encoded.folder, encoded.layout, table)[1:] for table in encoded.layout.token_tables}

    def tokens_of_file(self, file: OtherFile, columns: Columns, *, cache: Path) -> dict[str, pa.LargeStringArray]:
        """The different tokens of another file, by table."""
        other = replace(self, other=file.path, classes=file.classes)
        return other.distinct_tokens(columns, other.encode(columns, cache=cache, progress=quiet))

    def encode_file(self, file: OtherFile, columns: Columns, *, cache: Path, progress: Progress) -> Examples:
        """The codes of the other file, as rows of the run's tables."""
        from embexp.data.vocabularies import token_rows

        encoded = replace(self, other=file.path, classes=file.classes).encode(columns, cache=cache, progress=progress)
        return token_rows.numbered(encoded, file.vocabularies, columns.buckets, cache=cache)


CODES = "codes"
"""How the name of a folder of the cache begins that has encoded examples."""
_LARGE = 1 << 28
"""Bytes of files whose digests take about a second."""


@dataclass(frozen=True)
class Reading:
    """What is read of files, and how.

    Attributes:
        needed: the columns that are read.
        settings: JSON of all that decides, with the content, what is written.
        classes: names of the classes of a finished run, by label; empty: they follow from the labels.
        further_classes: whether there may be others, which follow them; None: the run does not go on from another.
        steps: by which tokens are normalised.
    """

    columns: Columns
    located: Files
    needed: Sequence[Wanted]
    settings: Mapping[str, Any]
    label_threshold: float | None
    timestamp: str | None
    group: str | None
    classes: Sequence[str]
    further_classes: bool | None
    steps: Steps

    def write(self, folder: Path, files: Files, *, progress: Progress, part: bool = False) -> None:
        """Writes the examples of the files, or of some of them, into an empty folder; see `examples.encode`."""
        from embexp.data.examples import encode
        from embexp.data.files.arrow_columns import chunks_of_files

        encode(
            chunks_of_files(files, self.needed, self.steps),
            folder,
            self.columns,
            lists=self.located.lists(),
            label_threshold=self.label_threshold,
            timestamp=self.timestamp,
            group=self.group,
            known_classes=self.classes,
            further_classes=self.further_classes,
            part=part,
            progress=progress,
        )


@dataclass(frozen=True)
class ColumnarSource(TokenSource):
    """Files with columns.

    Attributes:
        data: which columns are read, and what for.
        locate: from paths and the columns that are needed to the files that hold them, their headers read; raises
            `ConfigError` with every fault found.
        dialect: JSON of what decides, with the content, how the files are read; None: the files show it.
        separators: of the values of a text that holds several, by column.
    """

    parted: ClassVar[bool] = True

    data: Columnar
    kind: str
    locate: Callable[[Sequence[Path], Sequence[Wanted]], Files]
    dialect: Sequence[Any] | None = None
    separators: Mapping[str, str] = field(default_factory=dict)

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Missing files and columns, columns of the wrong shape, and the first row of each file that can't be read."""
        faults = self._split_faults()
        try:
            needed = self._wanted(columns)
            located = self.locate(self._paths, needed)
        except ConfigError as error:
            return [*faults, *error.faults]
        return faults + table_files.head_faults(located, needed, rows=HEAD_LINES)

    def column_names(self) -> Sequence[str]:
        """Those of all files, as the first one has them; of RecBole's, those of NAME.inter."""
        located = self.locate(self._paths, ())
        return list(dict.fromkeys(name for table in located.tables for name in table.names))

    def read_columns(self, path: Path, names: Sequence[str]) -> dict[str, list[str]]:
        """Columns of another file, as text."""
        from embexp.data.files.arrow_columns import chunks_of_files

        needed = [Wanted(name, "--keep", tokens=True, names=True, single=True) for name in dict.fromkeys(names)]
        found: dict[str, list[str]] = {one.name: [] for one in needed}
        for chunk in chunks_of_files(self.locate([path], needed), needed):
            for name, texts in found.items():
                texts += ["" if value is None else str(value) for value in chunk.tokens[name].values.to_pylist()]
        return found

    def description(self) -> Description:
        """The form of file, its path and the split."""
        paths = self.data.given.get("train", self.data.paths)
        return Description(f"{self.kind} {', '.join(paths)}; {self.data.described_split()}")

    def files_of_splits(self) -> dict[str, int]:
        """Files that the paths of each split lead to."""
        given = {} if self.other else self.data.given
        return {name: len(table_files.data_files(list(map(Path, paths)))) for name, paths in given.items()}

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of all files that hold a wanted column, and of which are given for which split."""
        return self.content(self.locate(self._paths, self._wanted(columns)), cache)

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """The wanted columns as codes and numbers, and the time and the groups where the split needs them."""
        reading = self.reading(columns)

        if sum(file.stat().st_size for file in reading.located.paths()) >= _LARGE:
            progress("computing digests of the files", None)

        def make(folder: Path) -> None:
            reading.write(folder, reading.located, progress=progress)

        found = cached(CODES, self.content(reading.located, cache), reading.settings, make, cache=cache)
        alone = replace(reading.located, side_of=None)
        return replace(found, examples_digest=self.content(alone, cache)) if reading.located.side_of else found

    def reading(self, columns: Columns) -> Reading:
        """What `encode` reads, and how.

        Raises:
            ConfigError: a file or a column is missing, or the split needs another.
        """
        if faults := self._split_faults():
            raise ConfigError(faults)
        columns, (timestamp, group), steps = self._as_written(columns), self._order, self.data.token_steps or ()
        needed = wanted(columns, timestamp=timestamp, group=group)
        located = self.locate(self._paths, needed)
        settings = {
            "kind": self.kind,
            "files": [file.name for file in located.paths()],
            "written": self.dialect,
            "ids": list(columns.ids.items()),
            "weights": list(columns.weights.items()),
            "dense": columns.dense,
            "label": [columns.label, self.data.label_threshold],
            "timestamp": timestamp,
            "group": group,
            **({"further_labels": further} if (further := columns.further_labels) else {}),
            **({"weight": columns.example_weight} if columns.example_weight is not None else {}),
            **({"bucketed": bucketed} if (bucketed := columns.bucketed) else {}),
            **({"may_be_missing": missing} if (missing := columns.may_be_missing) else {}),
            **({"dates": dates} if (dates := self.data.model_dump(mode="json").get("dates")) else {}),
            **({"missing_label": "skip"} if columns.skips_unlabelled else {}),
            **({"normalize": sorted(steps)} if steps else {}),
            **({"classes": [asdict(columns.classes), *self.classes]} if columns.classes is not None else {}),
            **({"further_classes": True} if self.extends_classes else {}),
        }
        threshold, known = self.data.label_threshold, (self.classes, self.extends_classes)
        return Reading(columns, located, needed, settings, threshold, timestamp, group, *known, steps)

    def encode_in_memory(self, data: InMemory, like: OtherFile, columns: Columns, folder: Path) -> Examples:
        """The wanted columns, as rows of the run's tables; written to files, but not to the cache."""
        from embexp.data.examples import Encoded
        from embexp.data.vocabularies import token_rows

        read = replace(self._of_memory(data), other=like.path, classes=like.classes)
        reading = read.reading(columns)
        codes, rows = folder / "codes", folder / "rows"
        codes.mkdir()
        rows.mkdir()
        reading.write(codes, reading.located, progress=quiet)
        return token_rows.renumbered(Encoded(codes, "", ""), like.vocabularies, reading.columns.buckets, rows)

    def wanted_names(self, columns: Columns) -> Collection[str]:
        """Those of ids, numbers and the label, and of what the split needs."""
        timestamp, group = self._order
        return {one.name for one in wanted(columns, timestamp=timestamp, group=group)}

    def located_in_memory(self, data: InMemory, columns: Columns) -> ParquetTable:
        """The wanted columns, as a file has them; raises `ConfigError` with every fault found."""
        read = self._of_memory(data)
        [table] = read.locate((), read._wanted(columns)).tables
        return cast("ParquetTable", table)

    def _of_memory(self, data: InMemory) -> ColumnarSource:
        """The same source, with data in memory for its files."""
        from embexp.data.files.arrow_table import locate_in_memory

        def locate(paths: Sequence[Path], needed: Sequence[Wanted]) -> Files:
            return locate_in_memory(data, self.separators, needed)

        return ColumnarSource(self.data, self.kind, locate)

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits."""
        import numpy as np

        from embexp.data import splits
        from embexp.system.arrays import mapped_array

        timestamp, group = self._order
        chosen, given = encoded.divided(), self.given_counts(encoded)
        if given and chosen is not None:
            given = np.diff(np.searchsorted(chosen, np.cumsum([0, *given]))).tolist()

        def of_chosen(column: str | None, name: str) -> np.ndarray | None:
            values = None if column is None else mapped_array(encoded.folder / f"{name}.npy")
            return values if values is None or chosen is None else values[chosen]

        splits.divide(
            self.data,
            encoded.layout.count if chosen is None else len(chosen),
            folder,
            timestamps=of_chosen(timestamp, "timestamps"),
            groups=of_chosen(group, "groups"),
            given=given,
        )
        if chosen is not None:
            found = {name: chosen[np.load(folder / f"{name}.npy")] for name in splits.SPLITS}
            splits.rewrite(found, folder)
        return {}

    def _split_faults(self) -> list[Fault]:
        """The fault of a split that needs the time where there is no column of it."""
        kind = self.data.split.kind
        if self.other is not None or not self.data.drawn.by_time or self.data.timestamp is not None:
            return []
        rule = f"data.split.kind={kind} needs the column of timestamps"
        return [Fault("data.timestamp", "null", rule, "name it, or choose another split")]

    @property
    def _order(self) -> tuple[str | None, str | None]:
        """Columns of the time and of the groups, as far as the split needs them."""
        split = self.data.drawn
        return (None, None) if self.other else (self.data.timestamp if split.by_time else None, split.group_column)

    def _wanted(self, columns: Columns) -> tuple[Wanted, ...]:
        timestamp, group = self._order
        return wanted(self._as_written(columns), timestamp=timestamp, group=group)

    def _as_written(self, columns: Columns) -> Columns:
        """The columns, with a label of task binary as a number where the parent, or the first file, has numbers."""
        names = columns.classes
        if columns.label is None or names is None or not names.two or names.positive is not None or self.classes:
            return columns
        if self.contract is not None:
            return replace(columns, classes=None)
        first = self.locate(self._paths, ()).tables[0]
        holds_names = columns.label in first.names and not first.holds_numbers(columns.label, rows=HEAD_LINES)
        return columns if holds_names else replace(columns, classes=None)

    @property
    def _paths(self) -> list[Path]:
        return [Path(path) for path in self.data.paths] if self.other is None else [self.other]

    def content(self, located: Files, cache: Path) -> str:
        """Digest of the bytes of files, and of which are given for which split."""
        found = digests.of_json(at_once(lambda file: caching.file_digest(file, cache=cache), located.paths()))
        return self.with_splits(found)


def dated(locate: Locate, dates: Mapping[str, DateColumn]) -> Locate:
    """What locates files as `locate` does, whose tables also have the columns that dates make, if there are any."""
    if not dates:
        return locate
    from embexp.data.files import dates as made

    return made.dated(locate, dates)


def parquet(data: Parquet) -> ColumnarSource:
    """The source of Parquet files that a config describes."""
    from embexp.data.files import arrow_table  # which imports more than other sources need

    return ColumnarSource(data, data.kind, dated(arrow_table.locate, data.dates), ["times in seconds"])
