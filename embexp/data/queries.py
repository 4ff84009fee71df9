"""A knowledge graph's triples as queries: each triple is a tail prediction and a head prediction.

Of triple i, example 2i is the query (head, relation, ?) and example 2i + 1 is (tail, inverse of relation, ?).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.data import new_entities
from embexp.data.arrays import ArrayWriter, mapped
from embexp.data.candidates import TARGET
from embexp.data.examples import Layout
from embexp.data.triple_codes import Lines, places, read
from embexp.data.triple_files import files_of
from embexp.data.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError, VocabularyError
from embexp.specs.triples import INVERSE, RELATION, SOURCE, NewEntities, TrainedTriples, Triples
from embexp.system.progress import Progress

ENTITIES, RELATIONS = "entities", "relations"
"""Stems of the files, in the folder, with what the ids stand for."""
INVERSE_OF = "{}^-1"
"""Name of the inverse relation."""
NEW = "new.npy"
"""File, in the folder, with a bool for each query: whether it has a new entity or relation."""
_MOST_ENTITIES = 1 << 24  # float32, in which labels are kept, holds every whole number up to this
_CHUNK = 1 << 20


def write(data: Triples, folder: Path, progress: Progress) -> None:
    """Writes a graph's queries into an empty folder: ids are rows already.

    Both vocabularies hold what is in any of the files, by falling frequency in the training split. Where only
    known entities train, triples with new ones are removed.

    Raises:
        DataError: a file's content is malformed.
    """
    path = Path(data.path)
    lines = read(files_of(path), progress)
    head, relation, tail = places(lines, data.columns)
    if data.new_entities is not None:
        lines = _marked(lines, (head, relation, tail), data.new_entities, path, folder)
    trains = lines.fields[: next(iter(lines.files.values()))]
    entities, entity_rows = _vocabulary(lines, (head, tail), trains)
    relations, relation_rows = _vocabulary(lines, (relation,), trains)
    if entities.size > _MOST_ENTITIES:
        raise DataError(f"{path}: found {entities.size:,} entities, expected {_MOST_ENTITIES:,} at most")
    if data.reciprocal:
        relations, relation_rows = _with_inverses(relations, path), 2 * relation_rows
    entities.write(folder / ENTITIES)
    relations.write(folder / RELATIONS)
    triples = np.stack(
        [
            entity_rows[lines.fields[:, head]],
            relation_rows[lines.fields[:, relation]],
            entity_rows[lines.fields[:, tail]],
        ],
        axis=1,
    )
    _write_queries(triples, lines, folder, reciprocal=data.reciprocal)


def write_other(data: Triples, path: Path, known: Mapping[str, Vocabulary], folder: Path, progress: Progress) -> None:
    """Writes the queries of another file of triples into an empty folder, with the vocabularies of a run.

    Args:
        data: of the run.
        path: one file.
        known: the vocabularies, by `ENTITIES` and `RELATIONS`.
        folder: where to.
        progress: called as the work goes on.

    Raises:
        DataError: the file's content is malformed.
        VocabularyError: an entity or a relation is none of the run's.
    """
    lines = read([path], progress)
    rows = {name: vocabulary.rows(lines.tokens) for name, vocabulary in known.items()}
    if data.reciprocal:  # inverses are the run's own; no file names them
        rows[RELATIONS][rows[RELATIONS] % 2 == 1] = -1
    if data.columns is None:
        # As the run found it: the field with the most values that are relations; a head comes before its tail.
        found = [int(np.count_nonzero(rows[RELATIONS][lines.fields[:, field]] >= 0)) for field in (1, 0, 2)]
        at = (1, 0, 2)[int(np.argmax(found))]
        head, tail = (field for field in range(3) if field != at)
    else:
        head, at, tail = places(lines, data.columns)
    triples = np.stack(
        [rows[kind][lines.fields[:, field]] for kind, field in ((ENTITIES, head), (RELATIONS, at), (ENTITIES, tail))],
        axis=1,
    )
    unknown = np.argwhere(triples < 0)
    if unknown.size:
        triple, place = unknown[0]
        token = lines.tokens[lines.fields[triple, (head, at, tail)[place]]]
        raise VocabularyError(
            f"{path}, triple {triple + 1}: {token!r} is none of the {'relations' if place == 1 else 'entities'} of the"
            f" run ({len(np.unique(unknown[:, 0])):,} of {len(triples):,} triples hold such values)"
        )
    _write_queries(triples, lines, folder, reciprocal=data.reciprocal)


def _marked(lines: Lines, order: Sequence[int], settings: NewEntities, path: Path, folder: Path) -> Lines:
    """Marks queries with new entities, or removes them.

    Raises:
        DataError: nothing would be left to train on.
    """
    training = next(iter(lines.files.values()))
    touched = new_entities.touched(
        lines.fields[:, list(order)], lines.tokens, training=training, share=settings.share, seed=settings.seed
    )
    if touched[:training].all():
        raise DataError(
            f"{path}: every training triple has to do with the entities that count as new; take a smaller share of them"
            f" than {settings.share:g}, or another seed"
        )
    if settings.train is not TrainedTriples.KNOWN:
        with ArrayWriter(folder / NEW, np.bool_) as writer:
            writer.append(np.repeat(touched, 2))
        return lines
    starts = np.cumsum([0, *lines.files.values()])
    left = np.add.reduceat(~touched, starts[:-1], dtype=np.int64)
    return Lines(dict(zip(lines.files, left.tolist(), strict=True)), lines.fields[~touched], lines.tokens)


def new_entity_splits(train: TrainedTriples, folder: Path, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The splits of a graph some of whose entities count as new.

    Args:
        train: which triples train.
        folder: what `write` made.
        found: rows of the queries, by split, as the files have them.
    """
    if train is TrainedTriples.KNOWN:
        return dict(found)
    new = mapped(folder / NEW)
    tests = {"test_new": found["test"][new[found["test"]]], "test_known": found["test"][~new[found["test"]]]}
    if train is TrainedTriples.ALL:
        return {**found, **tests}
    learned = {name: found[name][new[found[name]]] for name in ("train", "validation")}
    return {**learned, "test": found["test"], **tests}


