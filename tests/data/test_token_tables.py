"""Vocabularies: order, unknown values, and the files that they are written to."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies.token_rows import from_counts
from embexp.data.vocabularies.vocabulary import (
    IdentityVocabulary,
    TokenVocabulary,
    Vocabulary,
    token_lines,
    unescaped,
    write_tokens,
)
from embexp.errors import DataError, VocabularyError
from embexp.specs.vocabularies import VocabularyRules

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
awkward = texts | st.sampled_from(
    ["\\", "\\t", "\t", "\n", "\r", "\r\n", "\\\\n", "<oov>", "token", '"', '"a', " a ", "NULL", "nan", "\x00",
     "\ufeff", "\u2028", "\x85", "é", "e\u0301", "𝒳", "﹏", "oov"]
)  # fmt: skip


def of(counted: dict[str, int], **rules: object) -> TokenVocabulary:
    tokens = pa.array(list(counted), pa.large_string())
    return from_counts(tokens, np.array(list(counted.values()), np.int64), VocabularyRules(**rules))[0]


@given(
    counted=st.dictionaries(awkward, st.integers(0, 5), max_size=30),
    unknown=st.sampled_from(["oov", "error"]),
    min_frequency=st.integers(1, 3),
    max_size=st.none() | st.integers(1, 10),
)
def test_order_is_oov_then_frequency_then_code_point(
    counted: dict[str, int], unknown: str, min_frequency: int, max_size: int | None
) -> None:
    vocabulary = of({"": 3, **counted}, unknown=unknown, min_frequency=min_frequency, max_size=max_size)
    kept = sorted((t for t, n in counted.items() if n >= min_frequency), key=lambda t: (-counted[t], t))[:max_size]
    oov = unknown == "oov"
    assert vocabulary.tokens() == ["<oov>"] * oov + kept
    assert vocabulary.size == len(kept) + oov
    frequencies = [counted[token] for token in kept]
    rest = 3 + sum(counted.values()) - sum(frequencies)
    assert vocabulary.frequencies.tolist() == [rest] * oov + frequencies
    place = {token: row for row, token in enumerate(kept, start=oov)}
    asked = [*counted, "", None, "never seen"]
    expected = [place.get(token or "", 0 if oov else -1) for token in asked]
    assert vocabulary.rows(asked).tolist() == expected
    assert vocabulary.rows(pa.array(asked, pa.large_string())).tolist() == expected


@given(counted=st.dictionaries(awkward, st.integers(1, 5), max_size=30), unknown=st.sampled_from(["oov", "error"]))
def test_what_is_written_is_read_again(
    counted: dict[str, int], unknown: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stem = tmp_path_factory.mktemp("vocabulary") / "item.id"
    vocabulary = of(counted, unknown=unknown)
    path = vocabulary.write(stem)
    again = Vocabulary.read(stem)
    assert path == stem.parent / "item.id.tsv"
    assert again.tokens() == vocabulary.tokens()
    assert again.oov == vocabulary.oov
    assert again.frequencies.tolist() == vocabulary.frequencies.tolist()  # type: ignore[attr-defined]
    assert again.digest == vocabulary.digest
    assert again.rows(list(counted)).tolist() == vocabulary.rows(list(counted)).tolist()
    # Anyone can read the file: lines end in \n, three fields to a line, one escape for each awkward character.
    lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    assert lines[0] == "token\tfrequency\tkind"
    assert len(lines) == 1 + vocabulary.size
    plain = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
    for line, token in zip(lines[1:], vocabulary.tokens(), strict=True):
        escaped, _, kind = line.split("\t")
        assert kind in ("token", "oov")
        read, place = "", 0
        while place < len(escaped):
            width = 2 if escaped[place] == "\\" else 1
            piece = escaped[place : place + width]
            read, place = read + plain.get(piece, piece), place + width
        assert read == token


def test_the_file_looks_like_this(tmp_path: Path) -> None:
    of({"b": 2, "a": 2, "c\td": 5, "rare": 1}, min_frequency=2).write(tmp_path / "t")
    assert (tmp_path / "t.tsv").read_text() == (
        "token\tfrequency\tkind\n<oov>\t1\toov\nc\\td\t5\ttoken\na\t2\ttoken\nb\t2\ttoken\n"
    )


def test_a_token_that_looks_like_the_oov_row_is_told_apart(tmp_path: Path) -> None:
    of({"<oov>": 3, "a": 1}).write(tmp_path / "t")
    again = Vocabulary.read(tmp_path / "t")
    assert again.rows(["<oov>", "a", "b"]).tolist() == [1, 2, 0]


def test_without_oov_an_unknown_value_is_named() -> None:
    vocabulary = of({"a": 1, "b": 2}, unknown="error")
    with pytest.raises(VocabularyError, match=r"'x' is not in the vocabulary of 2 rows \(unknown values in all: 2\)"):
        vocabulary.lookup(["a", "x", "y"])
    with pytest.raises(VocabularyError, match="None is not in the vocabulary"):
        vocabulary.lookup(pa.array(["a", None]))


def test_parts_of_the_tokens() -> None:
    vocabulary = of({"a": 3, "b": 2, "c": 1})
    whole = ["<oov>", "a", "b", "c"]
    for start in range(5):
        for stop in range(start, 6):
            assert vocabulary.tokens(start, stop) == whole[start:stop]
            assert IdentityVocabulary(4).tokens(start, stop) == ["0", "1", "2", "3"][start:stop]


def test_many_tokens_span_the_pieces_of_reading_and_writing(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    counted = dict(collections.Counter(map(str, random.integers(0, 150_000, 400_000))))
    vocabulary = of(counted)
    vocabulary.write(tmp_path / "t")
    again = Vocabulary.read(tmp_path / "t")
    expected = sorted(counted, key=lambda token: (-counted[token], token))
    assert again.tokens()[1:] == expected
    np.testing.assert_array_equal(again.rows(expected), np.arange(1, len(expected) + 1))


def test_digests_tell_what_rows_stand_for() -> None:
    same = of({"a": 3, "b": 2}), of({"a": 9, "b": 1})
    assert same[0].digest == same[1].digest
    others = [of({"b": 3, "a": 2}), of({"a": 3, "b": 2}, unknown="error"), of({"a": 3}), of({"a,b": 1})]
    others += [IdentityVocabulary(2), IdentityVocabulary(3)]  # type: ignore[list-item]
    assert len({each.digest for each in [same[0], *others]}) == len(others) + 1


class TestIdentity:
    def test_ids_are_rows(self) -> None:
        vocabulary = IdentityVocabulary(12)
        assert vocabulary.rows(["0", "11", "7"]).tolist() == [0, 11, 7]
        assert vocabulary.rows(["12", "-1", "01", "1.0", "", None, "x", "١"]).tolist() == [-1] * 8
        assert not vocabulary.oov

    def test_it_is_written_as_json(self, tmp_path: Path) -> None:
        assert IdentityVocabulary(12).write(tmp_path / "user.id") == tmp_path / "user.id.json"
        assert (tmp_path / "user.id.json").read_text() == '{"kind": "identity", "size": 12}\n'
        assert Vocabulary.read(tmp_path / "user.id") == IdentityVocabulary(12)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("t.tsv", "word\tcount\n", r"t.tsv, line 1: found 'word\\tcount', expected 'token\\tfrequency\\tkind'"),
        (
            "t.tsv",
            "token\tfrequency\tkind\na\t1\ttoken\nb\t1\tpad\n",
            "t.tsv, line 3: found kind 'pad', expected 'token'",
        ),
        ("t.tsv", "token\tfrequency\tkind\na\tx\ttoken\n", "t.tsv is not a vocabulary: .*'x'"),
        ("t.tsv", "token\tfrequency\tkind\na\t1\n", "t.tsv is not a vocabulary: .*Expected 3 columns, got 2"),
        ("t.json", '{"kind": "token"}', "t.json is not a vocabulary"),
        ("t.json", "[]", "t.json is not a vocabulary"),
        ("t.json", "{", "t.json is not a vocabulary"),
        ("u.json", "{}", "there is no vocabulary .*t.tsv, nor t.json next to it"),
    ],
)
def test_what_is_no_vocabulary_is_an_error(tmp_path: Path, name: str, content: str, text: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=text):
        Vocabulary.read(tmp_path / "t")


@given(tokens=st.lists(awkward, max_size=20))
def test_tokens_in_a_file_for_a_graph_are_read_again(
    tokens: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    written, file = [*tokens, "line\nend"], tmp_path_factory.mktemp("assets") / "tokens.txt"
    write_tokens(file, pa.array(written, pa.large_string()))
    assert unescaped(token_lines(file)).to_pylist() == written


def test_what_is_no_escape_stays_as_it_is() -> None:
    assert unescaped(pa.array(["\\q", "\\"], pa.large_string())).to_pylist() == ["\\q", "\\"]
