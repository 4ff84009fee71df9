"""Vocabulary to file: held against plain dicts and float64 NumPy."""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.specs.pretrained import Match
from embexp.vectors import initial_rows
from embexp.vectors.alignment import Alignment, RowKind, RowTokens, by_position, by_token, coverage
from embexp.vectors.initial_rows import AlignedRows, like_the_file
from tests.vectors.in_memory import Memory, Numbered


def words(*tokens: str) -> pa.LargeStringArray:
    return pa.array(tokens, pa.large_string())


# Letters of several cases, white space of several kinds, a ligature, letters whose case mapping changes their number.
TOKENS = st.text(alphabet="aAbB ßẞİıſ\u00a0\u2009ﬁfiΣσς\u0301é", max_size=3)


def matched_by_hand(token: str, file_tokens: list[str], how: Match) -> int:
    """The first row that is the same under the strictest comparison under which any is."""
    forms = {
        Match.EXACT: lambda text: text,
        Match.LOWER: lambda text: text.lower(),
        Match.NORMALISED: lambda text: " ".join(unicodedata.normalize("NFKC", text).casefold().split()),
    }
    for step, form in forms.items():
        first: dict[str, int] = {}
        for row, other in enumerate(file_tokens):
            first.setdefault(form(other), row)
        if form(token) in first:
            return first[form(token)]
        if step is how:
            return -1
    raise AssertionError


@given(
    known=st.lists(TOKENS, unique=True, max_size=12),
    file_tokens=st.lists(TOKENS, unique=True, max_size=12),
    how=st.sampled_from(Match),
    first=st.integers(0, 1),
    spare=st.integers(0, 2),
)
def test_alignment_is_that_of_plain_dicts(
    known: list[str], file_tokens: list[str], how: Match, first: int, spare: int
) -> None:
    found = by_token(RowTokens(words(*known), first), words(*file_tokens), how, rows=first + len(known) + spare)
    expected = [matched_by_hand(token, file_tokens, how) for token in known]
    assert found.file_rows.dtype == np.int64
    assert found.kinds.dtype == np.uint8
    assert found.file_rows.tolist() == [-1] * first + expected + [-1] * spare
    kinds = [RowKind.PRETRAINED if row >= 0 else RowKind.MISSING for row in expected]
    assert found.kinds.tolist() == [RowKind.SPECIAL] * first + kinds + [RowKind.SPECIAL] * spare
    assert sum(found.by.values()) == sum(row >= 0 for row in expected)


CASES = {
    "exact wants the same text": (Match.EXACT, ["The"], ["the"], [-1]),
    "lower": (Match.LOWER, ["The", "THE"], ["the"], [0, 0]),
    "lower, an exact one goes before an earlier one": (Match.LOWER, ["US", "us"], ["Us", "us", "US"], [2, 1]),
    "lower, the first of several": (Match.LOWER, ["us"], ["Us", "US"], [0]),
    "lower leaves white space alone": (Match.LOWER, ["New\u00a0York"], ["new york"], [-1]),
    "normalised, white space": (Match.NORMALISED, [" New\u00a0 York\t"], ["new york"], [0]),
    "normalised, composed and decomposed": (Match.NORMALISED, ["cafe\u0301"], ["café"], [0]),
    "normalised, case folding": (Match.NORMALISED, ["STRASSE"], ["straße"], [0]),
    "normalised, a ligature": (Match.NORMALISED, ["ﬁsh"], ["fish"], [0]),
    "normalised, stricter comparisons go first": (Match.NORMALISED, ["Café"], ["cafe\u0301", "CAFÉ"], [1]),
}


@pytest.mark.parametrize(("how", "known", "file_tokens", "expected"), CASES.values(), ids=CASES)
def test_matching(how: Match, known: list[str], file_tokens: list[str], expected: list[int]) -> None:
    found = by_token(RowTokens(words(*known)), words(*file_tokens), how, rows=len(known))
    assert found.file_rows.tolist() == expected


def test_more_tokens_than_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="a table of 2 rows can't hold 3"):
        by_token(RowTokens(words("a", "b"), 1), words("a"), Match.EXACT, rows=2)


