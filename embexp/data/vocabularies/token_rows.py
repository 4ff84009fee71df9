"""From codes of tokens to rows of tables, by vocabularies of the training split, and how many values have a row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data import splits
from embexp.data.columns import BucketColumn
from embexp.data.contract import Contract, grown, united
from embexp.data.examples import FEW, Encoded, Examples, examples, read_tokens
from embexp.data.numbers import fit_buckets
from embexp.data.sources.source import FORMAT
from embexp.data.vocabularies.token_keys import sorted_places
from embexp.data.vocabularies.vocabulary import BucketVocabulary, HashVocabulary, TokenVocabulary, Vocabulary
from embexp.errors import DataError, VocabularyError
from embexp.specs.vocabularies import Row, SettledRules, UnknownPolicy, VocabularyRules
from embexp.system import caching, digests
from embexp.system.arrays import ArrayWriter, mapped_array
from embexp.system.parallel import Progress, ahead, at_once, if_long, quiet, reported

_ROWS = 16_384  # whose codes, column by column, stay in the processor's cache
_FILE = "shares.json"
_OWN, _MISSING, _RARE, _UNKNOWN = range(4)
_TRAIN, _NO_SPLIT = splits.SPLITS.index("train"), len(splits.SPLITS)
"""Numbers of splits; examples that are in none of the three have one of their own."""


def learn(
    encoded: Encoded,
    rules: Mapping[str, VocabularyRules],
    buckets: Mapping[str, BucketColumn],
    folder: Path,
    *,
    contract: Contract | None = None,
    given: Mapping[str, Vocabulary] = MappingProxyType({}),
    further: Mapping[str, pa.LargeStringArray] = MappingProxyType({}),
    progress: Progress,
) -> None:
    """Writes vocabularies made from the training split, and the examples with rows of the tables for codes.

    Args:
        rules: which tokens get a row, by vocabulary.
        folder: where to; the splits are there already.
        contract: what the run goes on from, whose vocabularies grow; None: nothing.
        given: vocabularies whose tokens files name.
        further: tokens of files that have rows behind those of the data.

    Raises:
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    progress("building vocabularies", None)
    layout, train = encoded.layout, mapped_array(folder / "train.npy")
    counted = counts(encoded, train)

    def of_table(table: str) -> tuple[np.ndarray, np.ndarray]:
        tokens = read_tokens(encoded.folder, layout, table)
        if table in given:
            vocabulary, rows = grown(given[table], tokens, counted[table], rules[table], grows=False)
        elif contract is not None and table in contract.vocabularies:
            earlier = contract.remaining(table, tokens, counted[table])
            vocabulary, rows = grown(earlier, tokens, counted[table], rules[table])
        else:
            vocabulary, rows = with_rows(tokens, counted[table], rules[table])
        if table in further and isinstance(vocabulary, TokenVocabulary):
            # Known tokens, as those of other splits, may have rows now.
            vocabulary = united(vocabulary, further[table])
            rows = np.where(rows < vocabulary.first, vocabulary.rows(tokens), rows)
        vocabulary.write(folder / f"vocabulary.{layout.token_tables.index(table)}")
        return rows.astype(np.int32), _kinds_of(vocabulary, rows, counted[table])

    found = dict(zip(layout.token_tables, at_once(of_table, layout.token_tables), strict=True))
    vocabularies: dict[str, Vocabulary] = {}
    if buckets:
        known = {} if contract is None else contract.vocabularies
        fitted = {name: each for name, each in buckets.items() if each.table not in known}
        made = fit_buckets(mapped_array(encoded.folder / "bucketed.npy"), layout.bucketed, train, fitted, folder)
        tables = dict.fromkeys(bucket.table for bucket in buckets.values())
        for number, (table, vocabulary) in enumerate({each: known.get(each) or made[each] for each in tables}.items()):
            vocabulary.write(folder / f"buckets.{number}")
            vocabularies[table] = vocabulary
    write(
        encoded, {table: rows for table, (rows, _) in found.items()}, vocabularies, buckets, folder, progress=progress
    )
    write_shares(encoded, {table: kinds for table, (_, kinds) in found.items()}, counted, buckets, folder)


