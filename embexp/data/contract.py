"""What a run takes over from its parent: all that the parent's data decided, to which other data only add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.numbers import FittedColumn
from embexp.data.vocabularies.token_keys import places_in, sorted_places
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError
from embexp.specs.vocabularies import Row, UnknownPolicy, VocabularyRules
from embexp.system import digests


@dataclass(frozen=True)
class FileTokens:
    """The tokens of a file of vectors, which have rows.

    Attributes:
        tokens: distinct, as the data's are normalised.
        digest: of the file.
        alone: whether no others have rows; else those of the data have some in front.
    """

    tokens: pa.LargeStringArray
    digest: str
    alone: bool


@dataclass(frozen=True)
class Contract:
    """What the data of a run decided, for runs that go on from it.

    Attributes:
        vocabularies: by the name of the vocabulary, see `columns_of`.
        classes: names of classes by label; empty: labels are numbers.
        numbers: what was fitted to numeric columns; empty: they are used as they are.
        unseen: by vocabulary of tokens, int64 [tokens]: in how many runs in a row, the last one included, the training
            split lacked a token.
        gone_after: runs without a token after which its row goes; None: never.
        extends_classes: whether labels may have further classes, which follow the others.
        replayed: digest of the earlier examples that are mixed in; "": none are.
        label_deviation: by which standardised labels are divided; None: labels are not standardised.
    """

    vocabularies: Mapping[str, Vocabulary]
    classes: Sequence[str] = ()
    numbers: Sequence[FittedColumn] = ()
    unseen: Mapping[str, np.ndarray] = field(default_factory=dict)
    gone_after: int | None = None
    extends_classes: bool = False
    replayed: str = ""
    label_deviation: float | None = None

    @cached_property
    def digest(self) -> str:
        """Digest of all that follows for the data of a run."""
        content: dict[str, Any] = {
            "vocabularies": {name: each.digest for name, each in self.vocabularies.items()},
            "classes": list(self.classes),
            "numbers": [column.as_json() for column in self.numbers],
        }
        if self.label_deviation is not None:
            content["label_deviation"] = self.label_deviation
        if self.replayed:
            content["replayed"] = self.replayed
        if self.extends_classes:
            content["extends"] = True
        if self.gone_after is not None:
            content["gone"] = [self.gone_after, {name: each.tolist() for name, each in self.unseen.items()}]
        return digests.of_json(content)

    def remaining(self, name: str, tokens: pa.LargeStringArray, counts: np.ndarray) -> Vocabulary:
        """A vocabulary without the tokens whose rows go, as they were not seen for long.

        Args:
            tokens: of the new data, distinct.
            counts: int64, how often each is in the training split.
        """
        earlier = self.vocabularies[name]
        if self.gone_after is None or not isinstance(earlier, TokenVocabulary):
            return earlier
        places = places_in(earlier.known, tokens)
        stay = self.unseen[name] + 1 < self.gone_after
        stay[places[(places >= 0) & (counts > 0)]] = True
        return _with_tokens(earlier, stay)

    def before(self, name: str, now: Vocabulary) -> Vocabulary:
        """What the rows of a vocabulary that has grown stood for before; those of tokens that went are not there."""
        earlier = self.vocabularies[name]
        if not isinstance(earlier, TokenVocabulary) or not isinstance(now, TokenVocabulary):
            return earlier
        return _with_tokens(earlier, _contained(earlier, now))

    def unseen_after(self, name: str, now: TokenVocabulary) -> np.ndarray:
        """The entry of `unseen` for a run that goes on from the one whose vocabulary has grown, int64 [tokens]."""
        earlier = self.vocabularies[name]
        assert isinstance(earlier, TokenVocabulary)
        found: np.ndarray = np.zeros(len(now.known), np.int64)
        stayed = self.unseen[name][_contained(earlier, now)]
        found[: len(stayed)] = stayed + 1
        found[now.known_frequencies > 0] = 0
        return found

    def check(self, vocabularies: Mapping[str, Vocabulary]) -> None:
        """Checks that the rows that a run's tables had still stand for the same.

        Raises:
            DataError: they do not: the source makes its vocabularies in a way of its own.
        """
        for name in self.vocabularies:
            if not self._holds(name, vocabularies[name]):
                raise DataError(
                    f"the rows of table {name} would stand for other values than in the run that this one "
                    f"continues: this kind of data rebuilds its vocabularies, so it can't be used to continue a run"
                )

    def _holds(self, name: str, now: Vocabulary) -> bool:
        earlier = self.vocabularies[name]
        if not isinstance(now, TokenVocabulary) or not isinstance(earlier, TokenVocabulary):
            return now.digest == earlier.digest
        stayed = earlier.known if self.gone_after is None else earlier.known.filter(pa.array(_contained(earlier, now)))
        same = [kind for _, kind, _ in now.special] == [kind for _, kind, _ in earlier.special]
        return same and bool(now.known.slice(0, len(stayed)).equals(stayed))


def _contained(earlier: TokenVocabulary, now: TokenVocabulary) -> np.ndarray:
    """Bool [tokens of `earlier`]: whether the other one has a row for it."""
    return places_in(now.known, earlier.known) >= 0


def _with_tokens(vocabulary: TokenVocabulary, stay: np.ndarray) -> TokenVocabulary:
    return replace(
        vocabulary,
        known=vocabulary.known.filter(pa.array(stay)),
        known_frequencies=vocabulary.known_frequencies[stay],
    )


def of_file(tokens: pa.LargeStringArray, rules: VocabularyRules) -> TokenVocabulary:
    """The vocabulary with the tokens of a file, in their order, and rows for others as rules say."""
    oov = rules.oov_buckets if rules.unknown is UnknownPolicy.OOV else 0
    missing = 0 if rules.missing is Row.OWN_ROW else None
    return TokenVocabulary(tokens, np.zeros(len(tokens), np.int64), oov, missing_frequency=missing)


def united(vocabulary: TokenVocabulary, tokens: pa.LargeStringArray) -> TokenVocabulary:
    """A vocabulary with further tokens behind its own, none of which the data have."""
    further = tokens.filter(pa.array(places_in(vocabulary.known, tokens) < 0))
    counts = np.concatenate([vocabulary.known_frequencies, np.zeros(len(further), np.int64)])
    return replace(vocabulary, known=pa.concat_arrays([vocabulary.known, further]), known_frequencies=counts)


def grown(
    earlier: Vocabulary, tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules, *, grows: bool = True
) -> tuple[Vocabulary, np.ndarray]:
    """A vocabulary with further tokens behind those that it has, and the int64 row of each token; -1: none.

    Rows of tokens, OOV rows, and those of missing and rare values stay what they are. Further tokens follow by falling
    frequency, then by code point. Vocabularies that are not of tokens do not grow.

    Args:
        earlier: whose tokens are normalised, as `tokens` are.
        tokens: distinct; an empty one stands for missing values and gets no row as a token.
        counts: int64, how often each is in the training split.
        rules: how often a further token has to be there, and how many rows of tokens there may be.
        grows: whether further tokens get rows; else they have none, as those that are too rare.
    """
    if not isinstance(earlier, TokenVocabulary):
        return earlier, earlier.rows(tokens)
    places = places_in(earlier.known, tokens)
    empty = pc.equal(tokens, "").to_numpy(zero_copy_only=False)
    new = np.flatnonzero((places < 0) & ~empty & (counts >= max(1, rules.min_frequency)))
    new = new if grows else new[:0]
    free = None if rules.max_size is None else max(0, rules.max_size - len(earlier.known))
    order = new[sorted_places(tokens.take(pa.array(new)), counts[new])[:free]]
    further = tokens.take(pa.array(order))
    known = pa.concat_arrays([earlier.known, further])
    own = places >= 0
    frequencies: np.ndarray = np.zeros(len(known), np.int64)
    frequencies[places[own]] = counts[own]
    frequencies[len(earlier.known) :] = counts[order]
    rare = earlier.rare_without(further)
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
