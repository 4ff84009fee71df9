"""From a data spec to encoded examples, vocabularies and splits, all of them cached by content.

What users rarely mean is found, too: tokens that differ from another in their spelling only, lists that are one token,
and rows of given files that are in the training split too, which make their metrics look too good.

Rows are compared by 64-bit hashes of all that is read of them. Those of the files are in memory, 8 bytes a row; the
training split is read once, in pieces. Where a row has few values, equal ones are no mistake. So the share of training
rows that have an equal one in the training split is counted too, of a sample.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data import datasets, leaks, splits, together
from embexp.data import numbers as numeric
from embexp.data.columns import Columns
from embexp.data.contract import Contract, FileTokens
from embexp.data.examples import Encoded, Examples, Layout, examples
from embexp.data.files.dialect import are_lists, values_of_list
from embexp.data.leaks import Leak
from embexp.data.numbers import FittedColumn, PreparedNumbers
from embexp.data.sources.source import FORMAT, OtherFile, Source, source_of
from embexp.data.together import Workers
from embexp.data.vocabularies import token_rows
from embexp.data.vocabularies.spelling import Alike, alike
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import ConfigError, DataError, excerpt
from embexp.specs.data import Data
from embexp.system import caching, digests
from embexp.system.arrays import mapped_array
from embexp.system.parallel import Progress, quiet

_AT_ONCE = 1 << 18
_SAMPLE = 100_000
_DOUBTS_FILE = "doubts.json"
_TOKENS_LOOKED_AT = 1_000
_LEAST_BRACKETS = 0.05
"""Share of the tokens that begin with a bracket, and that end with one, from which they are pieces of lists."""


@dataclass(frozen=True)
class Overlap:
    """How many rows of a split are in the training split too.

    Attributes:
        repeated: rows that are.
        rows: of the split.
        usual: share of the training rows that have an equal one in the training split.
        what: the word for rows.
    """

    repeated: int
    rows: int
    usual: float
    what: str = "rows"

    def warning(self, split: str) -> str | None:
        """A sentence if more rows are repeated than rows of the training split are among each other."""
        if self.repeated <= 2 * self.usual * self.rows:
            return None
        among = f" (within train, {self.usual:.1%} of the {self.what} have a duplicate)" if self.usual else ""
        return (
            f"{self.repeated:,} of {self.rows:,} {self.what} of {split} are also in train{among}, so its metrics are"
            " too optimistic for new data: remove them from one of the files"
        )


def counted(
    encoded: Encoded,
    folder: Path,
    names: Sequence[str],
    unit: tuple[str, int],
    progress: Progress = quiet,
) -> dict[str, Any]:
    """`Overlap` as JSON, by split.

    Args:
        folder: with the splits.
        names: splits that have files of their own.
        unit: what is counted, and how many examples are made of each, the first of which stands for it.
    """
    what, examples_of_each = unit

    def read_split(name: str) -> np.ndarray:
        return mapped_array(folder / f"{name}.npy")[::examples_of_each]

    train = read_split("train")
    rows = {name: found for name in names if len(found := read_split(name))}
    if not rows:
        return {}
    hashed = _Rows.of(encoded)
    hashes = {name: hashed.hashes(each) for name, each in rows.items()}
    sample = train
    if len(train) > _SAMPLE:
        sample = train[np.sort(np.random.default_rng(0).choice(len(train), _SAMPLE, replace=False))]
    of_sample = hashed.hashes(sample)
    known = np.unique(np.concatenate([*hashes.values(), of_sample]))
    counts = np.zeros(len(known), np.int64)
    for start, stop in splits.chunks(len(train), _AT_ONCE):
        progress("comparing rows between splits", start / len(train))
        some = hashed.hash(train[start:stop])
        place = np.minimum(np.searchsorted(known, some), len(known) - 1)
        np.add.at(counts, place[known[place] == some], 1)
    usual = float(np.mean(counts[np.searchsorted(known, of_sample)] > 1))
    return {
        name: asdict(Overlap(int(np.count_nonzero(counts[np.searchsorted(known, each)])), len(each), usual, what))
        for name, each in hashes.items()
    }


@dataclass(frozen=True)
class _Rows:
    """All that is read of the examples, with codes of tokens, which do not depend on what trains."""

    examples: Examples
    layout: Layout
    bucketed: np.ndarray | None

    @staticmethod
    def of(encoded: Encoded) -> _Rows:
        layout, folder = encoded.layout, encoded.folder
        bucketed = mapped_array(folder / "bucketed.npy") if layout.bucketed else None
        return _Rows(examples(folder, folder), layout, bucketed)

    def hashes(self, rows: np.ndarray) -> np.ndarray:
        """uint64 [N], in pieces."""
        found: np.ndarray = np.empty(len(rows), np.uint64)
        for start, stop in splits.chunks(len(rows), _AT_ONCE):
            found[start:stop] = self.hash(rows[start:stop])
        return found

    def hash(self, rows: np.ndarray) -> np.ndarray:
        """uint64 [n]: of codes, lists in their order, weights, numbers and labels."""
        read = self.examples
        result: np.ndarray = np.zeros(len(rows), np.uint64)
        scalar = [read.ids, read.dense]
        scalar += [] if self.bucketed is None else [self.bucketed]
        scalar += [] if read.labels is None else [read.labels.reshape(read.count, -1)]
        listed = [(column, column.values) for column in read.lists.values()]
        for name, values in read.weights.items():
            if (weighed := self.layout.weights[name]) in read.lists:
                listed.append((read.lists[weighed], values))
            else:
                scalar.append(values[:, None])
        for matrix in scalar:
            for values in matrix[rows].T:
                result = splits.mix(result ^ _bits(values))
        for column, values in listed:
            places, ends = column.taken(rows)
            order = (np.arange(len(places)) - np.repeat(ends[:-1], np.diff(ends))).astype(np.uint64)
            mixed = splits.mix(_bits(values[places]) ^ (order << np.uint64(32)))
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
            result = splits.mix(result ^ (sums[ends[1:]] - sums[ends[:-1]]))
        return result


def _bits(values: np.ndarray) -> np.ndarray:
    """uint64: equal for equal values."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values + 0.0, np.float32).view(np.uint32).astype(np.uint64)
    return values.astype(np.uint64)