def learned(encoded: Encoded, buckets: Mapping[str, BucketColumn], folder: Path) -> dict[str, Vocabulary]:
    """By table, the vocabularies that `learn` wrote."""
    stems = {table: f"vocabulary.{number}" for number, table in enumerate(encoded.layout.token_tables)}
    bucketed = dict.fromkeys(bucket.table for bucket in buckets.values())
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
    known = _known(encoded, vocabularies, buckets)
    whose: dict[str, Any] = {name: each.digest for name, each in known.items()}
    placed = [[name, bucket.column, bucket.table] for name, bucket in buckets.items()]
    key = digests.of_json({"format": FORMAT, "raw": encoded.key, "vocabularies": whose, "buckets": placed})
    folder = caching.folder(cache, "rows", key, lambda made: _renumber(encoded, known, buckets, made))
    return examples(encoded.folder, folder, tuple(buckets))


def renumbered(
    encoded: Encoded, vocabularies: Mapping[str, Vocabulary], buckets: Mapping[str, BucketColumn], folder: Path
) -> Examples:
    """What `numbered` returns, written into an empty folder instead of the cache."""
    _renumber(encoded, _known(encoded, vocabularies, buckets), buckets, folder)
    return examples(encoded.folder, folder, tuple(buckets))


def _known(
    encoded: Encoded, vocabularies: Mapping[str, Vocabulary], buckets: Mapping[str, BucketColumn]
) -> dict[str, Vocabulary]:
    tables = dict.fromkeys([*encoded.layout.token_tables, *(bucket.table for bucket in buckets.values())])
    return {table: vocabularies[table] for table in tables}


def _renumber(
    encoded: Encoded, known: Mapping[str, Vocabulary], buckets: Mapping[str, BucketColumn], folder: Path
) -> None:
    layout = encoded.layout

    def of_table(table: str) -> np.ndarray:
        return known[table].rows(read_tokens(encoded.folder, layout, table)).astype(np.int32)

    several = map if layout.count < FEW else at_once
    rows = dict(zip(layout.token_tables, several(of_table, layout.token_tables), strict=True))
    write(encoded, rows, known, buckets, folder)


Column = tuple[str, np.ndarray, np.ndarray | None]
"""Table, codes, and of a column of lists their lengths, of consecutive examples."""


def _blocks(encoded: Encoded) -> Iterator[tuple[int, int, list[Column]]]:
    """Ranges of examples that fit the processor's cache, and all columns of each."""
    layout, raw = encoded.layout, encoded.folder
    ids, lists = mapped_array(raw / "ids.npy"), [_list(raw, number) for number in range(len(layout.lists))]
    for start, stop in splits.chunks(layout.count, _ROWS):
        columns: list[Column] = [
            (layout.tables[name], ids[start:stop, number], None) for number, name in enumerate(layout.ids)
        ]
        columns += [
            (layout.tables[name], values[ends[start] : ends[stop]], np.diff(ends[start : stop + 1]))
            for name, (values, ends) in zip(layout.lists, lists, strict=True)
        ]
        yield start, stop, columns


def counts(encoded: Encoded, train: np.ndarray) -> dict[str, np.ndarray]:
    """How often each code is in the training split, by table: int64, over all columns of the table."""
    layout = encoded.layout
    found = {
        table: np.zeros(len(read_tokens(encoded.folder, layout, table)), np.int64) for table in layout.token_tables
    }
    for start, stop, columns in _blocks(encoded):
        first, last = np.searchsorted(train, (start, stop))
        trains = np.zeros(stop - start, bool)
        trains[train[first:last] - start] = True
        for table, codes, lengths in columns:
            np.add.at(found[table], codes[trains if lengths is None else np.repeat(trains, lengths)], 1)
    return found


def _list(raw: Path, number: int) -> tuple[np.ndarray, np.ndarray]:
    return mapped_array(raw / f"list.{number}.values.npy"), mapped_array(raw / f"list.{number}.splits.npy")


