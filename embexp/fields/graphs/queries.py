"""A knowledge graph's triples as queries, and the candidates among which their answers are ranked.

Of triple i, example 2i is the query (head, relation, ?) and example 2i + 1 is (tail, inverse of relation, ?).

No file holds the column `candidates`: it is made of entities, one of them the answer.

| | candidates | label |
|---|---|---|
| all entities (1-vs-all; all that is evaluated) | int32 [1, C], the same for every query | row of the answer |
| drawn | int32 [B, 1 + k]: the answer, then k others | 0 |
| shared | int32 [1, B + k]: the answers of the batch, then k drawn ones, the same for every query | see below |

Labels of shared candidates are float32 [B + k, 2]: the entity, and the logarithm of how often a step is expected to
have it among its candidates. The answer of query i is candidate i.

The draw is a pure function of the seed and the number of the step, so that a training can continue at any step.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from embexp.data.examples import Examples, Layout, ListColumn
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError, VocabularyError, excerpt
from embexp.fields.graphs.specs import (
    INVERSE,
    GraphSplit,
    KnowledgeGraph,
    NewEntities,
    Place,
    Positives,
    TrainedTriples,
    Triples,
)
from embexp.fields.graphs.triples import Names, files_of, is_ordered, lines_of
from embexp.runs.prepare import Data
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES, RELATION, SOURCE
from embexp.specs.vocabularies import Steps, normalized_text
from embexp.system import digests
from embexp.system.arrays import ArrayWriter, mapped_array
from embexp.system.parallel import Progress
from embexp.training.ranking import KnownAnswers

ENTITIES, RELATIONS = "entities", "relations"
"""Stems of the files, in the folder, with what the ids stand for."""
INVERSE_OF = "{}^-1"
"""Name of the inverse relation."""
NEW = "new.npy"
"""File, in the folder, with a bool for each query: whether it has a new entity or relation."""
_MOST_ENTITIES = 1 << 24  # float32, in which labels are kept, holds every whole number up to this
_CHUNK = 1 << 20
_TELLING = 20  # triples; a smaller graph may have names that occur once
_IN_ORDER = (0, 1, 2)
"""Fields of head, relation and tail in files whose names were restored."""
_TARGET = "target"
"""The id column of the answers."""


def write_queries(
    data: Triples, folder: Path, progress: Progress, *, known: Mapping[str, Vocabulary] = MappingProxyType({})
) -> None:
    """Writes a graph's queries into an empty folder: ids are rows already.

    Both vocabularies hold what is in any of the files, by falling frequency in the training split. Where only
    known entities train, triples with new ones are removed.

    Args:
        known: vocabularies of a run that goes on, by `ENTITIES` and `RELATIONS`, whose names come first.

    Raises:
        DataError: a file's content is malformed.
    """
    path = Path(data.path)
    files = files_of(path)
    names = files.names
    lines = _normalized(read_lines(files.splits, names, progress), data.token_steps or ())
    in_order = names is not None or files.ordered
    head, relation, tail = _IN_ORDER if in_order else fields_of(lines, data.columns)
    if len(files.splits) == 1:
        lines = divided(lines, (head, relation, tail), data.split)
    if data.new_entities is not None:
        lines = _marked(lines, (head, relation, tail), data.new_entities, path, folder)
    trains = lines.fields[: next(iter(lines.files.values()))]
    before = {name: vocabulary.tokens() for name, vocabulary in known.items()}
    if data.reciprocal and RELATIONS in before:
        before[RELATIONS] = before[RELATIONS][::2]
    entities, entity_rows = _vocabulary(lines, (head, tail), trains, before.get(ENTITIES, ()))
    relations, relation_rows = _vocabulary(lines, (relation,), trains, before.get(RELATIONS, ()))
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


def write_other_queries(
    data: Triples, path: Path, names: Names | None, known: Mapping[str, Vocabulary], folder: Path, progress: Progress
) -> None:
    """Writes the queries of another file of triples into an empty folder, with the vocabularies of a run.

    Args:
        names: of numbered triples.
        known: the vocabularies, by `ENTITIES` and `RELATIONS`.

    Raises:
        DataError: the file's content is malformed.
        VocabularyError: an entity or a relation is none of the run's.
    """
    lines = read_lines([path], names, progress)
    rows = {name: vocabulary.rows(lines.tokens) for name, vocabulary in known.items()}
    if data.reciprocal:  # inverses are the run's own; no file names them
        rows[RELATIONS][rows[RELATIONS] % 2 == 1] = -1
    if names is not None or is_ordered(path):
        head, at, tail = _IN_ORDER
    elif data.columns is None:
        # As the run found it: the field with the most values that are relations; a head comes before its tail.
        found = [int(np.count_nonzero(rows[RELATIONS][lines.fields[:, field]] >= 0)) for field in (1, 0, 2)]
        at = (1, 0, 2)[int(np.argmax(found))]
        head, tail = (field for field in range(3) if field != at)
    else:
        head, at, tail = fields_of(lines, data.columns)
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


def divided(lines: Lines, order: Sequence[int], split: GraphSplit) -> Lines:
    """The triples of one file as those of train, validation and test, in this order.

    They are drawn one by one. A triple leaves train only if others of train have its entities and its relation, and
    none is equal to it. So train has all names, perhaps at the cost of fewer triples elsewhere.

    Args:
        order: fields of head, relation and tail.

    Raises:
        DataError: no triple can leave train for a split that is to have some.
    """
    [(file, count)] = lines.files.items()
    triples = lines.fields[:, list(order)].astype(np.int64)
    wanted = [max(1, round(share * count)) if share else 0 for share in (split.validation, split.test)]
    _, places, times = np.unique(triples, axis=0, return_inverse=True, return_counts=True)
    entities = np.bincount(triples[:, [0, 2]].reshape(-1), minlength=len(lines.tokens))
    entities -= np.bincount(triples[triples[:, 0] == triples[:, 2], 0], minlength=len(lines.tokens))
    left, relations = entities.tolist(), np.bincount(triples[:, 1], minlength=len(lines.tokens)).tolist()
    single = (times[places.reshape(-1)] == 1).tolist()
    drawn: list[int] = []
    generator = np.random.default_rng(digests.seed_of(split.seed, "graph split"))
    for place in generator.permutation(count).tolist():
        if len(drawn) == sum(wanted):
            break
        head, relation, tail = triples[place].tolist()
        if single[place] and left[head] > 1 and left[tail] > 1 and relations[relation] > 1:
            drawn.append(place)
            relations[relation] -= 1
            left[head] -= 1
            left[tail] -= head != tail
    validates = round(len(drawn) * wanted[0] / max(1, sum(wanted)))
    parts = {"validation": np.sort(drawn[:validates]), "test": np.sort(drawn[validates:])}
    for name, share in (("validation", split.validation), ("test", split.test)):
        if share and not len(parts[name]):
            raise DataError(
                f"{file}: found no triple for {name} whose entities and relation also occur in other triples; "
                f"use a larger graph, or set data.split.{name}=0"
            )
    trains = np.setdiff1d(np.arange(count), drawn)
    ranges = {"train": trains, **parts}
    files = {file.with_name(f"{name} of {file.name}"): len(rows) for name, rows in ranges.items()}
    return Lines(files, lines.fields[np.concatenate([*ranges.values()]).astype(np.int64)], lines.tokens)


def _marked(lines: Lines, order: Sequence[int], settings: NewEntities, path: Path, folder: Path) -> Lines:
    """Marks queries with new entities, or removes them.

    Raises:
        DataError: nothing would be left to train on.
    """
    training = next(iter(lines.files.values()))
    touched = _with_new_entities(
        lines.fields[:, list(order)], lines.tokens, training=training, share=settings.share, seed=settings.seed
    )
    if touched[:training].all():
        raise DataError(
            f"{path}: every training triple contains an entity that counts as new; set a share smaller than "
            f"{settings.share:g}, or another seed"
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
        folder: what `write` made.
        found: rows of the queries, by split, as the files have them.
    """
    if train is TrainedTriples.KNOWN:
        return dict(found)
    new = mapped_array(folder / NEW)
    tests = {"test_new": found["test"][new[found["test"]]], "test_known": found["test"][~new[found["test"]]]}
    if train is TrainedTriples.ALL:
        return {**found, **tests}
    learned = {name: found[name][new[found[name]]] for name in ("train", "validation")}
    return {**learned, "test": found["test"], **tests}


