"""Rows for tokens that a file lacks, made of rows that it has: held against loops over plain dicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.pretrained import Match
from embexp.vectors.alignment import RowTokens, by_token
from embexp.vectors.initial_rows import Means, Sources, like_the_file, ngrams, of_neighbours, of_subwords, parts
from tests.vectors.in_memory import Memory, Numbered


def words(*tokens: str) -> pa.LargeStringArray:
    return pa.array(tokens, pa.large_string())


def listed(found: Sources) -> dict[int, list[int]]:
    bounds = zip(found.starts[:-1], found.starts[1:], strict=True)
    return {int(row): found.file_rows[a:b].tolist() for row, (a, b) in zip(found.rows, bounds, strict=True)}


def test_parts_stand_between_white_space_and_underscores() -> None:
    assert parts("New York_New  City") == ["New", "York", "City"]
    assert parts("York") == parts(" York_") == parts("_") == []


def test_ngrams_are_those_of_fasttext() -> None:
    """The example of Bojanowski et al. (2017), section 3.2, for n = 3, without the special sequence."""
    assert [each for each in ngrams("where") if len(each) == 3] == ["<wh", "whe", "her", "ere", "re>"]
    assert "<where" in ngrams("where")
    assert "where" not in ngrams("where")
    assert ngrams("a") == []


FILE = words("new", "york", "ball", "her", "<wh", "New")


def test_parts_come_before_ngrams_and_the_rest_has_none() -> None:
    tokens = RowTokens(words("new_york", "york", "basketball", "where", "xyz", "new_paris", "qq_whe"), 1)
    aligned = by_token(tokens, FILE, Match.EXACT, rows=9)
    found = listed(of_subwords(aligned, tokens, FILE, Match.EXACT))
    assert found == {1: [0, 1], 3: [2], 4: [4, 3], 6: [0]}


def test_parts_are_matched_as_tokens_are() -> None:
    tokens = RowTokens(words("NEW_BALL", "New_York"))
    aligned = by_token(tokens, FILE, Match.LOWER, rows=2)
    assert listed(of_subwords(aligned, tokens, FILE, Match.LOWER)) == {0: [0, 2], 1: [5, 1]}


def test_related_tokens_that_the_file_has(tmp_path: Path) -> None:
    (tmp_path / "related.tsv").write_text("lost\tyork\nlost\tball\nlost\tgone\nlost\tyork\nyork\tnew\nalone\tgone\n\n")
    tokens = RowTokens(words("york", "lost", "alone", "unnamed"), 1)
    aligned = by_token(tokens, FILE, Match.EXACT, rows=5)
    assert listed(of_neighbours(aligned, tokens, FILE, Match.EXACT, tmp_path / "related.tsv")) == {2: [1, 2]}


@pytest.mark.parametrize(
    ("line", "words_of"), [(b"a b", "found 1 columns"), (b"a\tb\tc", "3 col"), (b"\xff\ta", "UTF-8")]
)
def test_a_line_of_another_form_is_named(line: bytes, words_of: str, tmp_path: Path) -> None:
    (tmp_path / "related.tsv").write_bytes(b"a\tb\n" + line)
    tokens = RowTokens(words("a"))
    aligned = by_token(tokens, FILE, Match.EXACT, rows=1)
    with pytest.raises(DataError, match=f"related.tsv, line 2: .*{words_of}"):
        of_neighbours(aligned, tokens, FILE, Match.EXACT, tmp_path / "related.tsv")


class Doubled:
    dim = 3

    def apply(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return rows * 2 + numbers[:, None].astype(np.float32)


@given(data=st.data())
def test_means_are_of_transformed_rows_however_ranges_are_cut(data: st.DataObject) -> None:
    matrix = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    rows = sorted(data.draw(st.sets(st.integers(0, 29), max_size=12)))
    of = [data.draw(st.lists(st.integers(0, 19), min_size=1, max_size=4, unique=True)) for _ in rows]
    starts = np.cumsum([0, *map(len, of)])
    sources = Sources(np.array(rows, np.int64), starts, np.array([row for each in of for row in each], np.int64))
    transform = data.draw(st.sampled_from([None, Doubled()]))

    class Thirty(Numbered):
        rows = 30

    found = Means(Thirty(3), Memory(matrix), sources, transform)
    expected = Numbered(3).read(0, 30)
    exact = matrix if transform is None else transform.apply(matrix, np.arange(20))
    for row, each in zip(rows, of, strict=True):
        expected[row] = exact[each].astype(np.float64).mean(0)
    low, high = sorted((data.draw(st.integers(0, 30)), data.draw(st.integers(0, 30))))
    np.testing.assert_array_equal(found.read(low, high), expected[low:high])
    assert (found.rows, found.dim) == (30, 3)


def test_sampled_rows_have_the_mean_and_covariance_of_the_file() -> None:
    random = np.random.default_rng(0)
    matrix = (random.normal(size=(500, 3)) @ random.normal(size=(3, 3)) + [1, 2, 3]).astype(np.float32)
    count = 200_000

    class Noise:
        rows, dim = count, 3

        def read(self, start: int, stop: int) -> np.ndarray:
            return np.random.default_rng(1).normal(size=(count, 3)).astype(np.float32)[start:stop]

    rows = like_the_file(Noise(), Memory(matrix), None, covariance=True)
    found, exact = rows.read(0, count).astype(np.float64), matrix.astype(np.float64)
    spread = np.cov(exact, rowvar=False, ddof=0)
    np.testing.assert_allclose(found.mean(0), exact.mean(0), atol=5 * np.sqrt(spread.max() / count))
    np.testing.assert_allclose(np.cov(found, rowvar=False), spread, atol=5 * spread.max() * np.sqrt(2 / count))
    np.testing.assert_array_equal(rows.read(7, 9), rows.read(0, 100)[7:9])