@dataclass(frozen=True)
class Scan:
    """What a run needs to know of its data.

    Attributes:
        splits: "train", "validation", "test" -> int64 row numbers, rising, memory-mapped; may be empty. A source may
            have more of them, to evaluate on.
        label_mean: of the training split; 0 without labels.
        truth: what only a synthetic source knows, on the test split: `bayes_auc`, `bayes_log_loss`.
        digest: of the source's content.
        examples_digest: see `Encoded`.
        classes: names of classes by label number, of a source that names them.
        numbers: the numeric columns, as the model gets them.
        shares: by vocabulary and split, how many values have a row of their own; of tokens and buckets.
        overlap: by split that has files of its own, how many of its rows are in the training split too.
        key: of what the data holds, which columns are read, the splits and the vocabularies.
        skipped: rows without a label, which were left out.
        leaks: columns that may leak the label, as a sample of the training split shows.
        doubts: tokens that are rarely meant.
        as_before: makes the examples as the parent of the run sees them, which has no rows for further tokens.
    """

    examples: Examples
    vocabularies: Mapping[str, Vocabulary]
    splits: Mapping[str, np.ndarray]
    label_mean: float
    truth: Mapping[str, float]
    digest: str
    classes: tuple[str, ...] = ()
    numbers: PreparedNumbers = field(default_factory=PreparedNumbers)
    shares: token_rows.Shares = field(default_factory=dict)
    overlap: Mapping[str, Overlap] = field(default_factory=dict)
    key: str = ""
    skipped: int = 0
    leaks: tuple[Leak, ...] = ()
    doubts: Sequence[Doubt] = ()
    as_before: Callable[[], Examples] | None = None
    examples_digest: str | None = None