def _vocabulary(
    lines: Lines, fields: Sequence[int], trains: np.ndarray, before: Sequence[str]
) -> tuple[TokenVocabulary, np.ndarray]:
    """Names of an earlier run, then the others by falling frequency in the training split, then by code point.

    Returns:
        The vocabulary, and the row of each code, int64; -1: the code is not one of its names.
    """
    codes = np.unique(lines.fields[:, list(fields)]).tolist()
    counts = np.bincount(trains[:, list(fields)].reshape(-1), minlength=len(lines.tokens))
    first = {token: row for row, token in enumerate(before)}
    new = [code for code in codes if lines.tokens[code] not in first]
    new.sort(key=lambda code: (-counts[code], lines.tokens[code]))
    place = first | {lines.tokens[code]: len(first) + row for row, code in enumerate(new)}
    rows = np.full(len(lines.tokens), -1, np.int64)
    rows[codes] = [place[lines.tokens[code]] for code in codes]
    frequencies: np.ndarray = np.zeros(len(place), np.int64)
    frequencies[rows[codes]] = counts[codes]
    return TokenVocabulary(pa.array(list(place), pa.large_string()), frequencies, oov=False), rows


def _with_inverses(relations: TokenVocabulary, path: Path) -> TokenVocabulary:
    """Puts the inverse of each relation into the row after it.

    Raises:
        DataError: a relation has the name of the inverse of another.
    """
    names = relations.tokens()
    inverses = [INVERSE_OF.format(name) for name in names]
    if both := sorted(set(names) & set(inverses)):
        raise DataError(
            f"{path}: found the relation {both[0]!r}, which is also the name of another relation's inverse; "
            f"rename it, or set data.reciprocal=false"
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
        ids=[SOURCE, RELATION, _TARGET],
        dense=[] if reciprocal else [INVERSE],
        label=True,
        files=[(file.name, 2 * count) for file, count in lines.files.items()],
    ).write(folder)


