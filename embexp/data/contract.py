"""What a run takes over from its parent: all that the parent's data decided, to which other data only add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.numbers import FittedColumn
from embexp.data.vocabularies.token_keys import places_in, sorted_places
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError
from embexp.specs.vocabularies import VocabularyRules
from embexp.system import digests


@dataclass(frozen=True)
class Contract:
    """What the data of a run decided, for runs that go on from it.

    Attributes:
        vocabularies: by the name of the vocabulary, see `columns_of`.
        classes: names of classes by label; empty: labels are numbers.
        numbers: what was fitted to numeric columns; empty: they are used as they are.
        unseen: by vocabulary, int64 [tokens]: in how many runs in a row, the last one included, a token was not seen.
        gone_after: runs without a token after which its row goes; None: never.
    """

    vocabularies: Mapping[str, Vocabulary]
    classes: Sequence[str] = ()
    numbers: Sequence[FittedColumn] = ()
    unseen: Mapping[str, np.ndarray] = field(default_factory=dict)
    gone_after: int | None = None

    @cached_property
    def digest(self) -> str:
        """Digest of all that follows for the data of a run."""
        content: dict[str, Any] = {
            "vocabularies": {name: each.digest for name, each in self.vocabularies.items()},
            "classes": list(self.classes),
            "numbers": [column.as_json() for column in self.numbers],
        }
        if self.gone_after is not None:
            content["gone"] = [self.gone_after, {name: each.tolist() for name, each in self.unseen.items()}]
        return digests.of_json(content)

    def check(self, vocabularies: Mapping[str, Vocabulary]) -> None:
        """Checks that the rows that a run's tables had still stand for the same.

        Raises:
            DataError: they do not: the source makes its vocabularies in a way of its own.
        """
        for name, earlier in self.vocabularies.items():
            if not _begins_with(vocabularies[name], earlier):
                raise DataError(
                    f"the rows of table {name} would stand for other values than in the run that this one goes on"
                    " from: its source of data makes its vocabulary anew. Only data=csv, parquet, jsonl, recbole and"
                    " text can go on with other data"
                )


def _begins_with(vocabulary: Vocabulary, earlier: Vocabulary) -> bool:
    if not isinstance(vocabulary, TokenVocabulary) or not isinstance(earlier, TokenVocabulary):
        return vocabulary.digest == earlier.digest
    same = [kind for _, kind, _ in vocabulary.special] == [kind for _, kind, _ in earlier.special]
    return same and bool(vocabulary.known.slice(0, len(earlier.known)).equals(earlier.known))


def grown(
    earlier: Vocabulary, tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules
) -> tuple[Vocabulary, np.ndarray]:
    """A vocabulary with further tokens behind those that it has, and the int64 row of each token; -1: none.

    Rows of tokens, OOV rows, and those of missing and rare values stay what they are. Further tokens follow by falling
    frequency, then by code point. Vocabularies that are not of tokens do not grow.

    Args:
        earlier: whose tokens are normalised, as `tokens` are.
        tokens: distinct; an empty one stands for missing values and gets no row as a token.
        counts: int64, how often each is in the training split.
        rules: how often a further token has to be there, and how many rows of tokens there may be.
    """
    if not isinstance(earlier, TokenVocabulary):
        return earlier, earlier.rows(tokens)
    places = places_in(earlier.known, tokens)
    empty = pc.equal(tokens, "").to_numpy(zero_copy_only=False)
    new = np.flatnonzero((places < 0) & ~empty & (counts >= max(1, rules.min_frequency)))
    free = None if rules.max_size is None else max(0, rules.max_size - len(earlier.known))
    order = new[sorted_places(tokens.take(pa.array(new)), counts[new])[:free]]
    further = tokens.take(pa.array(order))
    known = pa.concat_arrays([earlier.known, further])
    own = places >= 0
    frequencies: np.ndarray = np.zeros(len(known), np.int64)
    frequencies[places[own]] = counts[own]
    frequencies[len(earlier.known) :] = counts[order]
    rare = earlier.rare
    if rare is not None:
        rare = rare.filter(pc.invert(pc.is_in(rare, value_set=further)))
    shell = TokenVocabulary(known, frequencies, earlier.oov, (), earlier.missing_frequency, rare)
    rows = places + shell.first
    rows[order] = shell.first + len(earlier.known) + np.arange(len(order))
    own[order] = True
    rest = np.flatnonzero(~own)
    rows[rest] = shell.special_rows(tokens.take(pa.array(rest)))
    found = np.bincount(rows[rest][rows[rest] >= 0], counts[rest][rows[rest] >= 0], shell.first).astype(np.int64)
    missing = None if earlier.missing_frequency is None else int(found[earlier.oov])
    whole = TokenVocabulary(
        known,
        frequencies,
        earlier.oov,
        tuple(found[: earlier.oov].tolist()),
        missing,
        rare,
        int(found[-1]) if rare is not None else 0,
    )
    return whole, rows
