"""From a data spec to encoded examples, vocabularies and splits, all of them cached by content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from embexp.data import click_log, queries, raw, rows, splits
from embexp.data.arrays import ArrayWriter, mapped
from embexp.data.columns import Columns
from embexp.data.encode import Progress
from embexp.data.examples import Examples, examples, read_tokens
from embexp.data.hashing import key_of, permuted
from embexp.data.raw import FORMAT, Raw
from embexp.data.vocabulary import IdentityVocabulary, Vocabulary, from_counts
from embexp.data.wanted import group_of, timestamp_faults, timestamp_of
from embexp.data.word_pairs import VOCABULARY
from embexp.errors import ConfigError, DataError
from embexp.specs.data import RELATION, Clicks, Columnar, Data, SkipGram, SplitKind, Text, Triples
from embexp.system import caching, digests


@dataclass(frozen=True)
class Scan:
    """What a run needs to know of its data.

    Attributes:
        examples: all of them, encoded, memory-mapped.
        vocabularies: by table.
        splits: "train", "validation", "test" -> int64 row numbers, rising, memory-mapped; may be empty. A source may
            have more of them, to evaluate on.
        label_mean: of the training part.
        truth: what only a synthetic source knows, on the test part: `bayes_auc`, `bayes_log_loss`.
        digest: of the source's content.
        classes: names of classes by label number, of a source that names them.
    """

    examples: Examples
    vocabularies: Mapping[str, Vocabulary]
    splits: Mapping[str, np.ndarray]
    label_mean: float
    truth: Mapping[str, float]
    digest: str
    classes: tuple[str, ...] = ()


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
    source = raw.read(data, columns, cache=cache, tell=tell, divided=True)
    key = digests.of_json({"format": FORMAT, "raw": source.key} | _division(data))
    ready = caching.folder(cache, "scan", key, partial(_resolve, data, source, tell=tell))
    facts = json.loads((ready / "facts.json").read_text("utf-8"))
    return Scan(
        examples=examples(source.folder, ready if source.layout.token_tables else source.folder),
        vocabularies=_vocabularies(data, columns, source, ready),
        splits={part: mapped(ready / f"{part}.npy") for part in facts.get("parts", splits.PARTS)},
        label_mean=facts["label_mean"],
        truth=facts["truth"],
        digest=source.digest,
        classes=source.classes,
    )


def _division(data: Data) -> dict[str, object]:
    """What the division and the vocabularies depend on, beside the content."""
    if isinstance(data, Triples):
        return {}
    return {
        "split": data.split.model_dump(mode="json"),
        "fold": [data.folds, data.fold] if data.split.kind is SplitKind.FOLDS else None,
        "vocabulary": None if isinstance(data, Clicks | SkipGram) else data.vocabulary.model_dump(mode="json"),
    } | ({"train_examples": data.train_examples} if isinstance(data, Text) else {})


def encode_file(
    path: Path,
    data: Data,
    columns: Columns,
    vocabularies: Mapping[str, Vocabulary],
    *,
    cache: Path,
    classes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Examples:
    """Encodes another file, or folder, of the same kind with the vocabularies of a run.

    Args:
        path: of the file.
        data: says how the file is written.
        columns: what to read; with label None the file needs no label.
        vocabularies: by table.
        cache: folder for encoded data.
        classes: of a run on labelled texts, by number.
        progress: is told what is being done and how much of it is done.

    Raises:
        ConfigError: the file lacks a column.
        DataError: its content is not what it should be, a label is none of the classes, or the source is drawn.
        VocabularyError: a value is unknown and its vocabulary has no row for such.
    """
    if isinstance(data, Clicks):
        raise DataError(f"a synthetic click log has no other file, so {path} can't be read for it")
    if isinstance(data, SkipGram):
        raise DataError(f"pairs of words are drawn from the run's own texts, so {path} can't be read for it")
    tell = progress or (lambda what, part: None)
    if isinstance(data, Triples):
        return _encode_triples(path, data, columns, vocabularies, cache=cache, tell=tell)
    source = raw.read(data, columns, path, cache=cache, tell=tell, divided=False, classes=classes)
    known = {table: vocabularies[table] for table in source.layout.token_tables}
    key = digests.of_json(
        {"format": FORMAT, "raw": source.key, "vocabularies": {name: each.digest for name, each in known.items()}}
    )
    ready = caching.folder(cache, "rows", key, partial(rows.write, source.layout, source.folder, known))
    return examples(source.folder, ready)


def _encode_triples(
    path: Path, data: Triples, columns: Columns, vocabularies: Mapping[str, Vocabulary], *, cache: Path, tell: Progress
) -> Examples:
    known = {
        queries.RELATIONS if column == RELATION else queries.ENTITIES: vocabularies[table]
        for column, table in columns.ids.items()
    }
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    content = caching.file_digest(path, cache=cache)
    how = data.model_dump(mode="json", include={"columns", "reciprocal"})
    whose = {name: each.digest for name, each in known.items()}
    key = digests.of_json({"format": FORMAT, "content": content, "vocabularies": whose} | how)
    ready = caching.folder(cache, "triples", key, partial(queries.write_other, data, path, known, progress=tell))
    return examples(ready, ready)


def source_digest(data: Data, columns: Columns, *, cache: Path) -> str:
    """Digest of a source's content, without reading more of it than that takes (`Scan.digest`).

    Raises:
        ConfigError: the source lacks something the config asks for.
    """
    return raw.digest(data, columns, cache=cache, divided=True)


def _vocabularies(data: Data, columns: Columns, source: Raw, ready: Path) -> dict[str, Vocabulary]:
    match data:
        case Clicks():
            sizes: dict[str, int] = {}
            for column, table in columns.ids.items():
                sizes[table] = max(sizes.get(table, 0), data.users if column == "user" else data.items)
            return {table: IdentityVocabulary(size) for table, size in sizes.items()}
        case SkipGram():
            words = Vocabulary.read(source.folder / VOCABULARY)
            return dict.fromkeys(columns.ids.values(), words)
        case Triples():
            entities = Vocabulary.read(source.folder / queries.ENTITIES)
            relations = Vocabulary.read(source.folder / queries.RELATIONS)
            return {table: relations if column == RELATION else entities for column, table in columns.ids.items()}
        case _:
            tables = enumerate(source.layout.token_tables)
            return {table: Vocabulary.read(ready / f"vocabulary.{number}") for number, table in tables}


def _resolve(data: Data, source: Raw, folder: Path, *, tell: Progress) -> None:
    """Writes splits, vocabularies, rows and facts."""
    tell("dividing the examples", None)
    layout = source.layout
    timestamps, groups = None, None
    if isinstance(data, Clicks):
        if data.split.kind is SplitKind.LEAVE_ONE_OUT:
            groups = mapped(source.folder / "ids.npy")[:, layout.ids.index(str(data.split.group))]
    elif isinstance(data, Columnar):
        timestamps = mapped(source.folder / "timestamps.npy") if timestamp_of(data) is not None else None
        groups = mapped(source.folder / "groups.npy") if group_of(data) is not None else None
    if isinstance(data, Triples):
        assigned = splits.in_order([count for _, count in layout.files])
    else:
        assigned = splits.assignment(
            data.split, layout.count, folds=data.folds, fold=data.fold, timestamps=timestamps, groups=groups
        )
    splits.write(assigned, layout.count, folder)
    parts = [*splits.PARTS, *(_new_entities(data, source, folder) if isinstance(data, Triples) else ())]
    train = mapped(folder / "train.npy")
    if not isinstance(data, Clicks | SkipGram | Triples):
        tell("making vocabularies", None)
        counts = rows.counts(layout, source.folder, train)
        vocabularies: dict[str, Vocabulary] = {}
        for number, table in enumerate(layout.token_tables):
            tokens = read_tokens(source.folder, layout, table)
            vocabularies[table] = from_counts(tokens, counts[table], data.vocabulary)
            vocabularies[table].write(folder / f"vocabulary.{number}")
        rows.write(layout, source.folder, vocabularies, folder)
    if isinstance(data, Text) and data.train_examples is not None:
        train = _fewer(train, data.train_examples, data.split.seed, folder / "train.npy")
    labels = mapped(source.folder / "labels.npy")
    total = sum(float(labels[train[start:stop]].sum(dtype=np.float64)) for start, stop in splits.chunks(len(train)))
    truth: dict[str, float] = {}
    if isinstance(data, Clicks):
        test = mapped(folder / "test.npy")
        truth = click_log.bayes(labels[test], mapped(source.folder / "probability.npy")[test])
    facts = {"label_mean": total / len(train), "truth": truth, "parts": parts}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def _new_entities(data: Triples, source: Raw, folder: Path) -> list[str]:
    """Writes the parts of a graph some of whose entities count as new, and returns the names of those beyond `PARTS`.

    Raises:
        DataError: no triple would train.
    """
    if data.new_entities is None:
        return []
    found = {part: np.load(folder / f"{part}.npy") for part in splits.PARTS}
    divided = queries.parts(data.new_entities.train, source.folder, found)
    if not len(divided["train"]):
        raise DataError(
            f"{data.path}: no training triple has to do with the entities that count as new; take a larger share of"
            f" them than {data.new_entities.share:g}, or another seed"
        )
    for part, chosen in divided.items():
        with ArrayWriter(folder / f"{part}.npy", np.int64) as writer:
            writer.append(chosen)
    return [part for part in divided if part not in splits.PARTS]


def _fewer(train: np.ndarray, count: int, seed: int, path: Path) -> np.ndarray:
    """Writes `count` of the rows, drawn by a seed; those for a smaller count are among those for a larger one.

    Raises:
        DataError: there are not as many.
    """
    if count > len(train):
        raise DataError(
            f"data.train_examples is {count}, but the training part has {len(train)} examples; choose fewer, or null"
        )
    key = key_of(seed, "train_examples")
    made = path.with_suffix(".fewer")
    with ArrayWriter(made, np.int64) as writer:
        for start, stop in splits.chunks(len(train)):
            writer.append(train[start:stop][permuted(np.arange(start, stop), len(train), key) < count])
    made.replace(path)
    return mapped(path)