@dataclass(frozen=True)
class Lines:
    """The lines of some files as numbers.

    Attributes:
        files: number of triples of each file, in order.
        fields: int32 [triples, 3], codes of each line's fields; fields of one value have one code.
        tokens: of each code, in the order in which they were first seen.
    """

    files: Mapping[Path, int]
    fields: np.ndarray
    tokens: Sequence[str]


def read_lines(files: Sequence[Path], names: Names | None, progress: Progress) -> Lines:
    """Reads all lines of some files.

    Args:
        names: of numbered triples.

    Raises:
        DataError: a line is no triple, or there are none.
    """
    size, done = sum(file.stat().st_size for file in files), 0
    codes: dict[str, int] = {}
    numbers = array.array("i")
    counts: dict[Path, int] = {}
    for file in files:
        before = len(numbers)
        for count, (fields, length) in enumerate(lines_of(file, names)):
            numbers.extend(codes.setdefault(field, len(codes)) for field in fields)
            done += length
            if count % 65_536 == 0:
                progress("reading triples", min(1.0, done / size))
        counts[file] = (len(numbers) - before) // 3
        if not counts[file]:
            raise DataError(f"{file}: found no triples")
    return Lines(counts, np.frombuffer(numbers, np.int32).reshape(-1, 3), list(codes))


def _normalized(lines: Lines, steps: Steps) -> Lines:
    """The lines, with names normalized by some steps.

    Raises:
        DataError: a name becomes empty.
    """
    if not steps:
        return lines
    codes: dict[str, int] = {}
    names = (normalized_text(token, steps) for token in lines.tokens)
    code_of: np.ndarray = np.array([codes.setdefault(name, len(codes)) for name in names], np.int32)
    if "" in codes:
        raise DataError(f"{next(iter(lines.files))}: found a name that is only whitespace, expected a name")
    return Lines(lines.files, code_of[lines.fields], list(codes))


