"""Vocabularies of the tokens of a training split, by how often each is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.hash_vocabulary import HashVocabulary
from embexp.data.packed_tokens import sorted_places
from embexp.data.vocabulary import TokenVocabulary, Vocabulary
from embexp.specs.vocabularies import Row, SettledRules, UnknownPolicy, VocabularyRules


def with_rows(tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary that rules make of tokens seen so often in the training split, and the int64 row of each token.

    See `from_counts`; a token without a row has -1.
    """
    if isinstance(rules, SettledRules) and rules.hash_buckets is not None:
        vocabulary = HashVocabulary(rules.hash_buckets, missing=rules.missing is Row.OWN_ROW)
        return vocabulary, vocabulary.rows(tokens)
    return _from_counts(tokens, counts, rules)


def from_counts(tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules) -> TokenVocabulary:
    """The vocabulary of tokens seen so often in the training split.

    Args:
        tokens: distinct; an empty one stands for missing values and gets no row as a token.
        counts: int64, as many.
        rules: which tokens get a row.
    """
    return _from_counts(tokens, counts, rules)[0]


def _from_counts(
    tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules
) -> tuple[TokenVocabulary, np.ndarray]:
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