def scan(
    data: Data,
    columns: Columns,
    *,
    cache: Path,
    interactions: bool = False,
    progress: Progress = quiet,
    workers: Workers | None = None,
    contract: Contract | None = None,
    further: Mapping[str, FileTokens] = MappingProxyType({}),
) -> Scan:
    """Reads a source, unless the cache has it: encodes, divides, makes vocabularies from the training split.

    Args:
        interactions: only examples with label 1 belong to a split.
        cache: folder for encoded data; safe to share and to delete while nothing runs.
        workers: who reads it together, and do the same; None: this process alone.
        contract: what the data of an earlier run decided, to which these only add; None: nothing.
        further: tokens of files of vectors that have rows, by vocabulary.

    Raises:
        ConfigError: the source lacks something the config asks for.
        DataError: a file's content is malformed, or does not fit the contract.
        VocabularyError: a value is unknown where `data.vocabulary.unknown` is `error`.
    """
    if columns.label is None and data.label_column is not None:
        raise ValueError("a scan reads the label")
    datasets.ensure(data, cache=cache, progress=progress)
    source = source_of(data)
    source = source if contract is None else source.going_on(contract)
    source = source.with_tokens(further) if further else source
    make = partial(_scan, source, columns, cache, interactions, contract, progress)
    if workers is None:
        return make()
    return together.read(source, columns, make, workers=workers, cache=cache, progress=progress)


def _scan(
    source: Source,
    columns: Columns,
    cache: Path,
    interactions: bool,
    contract: Contract | None,
    progress: Progress,
) -> Scan:
    encoded = source.encode(columns, cache=cache, progress=progress)
    only_ones = interactions and encoded.layout.label
    encoded = replace(encoded, only_ones=only_ones)
    how = {**source.division_key(), **source.learning_key(columns), **({"only_ones": True} if only_ones else {})}
    if given := source.given_splits():
        how["overlap"] = given
    key = digests.of_json({"format": FORMAT, "raw": encoded.key, **how})
    divided = caching.folder(cache, "scan", key, partial(_divide, source, columns, encoded, progress))
    facts = json.loads((divided / "facts.json").read_text("utf-8"))
    layout = encoded.layout
    rewritten = layout.token_tables or layout.bucketed
    found = examples(encoded.folder, divided if rewritten else encoded.folder, tuple(columns.buckets))
    train = mapped_array(divided / "train.npy")
    fitted = () if contract is None else contract.numbers
    numbers = numeric.prepare(
        found.dense, train, columns.numeric, cache=cache, key=key, fitted=fitted, progress=progress
    )
    vocabularies = source.vocabularies(columns, encoded, divided)
    whole, as_before = found if numbers.dense is None else replace(found, dense=numbers.dense), None
    if contract is not None:
        contract.check(vocabularies)
        before = {
            name: contract.before(name, each) for name, each in vocabularies.items() if name in contract.vocabularies
        }
        grows = any(each.size < vocabularies[name].size for name, each in before.items())
        known = {**vocabularies, **before}
        as_before = partial(_as_before, encoded, known, columns, cache, whole) if grows else lambda: whole
    return Scan(
        examples=whole,
        vocabularies=vocabularies,
        splits={name: mapped_array(divided / f"{name}.npy") for name in facts.get("parts", splits.SPLITS)},
        label_mean=facts["label_mean"],
        truth=facts["truth"],
        digest=encoded.digest,
        classes=encoded.classes,
        numbers=numbers,
        shares=token_rows.read_shares(divided),
        overlap={name: Overlap(**found) for name, found in facts.get("overlap", {}).items()},
        key=key,
        skipped=layout.skipped,
        leaks=_leaks(source, columns, encoded, train, cache, key),
        doubts=doubts(source, columns, encoded, cache=cache),
        as_before=as_before,
        examples_digest=encoded.examples_digest,
    )


def _as_before(
    encoded: Encoded, vocabularies: Mapping[str, Vocabulary], columns: Columns, cache: Path, found: Examples
) -> Examples:
    """The examples with rows by the parent's vocabularies, whose tokens are normalised already."""
    if not (encoded.layout.token_tables or columns.buckets):
        return found
    same = token_rows.numbered(encoded, vocabularies, columns.buckets, cache=cache)
    return replace(same, dense=found.dense)


def _leaks(
    source: Source, columns: Columns, encoded: Encoded, train: np.ndarray, cache: Path, key: str
) -> tuple[Leak, ...]:
    """The columns that may leak the label, unless the cache has them."""
    layout = encoded.layout
    if not layout.label or layout.count == 0 or source.answers:
        return ()

    def make(folder: Path) -> None:
        coded, rows = examples(encoded.folder, encoded.folder), train[leaks.spread(len(train), leaks.SAMPLE)]
        assert coded.labels is not None  # the layout has them
        labels = coded.labels.reshape(coded.count, -1)[rows, 0].astype(np.float64)  # the first, if there are several
        time, file = None, encoded.folder / "timestamps.npy"
        if (named := getattr(source.data, "timestamp", None)) is not None and file.exists():
            time = leaks.Time(named, mapped_array(file))
        bucketed = mapped_array(encoded.folder / "bucketed.npy") if layout.bucketed else None
        read = leaks.of_examples(coded, layout, rows, ages=columns.ages, bucketed=bucketed, time=time)
        names = encoded.classes
        found = leaks.leaks(read, labels, (lambda label: names[int(label)]) if names else "{:g}".format)
        leaks.write(found, folder / "leaks.json")

    place = digests.of_json({"format": leaks.FORMAT, "scan": key})
    return leaks.read(caching.folder(cache, "leaks", place, make) / "leaks.json")