def fields_of(lines: Lines, columns: Sequence[Place] | None) -> tuple[int, int, int]:
    """Which field of a line is the head, the relation and the tail.

    Raises:
        DataError: `columns` is None, and the triples don't show it; or the files seem to begin with a header line.
    """
    first = [lines.fields[start] for start in np.cumsum([0, *lines.files.values()])[:-1]]
    if _is_header(lines.fields, first):
        names = ", ".join(excerpt(lines.tokens[code]) for code in first[0])
        raise DataError(
            f"{next(iter(lines.files))}: found {names} only in the first line, expected a triple; if the line "
            f"is a header, change it to head, relation and tail, or remove it; if it is a triple, move it further down"
        )
    if columns is None:
        return _inferred_fields(lines)
    return columns.index(Place.HEAD), columns.index(Place.RELATION), columns.index(Place.TAIL)


def _is_header(fields: np.ndarray, first: Sequence[np.ndarray]) -> bool:
    """Whether the first lines of all files are equal, and contain values that none of the next lines contains."""
    same = all((line == first[0]).all() for line in first)
    return same and len(fields) >= _TELLING and int(np.isin(fields, first[0]).sum()) == 3 * len(first)


def _inferred_fields(lines: Lines) -> tuple[int, int, int]:
    """Infers the fields: heads and tails share values, because both are entities, and the third is the relation."""
    used = np.zeros((3, len(lines.tokens)), bool)
    for field in range(3):
        used[field, lines.fields[:, field]] = True
    orders = [(0, 1, 2), (1, 0, 2), (0, 2, 1)]  # fields of head, relation and tail; the head comes before the tail
    shared = [int(np.count_nonzero(used[head] & used[tail])) for head, _, tail in orders]
    best = max(shared)
    if shared.count(best) > 1:
        first = next(iter(lines.files))
        raise DataError(
            f"{first}: can't tell which field is the relation, because no two of the three fields stand out by "
            f"sharing values; set data.columns, such as [head,relation,tail]"
        )
    return orders[shared.index(best)]


def new_entities(entities: Iterable[str], *, share: float, seed: int) -> list[str]:
    """A share of some entities, one of them at least: a pure function of their names and the seed.

    Args:
        share: fraction of them, rounded to a whole number of entities.
    """
    drawn = sorted(entities, key=lambda name: (digests.seed_of(seed, "new_entities", name), name))
    return drawn[: max(1, round(share * len(drawn)))]


def _with_new_entities(
    triples: np.ndarray, tokens: Sequence[str], *, training: int, share: float, seed: int
) -> np.ndarray:
    """Which triples contain something new: bool [n].

    The `chosen` entities are new, and so are entities and relations that no other training triple contains. Everything
    else is thus in at least one training triple that stays.

    Args:
        triples: codes of head, relation and tail, integers [n, 3].
        tokens: names by code; an entity and a relation may share a code.
        training: the number of training triples, which come first.
    """
    ends, relations = triples[:, [0, 2]], triples[:, 1]
    code_of = {tokens[code]: code for code in np.unique(ends).tolist()}
    drawn = np.zeros(len(tokens), bool)
    drawn[[code_of[name] for name in new_entities(code_of, share=share, seed=seed)]] = True
    left = ~drawn[ends[:training]].any(axis=1)
    known_entity, known_relation = np.zeros(len(tokens), bool), np.zeros(len(tokens), bool)
    known_entity[ends[:training][left]] = True
    known_relation[relations[:training][left]] = True
    return np.asarray(~(known_entity[ends].all(axis=1) & known_relation[relations]))


@dataclass(frozen=True)
class Candidates:
    """How the column is made.

    Attributes:
        entities: how many there are, at least 2.
        negatives: so many are drawn for each training query; None: all entities are candidates.
        positives: the training answers of each training query, by its row among the examples (KvsAll); None: one each.
        shares: float64 [entities], how often each answers a training query; None: negatives are each query's own.
        relations: how many there are, where batches are to have all of them; 0: nobody wants them.
    """

    entities: int
    negatives: int | None
    seed: int
    positives: KnownAnswers | None = None
    shares: np.ndarray | None = None
    relations: int = 0


