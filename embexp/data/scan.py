"""From a data spec to encoded examples, vocabularies and splits, all of them cached by content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from embexp import caching, digests
from embexp.data import clicks, encode, located, readers, splits
from embexp.data.arrays import ArrayWriter, mapped
from embexp.data.columns import Columns
from embexp.data.encode import Progress
from embexp.data.examples import Examples, Layout, examples, read_tokens
from embexp.data.vocabulary import IdentityVocabulary, Vocabulary, from_counts
from embexp.data.wanted import group_of, timestamp_faults, timestamp_of, wanted
from embexp.errors import ConfigError, DataError, VocabularyError
from embexp.specs.data import CSV, Clicks, Data, Parquet, RecBole, SplitKind

FORMAT = 1
"""Version of what the cache holds; raised when its meaning changes."""


@dataclass(frozen=True)
class Scan:
    """What a run needs to know of its data.

    Attributes:
        examples: all of them, encoded, memory-mapped.
        vocabularies: by table.
        splits: "train", "validation", "test" -> int64 row numbers, rising, memory-mapped; may be empty.
        label_mean: of the training part.
        truth: what only a synthetic source knows, on the test part: `bayes_auc`, `bayes_log_loss`.
        digest: of the source's content.
    """

    examples: Examples
    vocabularies: Mapping[str, Vocabulary]
    splits: Mapping[str, np.ndarray]
    label_mean: float
    truth: Mapping[str, float]
    digest: str


def scan(data: Data, columns: Columns, *, cache: Path, progress: Progress | None = None) -> Scan:
    """Reads a source, unless the cache has it: encodes, divides, makes vocabularies from the training part.

    A synthetic log that is split by time takes an example's position for its time.

    Args:
        data: the source.
        columns: what the run reads of it; the label too.
        cache: folder for encoded data; safe to share and to delete while nothing runs.
        progress: is told what is being done and how much of it is done.

    Raises:
        ConfigError: the source lacks something the config asks for.
        DataError: a file's content is not what it should be.
        VocabularyError: a value is unknown where `data.vocabulary.unknown` is `error`.
    """
    tell = progress or (lambda what, part: None)
    if columns.label is None:
        raise ValueError("a scan reads the label")
    if faults := timestamp_faults(data):
        raise ConfigError(faults)
    source, raw, raw_key = _raw(data, columns, None, cache, tell, divided=True)
    layout = Layout.read(raw)
    key = digests.of_json(
        {
            "format": FORMAT,
            "raw": raw_key,
            "split": data.split.model_dump(mode="json"),
            "fold": [data.folds, data.fold] if data.split.kind is SplitKind.FOLDS else None,
            "vocabulary": None if isinstance(data, Clicks) else data.vocabulary.model_dump(mode="json"),
        }
    )
    ready = caching.folder(cache, "scan", key, partial(_resolve, data, columns, layout, raw, tell=tell))
    facts = json.loads((ready / "facts.json").read_text("utf-8"))
    if isinstance(data, Clicks):
        sizes: dict[str, int] = {}
        for column, table in columns.ids.items():
            sizes[table] = max(sizes.get(table, 0), data.users if column == "user" else data.items)
        vocabularies: dict[str, Vocabulary] = {table: IdentityVocabulary(size) for table, size in sizes.items()}
    else:
        vocabularies = {table: Vocabulary.read(ready / f"vocabulary.{number}") for number, table in _tables(layout)}
    return Scan(
        examples=examples(raw, raw if isinstance(data, Clicks) else ready),
        vocabularies=vocabularies,
        splits={part: mapped(ready / f"{part}.npy") for part in splits.PARTS},
        label_mean=facts["label_mean"],
        truth=facts["truth"],
        digest=source,
    )


def encode_file(
    path: Path,
    data: Data,
    columns: Columns,
    vocabularies: Mapping[str, Vocabulary],
    *,
    cache: Path,
    progress: Progress | None = None,
) -> Examples:
    """Encodes another file, or folder, of the same kind with the vocabularies of a run.

    Args:
        path: of the file.
        data: says how the file is written.
        columns: what to read; with label None the file needs no label.
        vocabularies: by table.
        cache: folder for encoded data.
        progress: is told what is being done and how much of it is done.

    Raises:
        ConfigError: the file lacks a column.
        DataError: its content is not what it should be, or the source is synthetic.
        VocabularyError: a value is unknown and its vocabulary has no row for such.
    """
    if isinstance(data, Clicks):
        raise DataError(f"a synthetic click log has no other file, so {path} can't be read for it")
    tell = progress or (lambda what, part: None)
    _, raw, raw_key = _raw(data, columns, path, cache, tell, divided=False)
    layout = Layout.read(raw)
    known = {table: vocabularies[table] for _, table in _tables(layout)}
    key = digests.of_json(
        {"format": FORMAT, "raw": raw_key, "vocabularies": {name: each.digest for name, each in known.items()}}
    )
    ready = caching.folder(cache, "rows", key, partial(_to_rows, layout, raw, known))
    return examples(raw, ready)


def source_digest(data: Data, columns: Columns, *, cache: Path) -> str:
    """Digest of a source's content, without reading more of it than that takes (`Scan.digest`).

    Raises:
        ConfigError: the source lacks something the config asks for.
    """
    return _digest(data, columns, None, cache, divided=True)[0]


def _digest(
    data: Data, columns: Columns, path: Path | None, cache: Path, *, divided: bool
) -> tuple[str, located.Source | None]:
    if isinstance(data, Clicks):
        drawn = {"examples", "users", "items", "rank", "history_length", "zipf", "signal", "seed"}
        return digests.of_json({"clicks": FORMAT, **data.model_dump(mode="json", include=drawn)}), None
    try:
        source = located.locate(data, wanted(data, columns, divided=divided), path=path)
    except located.Unreadable as unreadable:
        raise ConfigError(unreadable.faults) from None
    return digests.of_json([caching.file_digest(file, cache=cache) for file in source.files()]), source


def _raw(
    data: Data, columns: Columns, path: Path | None, cache: Path, tell: Progress, *, divided: bool
) -> tuple[str, Path, str]:
    """The source encoded as codes: its digest, the folder, the folder's key."""
    digest, source = _digest(data, columns, path, cache, divided=divided)
    if source is None or isinstance(data, Clicks):
        assert isinstance(data, Clicks)
        return digest, caching.folder(cache, "clicks", digest, lambda folder: clicks.write(data, folder, tell)), digest
    needed = wanted(data, columns, divided=divided)
    timestamp, group = (timestamp_of(data), group_of(data)) if divided else (None, None)
    key = digests.of_json(
        {
            "format": FORMAT,
            "content": digest,
            "files": [file.name for file in source.files()],
            "kind": data.kind,
            "written": _dialect(data),
            "ids": list(columns.ids.items()),
            "weights": list(columns.weights.items()),
            "dense": columns.dense,
            "label": [columns.label, data.label_threshold],
            "timestamp": timestamp,
            "group": group,
        }
    )

    def make(folder: Path) -> None:
        encode.encode(
            readers.chunks(source, needed),
            folder,
            columns,
            lists=source.lists(),
            label_threshold=data.label_threshold,
            timestamp=timestamp,
            group=group,
            progress=tell,
        )

    return digest, caching.folder(cache, "codes", key, make), key