@given(st.data())
def test_a_row_is_the_same_however_ranges_are_cut(data: st.DataObject) -> None:
    rows, file_rows, dim = 40, 200, 3
    matrix = np.arange(file_rows * dim, dtype=np.float32).reshape(file_rows, dim)
    taken = data.draw(st.lists(st.integers(-1, file_rows - 1), min_size=rows, max_size=rows))
    source = AlignedRows(
        Memory(matrix, mapped=data.draw(st.booleans())),
        Alignment(np.array(taken, np.int64), np.zeros(rows, np.uint8)),
        Numbered(dim),
    )
    expected = np.array(
        [matrix[row] if row >= 0 else [-1000 - place] * dim for place, row in enumerate(taken)], np.float32
    )
    cuts = sorted({0, rows, *data.draw(st.lists(st.integers(0, rows), max_size=5))})
    parts = [source.read(start, stop) for start, stop in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert source.read(7, 7).shape == (0, dim)


@pytest.mark.parametrize("mapped", [True, False])
def test_pieces_of_a_large_gather_fit_together(mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_rows, "_PIECE_BYTES", 10 * 4 * 4)
    random = np.random.default_rng(0)
    matrix = random.normal(size=(9_000, 4)).astype(np.float32)
    taken = random.integers(-1, 9_000, 20_000)
    source = AlignedRows(Memory(matrix, mapped=mapped), Alignment(taken, np.zeros(20_000, np.uint8)), Numbered(4))
    expected = np.where(taken[:, None] < 0, Numbered(4).read(0, 20_000), matrix[taken])
    np.testing.assert_array_equal(source.read(0, 20_000), expected)
    np.testing.assert_array_equal(source.read(3_001, 12_345), expected[3_001:12_345])


def test_far_rows_are_read_without_what_lies_between() -> None:
    read: list[tuple[int, int]] = []

    class Recorded(Memory):
        def read(self, start: int, stop: int) -> np.ndarray:
            read.append((start, stop))
            return super().read(start, stop)

    source = Recorded(np.zeros((10_000, 2), np.float32), mapped=False)
    AlignedRows(source, Alignment(np.array([9_000, 3, 5, 8_999]), np.zeros(4, np.uint8)), Numbered(2)).read(0, 4)
    assert read == [(3, 6), (8_999, 9_001)]


def test_rows_in_the_order_of_the_file_are_not_copied() -> None:
    matrix = np.arange(40, dtype=np.float32).reshape(10, 4)
    source = AlignedRows(Memory(matrix), by_position(10), Numbered(4))
    assert np.shares_memory(source.read(2, 9), matrix)


def test_a_range_outside_the_table_is_refused() -> None:
    source = AlignedRows(Memory(np.zeros((2, 4), np.float32)), by_position(2), Numbered(4))
    with pytest.raises(ValueError, match=r"rows 0 to 1, asked for \[1, 3\)"):
        source.read(1, 3)


def test_missing_rows_have_the_mean_and_the_deviation_of_the_file() -> None:
    matrix = np.random.default_rng(0).normal([3, -1], [0.5, 2], (5_000, 2)).astype(np.float32)

    class Noise:
        rows, dim = 6, 2

        def read(self, start: int, stop: int) -> np.ndarray:
            return np.array([[1, -1]] * (stop - start), np.float32)

    rows = like_the_file(Noise(), Memory(matrix), None).read(4, 6)
    mean, deviation = matrix.astype(np.float64).mean(0), matrix.astype(np.float64).std(0)
    np.testing.assert_allclose(rows, [mean + [1, -1] * deviation] * 2, rtol=1e-6)
    assert rows.dtype == np.float32


def test_coverage_counts_rows_and_occurrences() -> None:
    tokens = RowTokens(words("a", "b", "c", "d", "e"), 1, np.array([9, 7, 5, 5, 6]))
    found = by_token(tokens, words("A", "c"), Match.LOWER, rows=8)
    assert coverage(found, tokens, shown=2).as_json() == {
        "rows_pretrained": 2,
        "rows_missing": 3,
        "rows_special": 3,
        "matched": {"exact": 1, "lower": 1},
        "occurrences": 32,
        "occurrences_pretrained": 14,
        "commonest_missing": [{"token": "b", "frequency": 7}, {"token": "e", "frequency": 6}],
    }


def test_coverage_without_frequencies_names_tokens_in_their_order() -> None:
    tokens = RowTokens(words("0", "1", "2"))
    found = coverage(by_token(tokens, words("1"), Match.EXACT, rows=3), tokens)
    assert found.commonest_missing == (("0", None), ("2", None))
    assert found.occurrences is None


def test_tokens_as_common_as_each_other_are_named_in_their_order() -> None:
    names = [f"t{number}" for number in range(500)]
    tokens = RowTokens(words(*names), 0, np.arange(500) % 2)
    found = coverage(by_token(tokens, words("other"), Match.EXACT, rows=500), tokens, shown=100)
    assert [name for name, _ in found.commonest_missing] == names[1:201:2]