def write(
    encoded: Encoded,
    rows: Mapping[str, np.ndarray],
    vocabularies: Mapping[str, Vocabulary],
    buckets: Mapping[str, BucketColumn],
    folder: Path,
    *,
    progress: Progress = quiet,
) -> None:
    """Writes `ids.npy` and `list.N.values.npy` again, with rows of the tables for codes, and for numbers in buckets.

    Args:
        rows: of each code, int32, by table of tokens; -1 where a code has none.
        buckets: further columns of `ids.npy`, behind those of the codes.

    Raises:
        VocabularyError: a value is unknown and its vocabulary has no OOV row.
    """
    layout, raw = encoded.layout, encoded.folder
    width = len(layout.ids) + len(buckets)
    numbers = mapped_array(raw / "bucketed.npy") if buckets else np.empty((layout.count, 0))
    strict = {table: bool((found < 0).any()) for table, found in rows.items()}
    ids = mapped_array(raw / "ids.npy")

    def blocks() -> Iterator[np.ndarray]:
        for start, stop in splits.chunks(layout.count, _ROWS):
            codes, block = ids[start:stop], np.empty((stop - start, width), np.int32)
            for number, name in enumerate(layout.ids):
                table = layout.tables[name]
                block[:, number] = rows[table].take(codes[:, number])
                if strict[table] and (wrong := np.flatnonzero(block[:, number] < 0)).size:
                    code = int(codes[wrong[0], number])
                    raise _unknown(encoded, rows, name, code, start + int(wrong[0]), ids[:, number])
            for number, bucket in enumerate(buckets.values(), len(layout.ids)):
                vocabulary = vocabularies[bucket.table]
                if not isinstance(vocabulary, BucketVocabulary):
                    rule = "is not one of buckets, so it belongs to another run; restore the one that the run wrote"
                    raise DataError(f"the vocabulary of table {bucket.table!r} {rule}")
                block[:, number] = vocabulary.rows_of(numbers[start:stop, layout.bucketed.index(bucket.column)])
            yield block

    count, long = max(1, -(-layout.count // _ROWS)), if_long(progress)
    with ArrayWriter(folder / "ids.npy", np.int32, width) as writer:
        for block in reported(ahead(blocks()), count, "numbering the values", long):
            writer.append(block)
    for number, name in enumerate(layout.lists):
        values, ends = _list(raw, number)
        with ArrayWriter(folder / f"list.{number}.values.npy", np.int32) as writer:
            for start, stop in splits.chunks(len(values)):
                block = rows[layout.tables[name]][values[start:stop]]
                if (wrong := np.flatnonzero(block < 0)).size:
                    place = start + int(wrong[0])
                    example = int(np.searchsorted(ends, place, "right")) - 1
                    raise _unknown(encoded, rows, name, int(values[place]), example, values)
                writer.append(block)


def _unknown(
    encoded: Encoded, rows: Mapping[str, np.ndarray], column: str, code: int, example: int, codes: np.ndarray
) -> VocabularyError:
    """The error of a code without a row in an example; `codes` are all of its column."""
    layout, table = encoded.layout, encoded.layout.tables[column]
    token = read_tokens(encoded.folder, layout, table)[code].as_py()
    seen = np.zeros(len(rows[table]), bool)
    for start, stop in splits.chunks(len(codes)):
        seen[codes[start:stop]] = True
    distinct = int((seen & (rows[table] < 0)).sum())
    found = repr(token) if token else "a missing value"
    return VocabularyError(
        f"{layout.place(example)}: {found} in column {column!r} is not in the vocabulary of table {table!r} "
        f"({distinct} distinct unknown values in this column); a vocabulary holds the values of the training "
        f"split that data.vocabulary allows; set data.vocabulary.unknown=oov to give unknown values the OOV row"
    )


def with_rows(tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary that rules make of tokens, and the int64 row of each token; see `from_counts`."""
    if isinstance(rules, SettledRules) and rules.hash_buckets is not None:
        vocabulary = HashVocabulary(rules.hash_buckets, missing=rules.missing is Row.OWN_ROW)
        return vocabulary, vocabulary.rows(tokens)
    return from_counts(tokens, counts, rules)


def from_counts(
    tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules
) -> tuple[TokenVocabulary, np.ndarray]:
    """The vocabulary of tokens seen so often in the training split, and the int64 row of each; -1: none.

    Args:
        tokens: distinct; an empty one stands for missing values and gets no row as a token.
        counts: int64, as many.
        rules: which tokens get a row.
    """
    empty = pc.equal(tokens, "").to_numpy(zero_copy_only=False)
    kept = np.flatnonzero((counts >= rules.min_frequency) & ~empty)
    order = kept[sorted_places(tokens.take(pa.array(kept)), counts[kept])[: rules.max_size]]
    own = np.zeros(len(counts), bool)
    own[order] = True
    rare = ~own & ~empty & (counts > 0)
    apart = rules.rare is Row.OWN_ROW
    found = TokenVocabulary(
        known=tokens.take(pa.array(order)),
        known_frequencies=counts[order],
        oov=rules.oov_buckets if rules.unknown is UnknownPolicy.OOV else 0,
        missing_frequency=int(counts[empty].sum()) if rules.missing is Row.OWN_ROW else None,
        rare=tokens.filter(pa.array(rare)) if apart else None,
        rare_frequency=int(counts[rare].sum()) if apart else 0,
    )
    rows: np.ndarray = np.empty(len(counts), np.int64)
    rows[order] = np.arange(found.first, found.size)  # known: the tokens need not be looked up
    rows[~own] = found.special_rows(tokens.take(pa.array(np.flatnonzero(~own))))
    rest = np.flatnonzero(~own & (counts > 0) & ~(rare & apart) & ~(empty & (rules.missing is Row.OWN_ROW)))
    if not found.oov:
        return found, rows
    frequencies = np.bincount(rows[rest], weights=counts[rest], minlength=found.oov).astype(np.int64)
    return replace(found, oov_frequencies=tuple(frequencies.tolist())), rows


@dataclass(frozen=True)
class Share:
    """Of the values of a table in a split.

    Attributes:
        own: with the row of a token, or the bucket of a token that the training split has.
        missing: without a value.
        rare: tokens that the training split has, but without a row of their own.
        unknown: tokens that the training split does not have.
    """

    own: int = 0
    missing: int = 0
    rare: int = 0
    unknown: int = 0

    @property
    def count(self) -> int:
        """All values."""
        return self.own + self.missing + self.rare + self.unknown


Shares = Mapping[str, Mapping[str, Share]]
"""By vocabulary, then by split."""


def write_shares(
    encoded: Encoded,
    kinds: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray],
    buckets: Mapping[str, BucketColumn],
    folder: Path,
) -> None:
    """Counts values by kind and writes the counts next to the splits.

    Args:
        kinds: of each code, see `_kinds_of`, by table of tokens.
        counts: how often each code is in the training split, by table of tokens.
    """
    layout = encoded.layout
    tables = [*layout.token_tables, *dict.fromkeys(bucket.table for bucket in buckets.values())]
    found = {table: np.zeros((_NO_SPLIT + 1, 4), np.int64) for table in tables}
    rows = {name: mapped_array(folder / f"{name}.npy") for name in splits.SPLITS}
    numbers = mapped_array(encoded.folder / "bucketed.npy") if buckets else np.empty((layout.count, 0))
    for start, stop, columns in _blocks(encoded):
        split = np.full(stop - start, _NO_SPLIT, np.uint8)
        for number, name in enumerate(splits.SPLITS):
            first, last = np.searchsorted(rows[name], (start, stop))
            split[rows[name][first:last] - start] = number
        held = _held_out(split)  # the codes of those that train are counted already
        for table, codes, lengths in columns if held.size else ():
            several = split if lengths is None else np.repeat(split, lengths)
            those = held if lengths is None else _held_out(several)
            found[table] += _counted(several[those], kinds[table].take(codes[those]))
        for bucket in buckets.values():
            missing = np.isnan(numbers[start:stop, layout.bucketed.index(bucket.column)])
            found[bucket.table] += _counted(split, np.where(missing, _MISSING, _OWN).astype(np.uint8))
    for table in layout.token_tables:
        found[table][_TRAIN] = [counts[table][kinds[table] == kind].sum() for kind in range(4)]
    written = {
        table: {name: asdict(Share(*map(int, found[table][number]))) for number, name in enumerate(splits.SPLITS)}
        for table in tables
    }
    (folder / _FILE).write_text(json.dumps(written), "utf-8")


def read_shares(folder: Path) -> dict[str, dict[str, Share]]:
    """What `write` wrote; nothing of sources without tokens."""
    path = folder / _FILE
    if not path.exists():
        return {}
    written = json.loads(path.read_text("utf-8"))
    return {table: {name: Share(**each) for name, each in of.items()} for table, of in written.items()}


def _kinds_of(vocabulary: Vocabulary, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """uint8 kind of each code; code 0 is that of missing values.

    Args:
        rows: int64, the row of each code.
        counts: int64, how often each code is in the training split.
    """
    known = counts > 0 if isinstance(vocabulary, HashVocabulary) else rows >= vocabulary.first
    found = np.where(known, _OWN, np.where(counts > 0, _RARE, _UNKNOWN)).astype(np.uint8)
    found[:1] = _MISSING
    return found


def _held_out(split: np.ndarray) -> np.ndarray:
    """The places of those that are in a split and do not train."""
    return np.flatnonzero((split != _TRAIN) & (split != _NO_SPLIT))


def _counted(split: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """int64 [splits + 1, 4]."""
    return np.bincount(split * np.uint8(4) + kinds, minlength=4 * (_NO_SPLIT + 1)).reshape(-1, 4)
