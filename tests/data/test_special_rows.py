"""Rows for values without a token of their own: OOV rows, missing, rare; against TensorFlow's lookup tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies.token_rows import from_counts, with_rows
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError
from embexp.specs.vocabularies import VocabularyRules
from embexp.vectors.pretrained.earlier import same_rows

VALUES = st.lists(
    st.sampled_from(["", *"abcdefgh", "<oov>", "<rare>", "tab\t", "back\\slash"]), min_size=1, max_size=60
)
RULES = st.builds(
    VocabularyRules,
    unknown=st.sampled_from(["oov", "error"]),
    min_frequency=st.integers(1, 4),
    max_size=st.none() | st.integers(1, 5),
    missing=st.sampled_from(["oov", "own_row"]),
    rare=st.sampled_from(["oov", "own_row"]),
    oov_buckets=st.integers(1, 3),
)


def vocabulary(values: list[str], rules: VocabularyRules, unseen: list[str] = ()) -> TokenVocabulary:  # type: ignore[assignment]
    counted = Counter({"": 0} | dict.fromkeys(unseen, 0))
    counted.update(values)
    return from_counts(pa.array(list(counted), pa.large_string()), np.array(list(counted.values())), rules)[0]


def kinds_of(values: list[str], rules: VocabularyRules) -> dict[str, str]:
    """By hand: `own`, `rare`, `missing` for each value of the training split."""
    counted = Counter(value for value in values if value)
    ranked = sorted((-count, token) for token, count in counted.items() if count >= rules.min_frequency)
    own = {token for _, token in ranked[: rules.max_size]}
    return {value: "missing" if not value else "own" if value in own else "rare" for value in values}


@given(values=VALUES, rules=RULES)
def test_the_rows_of_the_counted_tokens_are_those_of_the_vocabulary(values: list[str], rules: VocabularyRules) -> None:
    counted = Counter({"": 0, "never": 0})
    counted.update(values)
    tokens = pa.array(list(counted), pa.large_string())
    found, rows = with_rows(tokens, np.array(list(counted.values())), rules)
    np.testing.assert_array_equal(rows, found.rows(tokens))


@given(values=VALUES, rules=RULES)
def test_each_value_has_the_row_of_its_kind(values: list[str], rules: VocabularyRules) -> None:
    found = vocabulary(values, rules, unseen=["never", "neither"])
    asked = [*dict.fromkeys(values), "never", "unheard of", None]
    rows = dict(zip(asked, found.rows(asked).tolist(), strict=True))
    kinds = kinds_of(values, rules) | {"never": "unknown", "unheard of": "unknown", None: "missing"}
    oov = rules.oov_buckets if rules.unknown == "oov" else 0
    own_missing, own_rare = rules.missing == "own_row", rules.rare == "own_row"
    assert found.first == oov + own_missing + own_rare
    assert found.size == found.first + sum(kind == "own" for kind in kinds.values())
    for value, row in rows.items():
        match kinds[value]:
            case "own":
                assert found.tokens()[row] == value
                assert row >= found.first
            case "missing" if own_missing:
                assert row == oov
            case "rare" if own_rare:
                assert row == oov + own_missing
            case _ if oov:
                assert row == tf.strings.to_hash_bucket_fast(value or "", oov).numpy()
            case _:
                assert row == -1
    expected = Counter(int(row) for row in found.rows(values) if row >= 0)
    assert {row: count for row, count in enumerate(found.frequencies.tolist()) if count} == dict(expected)


@given(values=VALUES, rules=RULES)
def test_it_is_read_as_it_was_written(
    values: list[str], rules: VocabularyRules, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = vocabulary(values, rules)
    stem = tmp_path_factory.getbasetemp() / "special"
    found.write(stem)
    read = Vocabulary.read(stem)
    assert isinstance(read, TokenVocabulary)
    assert (read.tokens(), read.digest, read.size) == (found.tokens(), found.digest, found.size)
    assert read.frequencies.tolist() == found.frequencies.tolist()
    assert (read.rare is None) == (found.rare is None)
    asked = [*values, "never", None]
    assert read.rows(asked).tolist() == found.rows(asked).tolist()
    assert [read.tokens(row, row + 1) for row in range(read.size)] == [[token] for token in found.tokens()]


def test_oov_rows_are_those_of_tensorflow() -> None:
    """TensorFlow puts its OOV buckets behind the tokens; here they are in front."""
    values = ["a"] * 3 + ["b"] * 2 + ["c"]
    found = vocabulary(values, VocabularyRules(min_frequency=2, oov_buckets=5))
    known = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64))
    peer = tf.lookup.StaticVocabularyTable(known, num_oov_buckets=5)
    asked = ["a", "b", "c", "d", "some other token", "ü"]
    theirs = peer.lookup(tf.constant(asked)).numpy()
    np.testing.assert_array_equal(found.rows(asked), np.where(theirs < 2, theirs + 5, theirs - 2))


def test_the_file_tells_rare_tokens(tmp_path: Path) -> None:
    values = ["a"] * 3 + ["b"] * 2 + ["", "c", "d"]
    rules = VocabularyRules(min_frequency=2, missing="own_row", rare="own_row")  # type: ignore[arg-type]
    path = vocabulary(values, rules).write(tmp_path / "item")
    assert path.read_text() == (
        "token\tfrequency\tkind\n<oov>\t0\toov\n<missing>\t1\tmissing\n<rare>\t2\trare\na\t3\ttoken\nb\t2\ttoken\n"
        "c\t0\trare_token\nd\t0\trare_token\n"
    )
    path.write_text(path.read_text().replace("rare_token", "rarer"))
    with pytest.raises(DataError, match="line 7: found kind 'rarer', expected 'token'"):
        Vocabulary.read(tmp_path / "item")


def test_the_defaults_are_those_of_before(tmp_path: Path) -> None:
    found = vocabulary(["a", "a", "b", ""], VocabularyRules(min_frequency=2))
    assert found.rows(["a", "b", "", None, "x"]).tolist() == [1, 0, 0, 0, 0]
    assert found.write(tmp_path / "item").read_text() == "token\tfrequency\tkind\n<oov>\t2\toov\na\t2\ttoken\n"
    # The digest that the cache and predictions know it by.
    assert found.digest == "bd239de2d27195c7666f0a8a0ddbe85e9bed79708d9983d75c5dcdd0a5b58829"


def test_rows_that_mean_the_same() -> None:
    values = ["a", "a", "b", ""]
    plain = vocabulary(values, VocabularyRules(min_frequency=2))
    apart = vocabulary(values, VocabularyRules(min_frequency=2, missing="own_row", rare="own_row"))  # type: ignore[arg-type]
    several = vocabulary(values, VocabularyRules(min_frequency=2, rare="own_row", oov_buckets=3))  # type: ignore[arg-type]

    def pairs(a: Vocabulary, b: Vocabulary) -> list[tuple[int, int]]:
        mine, theirs = same_rows(a, b)
        return list(zip(mine.tolist(), theirs.tolist(), strict=True))

    assert pairs(plain, apart) == [(0, 0)]
    assert pairs(apart, apart) == [(0, 0), (1, 1), (2, 2)]
    assert pairs(apart, several) == [(2, 3)]
    assert pairs(plain, several) == []