_MOST_ONCE, _FEWEST_VALUES = 0.95, 100
"""Share of a column's values that occur once, from which its table learns next to nothing; and values to tell by."""


def seen_once(vocabularies: Mapping[str, Vocabulary]) -> dict[str, float]:
    """The tables nearly all of whose training values occur once, and their share, 0 to 1."""
    tokens = {name: each for name, each in vocabularies.items() if isinstance(each, TokenVocabulary)}
    counted = {name: int(each.frequencies.sum()) for name, each in tokens.items()}
    shares = {name: each.seen_once for name, each in tokens.items() if counted[name] > _FEWEST_VALUES}
    return {name: share for name, share in shares.items() if share >= _MOST_ONCE}


def encode_file(
    path: Path,
    data: Data,
    columns: Columns,
    vocabularies: Mapping[str, Vocabulary],
    *,
    cache: Path,
    classes: Sequence[str] = (),
    numbers: Sequence[FittedColumn] = (),
    progress: Progress = quiet,
) -> Examples:
    """Encodes another file, or folder, of the same form with the vocabularies of a run.

    Args:
        data: the source, with how its files are written.
        columns: what to read; with label None the file needs no label.
        classes: names of the classes of the run, by label.
        numbers: what the run fitted to its numeric columns; empty: they are used as they are.

    Raises:
        ConfigError: the file lacks a column.
        DataError: its content is malformed, a label is none of the classes, or the source is drawn.
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    source = source_of(data)
    found = source.encode_file(OtherFile(path, vocabularies, classes), columns, cache=cache, progress=progress)
    if not numbers:
        return found
    return replace(found, dense=numeric.applied(found.dense, numbers, cache=cache, key=found.key))


def encode_in_memory(
    data: Any,
    source: Source,
    columns: Columns,
    vocabularies: Mapping[str, Vocabulary],
    *,
    classes: Sequence[str] = (),
    numbers: Sequence[FittedColumn] = (),
) -> Examples:
    """Encodes data in memory of the same form as the files of a run, with the run's vocabularies.

    The encoded examples are mapped from temporary files, which are gone when nothing uses them any more.

    Args:
        data: what `arrow_columns.in_memory` takes.

    Raises:
        UsageError: it is something else.
        ConfigError: a column is missing, or of a wrong type.
        DataError: a value is malformed, a label is none of the classes, or the source is read from files only.
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    from embexp.data.files import arrow_columns

    like = OtherFile(arrow_columns.IN_MEMORY, vocabularies, classes)
    found = arrow_columns.in_memory(data, source.wanted_names(columns))
    with tempfile.TemporaryDirectory(prefix="embexp-", ignore_cleanup_errors=True) as folder:
        encoded = source.encode_in_memory(found, like, columns, Path(folder))
        if all(column.plain for column in numbers):
            return encoded
        return replace(encoded, dense=numeric.applied_in(encoded.dense, numbers, Path(folder)))


@contextmanager
def as_the_runs_data(file: Path | str) -> Iterator[None]:
    """Turns the faults of a file, or of data in memory, into a DataError: they are not those of a config."""
    try:
        yield
    except ConfigError as error:
        faults = [f"  {'; '.join(filter(None, (f'{each.value}: {each.rule}', each.remedy)))}" for each in error.faults]
        raise DataError("\n".join([f"{file} can't be read like this run's data", *faults])) from error


