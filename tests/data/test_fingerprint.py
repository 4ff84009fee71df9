"""The hash of hash buckets, against TensorFlow's own kernel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies import token_keys
from embexp.data.vocabularies.vocabulary import HashVocabulary, Vocabulary

TEXTS = st.lists(st.text(max_size=90), min_size=1, max_size=40)


def kernel(texts: list[str], count: int) -> np.ndarray:
    return np.asarray(tf.strings.to_hash_bucket_fast(texts, count).numpy())


def test_every_length_of_text() -> None:
    draw = np.random.default_rng(0)
    letters = list("abcxyz0189-é€𝄞")
    texts = ["".join(draw.choice(letters, size=size)) for size in [*range(200), 640, 5000]]
    for count in (2**31 - 1, 7, 1):
        np.testing.assert_array_equal(token_keys.buckets(pa.array(texts), count), kernel(texts, count))


@given(texts=TEXTS, count=st.integers(1, 2**40))
def test_any_texts(texts: list[str], count: int) -> None:
    np.testing.assert_array_equal(token_keys.buckets(pa.array(texts), count), kernel(texts, count))


def test_more_texts_than_are_hashed_at_once() -> None:
    texts = [str(number * 7919) for number in range(70_000)]
    np.testing.assert_array_equal(token_keys.buckets(pa.array(texts), 1000), kernel(texts, 1000))


def test_arrays_of_any_kind() -> None:
    plain = pa.array(["a", None, "bb", "ccc"])
    expected = kernel(["a", "", "bb", "ccc"], 1000)
    for array in (plain, plain.dictionary_encode(), pa.array(["x", *plain.to_pylist()]).slice(1)):
        np.testing.assert_array_equal(token_keys.buckets(array, 1000), expected)
    assert len(token_keys.buckets(pa.array([], pa.string()), 5)) == 0


def test_a_table_of_hash_buckets(tmp_path) -> None:  # type: ignore[no-untyped-def]
    texts = ["a", "", None, "ü"]
    buckets = kernel(["a", "", "", "ü"], 20)
    np.testing.assert_array_equal(HashVocabulary(20).rows(texts), buckets)
    apart = HashVocabulary(20, missing=True)
    np.testing.assert_array_equal(apart.rows(texts), [buckets[0] + 1, 0, 0, buckets[3] + 1])
    assert (apart.size, apart.tokens(0, 3)) == (21, ["<missing>", "<hash 0>", "<hash 1>"])
    apart.write(tmp_path / "item")
    assert Vocabulary.read(tmp_path / "item") == apart
    assert len({each.digest for each in (apart, HashVocabulary(20), HashVocabulary(21))}) == 3
