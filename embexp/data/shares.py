"""How many values of each table, in each split, have a row of their own, and how many are missing, rare or unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from embexp.data import splits
from embexp.data.arrays import mapped
from embexp.data.columns import BucketColumn
from embexp.data.examples import Encoded
from embexp.data.hash_vocabulary import HashVocabulary
from embexp.data.vocabulary import Vocabulary

_FILE = "shares.json"
_ROWS = 16_384  # whose codes, column by column, stay in the processor's cache
_OWN, _MISSING, _RARE, _UNKNOWN = range(4)
_TRAIN, _NO_SPLIT = splits.SPLITS.index("train"), len(splits.SPLITS)
"""Numbers of splits; examples that are in none of the three have one of their own."""


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


def write(
    encoded: Encoded,
    kinds: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray],
    buckets: Mapping[str, BucketColumn],
    folder: Path,
) -> None:
    """Counts values by kind and writes the counts beside the splits.

    Args:
        encoded: the codes, and numbers for buckets.
        kinds: of each code, see `kinds_of`, by table of tokens.
        counts: how often each code is in the training split, by table of tokens.
        buckets: see `Columns`.
        folder: of the splits.
    """
    layout, raw = encoded.layout, encoded.folder
    tables = [*layout.token_tables, *dict.fromkeys(each.table for each in buckets.values())]
    found = {table: np.zeros((_NO_SPLIT + 1, 4), np.int64) for table in tables}
    rows = {name: mapped(folder / f"{name}.npy") for name in splits.SPLITS}
    ids = mapped(raw / "ids.npy")
    numbers = mapped(raw / "bucketed.npy") if buckets else np.empty((layout.count, 0))
    lists = [
        (mapped(raw / f"list.{number}.values.npy"), mapped(raw / f"list.{number}.splits.npy"))
        for number in range(len(layout.lists))
    ]
    for start, stop in splits.chunks(layout.count, _ROWS):
        split = np.full(stop - start, _NO_SPLIT, np.uint8)
        for number, name in enumerate(splits.SPLITS):
            first, last = np.searchsorted(rows[name], (start, stop))
            split[rows[name][first:last] - start] = number
        held = _held_out(split)  # the codes of those that train are counted already
        if held.size:
            codes = ids[start:stop] if held.size == stop - start else ids[start:stop][held]
            for number, name in enumerate(layout.ids):
                found[layout.tables[name]] += _counted(split[held], kinds[layout.tables[name]].take(codes[:, number]))
            for name, (values, ends) in zip(layout.lists, lists, strict=True):
                several = np.repeat(split, np.diff(ends[start : stop + 1]))
                those = _held_out(several)
                here = values[ends[start] : ends[stop]][those]
                found[layout.tables[name]] += _counted(several[those], kinds[layout.tables[name]].take(here))
        for each in buckets.values():
            missing = np.isnan(numbers[start:stop, layout.bucketed.index(each.column)])
            found[each.table] += _counted(split, np.where(missing, _MISSING, _OWN).astype(np.uint8))
    for table in layout.token_tables:
        found[table][_TRAIN] = [counts[table][kinds[table] == kind].sum() for kind in range(4)]
    written = {
        table: {name: asdict(Share(*map(int, found[table][number]))) for number, name in enumerate(splits.SPLITS)}
        for table in tables
    }
    (folder / _FILE).write_text(json.dumps(written), "utf-8")


def read(folder: Path) -> dict[str, dict[str, Share]]:
    """What `write` wrote; nothing of sources without tokens."""
    path = folder / _FILE
    if not path.exists():
        return {}
    written = json.loads(path.read_text("utf-8"))
    return {table: {name: Share(**each) for name, each in of.items()} for table, of in written.items()}


def kinds_of(vocabulary: Vocabulary, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """uint8 kind of each code; code 0 is that of missing values.

    Args:
        vocabulary: of the table.
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