def _dialect(data: RecBole | CSV | Parquet) -> object:
    return [data.delimiter, data.list_separator, sorted(data.list_columns)] if isinstance(data, CSV) else None


def _tables(layout: Layout) -> list[tuple[int, str]]:
    return list(enumerate(layout.token_tables))


def _resolve(data: Data, columns: Columns, layout: Layout, raw: Path, folder: Path, *, tell: Progress) -> None:
    """Writes splits, vocabularies, rows and facts."""
    tell("dividing the examples", None)
    timestamps, groups = None, None
    if isinstance(data, Clicks):
        if data.split.kind is SplitKind.LEAVE_ONE_OUT:
            groups = mapped(raw / "ids.npy")[:, layout.ids.index(str(data.split.group))]
    else:
        timestamps = mapped(raw / "timestamps.npy") if timestamp_of(data) is not None else None
        groups = mapped(raw / "groups.npy") if group_of(data) is not None else None
    assigned = splits.assignment(
        data.split, layout.count, folds=data.folds, fold=data.fold, timestamps=timestamps, groups=groups
    )
    splits.write(assigned, layout.count, folder)
    train = mapped(folder / "train.npy")
    if not isinstance(data, Clicks):
        tell("making vocabularies", None)
        counts = _counts(layout, raw, train)
        vocabularies: dict[str, Vocabulary] = {}
        for number, table in _tables(layout):
            vocabularies[table] = from_counts(read_tokens(raw, layout, table), counts[table], data.vocabulary)
            vocabularies[table].write(folder / f"vocabulary.{number}")
        _to_rows(layout, raw, vocabularies, folder)
    labels = mapped(raw / "labels.npy")
    total = sum(float(labels[train[start:stop]].sum(dtype=np.float64)) for start, stop in splits.chunks(len(train)))
    truth: dict[str, float] = {}
    if isinstance(data, Clicks):
        test = mapped(folder / "test.npy")
        truth = clicks.bayes(labels[test], mapped(raw / "probability.npy")[test])
    facts = {"label_mean": total / len(train), "truth": truth}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def _counts(layout: Layout, raw: Path, train: np.ndarray) -> dict[str, np.ndarray]:
    """How often each code is in the training part, by table: int64, over all columns of the table."""
    counts = {table: np.zeros(len(read_tokens(raw, layout, table)), np.int64) for table in layout.token_tables}
    ids = mapped(raw / "ids.npy")
    lists = [_list(raw, number) for number in range(len(layout.lists))]
    for start, stop in splits.chunks(layout.count):
        first, last = np.searchsorted(train, (start, stop))
        trains = np.zeros(stop - start, bool)
        trains[train[first:last] - start] = True
        for number, name in enumerate(layout.ids):
            counts[layout.tables[name]] += _bincount(ids[start:stop, number][trains], counts[layout.tables[name]])
        for name, (values, ends) in zip(layout.lists, lists, strict=True):
            kept = np.repeat(trains, np.diff(ends[start : stop + 1]))
            part = values[ends[start] : ends[stop]][kept]
            counts[layout.tables[name]] += _bincount(part, counts[layout.tables[name]])
    return counts