def _vocabulary(lines: Lines, fields: Sequence[int], trains: np.ndarray) -> tuple[TokenVocabulary, np.ndarray]:
    """Values by falling frequency in the training split, then by code point; and of each code its row."""
    codes = np.unique(lines.fields[:, list(fields)])
    counts = np.bincount(trains[:, list(fields)].reshape(-1), minlength=len(lines.tokens))
    order = sorted(codes.tolist(), key=lambda code: (-counts[code], lines.tokens[code]))
    rows = np.full(len(lines.tokens), -1, np.int64)
    rows[order] = np.arange(len(order))
    tokens = pa.array([lines.tokens[code] for code in order], pa.large_string())
    return TokenVocabulary(tokens, counts[order].astype(np.int64), oov=False), rows


def _with_inverses(relations: TokenVocabulary, path: Path) -> TokenVocabulary:
    """Each relation's inverse in the row after it.

    Raises:
        DataError: a relation has the name of the inverse of another.
    """
    names = relations.tokens()
    inverses = [INVERSE_OF.format(name) for name in names]
    if both := sorted(set(names) & set(inverses)):
        raise DataError(
            f"{path}: found the relation {both[0]!r}, which is how the inverse of another would be called; "
            "rename it, or set data.reciprocal=false"
        )
    tokens = [token for pair in zip(names, inverses, strict=True) for token in pair]
    return TokenVocabulary(pa.array(tokens, pa.large_string()), np.repeat(relations.known_frequencies, 2), oov=False)


def _write_queries(triples: np.ndarray, lines: Lines, folder: Path, *, reciprocal: bool) -> None:
    with ExitStack() as stack:
        ids = stack.enter_context(ArrayWriter(folder / "ids.npy", np.int32, 3))
        labels = stack.enter_context(ArrayWriter(folder / "labels.npy", np.float32))
        dense = stack.enter_context(ArrayWriter(folder / "dense.npy", np.float32, 0 if reciprocal else 1))
        for start in range(0, len(triples), _CHUNK):
            some = triples[start : start + _CHUNK]
            both = np.repeat(some, 2, axis=0)
            both[1::2] = some[:, ::-1]
            both[1::2, 1] += reciprocal
            ids.append(both)
            labels.append(both[:, 2])
            dense.append(np.empty((len(both), 0)) if reciprocal else (np.arange(len(both)) % 2)[:, None])
    Layout(
        count=2 * len(triples),
        ids=[SOURCE, RELATION, TARGET],
        dense=[] if reciprocal else [INVERSE],
        label=True,
        files=[(file.name, 2 * count) for file, count in lines.files.items()],
    ).write(folder)