def _divide(source: Source, columns: Columns, encoded: Encoded, progress: Progress, folder: Path) -> None:
    """Writes splits, vocabularies, rows and facts into an empty folder."""
    progress("splitting the examples", None)
    divided = source.divide(encoded, folder)
    source.learn(columns, encoded, folder, progress=progress)
    train, total = mapped_array(folder / "train.npy"), 0.0
    if encoded.layout.label:
        labels = mapped_array(encoded.folder / "labels.npy")
        total = sum(float(labels[train[start:stop]].sum(dtype=np.float64)) for start, stop in splits.chunks(len(train)))
    shared = counted(encoded, folder, source.given_splits(), source.unit, progress)
    facts = {"label_mean": total / len(train), "truth": {}, "parts": splits.SPLITS, "overlap": shared, **divided}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


class DoubtKind(StrEnum):
    """What is wrong with some tokens."""

    ALIKE = "tokens_alike"
    LISTS = "tokens_are_lists"


@dataclass(frozen=True)
class Doubt:
    """What is wrong with some tokens of a table, and what to do.

    Attributes:
        columns: of the table.
        found: what was found, such as `9 of 18 values differ …`.
    """

    kind: DoubtKind
    columns: Sequence[str]
    found: str
    remedy: str

    def __str__(self) -> str:
        """The warning."""
        return f"{', '.join(self.columns)}: {self.found}; {self.remedy}"


def doubts(source: Source, columns: Columns, encoded: Encoded, *, cache: Path) -> list[Doubt]:
    """Those of all tables; they are kept in the cache, next to what was read."""
    unsaid = source.data.token_steps is None

    def make(folder: Path) -> None:
        tokens = source.distinct_tokens(columns, encoded)
        near = {table: alike(found) for table, found in tokens.items()} if unsaid else {}
        lists = {table: example for table, found in tokens.items() if (example := _list_among(found)) is not None}
        content = {"alike": {table: found.as_json() for table, found in near.items() if found}, "lists": lists}
        (folder / _DOUBTS_FILE).write_text(json.dumps(content), "utf-8")

    if not columns.ids:
        return []
    key = digests.of_json({"format": FORMAT, "raw": encoded.key, "unsaid": unsaid, "tables": dict(columns.ids)})
    content = json.loads((caching.folder(cache, "doubts", key, make) / _DOUBTS_FILE).read_text("utf-8"))
    names: dict[str, list[str]] = {}
    for column, table in columns.ids.items():
        names.setdefault(table, []).append(column)
    found = [_of_alike(Alike.of_json(each), names[table]) for table, each in content["alike"].items()]
    return [*found, *(_of_lists(example, names[table], source) for table, example in content["lists"].items())]


def _of_alike(found: Alike, columns: Sequence[str]) -> Doubt:
    first, second = found.shown
    remedy = f"if they mean the same, set {found.setting()}{found.caution}, else data.normalize=[]"
    what = (
        f"{found.count:,} of {found.tokens:,} values differ from another one only by {found.differences}, such"
        f" as {second} and {first}, but have separate rows"
    )
    return Doubt(DoubtKind.ALIKE, columns, what, remedy)


def _of_lists(example: str, columns: Sequence[str], source: Source) -> Doubt:
    what = f"the values are lists in brackets, or pieces of them, such as {excerpt(example)}, and each is one token"
    return Doubt(DoubtKind.LISTS, columns, what, source.data.remedy_for_lists(columns))


def _list_among(tokens: pa.LargeStringArray) -> str | None:
    """One of the tokens if many are lists that were printed, or pieces of such lists; else None."""
    texts = tokens.slice(0, _TOKENS_LOOKED_AT).to_pylist()
    inside: list[str] = [text.strip() for text in texts]
    whole = [text for text in inside if text[:1] in ("[", "(", "{") and values_of_list(text) is not None]
    if len(whole) >= len(texts) / 2 and are_lists(whole):
        return whole[0]
    begin = [text for text in inside if text.startswith(("[", "{", "('", '("')) and not text.endswith(("]", "}"))]
    end = [text for text in inside if text.endswith(("]", "}")) and not text.startswith(("[", "{"))]
    return begin[0] if min(len(begin), len(end)) > _LEAST_BRACKETS * len(texts) else None


def unknown_alike(tokens: pa.LargeStringArray, vocabulary: Vocabulary) -> Alike | None:
    """Tokens that a vocabulary lacks, and that differ from one of its own in their spelling only; None if none do."""
    if not isinstance(vocabulary, TokenVocabulary):
        return None
    unknown = tokens.filter(pa.array(vocabulary.rows(tokens) < vocabulary.first))
    return alike(unknown, vocabulary.known) if len(unknown) else None