def _bincount(codes: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.bincount(codes, minlength=len(like))


def _list(raw: Path, number: int) -> tuple[np.ndarray, np.ndarray]:
    return mapped(raw / f"list.{number}.values.npy"), mapped(raw / f"list.{number}.splits.npy")


def _to_rows(layout: Layout, raw: Path, vocabularies: Mapping[str, Vocabulary], folder: Path) -> None:
    """Writes `ids.npy` and `list.N.values.npy` again, with rows of the tables for codes."""
    rows = {table: vocabularies[table].rows(read_tokens(raw, layout, table)) for _, table in _tables(layout)}
    ids = mapped(raw / "ids.npy")
    with ArrayWriter(folder / "ids.npy", np.int32, len(layout.ids)) as writer:
        for start, stop in splits.chunks(layout.count):
            block = np.empty((stop - start, len(layout.ids)), np.int32)
            for number, name in enumerate(layout.ids):
                block[:, number] = rows[layout.tables[name]][ids[start:stop, number]]
                if (wrong := np.flatnonzero(block[:, number] < 0)).size:
                    code = int(ids[start + int(wrong[0]), number])
                    raise _unknown(layout, raw, rows, name, code, start + int(wrong[0]), data_codes=ids[:, number])
            writer.append(block)
    for number, name in enumerate(layout.lists):
        values, ends = _list(raw, number)
        with ArrayWriter(folder / f"list.{number}.values.npy", np.int32) as writer:
            for start, stop in splits.chunks(len(values)):
                block = rows[layout.tables[name]][values[start:stop]]
                if (wrong := np.flatnonzero(block < 0)).size:
                    place = start + int(wrong[0])
                    example = int(np.searchsorted(ends, place, "right")) - 1
                    raise _unknown(layout, raw, rows, name, int(values[place]), example, data_codes=values)
                writer.append(block)


def _unknown(
    layout: Layout,
    raw: Path,
    rows: Mapping[str, np.ndarray],
    column: str,
    code: int,
    example: int,
    *,
    data_codes: np.ndarray,
) -> VocabularyError:
    table = layout.tables[column]
    token = read_tokens(raw, layout, table)[code].as_py()
    seen = np.zeros(len(rows[table]), bool)
    for start, stop in splits.chunks(len(data_codes)):
        seen[data_codes[start:stop]] = True
    distinct = int((seen & (rows[table] < 0)).sum())
    found = repr(token) if token else "a missing value"
    return VocabularyError(
        f"{layout.place(example)}: {found} in column {column!r} is not in the vocabulary of table {table!r} "
        f"({distinct} distinct unknown values in this column); a vocabulary holds what the training part holds, "
        "as far as data.vocabulary allows: set data.vocabulary.unknown=oov to give unknown values a row"
    )
