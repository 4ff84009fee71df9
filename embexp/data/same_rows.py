"""Rows of two vocabularies that mean the same, though they stand for no one token."""

from __future__ import annotations

import numpy as np

from embexp.data.bucket_vocabulary import BucketVocabulary
from embexp.data.hash_vocabulary import HashVocabulary
from embexp.data.vocabulary import TokenVocabulary, Vocabulary


def same_rows(a: Vocabulary, b: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of `a`, and those of the same rows of `b`, int64 each.

    Of tokens these are the rows in front: those of missing and of rare values, and the OOV rows if there are as many,
    as otherwise other values share them. Hash buckets are the same if there are as many, buckets of numbers if they
    have the same boundaries.
    """
    none = np.empty(0, np.int64)
    match a, b:
        case TokenVocabulary(), TokenVocabulary():
            pairs = [(row, row) for row in range(a.oov)] if a.oov == b.oov else []
            kinds = [[kind for _, kind, _ in each.special] for each in (a, b)]
            pairs += [
                (kinds[0].index(kind), kinds[1].index(kind)) for kind in kinds[0] if kind != "oov" and kind in kinds[1]
            ]
            rows = np.array(pairs, np.int64).reshape(-1, 2)
            return rows[:, 0], rows[:, 1]
        case HashVocabulary(), HashVocabulary() if a.buckets == b.buckets:
            buckets = np.arange(a.buckets)
            missing = np.zeros(int(a.missing and b.missing), np.int64)
            return np.concatenate([missing, buckets + a.missing]), np.concatenate([missing, buckets + b.missing])
        case BucketVocabulary(), BucketVocabulary() if a.boundaries == b.boundaries:
            return np.arange(a.size), np.arange(a.size)
        case _:
            return none, none


def stands_for_tokens(vocabulary: Vocabulary) -> bool:
    """Whether rows stand for one token, or row number, each; else they are buckets of many."""
    return not isinstance(vocabulary, HashVocabulary | BucketVocabulary)


def described(vocabulary: Vocabulary) -> str:
    """What the rows of a vocabulary are, in the plural."""
    match vocabulary:
        case HashVocabulary():
            return f"{vocabulary.buckets:,} hash buckets"
        case BucketVocabulary():
            return f"{vocabulary.size - 1:,} buckets of numbers"
        case TokenVocabulary():
            return "tokens"
        case _:
            return "row numbers"
