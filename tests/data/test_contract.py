"""Vocabularies that grow: what a run had stays, and new tokens follow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.contract import Contract, grown
from embexp.data.vocabularies.token_rows import from_counts
from embexp.data.vocabularies.vocabulary import BucketVocabulary, HashVocabulary, TokenVocabulary
from embexp.errors import DataError
from embexp.specs.vocabularies import Row, UnknownPolicy, VocabularyRules

TOKENS = st.dictionaries(
    st.sampled_from(["", *"abcdefgh", "ä", "日本", "a" * 20, "a b"]), st.integers(0, 4), min_size=1
)
RULES = st.builds(
    VocabularyRules,
    unknown=st.sampled_from(UnknownPolicy),
    min_frequency=st.integers(1, 3),
    max_size=st.none() | st.integers(1, 6),
    missing=st.sampled_from(Row),
    rare=st.sampled_from(Row),
    oov_buckets=st.just(1),
)


def arrays(counts: dict[str, int]) -> tuple[pa.LargeStringArray, np.ndarray]:
    return pa.array(list(counts), pa.large_string()), np.array(list(counts.values()), np.int64)


@given(TOKENS, TOKENS, RULES)
def test_tokens_keep_their_rows_and_new_ones_follow_by_frequency(
    before: dict[str, int], today: dict[str, int], rules: VocabularyRules
) -> None:
    was, _ = from_counts(*arrays(before), rules)
    now, rows = grown(was, *arrays(today), rules)
    assert isinstance(now, TokenVocabulary)
    old = was.known.to_pylist()
    new = [token for token, count in today.items() if token and token not in old and count >= rules.min_frequency]
    new.sort(key=lambda token: (-today[token], token))
    if rules.max_size is not None:
        new = new[: max(0, rules.max_size - len(old))]
    assert now.known.to_pylist() == [*old, *new]
    assert now.known_frequencies.tolist() == [today.get(token, 0) for token in now.known.to_pylist()]
    assert [kind for _, kind, _ in now.special] == [kind for _, kind, _ in was.special]
    assert rows.tolist() == now.rows(list(today)).tolist()
    of_rows = np.bincount(rows[rows >= 0], np.array(list(today.values()))[rows >= 0], now.size)
    assert now.frequencies.tolist() == of_rows.tolist()
    Contract({"t": was}).check({"t": now})
    for token in (*before, "never seen"):
        if token not in new:
            assert now.rows([token]).tolist() == was.rows([token]).tolist()


@given(TOKENS, TOKENS, TOKENS, RULES)
def test_growing_twice_is_growing_by_both(
    before: dict[str, int], first: dict[str, int], second: dict[str, int], rules: VocabularyRules
) -> None:
    was, _ = from_counts(*arrays(before), rules)
    once, _ = grown(was, *arrays(first), rules)
    twice, _ = grown(once, *arrays(second), rules)
    again, _ = grown(twice, *arrays(second), rules)
    Contract({"t": was}).check({"t": twice})
    Contract({"t": once}).check({"t": twice})
    assert again.known.equals(twice.known)


@pytest.mark.parametrize(
    "vocabulary", [HashVocabulary(5), HashVocabulary(5, missing=True), BucketVocabulary((0.5, 2.0))]
)
def test_rows_that_are_not_of_tokens_stay(vocabulary: HashVocabulary | BucketVocabulary) -> None:
    tokens = ["", "1", "2", "0.1"]
    now, rows = grown(vocabulary, pa.array(tokens, pa.large_string()), np.ones(4, np.int64), VocabularyRules())
    assert now is vocabulary
    assert rows.tolist() == vocabulary.rows(tokens).tolist()


def test_a_vocabulary_that_is_made_anew_breaks_the_contract() -> None:
    was, _ = from_counts(*arrays({"a": 1, "b": 2}), VocabularyRules())
    now, _ = from_counts(*arrays({"a": 2, "b": 1}), VocabularyRules())
    with pytest.raises(DataError, match="rows of table t would stand for other values"):
        Contract({"t": was}).check({"t": now})