def head_predictions(rows: np.ndarray) -> np.ndarray:
    """Bool [n]: whether queries, by their rows, predict a head, as every second one does; others predict a tail."""
    return np.asarray(rows % 2 == 1)


def kinds_and_answers(examples: Examples, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What some queries ask whatever their source, a number for each relation and direction, and their answers."""
    return examples.column(RELATION, rows) * 2 + head_predictions(rows), examples.column(_TARGET, rows)


def known_answers(examples: Examples, rows: np.ndarray, others: Sequence[Examples] = ()) -> KnownAnswers:
    """The answers to some queries that stand in any split of the data.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], the queries.
        others: more examples that hold answers, with the same vocabularies.
    """
    sources = [examples, *others]
    targets = np.concatenate([source.column(_TARGET) for source in sources])
    distinct, number = np.unique(_queries(sources), return_inverse=True)
    return KnownAnswers(_answers(number, targets, len(distinct)), number[: examples.count][rows])


def _answers(number: np.ndarray, targets: np.ndarray, count: int) -> ListColumn:
    """The distinct answers of each of `count` distinct queries, rising, given the query number of each answer."""
    entities = int(targets.max(initial=0)) + 1
    pairs = np.unique(number * entities + targets)
    return ListColumn((pairs % entities).astype(np.int32), np.searchsorted(pairs, np.arange(count + 1) * entities))


def _queries(sources: Sequence[Examples]) -> np.ndarray:
    """A number for each query, int64, from source, relation, and whether it predicts a head."""
    columns = []
    for each in sources:
        head = head_predictions(np.arange(each.count))
        columns.append(np.stack([each.column(SOURCE), each.column(RELATION), head]))
    source, relation, head = np.concatenate(columns, axis=1)
    return np.asarray((source * (int(relation.max(initial=0)) + 1) + relation) * 2 + head)


def answer_shares(examples: Examples, rows: np.ndarray, entities: int) -> np.ndarray:
    """How often each entity answers some queries: float64 [entities], with the sum 1.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], at least one, the queries.
        entities: how many there are.
    """
    return np.bincount(examples.column(_TARGET, rows), minlength=entities) / len(rows)


def distinct_queries(examples: Examples, rows: np.ndarray) -> tuple[np.ndarray, KnownAnswers]:
    """The distinct queries among some, each by the first row that asks it, and their answers among these rows.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], rising, the queries of the training split.

    Returns:
        The rows, rising, and the answers of all examples by their rows; those of other rows than these are nobody's.
    """
    targets = examples.column(_TARGET, rows)
    _, first, number = np.unique(_queries([examples])[rows], return_index=True, return_inverse=True)
    places = np.zeros(examples.count, np.int64)
    places[rows] = number
    return rows[np.sort(first)], KnownAnswers(_answers(number, targets, len(first)), places)


def complete(spec: RunSpec, data: Data) -> Data:
    """The data with the candidates of queries, each query once where all its answers are learned together.

    Raises:
        DataError: there is only one entity, or one relation to predict.
    """
    settings, scan, positives = spec.data, data.scan, None
    assert isinstance(settings, Triples)  # a rule between the settings
    if settings.positives is Positives.ALL:
        rows, positives = distinct_queries(scan.examples, scan.splits["train"])
        scan = replace(scan, splits={**scan.splits, "train": rows})
    sizes = {spec.ids_of(name): data.vocabularies[feature.table].size for name, feature in spec.features.items()}
    if (entities := sizes[CANDIDATES]) < 2:
        raise DataError(f"{settings.path}: found {entities} entity, expected 2 or more, to rank answers")
    candidates = Candidates(entities, settings.negatives, spec.seed, positives)
    if settings.shared_negatives:
        answered = answer_shares(scan.examples, scan.splits["train"], candidates.entities)
        candidates = replace(candidates, shares=answered)
    if isinstance(spec.model, KnowledgeGraph) and spec.model.relation_prediction:
        if sizes[RELATION] < 2 * (1 + settings.reciprocal):
            rule = "found one relation, expected 2 or more for model.relation_prediction"
            raise DataError(f"{settings.path}: {rule}")
        candidates = replace(candidates, relations=sizes[RELATION])
    return replace(data, scan=scan, candidates=candidates)
