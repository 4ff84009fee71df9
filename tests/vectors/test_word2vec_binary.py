"""word2vec's binary form, against files written by plain Python."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.pretrained import HeaderCount, InvalidText, NonFinite
from embexp.vectors import word_vectors
from embexp.vectors.file_source import open_vectors


def written(tokens: list[bytes], values: list[list[float]], *, end: bytes = b"\n", rows: int | None = None) -> bytes:
    """What word2vec.c writes: `%s ` of the token, each number with fwrite, a line end."""
    data = b"%d %d\n" % (len(tokens) if rows is None else rows, len(values[0]))
    for token, row in zip(tokens, values, strict=True):
        data += token + b" " + b"".join(struct.pack("<f", number) for number in row) + end
    return data


def opened(folder: Path, data: bytes, name: str = "v.bin", **options):
    path = folder / name
    path.write_bytes(data)
    return open_vectors(path, cache=folder / "cache", **options)


TOKENS, VALUES = [b"the", "caf\u00e9".encode(), b"x"], [[1.0, -0.5], [2.0, 1e-30], [0.0, 3.5]]


@pytest.mark.parametrize("end", [b"\n", b""], ids=["line ends", "none"])
@pytest.mark.parametrize("block", [1, 8 << 20])
def test_reads(end: bytes, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "_BINARY_BLOCK_BYTES", block)
    for name, data in (("v.bin", written(TOKENS, VALUES, end=end)),):
        for source in (opened(tmp_path, data, name), opened(tmp_path, gzip.compress(data), f"{name}.gz")):
            assert source.tokens.to_pylist() == ["the", "café", "x"]
            np.testing.assert_array_equal(source.memory_map(), np.array(VALUES, np.float32))


@given(
    tokens=st.lists(st.text(st.characters(codec="utf-8", exclude_characters=" \n"), min_size=1), min_size=1, max_size=9,
                    unique=True),
    dim=st.integers(1, 4),
    end=st.sampled_from([b"\n", b""]),
    data=st.data(),
)  # fmt: skip
def test_round_trip(tokens, dim, end, data, tmp_path_factory) -> None:
    row = st.lists(st.floats(width=32), min_size=dim, max_size=dim)
    values = data.draw(st.lists(row, min_size=len(tokens), max_size=len(tokens)))
    file = written([token.encode() for token in tokens], values, end=end)
    source = opened(tmp_path_factory.mktemp("binary"), file, non_finite=NonFinite.KEEP)
    assert source.tokens.to_pylist() == tokens
    np.testing.assert_array_equal(source.read(0, source.rows), np.array(values, np.float32))


WHOLE = written(TOKENS, VALUES)
WRONG = {
    "cut within numbers": (WHOLE[:-4], r"v.bin: found the end of the file within row 3, expected 3 rows of 2 numbers"),
    "cut within a token": (WHOLE[:18], r"found the end of the file within row 2, expected 3 rows .* cut short"),
    "cut between rows": (WHOLE[:-11], r"found the end of the file after 2 rows, expected 3 rows"),
    "rows left": (written(TOKENS, VALUES, rows=2), r"found more after row 2, expected 2 rows"),
    "no header": (b"the 0.5\n", r"found b'the 0.5' at the start, expected a line with the number of rows"),
    "fastText model": (struct.pack("<i", 793712314) + bytes(40), r"This is a fastText model: use its .vec file"),
    "no space": (b"2 2\n" + bytes(1 << 21), r"found no space within 1,048,576 bytes at row 1"),
    "not UTF-8": (written([b"a", b"\xff"], VALUES[:2]), r"v.bin, row 2: found the token b'\\xff', expected text"),
    "NaN": (written(TOKENS, [[1, 2], [3, float("nan")], [5, 6]]), r"v.bin, row 2: found nan at place 2 of 2"),
    "empty": (b"", r"found b'' at the start"),
    "no rows": (b"0 3\n", r"found no row of vectors"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str, tmp_path: Path) -> None:
    data, said = WRONG[case]
    with pytest.raises(DataError, match=said):
        opened(tmp_path, data)
    assert not list((tmp_path / "cache").glob("vectors-*"))


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_the_header_count_may_be_ignored(rows: int, tmp_path: Path) -> None:
    source = opened(tmp_path, written(TOKENS, VALUES, rows=rows), header_count=HeaderCount.IGNORE)
    assert source.rows == 3
    cut = written(TOKENS, VALUES, rows=rows)[:-3]
    with pytest.raises(DataError, match="within row 3"):
        opened(tmp_path, cut, header_count=HeaderCount.IGNORE)


def test_policies_and_duplicates(tmp_path: Path) -> None:
    data = written([b"a", b"\xff", b"b", b"a"], [[1, 2], [3, 4], [float("inf"), 6], [7, 8]])
    source = opened(tmp_path, data, invalid_text=InvalidText.SKIP, non_finite=NonFinite.ZERO)
    assert source.tokens.to_pylist() == ["a", "b"]
    assert source.read(0, 2).tolist() == [[1, 2], [0, 6]]
    assert sum(source.notes.values()) == 3


@pytest.mark.parametrize("block", [1, 8 << 20])
@pytest.mark.parametrize("end", [b"\n", b""], ids=["line ends", "none"])
@pytest.mark.parametrize("token", ["", " ", "   "])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_rows_of_blank_tokens_are_left_out(
    place: int, token: str, end: bytes, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_vectors, "_BINARY_BLOCK_BYTES", block)
    values = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    tokens = [b"a", b"b", b"c"]
    tokens.insert(place, token.encode())
    source = opened(tmp_path, written(tokens, values.tolist(), end=end))
    assert source.tokens.to_pylist() == ["a", "b", "c"]
    np.testing.assert_array_equal(source.read(0, 3), np.delete(values, place, axis=0))
    assert source.notes == {"rows left out: tokens that are blanks": 1}


def test_an_empty_token_before_numbers_that_begin_with_a_space(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    values.view(np.uint32)[1, 0] = values.view(np.uint32)[1, 0] & 0xFFFFFF00 | 0x20
    source = opened(tmp_path, written([b"a", b"", b"c"], values.tolist(), end=b""))
    assert source.tokens.to_pylist() == ["a", "c"]
    np.testing.assert_array_equal(source.read(0, 2), values[[0, 2]])
