"""From codes of tokens to rows of tables, once it is known which examples train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data import shares, splits
from embexp.data.ahead import ahead
from embexp.data.arrays import ArrayWriter, mapped
from embexp.data.bucket_vocabulary import BucketVocabulary
from embexp.data.columns import BucketColumn
from embexp.data.counted import with_rows
from embexp.data.examples import Encoded, Examples, Layout, examples, read_tokens
from embexp.data.fitted_buckets import fit_buckets
from embexp.data.source import FORMAT
from embexp.data.vocabulary import Vocabulary
from embexp.errors import DataError, VocabularyError
from embexp.specs.vocabularies import VocabularyRules
from embexp.system import caching, digests
from embexp.system.parallel import at_once
from embexp.system.progress import Progress

_ROWS = 16_384  # whose codes, column by column, stay in the processor's cache


def learn(
    encoded: Encoded,
    rules: Mapping[str, VocabularyRules],
    buckets: Mapping[str, BucketColumn],
    folder: Path,
    *,
    progress: Progress,
) -> None:
    """Writes vocabularies made from the training split, and the examples with rows of the tables for codes.

    Args:
        encoded: the codes, and numbers for buckets.
        rules: which tokens get a row, by vocabulary.
        buckets: see `Columns`.
        folder: where to; the splits are there already.
        progress: called as the work goes on.

    Raises:
        DataError: there is no number from which to make quantiles.
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    progress("making vocabularies", None)
    layout, train = encoded.layout, mapped(folder / "train.npy")
    counted = counts(layout, encoded.folder, train)

    def of_table(table: str) -> tuple[np.ndarray, np.ndarray]:
        tokens = read_tokens(encoded.folder, layout, table)
        vocabulary, rows = with_rows(tokens, counted[table], rules[table])
        vocabulary.write(folder / f"vocabulary.{layout.token_tables.index(table)}")
        return rows.astype(np.int32), shares.kinds_of(vocabulary, rows, counted[table])

    found = dict(zip(layout.token_tables, at_once(of_table, layout.token_tables), strict=True))
    vocabularies: dict[str, Vocabulary] = {}
    if buckets:
        made = fit_buckets(mapped(encoded.folder / "bucketed.npy"), layout.bucketed, train, buckets, folder)
        for number, (table, vocabulary) in enumerate(made.items()):
            vocabulary.write(folder / f"buckets.{number}")
            vocabularies[table] = vocabulary
    write(encoded, {table: rows for table, (rows, _) in found.items()}, vocabularies, buckets, folder)
    shares.write(encoded, {table: kinds for table, (_, kinds) in found.items()}, counted, buckets, folder)


def learned(encoded: Encoded, buckets: Mapping[str, BucketColumn], folder: Path) -> dict[str, Vocabulary]:
    """By table, the vocabularies that `learn` wrote."""
    stems = {table: f"vocabulary.{number}" for number, table in enumerate(encoded.layout.token_tables)}
    bucketed = dict.fromkeys(each.table for each in buckets.values())
    stems |= {table: f"buckets.{number}" for number, table in enumerate(bucketed)}
    read = at_once(lambda stem: Vocabulary.read(folder / stem), stems.values())
    return dict(zip(stems, read, strict=True))


def numbered(
    encoded: Encoded, vocabularies: Mapping[str, Vocabulary], buckets: Mapping[str, BucketColumn], *, cache: Path
) -> Examples:
    """The examples with rows of tables for codes, by vocabularies that are known.

    Raises:
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    tables = dict.fromkeys([*encoded.layout.token_tables, *(each.table for each in buckets.values())])
    known = {table: vocabularies[table] for table in tables}
    whose: dict[str, Any] = {name: each.digest for name, each in known.items()}
    placed = [[name, each.column, each.table] for name, each in buckets.items()]
    key = digests.of_json({"format": FORMAT, "raw": encoded.key, "vocabularies": whose, "buckets": placed})
    layout = encoded.layout

    def make(folder: Path) -> None:
        def of_table(table: str) -> np.ndarray:
            return known[table].rows(read_tokens(encoded.folder, layout, table)).astype(np.int32)

        rows = dict(zip(layout.token_tables, at_once(of_table, layout.token_tables), strict=True))
        write(encoded, rows, known, buckets, folder)

    return examples(encoded.folder, caching.folder(cache, "rows", key, make), tuple(buckets))


def counts(layout: Layout, raw: Path, train: np.ndarray) -> dict[str, np.ndarray]:
    """How often each code is in the training split, by table: int64, over all columns of the table."""
    found = {table: np.zeros(len(read_tokens(raw, layout, table)), np.int64) for table in layout.token_tables}
    ids = mapped(raw / "ids.npy")
    lists = [_list(raw, number) for number in range(len(layout.lists))]
    for start, stop in splits.chunks(layout.count, _ROWS):
        first, last = np.searchsorted(train, (start, stop))
        trains = np.zeros(stop - start, bool)
        trains[train[first:last] - start] = True
        for number, name in enumerate(layout.ids):
            np.add.at(found[layout.tables[name]], ids[start:stop, number][trains], 1)
        for name, (values, ends) in zip(layout.lists, lists, strict=True):
            kept = np.repeat(trains, np.diff(ends[start : stop + 1]))
            part = values[ends[start] : ends[stop]][kept]
            np.add.at(found[layout.tables[name]], part, 1)
    return found


def _list(raw: Path, number: int) -> tuple[np.ndarray, np.ndarray]:
    return mapped(raw / f"list.{number}.values.npy"), mapped(raw / f"list.{number}.splits.npy")


def write(
    encoded: Encoded,
    rows: Mapping[str, np.ndarray],
    vocabularies: Mapping[str, Vocabulary],
    buckets: Mapping[str, BucketColumn],
    folder: Path,
) -> None:
    """Writes `ids.npy` and `list.N.values.npy` again, with rows of the tables for codes, and for numbers in buckets.

    Args:
        encoded: the codes, and numbers for buckets.
        rows: of each code, int32, by table of tokens; -1 where a code has none.
        vocabularies: of the tables of buckets.
        buckets: further columns of `ids.npy`, behind those of the codes.
        folder: where to.

    Raises:
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    layout, raw = encoded.layout, encoded.folder
    width = len(layout.ids) + len(buckets)
    numbers = mapped(raw / "bucketed.npy") if buckets else np.empty((layout.count, 0))
    strict = {table: bool((found < 0).any()) for table, found in rows.items()}
    ids = mapped(raw / "ids.npy")

    def blocks() -> Iterator[np.ndarray]:
        for start, stop in splits.chunks(layout.count, _ROWS):
            codes, block = ids[start:stop], np.empty((stop - start, width), np.int32)
            for number, name in enumerate(layout.ids):
                table = layout.tables[name]
                block[:, number] = rows[table].take(codes[:, number])
                if strict[table] and (wrong := np.flatnonzero(block[:, number] < 0)).size:
                    code = int(codes[wrong[0], number])
                    raise _unknown(layout, raw, rows, name, code, start + int(wrong[0]), data_codes=ids[:, number])
            for number, each in enumerate(buckets.values(), len(layout.ids)):
                vocabulary = vocabularies[each.table]
                if not isinstance(vocabulary, BucketVocabulary):
                    rule = "is not one of buckets: it is that of another run, put the one back that the run has written"
                    raise DataError(f"the vocabulary of table {each.table!r} {rule}")
                block[:, number] = vocabulary.rows_of(numbers[start:stop, layout.bucketed.index(each.column)])
            yield block

    with ArrayWriter(folder / "ids.npy", np.int32, width) as writer:
        for block in ahead(blocks()):
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
        f"({distinct} distinct unknown values in this column); a vocabulary holds what the training split holds, "
        "as far as data.vocabulary allows: set data.vocabulary.unknown=oov to give unknown values the OOV row"
    )
